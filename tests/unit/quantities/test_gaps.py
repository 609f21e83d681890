"""Tests of gaps without a success, of commits and metadata, inside and outside of faults, and of `replicas equal`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest

from ackproof.experiment.spec import ConsumerSpec
from ackproof.quantities.answer import answered, measured
from ackproof.quantities.evidence import Evidence
from ackproof.quantities.quantity import Value
from ackproof.quantities.vocabulary import parse_ask
from ackproof.rundir.bounds import WHOLE, Bound, Span, Unit, Window
from ackproof.rundir.documents import CaseFile, Client
from ackproof.rundir.observed import BrokerRound, OffsetCommit, PartitionView, ViewerAnswer

from .conftest import SECOND, Make, attempt, life, look, read

OUTSIDE = Window(Span.OUTSIDE)
OFFSETS = (("orders", 0, 7),)


def value(evidence: Evidence, text: str, window: Window = WHOLE) -> Value:
    return measured(evidence, parse_ask(text), window)


def commit(begun_s: float, done_s: float | None, error: str = "") -> list[OffsetCommit]:
    """Return the lines of `commits.jsonl` for one attempt to commit; `done_s` None: it was not answered."""
    begun = OffsetCommit(begun_ns=round(begun_s * SECOND), offsets=OFFSETS)
    if done_s is None:
        return [begun]
    return [begun, begun.model_copy(update={"done_ns": round(done_s * SECOND), "error": error})]


def acks(*each_s: float) -> list[dict[str, Any]]:
    return [attempt(at, at) for at in each_s]


def test_a_gap_that_a_fault_makes_is_outside_of_it_for_the_moment_before(make: Make) -> None:
    """The gap begins with the last success before the fault, so its part outside faults is short."""
    evidence = make(produced=acks(1, 1.96, 5, 5.2), events=life(2, 2.05, 5.1))
    asked = parse_ask("longest_gap(produce)")
    assert answered(evidence, asked, Bound.parse("< 1s outside faults", Unit.SECONDS)).holds is True
    outside = value(evidence, "longest_gap(produce)", OUTSIDE)
    assert (outside.low, outside.high, outside.why) == (pytest.approx(0.96), pytest.approx(0.96), "")
    for window in (WHOLE, Window(Span.DURING_FAULTS), Window(Span.DURING, 1), Window(Span.AFTER, 1)):
        assert value(evidence, "longest_gap(produce)", window) == Value.exactly(3.04), window


def test_a_gap_around_a_fault_has_two_parts_outside_of_it(make: Make) -> None:
    evidence = make(produced=acks(1, 7), events=life(2, 2.1, 4))
    assert value(evidence, "longest_gap(produce)", OUTSIDE) == Value.exactly(3)
    assert value(evidence, "total_gap(produce, above 500ms)", OUTSIDE) == Value.exactly(4)
    assert value(evidence, "total_gap(produce, above 2s)", OUTSIDE) == Value.exactly(3)
    assert value(evidence, "gaps(produce, above 500ms)", OUTSIDE) == Value.exactly(2)
    assert value(evidence, "gaps(produce, above 1s)", OUTSIDE) == Value.exactly(1)
    within = make(produced=acks(1, 1.5, 2.5, 3.5, 4.5), events=life(2, 2.1, 4))
    assert value(within, "gaps(produce, above 700ms)", OUTSIDE) == Value.exactly(0)


def test_only_the_last_part_of_a_gap_that_was_cut_is_open(make: Make) -> None:
    waiting = attempt(1.5, outcome=2)
    evidence = make(produced=[*acks(1), waiting], events=life(2, 2.1, 7), ends_s=10)
    cut = "the end cut a gap on orders/0 at 3.000 s"
    assert value(evidence, "longest_gap(produce)", OUTSIDE) == Value(3, math.inf, cut)
    assert value(evidence, "gaps(produce, above 500ms)", OUTSIDE) == Value.exactly(2)
    assert value(evidence, "gaps(produce, above 4s)", OUTSIDE) == Value(0, 1, cut)
    at_work = make(produced=[*acks(1), waiting], events=life(2, 2.1), ends_s=10)
    # a fault was at work from then on, to the end
    assert value(at_work, "longest_gap(produce)", OUTSIDE) == Value.exactly(1)
    assert value(at_work, "longest_gap(produce)").high == math.inf


def test_the_end_of_the_load_ends_no_gap(make: Make) -> None:
    evidence = make(produced=acks(1, 8, 13), events=life(2, 2.1, 4), ends_s=10)
    assert value(evidence, "longest_gap(produce)", OUTSIDE) == Value.exactly(5)


def with_reader(evidence: Evidence, lines: Iterable[OffsetCommit], tail: str = "") -> Evidence:
    file = CaseFile.load(evidence.run.case_json)
    file.model_copy(update={"clients": (Client(id="r0", kind="reader", reader=0),)}).save(
        evidence.run.case_json
    )
    path = evidence.run.commits("r0")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{one.model_dump_json()}\n" for one in lines) + tail)
    return Evidence.of_run(evidence.run)


def test_commits_that_are_refused_or_unanswered_make_a_gap(make: Make) -> None:
    told = [*commit(1, 1.1), *commit(2, 2.1), *commit(3, 4, "_TIMED_OUT"), *commit(4, 4.5), *commit(5, 5.1)]
    evidence = with_reader(make(events=life(2.5, 2.6, 4.2)), told)
    assert value(evidence, "longest_gap(commit)") == Value.exactly(2.4)
    assert value(evidence, "gaps(commit, above 700ms)") == Value.exactly(2)
    assert value(evidence, "longest_gap(commit, orders/0)") == Value.exactly(2.4)
    assert value(evidence, "longest_gap(commit)", Window(Span.DURING, 1)) == Value.exactly(2.4)  # whole
    # 1.1 to 2.1, 2.1 to 2.5, 4.2 to 4.5, 4.5 to 5.1
    assert value(evidence, "total_gap(commit, above 200ms)", OUTSIDE).high == pytest.approx(2.3)
    assert value(evidence, "gaps(commit, above 700ms)", OUTSIDE) == Value.exactly(1)
    assert not value(evidence, "longest_gap(commit, orders/1)").is_known


def test_a_commit_that_nobody_answered_is_open_and_never_short(make: Make) -> None:
    evidence = with_reader(make(ends_s=10), [*commit(1, 1.1), *commit(2, None)], tail='{"begun_ns": 3')
    assert value(evidence, "longest_gap(commit)") == Value(
        8.9, math.inf, "the end cut a gap on r0 at 8.900 s"
    )
    assert value(evidence, "gaps(commit, above 60s)") == Value(0, 1, "the end cut a gap on r0 at 8.900 s")
    late = with_reader(make(ends_s=10), [*commit(9, 11), *commit(12, None)])
    assert value(late, "gaps(commit, above 1s)") == Value(1, 2, "the end cut a gap on r0 at 0.000 s")


def test_who_never_commits_is_unknown(make: Make) -> None:
    evidence = make()
    assert not value(evidence, "longest_gap(commit)").is_known
    assert ConsumerSpec().commit_every is None


def rounds(begin_s: float, end_s: float, *viewers: int, leader: int = 1) -> list[BrokerRound]:
    """Return five rounds per second, each done after 10 ms, in which these viewers answer."""
    row = PartitionView(topic="orders", partition=0, leader=leader, leader_epoch=1, replicas=(1,), isr=(1,))
    told = tuple(ViewerAnswer(viewer=viewer, brokers=(1,), partitions=(row,)) for viewer in viewers)
    times = [round((begin_s + number / 5) * SECOND) for number in range(round((end_s - begin_s) * 5))]
    return [BrokerRound(t_ns=at, done_ns=at + 10_000_000, controller=1, told=told) for at in times]


def test_of_rounds_that_nobody_answered_some_are_outside_of_a_fault(make: Make) -> None:
    """No broker answered from 4 s to 5.81 s, and a fault was active until 5 s: 0.81 s of the gap are outside faults."""
    evidence = make(events=life(3.9, 3.95, 5))
    found = [*rounds(0, 4, 1, 2), *rounds(4, 6), *rounds(6, 10, 2)]
    evidence.run.brokers.write_text("".join(f"{one.model_dump_json()}\n" for one in found))
    evidence = Evidence.of_run(evidence.run)
    outside = value(evidence, "longest_gap(metadata)", OUTSIDE)
    assert (outside.low, outside.high) == (pytest.approx(0.81), pytest.approx(1.01))
    assert outside.why == "between two rounds"
    assert value(evidence, "gaps(metadata, above 500ms)", OUTSIDE) == Value.exactly(1)
    assert value(evidence, "longest_gap(metadata)", Window(Span.DURING, 1)).low == pytest.approx(1.81)


@pytest.mark.parametrize("viewers", [(), (0,)], ids=["nobody", "the znodes alone"])
def test_metadata_that_no_broker_gives_make_a_gap(make: Make, viewers: tuple[int, ...]) -> None:
    evidence = make()
    found = [*rounds(0, 4, 1, 2), *rounds(4, 6, *viewers), *rounds(6, 8, 2), *rounds(8, 10, 2, leader=-1)]
    evidence.run.brokers.write_text("".join(f"{one.model_dump_json()}\n" for one in found))
    evidence = Evidence.of_run(evidence.run)
    whole = value(evidence, "longest_gap(metadata)")
    assert (whole.low, whole.high) == (pytest.approx(1.81), pytest.approx(2.21))
    assert value(evidence, "gaps(metadata, above 1s)") == Value.exactly(1)
    assert value(evidence, "gaps(metadata, above 2s)") == Value(0, 1, "between two rounds")
    of_place = value(evidence, "longest_gap(metadata, orders/0)")  # nobody names a leader from 8 s on
    assert of_place.low == pytest.approx(1.81) and of_place.high == math.inf and "on orders/0" in of_place.why


def test_metadata_that_was_asked_for_once(make: Make) -> None:
    """With a single round, the gap may have any length from 0 s to the end of the load."""
    evidence = make()
    evidence.run.brokers.write_text(rounds(4, 4.2, 1)[0].model_dump_json())
    found = value(Evidence.of_run(evidence.run), "longest_gap(metadata)")
    assert found == Value(0, 6, "between two rounds")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("longest_gap(produce)", "nothing was sent"),
        ("longest_gap(produce, orders/1)", "nothing was sent to orders/1"),
        ("longest_gap(read)", "nothing was acknowledged or read"),
        ("longest_gap(read, orders/1)", "nothing was acknowledged or read on orders/1"),
        ("longest_gap(commit)", "no reader committed an offset"),
        ("longest_gap(commit, orders/1)", "no reader committed an offset of orders/1"),
        ("gaps(commit, above 1s)", "no reader committed an offset"),
    ],
)
def test_why_nothing_is_known(make: Make, text: str, why: str) -> None:
    assert value(with_reader(make(), []), text) == Value.unknown(why)


def test_who_reads_nothing_and_what_came_later_is_unknown(make: Make) -> None:
    acked = [attempt(1, 1.1)]
    assert value(make(produced=acked), "longest_gap(read)").why == "there was no live reader"
    later = value(
        make(produced=acked, events=life(0.1, 0.2, 0.5)), "longest_gap(produce)", Window(Span.DURING, 1)
    )
    assert later.why == "nothing was there to be seen within that time"


def test_records_without_offsets_of_which_nobody_saw_how_many(make: Make) -> None:
    evidence = with_reader(make(produced=[attempt(1, 1.1, offset=-1)]), [])
    why = "nobody saw how many records of orders/0 live readers should have been handed"
    assert value(evidence, "longest_gap(read)") == Value(0, math.inf, why)
    before = with_reader(make(produced=[attempt(1, 1.1, offset=-1)], events=life(3.1, 3.2)), [])
    assert value(before, "longest_gap(read)", OUTSIDE) == Value(0, 2, why)
    for mark, expected in ((1, Value(0, 0.01)), (2, Value(8, math.inf))):
        seen = make(
            produced=[attempt(1, 1.1, offset=-1)], consumed=[read(2, 0)], samples=[look(9, mark=mark)]
        )
        found = value(seen, "longest_gap(read)")
        assert (found.low, found.high) == (expected.low, expected.high)


def test_metadata_that_nobody_asked_for_are_unknown(make: Make) -> None:
    assert "observe: {brokers: true}" in value(make(), "longest_gap(metadata)").why


def test_replicas_are_equal_when_each_has_what_the_leader_had_at_the_look_before(make: Make) -> None:
    def at(at_s: float, first: int, third: int | None) -> object:
        ends = {1: first, 2: first} | ({} if third is None else {3: third})
        return look(at_s, log_ends=ends)

    samples = [
        at(1, 10, 9),
        at(2, 20, 11),
        at(3, 30, None),
        at(4, 40, 25),
        at(5, 50, 39),
        at(6, 60, 50),
        at(7, 60, 60),
    ]
    evidence = make(samples=samples, events=life(2.4, 2.5, 3))
    found = value(evidence, "time_to(replicas equal, fault 1)")
    assert (found.low, found.high) == (
        pytest.approx(2.5),
        pytest.approx(3.6),
    )  # 39 < 40 at 5 s, 50 ≥ 50 at 6 s
    open_ = value(make(samples=samples[:5], events=life(2.4, 2.5, 3)), "time_to(replicas equal, fault 1)")
    assert open_.high == math.inf and "were not equal" in open_.why
    never = value(make(samples=samples[5:], events=life(6.4, 6.5, 7)), "time_to(replicas equal, fault 1)")
    assert never.why == "no replica was seen to be behind its leader after the fault"


# -- a truncation between what was acknowledged and what was read -----------------------------------------------------


def _look(at_s: float, end: int, epoch: int) -> Any:
    return look(at_s, epoch=epoch, mark=end, log_ends={1: end})


def _acked(at_s: float, offset: int) -> dict[str, Any]:
    return attempt(at_s, at_s, offset=offset)


def test_an_acknowledged_record_that_was_truncated_is_owed_to_no_reader(make: Make) -> None:
    """Offset 90 was acknowledged in epoch 0, and truncated when epoch 1 began at offset 50."""
    consumed = [read(1, 49), read(3, 60) | {"leader_epoch": 1}]
    samples = [_look(1, 91, 0), _look(4, 61, 1)]
    evidence = make(produced=[_acked(1, 90), _acked(3, 60)], consumed=consumed, samples=samples)
    assert value(evidence, "longest_gap(read)") == Value.exactly(2)


def test_a_record_of_the_newest_epoch_is_not_hidden_by_a_higher_one_of_an_older_epoch(make: Make) -> None:
    """The reader got offset 90 of epoch 0, which was truncated, and lacks offset 70 of epoch 1."""
    consumed = [read(1, 90), read(3, 60) | {"leader_epoch": 1}]
    samples = [_look(1, 91, 0), _look(4, 71, 1)]
    evidence = make(produced=[_acked(1, 90), _acked(4, 70)], consumed=consumed, samples=samples)
    assert value(evidence, "longest_gap(read)") == Value(
        7, math.inf, value(evidence, "longest_gap(read)").why
    )


def test_a_log_that_only_grows_owes_what_was_acknowledged_after_the_last_look(make: Make) -> None:
    samples = [_look(1, 40, 0), _look(2, 61, 0)]
    evidence = make(produced=[_acked(1, 49), _acked(4, 90)], consumed=[read(2, 60)], samples=samples)
    assert math.isinf(value(evidence, "longest_gap(read)").high)
