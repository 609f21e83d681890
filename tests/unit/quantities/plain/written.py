"""Functions that write `Facts` as the files of a run directory, so that the product can measure them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ackproof.quantities.evidence import Evidence
from ackproof.rundir.document import Document
from ackproof.rundir.documents import AuditFile, CaseFile, Client, RecordCounts
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.metadata import LogEnded, write_metadata
from ackproof.rundir.observed import OffsetCommit
from ackproof.rundir.outcome import TxnOutcome
from ackproof.rundir.replicas import BATCHES
from ackproof.rundir.schema import CONSUMED, METRICS, PRODUCED, TRANSACTIONS
from ackproof.rundir.timeline import Event, EventKind

from .facts import MS, SECOND, TOPIC, Facts

WALL_NS = 1_700_000_000 * SECOND
EMPTY: dict[str, Any] = {
    "string": "", "bool": True, "int8": 0, "int16": 0, "int32": 0, "int64": 0,
}  # fmt: skip


def written(facts: Facts, folder: Path) -> Evidence:
    """Write the facts as a run directory in `folder`, and return its `Evidence`."""
    run = CaseDir(folder)
    clients = [Client(id=reader, kind="reader", reader=at) for at, reader in enumerate(facts.readers)]
    resolved: Any = {"experiment": {"cluster": {"mode": "zookeeper" if facts.zookeeper else "kraft"}}}
    CaseFile(
        run_id="0" * 16, case="c#1", experiment="t", settings={}, repeat=1, seed=0, backend="process", replay="",
        resolved=resolved, clients=tuple(clients), wall_ns=WALL_NS,
    ).save(run.case_json)  # fmt: skip
    _lines(run.timeline, _events(facts))
    run.observed.mkdir(exist_ok=True)
    _ledgers(facts, run)
    run.samples.write_text("".join(f"{one.line()}\n" for one in facts.samples))
    if facts.rounds:
        _lines(run.brokers, facts.rounds)
    if facts.records:
        last = facts.records[-1]
        end = LogEnded(offset=last.offset + 1, epoch=last.epoch, timestamp_ms=0, records=last.offset + 1)
        write_metadata(run.metadata_log, [*facts.records, *([end] if facts.ended else [])])
    for reader in facts.readers:
        run.served(reader).parent.mkdir(parents=True, exist_ok=True)
        _lines(run.served(reader), facts.fetching.get(reader, ()))
        _lines(run.commits(reader), _commits(facts, reader))
    if facts.disks is not None:
        facts.disks.save(run.replicas)
        pq.write_table(pa.Table.from_pylist(list(facts.batches), schema=BATCHES), run.replica_batches)
    if facts.scrapes:
        _scrapes(facts, run)
    if facts.counts is not None:
        AuditFile(counts=dict(facts.counts), records=RecordCounts(), complete=True).save(run.audit_json)
    return Evidence.of_run(run)


def _lines(path: Path, documents: Iterable[Document]) -> None:
    path.write_text("".join(f"{one.model_dump_json()}\n" for one in documents))


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


def _ledgers(facts: Facts, run: CaseDir) -> None:
    produced = [
        {
            "producer": 0, "seq": seq, "topic": TOPIC, "partition": one.partition, "outcome": one.outcome,
            "error": one.error, "offset": one.offset, "sent_ns": one.sent, "done_ns": one.done, "txn": one.txn,
        }
        for seq, one in enumerate(facts.attempts)
    ]  # fmt: skip
    _part(run.produced / client_folder("p0"), produced, PRODUCED)
    for reader in sorted({one.reader for one in facts.reads}):
        rows = [
            {field.name: EMPTY[str(field.type)] for field in CONSUMED}
            | {
                "topic": TOPIC, "partition": one.partition, "read_ns": one.at, "offset": one.offset,
                "phase": one.phase,
            }
            for one in facts.reads
            if one.reader == reader
        ]  # fmt: skip
        _part(run.consumed / client_folder(reader), rows, CONSUMED)
    txns = [
        {field.name: 0 for field in TRANSACTIONS}
        | {"txn": txn, "outcome": int(TxnOutcome.COMMITTED if txn in facts.committed else TxnOutcome.ABORTED)}
        for txn in sorted({one.txn for one in facts.attempts if one.txn >= 0})
    ]
    _part(run.transactions / client_folder("p0"), txns, TRANSACTIONS)


def _part(folder: Path, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    """Write rows alternately into two parts, so that the parts are not in order of time. Writes none without rows."""
    for number in range(min(2, len(rows))):
        folder.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_pylist(rows[number::2], schema=schema)
        pq.write_table(table, folder / f"part-{number:06}.parquet", row_group_size=3)


def _commits(facts: Facts, reader: str) -> list[OffsetCommit]:
    found = []
    for one in facts.tries.get(reader, ()):
        begun = OffsetCommit(begun_ns=one.begun, offsets=tuple((TOPIC, at, 7) for at in one.partitions))
        found.append(begun)
        if one.done >= 0:
            found.append(begun.model_copy(update={"done_ns": one.done, "error": one.error}))
    return found


def _scrapes(facts: Facts, run: CaseDir) -> None:
    rows = []
    for one in facts.scrapes:
        values = {"up": float(one.values is not None), **(one.values or {})}
        rows += [
            {"t_ns": one.at, "done_ns": one.done, "node": one.node, "metric": name, "value": value}
            for name, value in values.items()
        ]
    pq.write_table(pa.Table.from_pylist(rows, schema=METRICS), run.metrics)
