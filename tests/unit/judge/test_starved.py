"""Tests of `judge.starved`: the send rate, acknowledgement times and delays by which a machine counts as too busy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ackproof.experiment.client import ClientChoice
from ackproof.judge.facts import Facts
from ackproof.judge.verdict import judge
from ackproof.rundir.observed import Pulse
from ackproof.rundir.timeline import (
    ClientReset,
    Event,
    EventDetail,
    FaultAsked,
    FaultMissed,
    FaultRecovered,
    PhaseBegan,
)
from judged_run import SECOND, said
from run_directory import write_run

RATE = 1000.0
TOO_FEW = "1,000 records a second were asked for, all producers together, and 790 were sent"
SLOW = "half of the acknowledgements took longer than 0.5 s"
SELDOM = "the cluster was looked at 4.0 times a second instead of 10"
TAKEN = "11% of the processors' time went to other machines of the host"
LOAD = ((0, PhaseBegan(phase="load"), None), (20, PhaseBegan(phase="heal"), None))
Told = tuple[float, EventDetail, int | None]
Run = Callable[..., Facts]


def _events(*told: Told) -> tuple[Event, ...]:
    return tuple(
        Event(
            t_ns=round(at * SECOND),
            wall_ns=0,
            kind=what.KIND,
            fault=fault,
            detail=what.model_dump(mode="json"),
        )
        for at, what, fault in sorted(told, key=lambda one: one[0])
    )


@pytest.fixture
def run(facts: Facts) -> Run:
    """Return a function that returns a run of 20 s of load at a requested rate of 1,000 records per second, with a
    fault from 10 s to 11 s.

    `rows`: (second, p50 in ms) of the series. `pulses`: fields that differ in all pulses; `odd`: in single ones, by
    second. `sent`: records sent per second. `told`: events. `producer`: other settings of the producers.
    """

    def made(
        *,
        pulses: dict[str, Any] | None = None,
        odd: dict[int, dict[str, Any]] | None = None,
        rows: Sequence[tuple[float, float]] = ((3, 5.0), (4, 6.0), (5, 7.0)),
        rate: float | None = RATE,
        sent: float = RATE,
        told: Sequence[Told] = ((10, FaultAsked(kind="kill"), 1), (11, FaultRecovered(), 1)),
        **producer: Any,
    ) -> Facts:
        lines = []
        for second in range(24):
            values: dict[str, Any] = {
                "t_ns": second * SECOND, "late_ms": 1.0, "looks": 10, "sent": round(sent * second), "acked": 0,
                "busy": 0.5, "stolen": 0.0, "cpu_pressure": 0.9,
            }  # fmt: skip
            lines.append(Pulse(**(values | (pulses or {}) | (odd or {}).get(second, {}))).model_dump_json())
        facts.run.pulse.write_text("\n".join([*lines, '{"torn']))
        some = {"topic": "orders", "acked": 1}
        write_run(
            facts.run.path,
            series=[some | {"start_ns": round(at * SECOND), "p50_ms": p50} for at, p50 in rows],
        )
        spec = facts.case.experiment
        producers = spec.workload.producers.model_copy(update={"rate": rate, **producer})
        workload = spec.workload.model_copy(update={"producers": producers})
        experiment = spec.model_copy(update={"workload": workload})
        return replace(
            facts,
            case=replace(facts.case, experiment=experiment),
            events=_events(*LOAD, *told),
        )

    return made


def _starved(facts: Facts) -> tuple[str, ...]:
    found = facts.calm
    assert found is not None
    return found.starved


def test_a_run_in_health_is_told_with_its_numbers(run: Run) -> None:
    found = run().calm
    assert found is not None
    assert (found.seconds, found.asked_rate, found.sent_rate, found.median_ms) == (13.0, RATE, RATE, 6.0)
    assert (found.looks_per_s, found.late_ms, found.busy, found.cpu_pressure) == (
        10.0,
        1.0,
        0.5,
        pytest.approx(0.9),
    )
    assert (found.io_pressure, found.starved) == (-1, ())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"sent": 0.79 * RATE}, TOO_FEW, id="rate"),
        pytest.param({"rows": [(3, 400.0), (4, 501.0), (5, 900.0)]}, SLOW, id="slow"),
        pytest.param(
            {"odd": {14: {"late_ms": 2001.0}}}, "the harness itself stood still for 2.0 s", id="late"
        ),
        pytest.param({"pulses": {"looks": 4}}, SELDOM, id="looks"),
        pytest.param({"pulses": {"stolen": 0.11}}, TAKEN, id="stolen"),
    ],
)
def test_beyond_a_bound_it_is_starved(run: Run, changes: dict[str, Any], words: str) -> None:
    assert _starved(run(**changes)) == (words,)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"sent": 0.8 * RATE}, id="rate"),
        pytest.param({"rows": [(3, 400.0), (4, 500.0), (5, 900.0)]}, id="as slow as may be"),
        pytest.param({"rows": [(10.5, 9000.0), (15.9, 9000.0), (4, 5.0)]}, id="slow by the fault"),
        pytest.param({"rows": [(0.9, 9000.0), (21, 9000.0), (4, 5.0)]}, id="slow as it began or ended"),
        pytest.param({"rows": [(3, 9000.0)], "rate": None}, id="slow at full speed"),
        pytest.param({"sent": 1.0, "rate": None}, id="full speed is any"),
        pytest.param({"odd": {14: {"late_ms": 2000.0}}}, id="late"),
        pytest.param(
            {"odd": {21: {"late_ms": 9000.0}, 0: {"late_ms": 9000.0}}}, id="late when there was no load"
        ),
        pytest.param({"pulses": {"looks": 5}}, id="looks"),
        pytest.param(
            {"pulses": {"stolen": 0.099, "cpu_pressure": 1.0, "busy": 1.0}}, id="busy is not starved"
        ),
    ],
)
def test_within_it_is_not(run: Run, changes: dict[str, Any]) -> None:
    assert _starved(run(**changes)) == ()


ROOM = {"busy": 0.79, "cpu_pressure": 0.69, "io_pressure": 0.09, "memory_pressure": 0.09}
IDLE = {**ROOM, "busy": 0.1}
LATE_ACKS = [(3, 400.0), (4, 501.0), (5, 900.0)]


def _exhausted(*seconds: int) -> dict[int, dict[str, Any]]:
    return {second: {"busy": 1.0} for second in seconds}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"rows": LATE_ACKS}, id="late"),
        pytest.param({"rows": LATE_ACKS, "sent": 0.79 * RATE}, id="late, and the producers' queues are full"),
        pytest.param({"rows": [(0.5, 5.0)], "sent": 0.79 * RATE}, id="none at all"),
    ],
)
def test_late_acknowledgements_of_a_machine_that_had_room_are_kafkas(
    run: Run, changes: dict[str, Any]
) -> None:
    assert _starved(run(pulses=ROOM, **changes)) == ()
    for name in ROOM:  # one that was exhausted, or that nobody counted
        assert _starved(run(pulses={**ROOM, name: 0.8}, **changes)) != ()
        assert _starved(run(pulses={**ROOM, name: -1}, **changes)) != ()


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"pulses": IDLE, "odd": _exhausted(3, 4, 5, 6)}, id="exhausted for a third of the time"),
        pytest.param({"pulses": {**ROOM, "late_ms": 20.0}}, id="a limit that /proc/stat does not show"),
        pytest.param({"rate": 10_001.0, "sent": 10_001.0}, id="more records than any machine carries"),
        pytest.param({"value_size": 10_001}, id="more bytes than any machine carries"),
        pytest.param({"client": ClientChoice("command", command=("node",))}, id="a program of the user"),
        pytest.param(
            {"pulses": IDLE, "odd": _exhausted(3, 4), "told": [(7.5, FaultAsked(kind="kill"), 1)]},
            id="exhausted without a fault, and idle during it",
        ),
        pytest.param(
            {"told": [(3.9, FaultAsked(kind="kill"), 1)], "rows": [(1.2, 501.0)]}, id="cold brokers"
        ),
    ],
)
def test_late_acknowledgements_that_others_than_kafka_may_have_made(
    run: Run, changes: dict[str, Any]
) -> None:
    assert SLOW in _starved(run(**{"pulses": ROOM, "rows": LATE_ACKS} | changes))


def test_seconds_with_room_may_have_a_few_without_it_between(run: Run) -> None:
    assert _starved(run(pulses=ROOM, rows=LATE_ACKS, odd=_exhausted(3, 4, 5))) == ()


@pytest.mark.parametrize(
    ("at", "reset", "died"),
    [
        pytest.param(5, ClientReset(reason="fenced"), True, id="a producer"),
        pytest.param(5, ClientReset(position=7, goes_on=9), False, id="a reader"),
        pytest.param(10.5, ClientReset(reason="fenced"), False, id="a producer under a fault"),
    ],
)
def test_what_was_not_sent_while_a_producer_came_back_is_kafkas(
    run: Run, at: float, reset: ClientReset, died: bool
) -> None:
    fault = ((10, FaultAsked(kind="kill"), 1), (11, FaultRecovered(), 1))
    found = _starved(run(pulses=ROOM, sent=0.79 * RATE, told=((at, reset, None), *fault)))
    assert found == (() if died else (TOO_FEW,))


def test_what_was_not_sent_although_acknowledgements_came_in_time_is_not_kafkas(run: Run) -> None:
    assert _starved(run(pulses=ROOM, sent=0.79 * RATE)) == (TOO_FEW,)


def test_where_a_fault_was_always_at_work_only_the_harness_is_asked(run: Run) -> None:
    found = run(told=((0.5, FaultAsked(kind="kill"), 1),), sent=1.0, odd={14: {"late_ms": 3000.0}}).calm
    assert found is not None
    assert (found.seconds, found.sent_rate, found.median_ms) == (0, -1, -1)
    assert found.starved == ("the harness itself stood still for 3.0 s",)


@pytest.mark.parametrize(("asked", "starved"), [(2.9, False), (3.1, True)])
def test_a_second_or_two_of_cold_brokers_is_no_starved_machine(run: Run, asked: float, starved: bool) -> None:
    told = ((asked, FaultAsked(kind="kill"), 1),)
    found = run(told=told, rows=[(1.2, 900.0), (1.5, 900.0)]).calm
    assert found is not None
    assert (found.median_ms, bool(found.starved)) == ((900.0, True) if starved else (-1, False))


def test_faults_that_overlap_and_one_that_missed(run: Run) -> None:
    told = (
        (3, FaultAsked(kind="kill"), 1), (8, FaultRecovered(), 1),
        (4, FaultAsked(kind="kill"), 2), (5, FaultMissed(), 2),
        (16, FaultAsked(kind="kill"), 3),
    )  # fmt: skip
    assert run(told=told).quiet == ((SECOND, 3 * SECOND), (13 * SECOND, 16 * SECOND))


def test_nobody_watched(facts: Facts) -> None:
    assert facts.calm is None


@pytest.mark.parametrize(
    ("dead", "hole"),
    [
        pytest.param(range(4, 9), "from 3.000 s to 9.000 s", id="in the middle"),
        pytest.param(range(6), "from 0.000 s to 6.000 s", id="at the beginning"),
        pytest.param(range(17, 24), "from 16.000 s to 22.000 s", id="at the end"),
        pytest.param(range(4, 8), None, id="for as long as may be"),
    ],
)
def test_a_hole_of_the_sampler_is_a_lack(run: Run, dead: range, hole: str | None) -> None:
    end = (22, PhaseBegan(phase="end"), None)
    made = run(odd={second: {"looks": 0} for second in dead}, told=(end,))
    assert [text for text in said(made) if "nobody looked" in text] == (
        [f"nobody looked at the cluster {hole}: the harness itself stood still"] if hole else []
    )


@pytest.mark.parametrize(("sent", "lacks"), [(100, False), (101, True)])
def test_what_was_handed_over_is_in_the_ledgers(facts: Facts, sent: int, lacks: bool) -> None:
    """The audit of the run counted 100 records, and the last pulse has the number that producers sent."""
    looks = (Pulse(t_ns=t_ns, late_ms=0, looks=1, sent=told, acked=0) for t_ns, told in ((1, 7), (2, sent)))
    facts.run.pulse.write_text("".join(f"{one.model_dump_json()}\n" for one in looks))
    told = "101 records were handed to the producers' libraries, and their ledgers have 100"
    assert (told in judge(facts).reasons) is lacks
