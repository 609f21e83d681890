"""Times without a success of commits and metadata, and replicas that are equal again: planted."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest

from ackproof.experiment.spec import ConsumerSpec
from ackproof.quantities.answer import measured
from ackproof.quantities.evidence import Evidence
from ackproof.quantities.value import Value
from ackproof.quantities.vocabulary import parse_ask
from ackproof.rundir.bounds import WHOLE, Span, Window
from ackproof.rundir.brokers import PartitionTold, Round, Told
from ackproof.rundir.commits import Commit
from ackproof.rundir.documents import CaseFile, Client

from .conftest import SECOND, Make, attempt, life, look, read

OFFSETS = (("orders", 0, 7),)


def value(evidence: Evidence, text: str, window: Window = WHOLE) -> Value:
    return measured(evidence, parse_ask(text), window)


def commit(begun_s: float, done_s: float | None, error: str = "") -> list[Commit]:
    """The lines of an attempt; None: it was never answered."""
    begun = Commit(begun_ns=round(begun_s * SECOND), offsets=OFFSETS)
    if done_s is None:
        return [begun]
    return [begun, begun.model_copy(update={"done_ns": round(done_s * SECOND), "error": error})]


def with_reader(evidence: Evidence, lines: Iterable[Commit], tail: str = "") -> Evidence:
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
    assert value(evidence, "longest_gap(commit)", Window(Span.OUTSIDE)).high == 2.4  # it touches both, whole
    assert not value(evidence, "longest_gap(commit, orders/1)").known


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
    assert not value(evidence, "longest_gap(commit)").known
    assert ConsumerSpec().commit_every is None


def rounds(begin_s: float, end_s: float, *viewers: int, leader: int = 1) -> list[Round]:
    """Five a second, each done after 10 ms."""
    row = PartitionTold(topic="orders", partition=0, leader=leader, leader_epoch=1, replicas=(1,), isr=(1,))
    told = tuple(Told(viewer=viewer, brokers=(1,), partitions=(row,)) for viewer in viewers)
    times = [round((begin_s + number / 5) * SECOND) for number in range(round((end_s - begin_s) * 5))]
    return [Round(t_ns=at, done_ns=at + 10_000_000, controller=1, told=told) for at in times]


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
    """Nobody knows what was before, and after."""
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
