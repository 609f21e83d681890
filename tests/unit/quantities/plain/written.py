"""Functions that write `Facts` as the files of a run directory, so that the product can measure them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ackproof.quantities.evidence import Evidence
from ackproof.rundir.documents import AuditFile, Client, RecordCounts
from ackproof.rundir.metadata import LogEnded, MetadataRecord
from ackproof.rundir.observed import OffsetCommit
from ackproof.rundir.outcome import TxnOutcome
from ackproof.rundir.timeline import Event, EventKind
from run_directory import case_file, write_lines, write_run

from .facts import MS, SECOND, TOPIC, Facts

WALL_NS = 1_700_000_000 * SECOND


def written(facts: Facts, folder: Path) -> Evidence:
    """Write the facts as a run directory in `folder`, and return its `Evidence`."""
    resolved: Any = {"experiment": {"cluster": {"mode": "zookeeper" if facts.zookeeper else "kraft"}}}
    clients = tuple(Client(id=reader, kind="reader", reader=at) for at, reader in enumerate(facts.readers))
    run = write_run(
        folder,
        case_json=case_file(resolved=resolved, clients=clients, wall_ns=WALL_NS),
        timeline=_events(facts),
        samples=facts.samples,
        brokers=facts.rounds or None,
        metadata_log=_records(facts) or None,
        replicas=facts.disks,
        replica_batches=None if facts.disks is None else facts.batches,
        metrics=_scrapes(facts) or None,
        audit_json=_audit(facts),
        # In two parts: what comes first may be in the second.
        parts=2,
        options={"row_group_size": 3},
        **_ledgers(facts),
    )
    for reader in facts.readers:
        write_lines(run.served(reader), facts.fetching.get(reader, ()))
        write_lines(run.commits(reader), _commits(facts, reader))
    return Evidence.of_run(run)


def _audit(facts: Facts) -> AuditFile | None:
    if facts.counts is None:
        return None
    return AuditFile(counts=dict(facts.counts), records=RecordCounts(), complete=True)


def _records(facts: Facts) -> list[MetadataRecord]:
    if not (facts.records and facts.ended):
        return list(facts.records)
    last = facts.records[-1]
    end = LogEnded(offset=last.offset + 1, epoch=last.epoch, timestamp_ms=0, records=last.offset + 1)
    return [*facts.records, end]


def _events(facts: Facts) -> list[Event]:
    def event(kind: EventKind, at: int, ahead: int = 0, **fields: Any) -> Event:
        return Event(t_ns=at, wall_ns=WALL_NS + at + ahead, kind=kind, **fields)

    found = [
        event(EventKind.PHASE, facts.begins, detail={"phase": "load"}),
        event(EventKind.PHASE, facts.ends, detail={"phase": "drain"}),
    ]
    for number, one in enumerate(facts.faults, start=1):
        asked: Any = {"kind": one.kind, "nodes": list(one.nodes)}
        found.append(event(EventKind.FAULT_ASKED, one.asked, fault=number, detail=asked))
        for kind, at in ((EventKind.FAULT_CONFIRMED, one.confirmed), (EventKind.FAULT_RECOVERED, one.over)):
            found += [] if at is None else [event(kind, at, fault=number)]
        if one.healed is not None:
            # It is told once it is done; 0 is no time there, and means that very moment.
            begun: Any = {"begun_ns": one.healed}
            done = one.healed + 7 * MS if one.healed else 0
            found.append(event(EventKind.FAULT_HEALED, done, fault=number, detail=begun))
    for at, node, began in facts.lives:
        found.append(event(EventKind.NODE_STARTED if began else EventKind.NODE_ENDED, at, node=node))
    found += [event(EventKind.NOTE, at, ahead) for at, ahead in facts.steps]
    return sorted(found, key=lambda one: one.t_ns)


def _ledgers(facts: Facts) -> dict[str, dict[str, list[dict[str, Any]]]]:
    produced = [
        {
            "seq": seq, "topic": TOPIC, "partition": one.partition, "outcome": one.outcome, "error": one.error,
            "offset": one.offset, "sent_ns": one.sent, "done_ns": one.done, "txn": one.txn,
        }
        for seq, one in enumerate(facts.attempts)
    ]  # fmt: skip
    consumed: dict[str, list[dict[str, Any]]] = {}
    for read in facts.reads:
        consumed.setdefault(read.reader, []).append(
            {
                "topic": TOPIC, "partition": read.partition, "read_ns": read.at, "offset": read.offset,
                "phase": read.phase,
            }
        )  # fmt: skip
    txns = [
        {"txn": txn, "outcome": int(TxnOutcome.COMMITTED if txn in facts.committed else TxnOutcome.ABORTED)}
        for txn in sorted({one.txn for one in facts.attempts if one.txn >= 0})
    ]
    return {
        "produced": {"p0": produced} if produced else {},
        "consumed": consumed,
        "transactions": {"p0": txns} if txns else {},
    }


def _commits(facts: Facts, reader: str) -> list[OffsetCommit]:
    found = []
    for one in facts.tries.get(reader, ()):
        begun = OffsetCommit(begun_ns=one.begun, offsets=tuple((TOPIC, at, 7) for at in one.partitions))
        found.append(begun)
        if one.done >= 0:
            found.append(begun.model_copy(update={"done_ns": one.done, "error": one.error}))
    return found


def _scrapes(facts: Facts) -> list[dict[str, Any]]:
    return [
        {"t_ns": one.at, "done_ns": one.done, "node": one.node, "metric": name, "value": value}
        for one in facts.scrapes
        for name, value in {"up": float(one.values is not None), **(one.values or {})}.items()
    ]
