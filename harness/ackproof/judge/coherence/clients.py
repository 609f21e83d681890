"""Clients: the list in case.json beside the case, their processes, and what the rows of each one's ledger say of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.experiment.backends import BACKENDS
from ackproof.faults.clients import KillClient
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, contradicts
from ackproof.rundir import storage
from ackproof.rundir.documents import Client
from ackproof.rundir.layout import client_folder
from ackproof.rundir.ledger import parts
from ackproof.rundir.lifelines import KILLED
from ackproof.rundir.outcome import ReadPhase
from ackproof.rundir.parts import Footer, column_span
from ackproof.rundir.timeline import ClientDied, ClientEnded, ClientStarted, Event, EventKind, seconds

_SLACK_NS: Final = 1_000_000_000
"""A client's end is seen after it has ended, and what it did last it did before that."""
_Part: TypeAlias = tuple[Path, list[Footer]]
_PHASES: Final = {
    "reader": {int(ReadPhase.LIVE), int(ReadPhase.LIVE_COMMITTED)},
    "final": {int(ReadPhase.FINAL), int(ReadPhase.FINAL_COMMITTED)},
}


def check(facts: Facts) -> Iterator[Opinion]:
    """Contradictions about clients."""
    if not facts.events:
        return  # said by the check of the run's end
    yield from map(contradicts, _listed(facts))
    if not BACKENDS[facts.backend].simulated:  # a run of the model has no processes
        yield from map(contradicts, _processes(facts))
    for client in facts.clients:
        yield from map(contradicts, _rows(facts, client))


def _listed(facts: Facts) -> Iterator[str]:
    """The list beside the case, the timeline and the folders of the ledgers."""
    ids = Counter(client.id for client in facts.clients)
    for name, count in ids.items():
        if count > 1:
            yield f"case.json lists client {name} {count} times"
    for name in sorted({event.client for event in facts.events if event.client is not None} - ids.keys()):
        yield f"the timeline tells of client {name}, which case.json does not list"
    workload, kinds = facts.case.experiment.workload, Counter[str](client.kind for client in facts.clients)
    for kind, wanted in (("producer", workload.producers.count), ("reader", workload.consumers.live)):
        if kinds[kind] < wanted and facts.events[-1].kind is EventKind.END:
            yield f"case.json lists {kinds[kind]} clients of kind {kind}, and the case has {wanted}"
    for client in facts.clients:
        if client.kind == "reader" and client.isolation not in (None, workload.consumers.isolation):
            yield f"client {client.id} read at {client.isolation}, and the case says {workload.consumers.isolation}"
    listed = {client_folder(name) for name in ids}
    for ledger in (facts.run.produced, facts.run.consumed, facts.run.transactions):
        for folder in sorted(ledger.glob("client=*")) if ledger.is_dir() else ():
            if folder.name not in listed:
                yield f"{folder.relative_to(facts.run.path)}: of a client that case.json does not list"


def _rows(facts: Facts, client: Client) -> Iterator[str]:
    """What a client's rows say: that they are its own, of the phase in which it reads, of the time of its life."""
    produces = client.kind == "producer"
    mine, other = (facts.run.produced, facts.run.consumed)[:: 1 if produces else -1]
    name = f"client {client.id}"
    if parts(other / client_folder(client.id)):
        yield f"{other.name}/{client_folder(client.id)}: case.json calls {name} a {client.kind}"
    ledger = list(_footers(mine / client_folder(client.id)))
    number = client.producer if produces else client.reader
    for found in sorted(_values(ledger, "producer" if produces else "reader") - {number}):
        yield f"case.json says that {name} is {client.kind} {number}, and rows of its ledger are of {found}"
    if not produces and (odd := _values(ledger, "phase") - _PHASES[client.kind]):
        yield f"case.json calls {name} a {client.kind}, and rows of its ledger are of phase {min(odd)}"
    began, ended = _life(facts, client)
    for column in ("sent_ns", "done_ns") if produces else ("read_ns",):
        first, last = _span(ledger, column)
        if first is not None and 0 <= first < began:
            yield f"{name} began at {seconds(began)}, and {column} in its ledger is {seconds(first)}"
        if last is not None and ended is not None and last > ended + _SLACK_NS:
            yield f"{name} had ended by {seconds(ended)}, and {column} in its ledger is {seconds(last)}"


def _life(facts: Facts, client: Client) -> tuple[int, int | None]:
    """From when to when (ns; None: not told) it wrote rows: final readers in their phase, others as processes."""
    if client.kind == "final":
        return facts.phases.get("read", 0), facts.phases.get("end")
    mine = [event for event in facts.events if event.client == client.id]
    started = [event.t_ns for event in mine if isinstance(event.what, ClientStarted)]
    ended = [event.t_ns for event in mine if isinstance(event.what, ClientEnded | ClientDied)]
    return min(started, default=facts.phases.get("load", 0)), max(ended, default=None)


def _footers(folder: Path) -> Iterator[_Part]:
    """Those of all parts; none of parts that cannot be read, of which the audit tells."""
    for path in parts(folder):
        try:
            with storage.open_parquet(path) as file:
                yield path, Footer.read_all(file.metadata)
        except (OSError, pa.ArrowException):
            continue


def _values(ledger: Sequence[_Part], column: str) -> set[int]:
    """The values of a column in all parts."""
    found: set[int] = set()
    for path, footers in ledger:
        span = column_span(footers, column)
        if span is not None and span[0] == span[1]:
            found.add(span[0])
        else:
            found.update(pc.unique(_read(path, column)).to_pylist())
    return found


def _span(ledger: Sequence[_Part], column: str) -> tuple[int | None, int | None]:
    """The least value and the greatest. A time of -1, never, hides the least: what was done was sent before, or the
    rows contradict themselves."""
    known: list[tuple[int, int]] = []
    for path, footers in ledger:
        if span := column_span(footers, column):
            known.append(span)
        elif (both := pc.min_max(_read(path, column)))["min"].is_valid:
            known.append((both["min"].as_py(), both["max"].as_py()))
    return min((low for low, _ in known), default=None), max((high for _, high in known), default=None)


def _read(path: Path, column: str) -> pa.ChunkedArray:
    """A column of which the footer does not say enough; nothing where it cannot be read."""
    try:
        return storage.read_table(path, columns=[column])[column]
    except (OSError, pa.ArrowException, KeyError):
        return pa.chunked_array([], pa.int64())


def _processes(facts: Facts) -> Iterator[str]:
    """Each client beside its process."""
    told: dict[str, list[Event]] = defaultdict(list)
    for event in facts.events:
        if event.client is not None:
            told[event.client].append(event)
    kills = [fault for fault in facts.case.faults if isinstance(fault, KillClient)]
    asked = {event.fault for event in facts.events if event.kind is EventKind.FAULT_ASKED}
    for client in facts.clients:
        ended = [
            event.what.status for event in told[client.id] if isinstance(event.what, ClientEnded | ClientDied)
        ]
        if client.killed and not KILLED & set(ended):
            yield f"case.json says that a fault killed client {client.id}, which the timeline does not know"
        elif client.killed and not any(fault.number in asked for fault in kills):
            yield f"case.json says that a fault killed client {client.id}, and no fault was asked to"
        if client.kind != "final" and not any(
            isinstance(event.what, ClientStarted) for event in told[client.id]
        ):
            yield f"case.json lists client {client.id}, which was never started"
    final = [client.id for client in facts.clients if client.kind == "final" and client.killed]
    if final and facts.final_read is not None and facts.final_read.complete:
        yield f"the final reader {final[0]} was killed, and its read calls itself complete"
