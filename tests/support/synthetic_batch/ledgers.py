"""Writes ledgers and findings that agree: lost records whose offsets other records have, and copies of a batch."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from ackproof.rundir.layout import CaseDir
from ackproof.rundir.model import ConformanceFile, Truncation
from ackproof.rundir.outcome import Outcome, ReadPhase
from ackproof.rundir.replicas import Replica, ReplicasFile
from ackproof.rundir.schema import CONSUMED, FINDINGS, PRODUCED
from synthetic_batch.recipes import Recipe, ns

FIRST_LOST, FIRST_COPY, FIRST_OTHER = 1000, 5000, 2000
COPY = "another intact copy of the same record"


def write_ledgers(run: CaseDir, recipe: Recipe) -> None:
    """Write the ledgers and findings of producer 0: `lost` records from offset 1000 on, and as many copies as the
    recipe has duplicates."""
    copies = recipe.findings.get("duplicate", 0)
    sent, read, found = [], [], []
    for n in range(recipe.lost):
        sent.append(_sent(recipe, n, FIRST_LOST + n))
        read.append(_read(recipe, 1, n, FIRST_LOST + n))
        found.append(_found(recipe, "lost", n, FIRST_LOST + n, ""))
    for n in range(copies):
        seq = recipe.lost + n
        sent.append(_sent(recipe, seq, FIRST_OTHER + n))
        read += [_read(recipe, 0, seq, FIRST_OTHER + n), _read(recipe, 0, seq, FIRST_COPY + n)]
        found.append(_found(recipe, "duplicate", seq, FIRST_COPY + n, COPY))
    for folder, rows, schema in (
        (run.produced / "client=p0", sent, PRODUCED),
        (run.consumed / "client=f0", read, CONSUMED),
        (run.findings, found, FINDINGS),
    ):
        folder.mkdir(parents=True, exist_ok=True)
        name = "part-000000.parquet" if schema is not FINDINGS else "part-0.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / name)
    _truncated(run, recipe)


def _truncated(run: CaseDir, recipe: Recipe) -> None:
    """Write that the lost records were truncated from broker 1's log, and that broker 2 led from their first offset
    on."""
    place = {"topic": recipe.topic, "partition": 0}
    cut = {"from_offset": FIRST_LOST, "to_offset": FIRST_LOST + recipe.lost, "acked": recipe.lost}
    led = {"old_epoch": 0, "new_epoch": 1, "new_leader": 2, "why": "broker 1 fenced"}
    ConformanceFile(truncations=(Truncation.model_validate({**place, **cut, **led}),)).save(
        run.conformance_json
    )
    log = {"folder": "orders-0", "log_start": 0, "log_end": 4800, "records": 4800, **place}
    epochs = ({"epoch": 0, "start": 0}, {"epoch": 1, "start": FIRST_LOST})
    replicas = [Replica.model_validate({"node": node, "epochs": epochs, **log}) for node in (1, 2, 3)]
    ReplicasFile(replicas=tuple(replicas)).save(run.replicas)


def _sent(recipe: Recipe, seq: int, offset: int) -> dict[str, object]:
    place = {"topic": recipe.topic, "partition": 0, "outcome": int(Outcome.ACKED), "error": 0, "txn": -1}
    return {"producer": 0, "seq": seq, "offset": offset, "sent_ns": ns(4.2), "done_ns": ns(4.21), **place}


def _read(recipe: Recipe, producer: int, seq: int, offset: int) -> dict[str, object]:
    where = {"topic": recipe.topic, "partition": 0, "origin_topic": recipe.topic, "origin_partition": 0}
    who = {"reader": 9, "phase": int(ReadPhase.FINAL), "assignment": 0, "read_seq": offset, "leader_epoch": 1}
    rest = {"intact": True, "read_ns": ns(15.3), "timestamp_ms": 0}
    return {"offset": offset, "producer": producer, "seq": seq, **where, **who, **rest}


def _found(recipe: Recipe, anomaly: str, seq: int, offset: int, detail: str) -> dict[str, object]:
    place = {"topic": recipe.topic, "partition": 0, "offset": offset}
    return {"class": anomaly, "producer": 0, "seq": seq, "detail": detail, **place}
