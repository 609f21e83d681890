"""Coherence of clients: the list in case.json, their processes, their ledgers, their ends, and the time that live
readers covered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.clients.contract import EXIT_CLEAN, EXIT_RESET
from ackproof.experiment.backends import BACKENDS
from ackproof.faults.clients.client import KillClient
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, contradicts, lacks, not_judged
from ackproof.rundir import storage
from ackproof.rundir.anomalies import LIVE_ONLY
from ackproof.rundir.documents import Client
from ackproof.rundir.layout import client_folder
from ackproof.rundir.ledger import parts
from ackproof.rundir.lifelines import KILLED
from ackproof.rundir.outcome import ReadPhase
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.parts import Footer, column_span, has_end
from ackproof.rundir.timeline import ClientEnded, EventKind, FaultAsked, FaultConfirmed, fault_name, seconds

_LATE_END_NS: Final = 1_000_000_000
"""Tolerance for ledger rows later than the recorded end of their client."""
_PHASES: Final = {
    "reader": {int(ReadPhase.LIVE), int(ReadPhase.LIVE_COMMITTED)},
    "final": {int(ReadPhase.FINAL), int(ReadPhase.FINAL_COMMITTED)},
}
_CLEAN: Final = frozenset({EXIT_CLEAN, EXIT_RESET})
_UNCONFIRMED: Final = frozenset({EventKind.FAULT_FAILED, EventKind.FAULT_MISSED})
_HOLE_NS: Final = 5_000_000_000
_BEHIND_NS: Final = 10_000_000_000
"""Lag above which a live reader has stood still. A healthy reader is milliseconds behind."""
_Part: TypeAlias = tuple[Path, list[Footer]]


def check_clients(facts: Facts) -> Iterator[Opinion]:
    """Yield a `contradicts` opinion (files disagree) for each difference between the clients listed in case.json and
    the case, the timeline, their processes or their ledgers. Ledgers of group members are left out
    (`judge.coherence.groups`), and nothing is yielded without a timeline."""
    if not facts.events:
        return  # the check of the run's end says so
    yield from map(contradicts, _listed_clients(facts))
    if not BACKENDS[facts.backend].simulated:  # the model has no processes
        yield from map(contradicts, _processes(facts))
    for client in facts.clients:
        if client.kind != "member":  # `judge.coherence.groups`
            yield from (contradicts(text, subject=f"client {client.id}") for text in _ledger(facts, client))


def _listed_clients(facts: Facts) -> Iterator[str]:
    ids = Counter(client.id for client in facts.clients)
    for name, count in ids.items():
        if count > 1:
            yield f"case.json lists client {name} {count} times"
    for name in sorted(facts.lifelines.clients.keys() - ids.keys()):
        yield f"the timeline names client {name}, which case.json does not list"
    workload, kinds = facts.case.experiment.workload, Counter[str](client.kind for client in facts.clients)
    for kind, wanted in (("producer", workload.producers.count), ("reader", workload.consumers.live)):
        if kinds[kind] < wanted and facts.events[-1].kind is EventKind.END:
            yield f"case.json lists {kinds[kind]} clients of kind {kind}, and the case has {wanted}"
    for client in facts.clients:
        if client.kind == "reader" and client.isolation not in (None, workload.consumers.isolation):
            yield f"client {client.id} read at {client.isolation}, and the case says {workload.consumers.isolation}"
    for where in unlisted_folders(facts, ids, facts.run.produced, facts.run.consumed, facts.run.transactions):
        yield f"{where}: of a client that case.json does not list"


def unlisted_folders(facts: Facts, clients: Iterable[str], *ledgers: Path) -> Iterator[Path]:
    """Yield each client folder of these `ledgers` that belongs to none of the `clients` (their ids), as a path relative
    to the run directory. Ledgers that do not exist have none."""
    listed = {client_folder(client) for client in clients}
    for ledger in ledgers:
        for folder in sorted(ledger.glob("client=*")) if ledger.is_dir() else ():
            if folder.name not in listed:
                yield folder.relative_to(facts.run.path)


def _processes(facts: Facts) -> Iterator[str]:
    kills = _client_kills(facts)
    asked = any(facts.lifelines.fault_event(fault.number, FaultAsked) is not None for fault in kills)
    for client in facts.clients:
        life = facts.lifelines.client(client.id)
        if client.killed and not KILLED & life.statuses:
            yield f"case.json says that a fault killed client {client.id}, which the timeline does not know"
        elif client.killed and not asked:
            yield f"case.json says that a fault killed client {client.id}, and no fault was asked to"
        if client.kind != "final" and not life.starts:
            yield f"case.json lists client {client.id}, which was never started"
    final = [client.id for client in facts.clients if client.kind == "final" and client.killed]
    if final and facts.final_read is not None and facts.final_read.complete:
        yield f"the final reader {final[0]} was killed, and its read calls itself complete"


def _client_kills(facts: Facts) -> list[KillClient]:
    """Return the faults that kill clients; `judge.checks.service` looks at those that kill a service."""
    kills = (fault for fault in facts.case.faults if isinstance(fault, KillClient))
    return [fault for fault in kills if fault.client.kind != "service"]


# -- ledgers --------------------------------------------------------------------------------------------------------


def _ledger(facts: Facts, client: Client) -> Iterator[str]:
    """Yield a sentence for each contradiction in the ledger of a producer or reader: parts in the ledger of the other
    kind; rows of another client, of a wrong phase, or outside its lifetime. Parts that cannot be read are left out."""
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
    life = facts.lifelines.client(client.id)
    began = min((event.t_ns for event in life.starts), default=facts.phases.get("load", 0))
    ended = max((event.t_ns for event in life.ends), default=None)
    if client.kind == "final":  # rows of final readers are of their phase
        began, ended = facts.phases.get("read", 0), facts.phases.get("end")
    for column in ("sent_ns", "done_ns") if produces else ("read_ns",):
        yield from outside_life(name, f"{column} in its ledger", _span(ledger, column), began, ended)


def outside_life(
    name: str, what: str, span: tuple[int | None, int | None], began: int, ended: int | None
) -> Iterator[str]:
    """Yield a sentence if times in a ledger lie outside the lifetime of the client that wrote it. Tolerates rows up to
    1 s later than its recorded end.

    `name`, `what`: the client and the times, in words. `span`: the first and the last of the times; None: there is
    none; a first time of -1 is not examined. `began`, `ended`: its lifetime in ns since the run began; None: no end is
    known.
    """
    first, last = span
    if first is not None and 0 <= first < began:
        yield f"{name} began at {seconds(began)}, and {what} is {seconds(first)}"
    if last is not None and ended is not None and last > ended + _LATE_END_NS:
        yield f"{name} had ended by {seconds(ended)}, and {what} is {seconds(last)}"


def _footers(folder: Path) -> Iterator[_Part]:
    """Yield (path, footers) of each ledger part in a folder. Parts that cannot be read are left out: the audit reports
    them."""
    for path in parts(folder):
        try:
            with storage.open_parquet(path) as file:
                yield path, Footer.read_all(file.metadata)
        except (OSError, pa.ArrowException):
            continue


def _values(ledger: Sequence[_Part], column: str) -> set[int]:
    found: set[int] = set()
    for path, footers in ledger:
        span = column_span(footers, column)
        if span is not None and span[0] == span[1]:
            found.add(span[0])
        else:
            found.update(pc.unique(_read(path, column)).to_pylist())
    return found


def _span(ledger: Sequence[_Part], column: str) -> tuple[int | None, int | None]:
    """Return the least and the greatest value of a column over all parts; None if there is no value. In a column of
    times, -1 means never: if a row has it, the least value is -1, and not the least real time."""
    known: list[tuple[int, int]] = []
    for path, footers in ledger:
        if span := column_span(footers, column):
            known.append(span)
        elif (both := pc.min_max(_read(path, column)))["min"].is_valid:
            known.append((both["min"].as_py(), both["max"].as_py()))
    return min((low for low, _ in known), default=None), max((high for _, high in known), default=None)


def _read(path: Path, column: str) -> pa.ChunkedArray:
    """Return a column of a ledger part; empty if it cannot be read, which the audit reports."""
    try:
        return storage.read_table(path, columns=[column])[column]
    except (OSError, pa.ArrowException, KeyError):
        return pa.chunked_array([], pa.int64())


# -- ends -----------------------------------------------------------------------------------------------------------


def check_departures(facts: Facts) -> Iterator[Opinion]:
    """Yield a `contradicts` opinion (files disagree) for each producer and live reader whose end in the timeline does
    not fit its ledger. Yield opinions, too, where kills of clients by faults do not fit case.json or the timeline
    (`_kills`). Nothing is yielded for simulated runs and for runs that broke off."""
    if BACKENDS[facts.backend].simulated or not facts.events or facts.events[-1].kind is not EventKind.END:
        return  # the model has no processes; the timeline of a run that broke off may lack ends
    for client in facts.clients:
        if client.kind not in ("final", "member"):  # `judge.checks.groups` says how members ended
            yield from map(contradicts, _departure(facts, client))
    yield from _kills(facts)


def _departure(facts: Facts, client: Client) -> Iterator[str]:
    life = facts.lifelines.client(client.id)
    if len(life.starts) > 1:
        yield f"client {client.id} started {len(life.starts)} times: who comes back is a new client"
    if len(life.ends) != 1 and life.starts:
        yield f"client {client.id} ended {len(life.ends)} times, and the run has its end"
    ledgers = {"producer": facts.run.produced, "member": facts.run.deliveries}
    ledger = ledgers.get(client.kind, facts.run.consumed)
    closed = has_end(ledger / client_folder(client.id))
    for event in life.ends:
        if not isinstance(event.what, ClientEnded):
            continue
        status = event.what.status
        name = f"client {client.id} ended with status {status} at {seconds(event.t_ns)}"
        if status not in _CLEAN | KILLED:
            yield f"{name}, as it should, and none ends so that was asked to or killed"
        if status in _CLEAN and not closed:
            yield f"{name}, and its ledger does not say that it closed"
        if status in KILLED and closed and not client.killed:
            yield f"{name}, no fault killed it, and its ledger says that it closed"
        if status == EXIT_RESET and not life.resets:
            yield f"{name}, which is after a fatal error, and the timeline has none"


def _kills(facts: Facts) -> Iterator[Opinion]:
    """Yield a `contradicts` opinion for each contradiction about kills of clients by faults (services excepted). Yield
    `not judged` for each kill whose victims the timeline does not name; those of older versions name none.

    A confirmed kill must name the clients that it killed. Each of them must have been started with the pid that was
    killed, and have ended between the request of the kill and its confirmation. If no kill failed or missed, and each
    states its victims, each client that case.json calls killed must be named by a kill.
    """
    named: set[str] = set()
    unstated = False
    kills = _client_kills(facts)
    for fault in kills:
        confirmed = facts.lifelines.fault_event(fault.number, FaultConfirmed)
        if confirmed is None or not isinstance(confirmed.what, FaultConfirmed):
            continue
        name = f"fault {fault_name(fault.number)} ({fault}) is confirmed at {seconds(confirmed.t_ns)}"
        asked = facts.lifelines.fault_event(fault.number, FaultAsked) or confirmed
        killed = confirmed.what.killed
        if killed is None:
            unstated = True
            yield not_judged(f"{name}: whether whom it killed ended then, which its timeline does not state")
            continue
        if not killed:
            yield contradicts(f"{name}, and does not say whom it killed: {confirmed.what.did or 'nothing'}")
        for victim, pid in killed.items():
            named.add(victim)
            life = facts.lifelines.client(victim)
            if life.pids != [pid]:
                started = f"which was started as {life.pids or 'nobody'}"
                yield contradicts(f"{name}, and killed pid {pid} for client {victim}, {started}")
            if not any(asked.t_ns <= end.t_ns <= confirmed.t_ns for end in life.ends):
                yield contradicts(f"{name}, and client {victim}, which it killed, did not end then")
    unconfirmed = {event.fault for event in facts.events if event.kind in _UNCONFIRMED}
    if unstated or unconfirmed & {fault.number for fault in kills}:
        return
    for client in facts.clients:
        if client.killed and client.kind not in ("final", "member") and client.id not in named:
            yield contradicts(f"case.json says that a fault killed client {client.id}, and no fault says so")


# -- watching -------------------------------------------------------------------------------------------------------


def check_watching(facts: Facts) -> Iterator[Opinion]:
    """Yield a `not judged` opinion for the anomaly classes that only live readers can show (`LIVE_ONLY`), if no live
    reader read anything. Yield the same opinion if live readers stood still before the end of the load (`_behind`).

    Yield a `lacks` opinion (evidence is missing) for each time longer than 5 s without a round of samples. The sampler
    makes rounds whether or not brokers answer. Without rounds, the harness itself stood still.
    """
    why = ""
    if not facts.case.experiment.workload.consumers.live:
        why = "the experiment has no live reader"
    elif not facts.audit.records.consumed_live:
        why = "the live readers read nothing"
    elif behind := _behind(facts):
        why = f"the live readers stood still on {', '.join(behind)}"
    if why:
        yield not_judged(f"{', '.join(LIVE_ONLY)}: not looked for: {why}")
    if not facts.pulses or "load" not in facts.phases:
        return  # a run of the model or of an older version, or one that ended before its load
    # The sampler looks ten times a second whether or not a broker answers: else the harness itself stood still.
    looked = [pulse.t_ns for pulse in facts.pulses if pulse.looks > 0]
    # The sampler begins before the clients are started, and pulses are written after: the first counts all before.
    begin = [] if facts.pulses[0].looks > 0 else [facts.phases["load"]]
    for before, after in pairwise([*begin, *looked, facts.phases.get("end", 0)]):
        if after - before > _HOLE_NS:
            when = f"from {seconds(before)} to {seconds(after)}"
            yield lacks(f"nobody looked at the cluster {when}: the harness itself stood still")


def _behind(facts: Facts) -> list[str]:
    """Return the names of partitions whose last live read came more than 10 s before their last acknowledgement,
    according to `series.parquet`. A partition that was never read counts as read at time 0. Return [] without that
    file."""
    if not facts.run.series.exists():
        return []
    table = storage.read_table(facts.run.series, columns=["topic", "partition", "start_ns", "acked", "read"])
    last: dict[str, dict[TopicPartition, int]] = {"acked": {}, "read": {}}
    for name, latest in last.items():
        some = table.filter(pc.greater(table[name], 0)).group_by(["topic", "partition"])
        for row in some.aggregate([("start_ns", "max")]).to_pylist():
            latest[TopicPartition(row["topic"], row["partition"])] = row["start_ns_max"]
    return [
        str(place)
        for place, acked in sorted(last["acked"].items())
        if last["read"].get(place, 0) < acked - _BEHIND_NS
    ]
