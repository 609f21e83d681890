"""Tests of quantities on planted runs with known values, and of expectations that hold, are broken, cut or unknown."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackproof.quantities.answer import Row, answered, measured, rows
from ackproof.quantities.evidence import Evidence
from ackproof.quantities.ledgers import Stamps, Tally, _bucket
from ackproof.quantities.quantity import Answer, Value
from ackproof.quantities.vocabulary import VOCABULARY, markdown, parse_ask
from ackproof.rundir.bounds import WHOLE, Bound, Span, Window
from ackproof.rundir.observed import Sample
from ackproof.rundir.parts import mark_deleted

from .conftest import SECOND, Make, attempt, decided, ended, life, looks, read

DOCS = Path(__file__).parents[3] / "docs" / "quantities.md"
ACKED = [attempt(at, at + 0.005, offset=number) for number, at in enumerate((0, 1, 2, 6, 7, 9))]


def value(evidence: Evidence, text: str, window: Window = WHOLE) -> Value:
    return measured(evidence, parse_ask(text), window)


def answer(evidence: Evidence, text: str, bound: str | int) -> Answer:
    ask = parse_ask(text)
    return answered(evidence, ask, Bound.parse(bound, ask.quantity.unit))


def test_the_documentation_is_that_of_the_vocabulary() -> None:
    assert DOCS.read_text("utf-8") == markdown()


@pytest.mark.parametrize("key", [key for key, one in VOCABULARY.items() if not one.required])
def test_each_name_is_read_back(key: str) -> None:
    assert str(parse_ask(key)) == key


def test_gaps_between_acknowledgements(make: Make) -> None:
    run = make(produced=ACKED, parts=2)
    assert value(run, "longest_gap(produce)") == Value.exactly(4)
    assert value(run, "gaps(produce, above 1500ms)") == Value.exactly(2)
    assert value(run, "gaps(produce, above 2s)") == Value.exactly(1)
    assert value(run, "total_gap(produce, above 1500ms)") == Value.exactly(6)
    assert not value(run, "longest_gap(produce, orders/1)").is_known


def test_nothing_is_measured_of_ledgers_of_which_some_was_deleted(make: Make) -> None:
    run = make(produced=ACKED, parts=2)
    folder = next(run.run.produced.glob("client=*"))
    mark_deleted(folder, min(folder.glob("part-*")))
    gap = value(run, "longest_gap(produce)")
    assert not gap.is_known
    assert "--keep" in gap.why


def test_a_gap_that_the_end_cuts_is_open_and_never_short(make: Make) -> None:
    run = make(produced=[*ACKED, attempt(9.5, outcome=2)], ends_s=30)
    cut = value(run, "longest_gap(produce)")
    assert (cut.low, cut.high) == (pytest.approx(20.995), math.inf)
    assert answer(run, "longest_gap(produce)", "< 6s").broken
    assert answer(run, "longest_gap(produce)", "< 40s").holds is None
    assert "cut a gap on orders/0" in answer(run, "longest_gap(produce)", "< 40s").why
    assert value(run, "gaps(produce, above 25s)") == Value(0, 1, cut.why)
    assert value(run, "gaps(produce, above 15s)") == Value.exactly(1)
    assert value(run, "total_gap(produce, above 15s)") == cut
    assert not value(run, "gaps(produce, above 15s)", Window(Span.AFTER, 1)).is_known


@pytest.mark.parametrize(
    ("library", "error", "waits"),
    [
        ("", -152, False),
        ("librdkafka", -152, False),
        ("ackproof_simulator", -152, False),
        ("java", -1002, False),
        ("java", -152, True),
        ("librdkafka", -1002, True),
        ("command", -152, True),
    ],
)
def test_who_takes_a_record_back_does_not_wait_for_it(
    make: Make, library: str, error: int, waits: bool
) -> None:
    run = make(produced=[*ACKED, attempt(9.5, 9.6, outcome=1, error=error)], ends_s=30, library=library)
    assert (value(run, "longest_gap(produce)") != Value.exactly(4)) is waits


def test_an_error_at_once_makes_no_gap(make: Make) -> None:
    at_once = make(produced=[*ACKED, attempt(9, 9.005, outcome=1, error=7)], ends_s=30)
    assert value(at_once, "longest_gap(produce)") == Value.exactly(4)  # told with the last acknowledgement


@pytest.mark.parametrize("sent_s", [0, 2])
def test_nothing_acknowledged_is_one_gap(make: Make, sent_s: int) -> None:
    cut = value(make(produced=[attempt(sent_s, outcome=2)]), "longest_gap(produce)")
    assert (cut.low, cut.high) == (10 - sent_s, math.inf)


@pytest.mark.parametrize("apart_s", [0.008, 0.01])
def test_gaps_below_10_ms_are_not_told_apart(make: Make, apart_s: float) -> None:
    run = make(produced=[attempt(1, 1.009), attempt(1, 1.009 + apart_s)])
    assert value(run, "longest_gap(produce)") == Value(0, 0.01, "gaps below 0.01 s are not told apart")


def test_who_was_handed_nothing_waits_since_the_first_acknowledgement(make: Make) -> None:
    run = make(produced=[attempt(1, 1.001), attempt(1, 1.004, offset=1)], consumed=[read(2, 0, phase=1)])
    assert not value(run, "longest_gap(read)").is_known  # there is no live reader
    run = make(produced=[attempt(1, 1.001), attempt(1, 1.004, offset=1), attempt(2, 2.1, partition=1)],
               consumed=[read(3, 0) | {"partition": 1}])  # fmt: skip
    assert value(run, "longest_gap(read, orders/0)").low == pytest.approx(8.999)


def test_readers_that_are_behind_at_the_end_have_a_cut_gap(make: Make) -> None:
    some = [read(1, 0), read(4, 2), read(20, 5, phase=1)]
    behind = value(make(produced=ACKED, consumed=some), "longest_gap(read)")
    assert (behind.low, behind.high) == (6, math.inf)
    done = [*some, read(9.5, 5)]
    assert value(make(produced=ACKED, consumed=done), "longest_gap(read)") == Value.exactly(5.5)


def test_within_a_window_are_the_gaps_that_touch_it(make: Make) -> None:
    run = make(produced=ACKED, events=life(7.5, 8, 8.5))
    assert value(run, "longest_gap(produce)", Window(Span.DURING, 1)) == Value.exactly(2)
    assert not value(run, "longest_gap(produce)", Window(Span.DURING, 2)).is_known
    last = make(produced=ACKED, events=life(9, 9.005, 9.5))  # confirmed with the last acknowledgement
    assert value(last, "longest_gap(produce)", Window(Span.DURING, 1)).high == 0.01


@given(st.lists(st.integers(0, 5 * SECOND), min_size=2, max_size=60), st.integers(1, 9))
def test_stamps_know_every_gap_of_more_than_a_bin(times: list[int], size: int) -> None:
    stamps = Stamps()
    for begin in range(0, len(times), size):
        stamps.add(np.array(times[begin : begin + size], np.int64))
    first, last = stamps.bins
    plain = [(one, two) for one, two in pairwise(sorted(times)) if two - one > 10_000_000]
    kept = [
        (int(one), int(two)) for one, two in zip(last[:-1], first[1:], strict=True) if two - one > 10_000_000
    ]
    assert kept == plain


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=80), st.sampled_from([0.5, 0.99, 0.999]))
def test_a_quantile_lies_where_it_is_said(latencies: list[int], share: float) -> None:
    tally = Tally()
    for bucket in _bucket(np.array(latencies, np.int64)).tolist():
        tally.latencies[bucket] += 1
    plain = sorted(latencies)[max(1, math.ceil(share * len(latencies))) - 1]
    low, high = tally.quantile(share) or (math.nan, math.nan)
    assert low <= plain <= high <= low * 1.0005 + 1


def test_times_count_from_between_asked_and_confirmed(make: Make) -> None:
    sent = [attempt(1, 2.15), attempt(2.05, 2.1), attempt(2.3, 5), attempt(2.4, 4.5, outcome=1, error=7)]
    run = make(produced=sent, events=life(2, 2.2, 4))
    first = value(run, "time_to(first ack, fault 1)")
    assert (first.low, first.high) == (pytest.approx(2.8), pytest.approx(3))
    assert value(run, "time_to(first refused, fault 1)").high == pytest.approx(2.5)
    assert value(run, "time_to(first accepted, fault 1)").low == pytest.approx(0.1)
    assert answer(run, "time_to(first ack, fault 1)", "< 3100ms").holds is True
    assert answer(run, "time_to(first ack, fault 1)", "< 2900ms").holds is None
    assert answer(run, "time_to(first ack, fault 1)", "< 2700ms").broken
    refused = [attempt(3, 3.1, outcome=1, error=7), attempt(3, 4, outcome=1, error=7)]
    run = make(produced=refused, events=life(2, 2.2, 4), parts=2)
    assert value(run, "time_to(first refused, fault 1)").high == pytest.approx(1.1)  # it is in the first part
    at_once = make(produced=[attempt(2.2, 2.25), attempt(3, 3.1)], events=life(2, 2.2, 4))
    assert value(at_once, "time_to(first ack, fault 1)").high == pytest.approx(0.25)


def test_a_fault_that_was_not_confirmed_has_no_times(make: Make) -> None:
    run = make(produced=ACKED, events=life(2, None))
    assert answer(run, "time_to(first ack, fault 1)", "< 9s") == Answer(
        "unknown", None, why="fault 1 was not confirmed"
    )


def test_what_never_came_is_open(make: Make) -> None:
    run = make(produced=[attempt(1, 1.1), attempt(3, outcome=2)], events=life(2, 2))
    assert answer(run, "time_to(first ack, fault 1)", "< 7s").broken
    told = answer(run, "time_to(first ack, fault 1)", "< 9s")
    assert told.holds is None
    assert (told.seen, told.why) == (
        "never in 8.000 s",
        "nothing was acknowledged on orders/0 until 10.000 s of the run, the end of the load",
    )


def test_leaders_and_isrs_lie_between_two_looks(make: Make) -> None:
    seen = [
        *looks(0, 2), *looks(2, 3, leader=-1), *looks(3, 5, leader=2, epoch=1, isr=(2, 3)),
        *looks(5, 9, leader=2, epoch=1),
    ]  # fmt: skip
    run = make(samples=seen, events=life(1.95, 2, 4))
    for text, low, high in (
        ("time_to(new leader, fault 1)", 0.9, 1.05),
        ("time_to(isr shrunk, fault 1)", 0.9, 1.05),
        ("time_to(isr full, fault 1)", 2.9, 3.05),
    ):
        found = value(run, text)
        assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high)), text


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ([], "orders/1 was not looked at before the fault"),
        (looks(3, 9, partition=1), "orders/1 was not looked at before the fault"),
        (looks(0, 0.9, partition=1), "orders/1 was not looked at for 1 s before the fault"),
    ],
)
def test_a_partition_of_which_nobody_knows_how_it_was_may_be_the_last(
    make: Make, seen: list[Sample], why: str
) -> None:
    ends = {1: 5, 2: 5, 3: 5}
    known = [
        *looks(0, 2, log_ends=ends),
        *looks(2, 4, leader=2, isr=(2, 3), epoch=1, log_ends={2: 9, 3: 9}),
        *looks(4, 9, leader=2, epoch=1, log_ends={1: 9, 2: 9, 3: 9}),
    ]
    run = make(
        samples=sorted([*known, *seen], key=lambda one: one.t_ns), events=life(1.95, 2, 4), partitions=2
    )
    for what in ("new leader", "isr full", "replicas equal"):
        found = value(run, f"time_to({what}, fault 1)")
        assert (found.high, found.why) == (math.inf, why), what
        assert value(run, f"time_to({what}, fault 1, orders/0)").high < math.inf
        assert value(run, f"time_to({what}, fault 1, orders/1)") == Value.unknown(why)
    shrunk = value(run, "time_to(isr shrunk, fault 1)")
    assert (shrunk.low, shrunk.high) == (0, pytest.approx(0.05))


def test_elections_are_whole_only_with_a_whole_log(make: Make) -> None:
    states = [
        decided(0),
        decided(1, leader=-1, leader_epoch=1, isr=(2,)),
        decided(2, leader=2, leader_epoch=2, isr=(2,)),
        decided(3, leader=3, leader_epoch=3, isr=(3,)),
    ]
    run = make(metadata=ended(list(states)))
    assert value(run, "elections") == Value.exactly(2)
    assert value(run, "elections(unclean)") == Value.exactly(1)
    assert value(make(metadata=states), "elections(unclean)").why == "the metadata log has no end"
    cut = make(metadata=states[:2] + states[3:])
    for text, count in (("elections(unclean)", 0), ("elections(clean)", 0), ("elections", 1)):
        # the leader may have been in the ISR that the record which is missing told of
        seen = value(cut, text)
        assert (seen.low, seen.high) == (count, math.inf), text
    assert answer(cut, "elections(clean)", 0).holds is None


def test_elections_of_kafkas_own_topics_count_where_they_are_asked_for(make: Make) -> None:
    first, second = ({"topic": "__consumer_offsets", "partition_epoch": epoch} for epoch in (0, 1))
    log = [
        decided(0),
        decided(1).model_copy(update=first),
        decided(2, leader=2, leader_epoch=1).model_copy(update=second),
    ]
    run = make(metadata=ended(list(log)))
    assert value(run, "elections") == Value.exactly(0)
    assert value(run, "elections(__consumer_offsets/0)") == Value.exactly(1)
    lone = make(metadata=ended([decided(0).model_copy(update=first)]))
    assert value(lone, "elections").why == "the metadata log says nothing of any partition"


def test_latencies_within_and_without_faults(make: Make) -> None:
    sent = [attempt(1, 1.1), attempt(3, 4), attempt(8, 8.2), attempt(9, 9.1, outcome=1, error=7)]
    run = make(produced=sent, events=life(2, 2, 5))
    assert value(run, "latency(max)", Window(Span.DURING_FAULTS)) == Value.exactly(1)
    assert value(run, "latency(max)", Window(Span.OUTSIDE)).high == pytest.approx(0.2)
    assert value(run, "rate(produce)").low == pytest.approx(0.3)
    assert value(run, "errors(code 7)") == Value.exactly(1)
    assert value(run, "errors", Window(Span.DURING_FAULTS)) == Value.exactly(0)
    assert value(run, "attempts(failed)") == Value.exactly(1)


def test_a_fault_that_is_asked_for_as_the_load_ends_was_not_at_work(make: Make) -> None:
    run = make(produced=ACKED, events=life(10, 10))
    assert value(run, "attempts(acked)", Window(Span.DURING_FAULTS)).why == "no fault was at work"
    assert value(run, "attempts(acked)", Window(Span.OUTSIDE)) == Value.exactly(6)


BAD = ("errors", "errors(code 7)", "attempts(failed)", "attempts(indeterminate)")


@pytest.mark.parametrize("text", BAD)
def test_that_nothing_ended_badly_where_nothing_was_sent_is_no_absence(make: Make, text: str) -> None:
    """All producers are blocked during the fault, so no attempt is sent or reported in its window."""
    sent = [attempt(1, 1.1), attempt(1.5, 1.9), attempt(1.9, 5.5), attempt(6, 6.1)]
    run = make(produced=sent, events=life(2, 2, 5))
    found = answer(run, text, "== 0 during fault 1")
    assert (found.seen, found.holds, found.broken) == ("unknown", None, False)
    assert found.why == "nothing was sent then, and nothing told that was sent before"
    assert value(run, text) == Value.exactly(0)
    at_place = parse_ask(text.removesuffix(")") + (", " if "(" in text else "(") + "orders/1)")
    assert measured(run, at_place, WHOLE).why == found.why
    assert not value(make(), text).is_known


def test_that_nothing_was_acknowledged_is_measured_where_nothing_was_sent(make: Make) -> None:
    run = make(produced=[attempt(1, 1.1)], events=life(2, 2, 5))
    for text in ("attempts(acked)", "rate(produce)", "attempts(acked, orders/1)"):
        assert value(run, text, Window(Span.DURING, 1)) == Value.exactly(0), text


@pytest.mark.parametrize("text", BAD)
@pytest.mark.parametrize(
    ("sent_s", "done_s"), [(1, 3), (3, 6), (3, 4), (3, -1)], ids=["told", "sent", "both", "never told"]
)
def test_who_was_sent_or_told_within_a_window_could_have_failed_in_it(
    make: Make, text: str, sent_s: float, done_s: float
) -> None:
    never = done_s < 0
    run = make(produced=[attempt(sent_s, done_s, outcome=2 if never else 0)], events=life(2, 2, 5))
    counted = int(never and text == "attempts(indeterminate)")
    assert value(run, text, Window(Span.DURING, 1)) == Value.exactly(counted)


def test_what_ended_badly_counts_where_nothing_was_sent(make: Make) -> None:
    late = [attempt(1, 3, outcome=1, error=7), attempt(1, 4, outcome=2, error=7)]
    run = make(produced=late, events=life(2, 2, 5))
    for text, count in zip(BAD, (2, 2, 1, 1), strict=True):
        assert value(run, text, Window(Span.DURING, 1)) == Value.exactly(count)


def test_an_empty_run_leaves_everything_unknown_and_nothing_raised(make: Make) -> None:
    told = list(rows(make()))
    assert {
        row.low for row in told if row.quantity not in ("elections", "elections(clean)", "elections(unclean)")
    } <= {
        -math.inf,
        0,
    }
    assert {row.quantity for row in told} > {"lost", "longest_gap(produce)", "latency(p99)"}


def test_a_row_of_each_quantity_partition_and_window(make: Make) -> None:
    seen = [*looks(0, 11, mark=4, log_ends={1: 9, 2: 6}), *looks(0, 11, partition=1, isr=(1, 2))]
    run = make(
        produced=[attempt(1, 1.1), attempt(3, 3.25, partition=1)],
        samples=sorted(seen, key=lambda one: one.t_ns),
        events=life(2, 2, 4),
    )
    told = {(one.quantity, one.partition, one.window): one for one in rows(run)}
    for key, unit, number in (
        (("attempts(acked)", "", ""), "count", 2),
        (("attempts(acked)", "orders/0", "outside faults"), "count", 1),
        (("attempts(acked)", "orders/1", "outside faults"), "count", 0),
        (("attempts(acked)", "orders/1", "during faults"), "count", 1),
        (("latency(max)", "", "during faults"), "s", 0.25),
        (("gaps(produce, above 1s)", "", ""), "count", 0),
        (("time_to(first ack, fault 1)", "orders/1", ""), "s", 1.25),
        (("isr", "orders/1", "during faults"), "number", 2),
        (("uncommitted(node 1)", "orders/0", ""), "number", 5),
        (("uncommitted(node 2)", "", ""), "number", 2),
    ):
        assert told[key] == Row(*key, unit, number, number, ""), key
    assert told["lag", "orders/1", ""] == Row(
        "lag", "orders/1", "", "number", -math.inf, math.inf, "no observation of it"
    )
    assert not {
        ("isr", "", ""), ("time_to(first ack, fault 1)", "", "during faults"), ("elections", "", "outside faults"),
    } & told.keys()  # fmt: skip
    together = list(rows(run, partitions=False))
    assert {one.partition for one in together} == {""}
    assert told["attempts(acked)", "", ""] in together


@pytest.mark.parametrize(
    ("low", "high", "bound", "within", "broken"),
    [
        (7, math.inf, "<= 6", False, True),
        (5, math.inf, "<= 6", None, False),
        (7, math.inf, "> 6", True, False),
        (1, 2, "> 6", False, False),
        (3, 3, "3", True, False),
        (4, math.inf, "3", False, True),
        (1, 2, "3", False, False),
        (2, 4, "3", None, False),
    ],
)
def test_bounds_of_what_is_known_in_part(
    low: float, high: float, bound: str, within: bool | None, broken: bool
) -> None:
    found = Bound.parse(bound)
    assert (found.holds_between(low, high), found.is_exceeded_by(low, high)) == (within, broken)
