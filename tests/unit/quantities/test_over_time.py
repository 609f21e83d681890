"""Tests of expectations on states over planted samples: each mode, holes, and the text of the answer."""

from __future__ import annotations

import pytest

from ackproof.quantities.answer import answered
from ackproof.quantities.evidence import Evidence
from ackproof.quantities.quantity import Answer
from ackproof.quantities.vocabulary import parse_ask
from ackproof.rundir.bounds import Bound, Unit

from .conftest import Make, decided, ended, life, look, looks


def answer(evidence: Evidence, text: str, bound: str | int) -> Answer:
    ask = parse_ask(text)
    return answered(evidence, ask, Bound.parse(bound, ask.quantity.unit))


def test_an_absence_holds_only_without_a_hole(make: Make) -> None:
    assert answer(make(samples=looks(0, 11)), "isr", "never < 2").holds is True
    holed = make(samples=[*looks(0, 4), *looks(6, 11)])
    assert (
        answer(holed, "isr", "never < 2").why == "isr(orders/0): no observation of it from 3.900 s to 6.000 s"
    )
    assert answer(holed, "isr(orders/0)", "always >= 2").holds is None
    around = make(samples=[*looks(0, 4), *looks(5.5, 11)], events=life(4.9, 5, 9))
    assert answer(around, "isr", "always >= 2 during fault 1").why.endswith("from 3.900 s to 5.500 s")
    whole = make(samples=[*looks(0, 4), *looks(6, 11)], metadata=ended([decided(0)]))
    assert answer(whole, "isr(orders/0)", "never < 2").holds is True
    flicker = make(samples=looks(0, 11), metadata=ended([decided(0), decided(1, isr=(1,)), decided(2)]))
    assert answer(flicker, "isr(orders/0)", "never < 2").broken
    unsaid = make(samples=looks(0, 11), metadata=ended([decided(0)]))
    assert answer(unsaid, "lag", "never > 10").holds is None, "nobody told the high watermark"


@pytest.mark.parametrize("bound", ["never < 2", "always >= 2", "eventually == 3", "never < 2 during fault 1"])
def test_a_partition_that_nobody_looked_at_is_not_as_the_others(make: Make, bound: str) -> None:
    seen, faults = looks(0, 11), life(3.95, 4, 9)
    assert answer(make(samples=seen, events=faults, partitions=1), "isr", bound).holds is True
    half = make(samples=seen, events=faults, partitions=2)
    assert answer(half, "isr", bound).holds is None
    assert answer(half, "isr", bound).why.startswith("isr(orders/1): ")
    assert answer(half, "isr(orders/0)", bound).holds is True


def test_a_look_that_breaks_a_state_is_named(make: Make) -> None:
    run = make(samples=[*looks(0, 4), look(4, isr=(1,)), *looks(4.1, 11)], events=life(5, 5, 6))
    assert answer(run, "isr", "always >= 2").seen == "isr(orders/0) was 1 at 4.000 s"
    assert answer(run, "isr", "always >= 2 during fault 1").holds is True
    assert answer(run, "isr", "always >= 2 after fault 1").holds is True
    assert answer(run, "isr", "never == 1 outside faults").broken


def test_eventually_has_a_time_by_which(make: Make) -> None:
    run = make(samples=[*looks(0, 4), *looks(4, 8, isr=(2, 3)), *looks(8, 11)], events=life(3.95, 4, 9))
    assert answer(run, "isr", "eventually == 3 by 5s after fault 1").holds is True
    missed = answer(run, "isr", "eventually == 3 by 3s after fault 1")
    assert (missed.seen, missed.broken) == ("isr(orders/0) was not so since 4.000 s until 7.000 s", True)
    late = answer(run, "isr", "eventually == 1 by 60s after fault 1")
    assert late.holds is None
    assert "the run ended at 10.900 s, before it was so" in late.why
    assert answer(run, "isr", "eventually == 1").holds is None, "the run ended before it was so"
    holed = make(samples=[*looks(0, 4), *looks(4, 5, isr=(2, 3)), *looks(8, 11)], events=life(3.95, 4, 9))
    assert answer(holed, "isr", "eventually == 3 by 3s after fault 1").holds is None


@pytest.mark.parametrize("bound", ["eventually == 3 by 3s", "eventually == 2 by 50ms after fault 1"])
def test_what_nobody_looked_for_in_time_is_not_said_not_to_have_come(make: Make, bound: str) -> None:
    """The first sample of a run may come late, and a short window may have none: the answer is then unknown."""
    run = make(samples=looks(4, 11, isr=(1, 2, 3)), events=life(5.01, 5.02, 9))
    found = answer(run, "isr", bound)
    assert (found.holds, found.why) == (None, "isr(orders/0): no observation of it within that time")


@pytest.mark.parametrize(
    "bound", ["always == 3 during fault 1", "never < 3 after fault 1", "eventually == 2 by 4s after fault 1"]
)
def test_only_the_first_look_of_a_run_may_be_late(make: Make, bound: str) -> None:
    """The first sample may be late while clients start. When a fault begins, samples must be there."""
    run = make(samples=looks(6, 11), events=life(2.9, 3, 9))
    found = answer(run, "isr", bound)
    assert (found.holds, found.why) == (None, "isr(orders/0): no observation of it from 3.000 s to 6.000 s")
    assert answer(make(samples=looks(4, 11)), "isr", "always == 3").holds is True


def test_what_was_seen_in_words(make: Make) -> None:
    assert answer(make(samples=[look(0)], ends_s=1), "isr", "always == 3").seen == "3"
    assert answer(make(samples=looks(0, 11)), "isr", "always == 3").seen == "3"
    shrunk = make(samples=[*looks(0, 4), *looks(4, 11, isr=(1, 2))])
    assert answer(shrunk, "isr", "always >= 2").seen == "2 to 3"
    assert answer(shrunk, "isr", "eventually == 2").seen == "2 at 4.000 s"
    two = make(samples=sorted([*looks(0, 11), *looks(0, 11, partition=1)], key=lambda one: one.t_ns))
    assert answer(two, "isr", "always == 3").seen == "so on all 2 partitions"


def test_eventually_is_not_met_by_what_held_when_its_time_began_and_not_when_it_ended(make: Make) -> None:
    """A replica that leaves the ISR after the confirmation of the fault was still in it when the window began."""
    left = make(samples=[*looks(0, 6), *looks(6, 11, isr=(1, 2))], events=life(3.95, 4, 9))
    found = answer(left, "isr", "eventually == 3 by 5s after fault 1")
    assert (found.holds, found.broken) == (False, True)
    assert (
        found.seen
        == "isr(orders/0) was 3 at 4.000 s, when its time began, and 2 at 9.000 s, when its time was over"
    )
    cut = answer(left, "isr", "eventually == 3 by 60s after fault 1")
    assert cut.holds is None
    assert "3 at 4.000 s" in cut.why
    assert answer(left, "isr", "eventually == 3 by 5s").holds is True, "and it was so when that time was over"
    assert answer(left, "isr", "eventually == 3 by 8s").broken
    assert answer(left, "isr", "eventually == 3").holds is True, "at one moment is all that it asks"
    back = make(samples=[*looks(0, 5), *looks(5, 6, isr=(1, 2)), *looks(6, 11)], events=life(3.95, 4, 9))
    assert answer(back, "isr", "eventually == 3 by 5s after fault 1").holds is True


def test_eventually_is_met_by_what_a_fault_brought_about_before_it_was_confirmed(make: Make) -> None:
    run = make(samples=[*looks(0, 4), *looks(4, 6, isr=(1, 2)), *looks(6, 11)], events=life(3.95, 4.5, 9))
    assert answer(run, "isr", "eventually == 2 by 5s after fault 1").holds is True
    later = make(
        samples=[*looks(0, 3, isr=(1, 2)), *looks(3, 4), *looks(4, 6, isr=(1, 2)), *looks(6, 11)],
        events=life(5, 5, 9),
    )
    assert answer(later, "isr", "eventually == 2 by 3s after fault 1").broken


def test_settles_is_so_until_the_load_ends(make: Make) -> None:
    run = make(samples=[*looks(0, 4), *looks(4, 8, isr=(2, 3)), *looks(8, 11)], events=life(3.95, 4, 9))
    assert (
        answer(run, "isr", "settles == 3 by 5s after fault 1").seen == "3 from 8.000 s until the load ended"
    )
    late = answer(run, "isr", "settles == 3 by 3s after fault 1")
    assert late.broken
    assert late.seen == "isr(orders/0) was 2 at 7.900 s, and so to stay from 8.000 s"
    assert answer(run, "isr", "settles == 3").holds is True
    left = make(samples=[*looks(0, 6), *looks(6, 11, isr=(1, 2))], events=life(3.95, 4, 9))
    gone = answer(left, "isr", "settles == 3 by 2s after fault 1")
    assert gone.broken
    assert gone.seen == "isr(orders/0) was 2 at 9.900 s, when the load ended, and so at 4.000 s"
    assert answer(left, "isr", "settles == 3 by 60s after fault 1").holds is None, "its time was not over"
    assert answer(left, "isr", "settles == 1").seen.endswith("and never so")
    holed = make(samples=[*looks(0, 4), *looks(4, 5, isr=(2, 3)), *looks(8, 11)], events=life(3.95, 4, 9))
    assert answer(holed, "isr", "settles == 3 by 5s after fault 1").holds is None


@pytest.mark.parametrize(
    "text", ["settles == 3 during fault 1", "settles == 3 outside faults", "settles 3 by 2s during faults"]
)
def test_settles_takes_no_window_that_ends_before_the_load(text: str) -> None:
    with pytest.raises(ValueError, match="until the end of the load"):
        Bound.parse(text, Unit.NUMBER)
