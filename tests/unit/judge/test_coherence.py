"""Tests of coherence of the timeline: each planted contradiction is named with both sides, and gives INCONCLUSIVE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ackproof.judge.facts import Facts
from ackproof.judge.opinion import breaks, lacks
from ackproof.judge.verdict import combined, judge
from ackproof.rundir.documents import Client
from ackproof.rundir.metadata import BrokerRegistered, write_metadata
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.timeline import (
    ClientEnded,
    Event,
    EventDetail,
    EventKind,
    FaultAsked,
    FaultHealed,
    NodeEnded,
    NodeStarted,
    PhaseBegan,
)
from judged_run import SECOND, MakeRun, decided, finding, in_sync, said

Change = Callable[[list[Event]], object]


def event(what: EventDetail, at_s: float, **whom: Any) -> Event:
    at = round(at_s * SECOND)
    return Event(t_ns=at, wall_ns=at, kind=what.KIND, detail=what.detail(), **whom)


def first(events: list[Event], kind: EventKind, **whom: Any) -> int:
    return next(
        at
        for at, one in enumerate(events)
        if one.kind is kind and all(getattr(one, name) == value for name, value in whom.items())
    )


def changed(facts: Facts, change: Change) -> Facts:
    events = list(facts.events)
    change(events)
    return replace(facts, events=tuple(events))


def test_a_coherent_run_has_nothing_against_it(facts: Facts) -> None:
    assert said(facts) == []
    assert judge(facts).verdict is Verdict.PASS


def test_a_contradiction_outweighs_what_proves_itself(make_run: MakeRun) -> None:
    run = make_run(phantom=1, findings=[finding("phantom")])
    facts = Facts.read(run)
    assert judge(facts).verdict is Verdict.FAIL
    twice = changed(facts, lambda events: events.insert(2, event(NodeStarted(pid=1), 0.0, node=1)))
    verdict = judge(twice)
    assert verdict.verdict is Verdict.INCONCLUSIVE
    assert verdict.reasons == (
        "node 1 is started at 0.000 s, and did not end before",
        "forbidden, and not decided for the reasons above: phantom: 1 phantom record. Forbidden: no configuration "
        "permits it",
    )
    assert combined([]) == (Verdict.PASS, ())


def test_a_class_that_proves_itself_hides_no_other() -> None:
    opinions = [breaks("one", proven=True), breaks("another")]
    assert combined(opinions) == (Verdict.FAIL, ("one", "another"))
    missing = "forbidden, and not decided for the reasons above: another"
    assert combined([*opinions, lacks("evidence")]) == (Verdict.FAIL, ("one", "evidence", missing))


def drop(kind: EventKind, **whom: Any) -> Change:
    return lambda events: events.pop(first(events, kind, **whom))


def add(what: EventDetail, at_s: float, before: EventKind = EventKind.END, **whom: Any) -> Change:
    return lambda events: events.insert(first(events, before), event(what, at_s, **whom))


def phase(name: str) -> Callable[[list[Event]], int]:
    return lambda events: next(
        at for at, one in enumerate(events) if isinstance(one.what, PhaseBegan) and one.what.phase == name
    )


def moved(kind: EventKind, to_s: float, **whom: Any) -> Change:
    def change(events: list[Event]) -> None:
        at = first(events, kind, **whom)
        events[at] = events[at].model_copy(update={"t_ns": round(to_s * SECOND)})

    return change


def swap(one: EventKind, other: EventKind) -> Change:
    def change(events: list[Event]) -> None:
        a, b = first(events, one), first(events, other)
        (events[a], events[b]) = (
            events[b].model_copy(update={"t_ns": events[a].t_ns}),
            events[a].model_copy(update={"t_ns": events[b].t_ns}),
        )

    return change


def began(name: str, at_s: float) -> Change:
    return lambda events: events.__setitem__(phase(name)(events), event(PhaseBegan(phase=name), at_s))


def healing_from(begun_s: float) -> Change:
    def change(events: list[Event]) -> None:
        at = first(events, EventKind.FAULT_HEALED)
        events[at] = event(FaultHealed(begun_ns=round(begun_s * SECOND)), 1.2, fault=1)

    return change


COURSE: dict[str, tuple[Change, str]] = {
    "a phase is missing": (
        lambda e: e.pop(phase("heal")(e)),
        "the timeline has the phases start, load, drain",
    ),
    "the last phases are missing": (
        lambda e: [e.pop(phase(name)(e)) for name in ("read", "end")],
        "the timeline has the end of the run, and no phase read, end",
    ),
    "a phase comes twice": (add(PhaseBegan(phase="end"), 1.4), "has the phases start, load, heal"),
    "it goes on after its end": (
        lambda e: e.append(event(ClientEnded(status=0), 2.0, client="p0")),
        "goes on after the end of the run",
    ),
    "time goes back": (
        moved(EventKind.FAULT_HEALED, 0.9),
        "goes back from fault-confirmed at 1.100 s to fault-healed",
    ),
    "a fault nobody has": (
        add(FaultAsked(kind="kill"), 1.35, EventKind.END, fault=7),
        "has fault 7, which",
    ),
    "a drawn one nobody has": (add(FaultAsked(kind="kill"), 1.35, fault=2001), "has fault 2.1, which"),
    "another kind": (
        lambda e: e.__setitem__(
            first(e, EventKind.FAULT_ASKED), event(FaultAsked(kind="pause", nodes=(2,)), 1.0, fault=1)
        ),
        "fault 1 is pause in the timeline and kill in the case",
    ),
    "confirmed twice": (
        lambda e: e.insert(first(e, EventKind.FAULT_HEALED), e[first(e, EventKind.FAULT_CONFIRMED)]),
        "fault 1 has fault-confirmed twice",
    ),
    "asked twice": (
        add(FaultAsked(kind="kill", nodes=(2,)), 1.05, EventKind.FAULT_CONFIRMED, fault=1),
        "fault 1 has fault-asked twice",
    ),
    "healed twice": (
        add(FaultHealed(), 1.25, EventKind.FAULT_RECOVERED, fault=1),
        "fault 1 has fault-healed twice",
    ),
    "healed and never asked": (
        drop(EventKind.FAULT_ASKED),
        "has fault-healed at 1.200 s and no fault-asked before",
    ),
    "never asked": (drop(EventKind.FAULT_ASKED), "has fault-confirmed at 1.100 s and no fault-asked before"),
    "recovered without healing": (
        drop(EventKind.FAULT_HEALED),
        "has fault-recovered at 1.300 s and no fault-healed before",
    ),
    "confirmed after its healing": (
        swap(EventKind.FAULT_CONFIRMED, EventKind.FAULT_HEALED),
        "fault 1 is confirmed at 1.200 s, after it was healed",
    ),
    "healing began before it was confirmed": (
        healing_from(1.05),
        "fault 1 has a healing that began at 1.050 s, and fault-confirmed at 1.100 s, fault-healed at 1.200 s",
    ),
    "healing began after it was done": (
        healing_from(1.25),
        "fault 1 has a healing that began at 1.250 s, and fault-confirmed at 1.100 s, fault-healed at 1.200 s",
    ),
    "healing began before it was asked": (
        lambda e: [drop(EventKind.FAULT_CONFIRMED)(e), healing_from(0.95)(e)],
        "fault 1 has a healing that began at 0.950 s, and fault-asked at 1.000 s, fault-healed at 1.200 s",
    ),
    "healed after the load": (
        began("drain", 1.25),
        "fault 1 has fault-recovered at 1.300 s, after the load had ended",
    ),
    "begun before the load": (
        began("load", 1.05),
        "fault 1 has fault-asked at 1.000 s, before the load began",
    ),
}


@pytest.mark.parametrize("name", COURSE)
def test_the_course_of_a_run(facts: Facts, name: str) -> None:
    change, words = COURSE[name]
    assert any(words in text for text in said(changed(facts, change))), said(changed(facts, change))


def test_a_healing_is_held_against_an_event_before_it_only(facts: Facts) -> None:
    def heal_alone(events: list[Event]) -> None:
        for kind in (EventKind.FAULT_ASKED, EventKind.FAULT_CONFIRMED):
            drop(kind)(events)
        healing_from(0.95)(events)

    found = said(changed(facts, heal_alone))
    assert "fault 1 has fault-healed at 1.200 s and no fault-asked before" in found
    assert not any("has a healing that began" in text for text in found)


@pytest.mark.parametrize("begun_s", [1.1, 1.15, 1.2])
def test_healing_takes_its_time(facts: Facts, begun_s: float) -> None:
    assert said(changed(facts, healing_from(begun_s))) == []


PROCESSES: dict[str, tuple[Change, str]] = {
    "started twice": (
        add(NodeStarted(pid=9), 0.5, EventKind.FAULT_ASKED, node=3),
        "node 3 is started at 0.500 s, and did not end before",
    ),
    "ended twice": (
        add(NodeEnded(pid=2), 1.15, EventKind.FAULT_HEALED, node=2),
        "node 2 ends at 1.150 s, and did not run",
    ),
    "never ended": (
        lambda e: [e.pop(first(e, EventKind.NODE_ENDED)), e.pop(first(e, EventKind.NODE_STARTED, node=2))],
        "fault 1 (kill leader(orders/0)) is confirmed at 1.100 s, and node 2, at which it was aimed, did not end",
    ),
    "another one ended": (
        lambda e: e.__setitem__(first(e, EventKind.NODE_ENDED), event(NodeEnded(pid=3), 1.1, node=3)),
        "and node 2, at which it was aimed, did not end",
    ),
    "ended before it was asked": (moved(EventKind.NODE_ENDED, 0.99), "at which it was aimed, did not end"),
    "a client that was never started": (drop(EventKind.CLIENT_STARTED), "client p0, which was never started"),
}


@pytest.mark.parametrize("name", PROCESSES)
def test_processes(facts: Facts, name: str) -> None:
    change, words = PROCESSES[name]
    assert any(words in text for text in said(changed(facts, change))), said(changed(facts, change))


P0 = Client(id="p0", kind="producer", producer=0)


def test_killed_is_only_who_was_killed(facts: Facts) -> None:
    facts = replace(facts, clients=(P0.model_copy(update={"killed": True}),))
    assert said(facts) == ["case.json says that a fault killed client p0, which the timeline does not know"]
    ended = changed(facts, add(ClientEnded(status=-9), 1.35, client="p0"))
    assert said(ended) == ["case.json says that a fault killed client p0, and no fault was asked to"]


def test_a_final_reader_that_was_killed_read_nothing_to_its_end(facts: Facts) -> None:
    facts = replace(facts, clients=(P0, Client(id="f0", kind="final", reader=0, killed=True)))
    killed = changed(facts, add(ClientEnded(status=-9), 1.35, client="f0"))
    assert "the final reader f0 was killed, and its read calls itself complete" in said(killed)


def test_a_ledger_of_a_stranger(facts: Facts) -> None:
    (facts.run.consumed / "client=r9").mkdir(parents=True)
    assert said(facts) == ["ledger/consumed/client=r9: of a client that case.json does not list"]


def _registered(offset: int, node: int) -> BrokerRegistered:
    return BrokerRegistered(
        offset=offset,
        epoch=1,
        timestamp_ms=0,
        node=node,
        broker_epoch=offset,
        incarnation=f"i{offset}",
        fenced=True,
    )


def test_no_broker_registers_that_was_not_started(facts: Facts) -> None:
    records = [_registered(1, 1), _registered(2, 2), _registered(3, 3), _registered(4, 2), decided(1)]
    write_metadata(facts.run.metadata_log, records)
    assert said(replace(facts)) == []
    write_metadata(facts.run.metadata_log, [*records, _registered(5, 3)])
    assert said(replace(facts)) == [
        "the metadata log has 2 registrations of broker 3, and the timeline 1 starts of it"
    ]


def test_with_zookeeper_a_broker_registers_with_each_of_its_sessions(facts: Facts) -> None:
    write_metadata(facts.run.metadata_log, [_registered(1, 1), _registered(5, 1), decided(1)])
    assert said(replace(facts)) != []
    assert said(_with_zookeeper(facts)) == []


def _with_zookeeper(facts: Facts) -> Facts:
    experiment = facts.case.experiment
    cluster = experiment.cluster.model_copy(update={"mode": "zookeeper"})
    return replace(
        facts, case=replace(facts.case, experiment=experiment.model_copy(update={"cluster": cluster}))
    )


def test_epochs_that_were_seen_are_those_that_were_given(facts: Facts) -> None:
    write_metadata(facts.run.metadata_log, [decided(0), decided(2)])
    assert said(facts) == [
        "orders/0: leader epoch 1 was seen at 1000000.0 s, and the metadata log does not know it",
        "orders/0: the final read was in leader epoch 1, unknown to the metadata log",
    ]


def _led(facts: Facts, *seen: tuple[float, int, int]) -> Facts:
    """Return the run with these samples of orders/0, (time in s, leader, leader epoch) each. Its node 2 ended at 1.1 s,
    and registered again at 1.3 s."""
    samples = [
        replace(in_sync("orders", 0), t_ns=round(at * SECOND), leader=leader, leader_epoch=epoch)
        for at, leader, epoch in seen
    ]
    facts.run.samples.write_text("".join(f"{one.line()}\n" for one in samples))
    return replace(facts)


def _kept(facts: Facts) -> list[str]:
    return [text for text in said(facts) if "leads in that epoch still" in text]


def test_who_ended_does_not_lead_on(facts: Facts) -> None:
    assert _kept(_led(facts, (0.5, 1, 0), (1.0, 2, 1), (9.0, 2, 1))) == [
        "node 2 led orders/0 in leader epoch 1 when it ended at 1.100 s, was registered again at 1.300 s, and leads in "
        "that epoch still"
    ]


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(((1.0, 2, 1), (9.0, 2, 2)), id="it leads anew"),
        pytest.param(((1.0, 2, 1), (9.0, 1, 2)), id="another leads"),
        pytest.param(((1.0, 1, 1), (9.0, 1, 1)), id="it did not lead"),
        pytest.param(((1.0, 1, 1), (1.2, 2, 2), (9.0, 2, 2)), id="it led later only"),
        pytest.param(((1.0, 2, 1), (1.25, 2, 1)), id="nobody looked since"),
    ],
)
def test_who_leads_otherwise_may(facts: Facts, seen: tuple[tuple[float, int, int], ...]) -> None:
    assert _kept(_led(facts, *seen)) == []


def test_with_zookeeper_the_controller_may_come_up_later(facts: Facts) -> None:
    assert _kept(_with_zookeeper(_led(facts, (1.0, 2, 1), (9.0, 2, 1)))) == []
