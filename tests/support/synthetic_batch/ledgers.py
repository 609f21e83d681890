"""Writes ledgers and findings that agree: lost records whose offsets other records have, and copies of a batch."""

from __future__ import annotations

from ackproof.rundir.layout import CaseDir
from ackproof.rundir.model import ConformanceFile, Truncation
from ackproof.rundir.outcome import Outcome, ReadPhase
from ackproof.rundir.replicas import Replica, ReplicasFile
from run_directory import write_run
from synthetic_batch.recipes import Recipe, ns

FIRST_LOST, FIRST_COPY, FIRST_OTHER = 1000, 5000, 2000
COPY = "another intact copy of the same record"


def write_ledgers(run: CaseDir, recipe: Recipe) -> None:
    """Write the ledgers and findings of producer 0: `lost` records from offset 1000 on, and as many copies as the
    recipe has duplicates. Write also the truncation of the lost records (`conformance.json`) and the replicas' logs."""
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
    # The lost records were cut from the log of broker 1, and broker 2 led from their first offset on.
    place = {"topic": recipe.topic, "partition": 0}
    cut = {"from_offset": FIRST_LOST, "to_offset": FIRST_LOST + recipe.lost, "acked": recipe.lost}
    led = {"old_epoch": 0, "new_epoch": 1, "new_leader": 2, "why": "broker 1 fenced"}
    log = {"folder": "orders-0", "log_start": 0, "log_end": 4800, "records": 4800, **place}
    epochs = ({"epoch": 0, "start": 0}, {"epoch": 1, "start": FIRST_LOST})
    replicas = [Replica.model_validate({"node": node, "epochs": epochs, **log}) for node in (1, 2, 3)]
    write_run(
        run.path,
        produced={"p0": sent},
        consumed={"f0": read},
        findings=found,
        conformance_json=ConformanceFile(truncations=(Truncation.model_validate({**place, **cut, **led}),)),
        replicas=ReplicasFile(replicas=tuple(replicas)),
    )


def _sent(recipe: Recipe, seq: int, offset: int) -> dict[str, object]:
    place = {"topic": recipe.topic, "outcome": int(Outcome.ACKED)}
    return {"seq": seq, "offset": offset, "sent_ns": ns(4.2), "done_ns": ns(4.21), **place}


def _read(recipe: Recipe, producer: int, seq: int, offset: int) -> dict[str, object]:
    where = {"topic": recipe.topic, "origin_topic": recipe.topic, "leader_epoch": 1, "read_ns": ns(15.3)}
    who = {"reader": 9, "phase": int(ReadPhase.FINAL), "read_seq": offset}
    return {"offset": offset, "producer": producer, "seq": seq, **where, **who}


def _found(recipe: Recipe, anomaly: str, seq: int, offset: int, detail: str) -> dict[str, object]:
    return {"class": anomaly, "topic": recipe.topic, "offset": offset, "seq": seq, "detail": detail}
