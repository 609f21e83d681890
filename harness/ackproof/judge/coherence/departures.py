"""How clients ended: what the timeline says, beside what each left and the faults that killed some."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from ackproof.clients.contract import EXIT_CLEAN, EXIT_RESET
from ackproof.experiment.backends import BACKENDS
from ackproof.faults.clients import KillClient
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, contradicts
from ackproof.rundir.documents import Client
from ackproof.rundir.layout import client_folder
from ackproof.rundir.lifelines import KILLED
from ackproof.rundir.parts import has_end
from ackproof.rundir.timeline import (
    ClientDied,
    ClientEnded,
    ClientReset,
    ClientStarted,
    Event,
    EventKind,
    FaultConfirmed,
    fault_name,
    seconds,
)

_GOOD: Final = frozenset({EXIT_CLEAN, EXIT_RESET})
_UNSEEN: Final = frozenset({EventKind.FAULT_FAILED, EventKind.FAULT_MISSED})
_HIT: Final = re.compile(r"\b([pr][0-9]+) \(pid ([0-9]+)\)")


def check(facts: Facts) -> Iterator[Opinion]:
    """Contradictions about the ends of clients."""
    if BACKENDS[facts.backend].simulated or not facts.events or facts.events[-1].kind is not EventKind.END:
        return  # a run of the model has no processes; one that broke off may not have told of all
    told: dict[str, list[Event]] = defaultdict(list)
    for event in facts.events:
        if event.client is not None:
            told[event.client].append(event)
    for client in facts.clients:
        if client.kind != "final":
            yield from map(contradicts, _of_a_client(facts, client, told[client.id]))
    yield from map(contradicts, _killed(facts, told))


def _of_a_client(facts: Facts, client: Client, events: Sequence[Event]) -> Iterator[str]:
    """It started once and ended once; in good order it leaves `_END`, and else it does not."""
    name = f"client {client.id}"
    starts = sum(isinstance(event.what, ClientStarted) for event in events)
    if starts > 1:
        yield f"{name} started {starts} times: who comes back is a new client"
    ends = [event for event in events if isinstance(event.what, ClientEnded | ClientDied)]
    if len(ends) != 1 and starts:
        yield f"{name} ended {len(ends)} times, and the run has its end"
    for event in ends:
        if not isinstance(event.what, ClientEnded):
            continue
        status, when = (
            event.what.status,
            f"ended with status {event.what.status} at {seconds(event.t_ns)}",
        )
        ledger = facts.run.produced if client.kind == "producer" else facts.run.consumed
        closed = has_end(ledger / client_folder(client.id))
        if status not in _GOOD | KILLED:
            yield f"{name} {when}, as it should, and none ends so that was asked to or killed"
        elif status in _GOOD and not closed:
            yield f"{name} {when}, and its ledger does not say that it closed"
        elif status in KILLED and closed and not client.killed:
            yield f"{name} {when}, no fault killed it, and its ledger says that it closed in good order"
        if status == EXIT_RESET and not any(isinstance(one.what, ClientReset) for one in events):
            yield f"{name} {when}, which is after a fatal error, and the timeline tells of none"


def _killed(facts: Facts, told: dict[str, list[Event]]) -> Iterator[str]:
    """Whom a fault names as killed ended then, as the process that was started; and whom it killed it names."""
    named: set[str] = set()
    kills = [fault for fault in facts.case.faults if isinstance(fault, KillClient)]
    for fault in kills:
        mine = {event.kind: event for event in facts.events if event.fault == fault.number}
        confirmed = mine.get(EventKind.FAULT_CONFIRMED)
        if confirmed is None or not isinstance(confirmed.what, FaultConfirmed):
            continue
        name = f"fault {fault_name(fault.number)} ({fault}) is confirmed at {seconds(confirmed.t_ns)}"
        asked = mine.get(EventKind.FAULT_ASKED, confirmed)
        hit = _HIT.findall(confirmed.what.did)
        if not hit:
            yield f"{name}, and does not say whom it killed: {confirmed.what.did or 'nothing'}"
        for client, pid in hit:
            named.add(client)
            started = [event.what.pid for event in told[client] if isinstance(event.what, ClientStarted)]
            ended = [event.t_ns for event in told[client] if isinstance(event.what, ClientEnded | ClientDied)]
            if started != [int(pid)]:
                yield f"{name}, and killed pid {pid} for client {client}, which was started as {started or 'nobody'}"
            if not any(asked.t_ns <= t_ns <= confirmed.t_ns for t_ns in ended):
                yield f"{name}, and client {client}, which it killed, did not end then"
    unseen = {event.fault for event in facts.events if event.kind in _UNSEEN}
    for client in facts.clients if not unseen & {fault.number for fault in kills} else ():
        if client.killed and client.kind != "final" and client.id not in named:
            yield f"case.json says that a fault killed client {client.id}, and no fault says so"
