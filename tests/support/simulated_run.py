"""Simulated runs as run directories, with the losses that their own ledgers show, which the replay needs.

The losses are counted here in a few lines of numpy, independent of the audit and the replay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ackproof.experiment.case import Case
from ackproof.plan.cases import reseeded
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import parts
from ackproof.rundir.model import ConformanceFile
from ackproof.rundir.outcome import Outcome, ReadPhase
from ackproof.rundir.schema import CONSUMED
from ackproof_model.replay.metadata import conform
from ackproof_simulator.backend import run_in_model
from ackproof_simulator.run import Simulation
from ackproof_simulator.sweep import linger_for, with_linger
from run_directory import write_run

_SEQS = 1 << 40
_CATALOGUE = sorted((Path(__file__).parents[2] / "experiments").glob("*.yaml"))
OF_REQUESTS = {
    "deposed-coordinator",
    "forgotten-elr",
    "heartbeat-held",
    "isr-cannot-shrink",
    "last-replica-standing",
    "leader-does-not-know",
    "late-marker",
    "late-produce",
    "lost-commit-answer",
    "lost-offset-commit-answer",
    "lost-produce-answer",
    "older-metadata",
    "patched-leader",
    "planned-leader-moves",
    "producer-id-twice",
    "script-acks-1-tail",
    "sequence-gap",
    "skipped-marker",
    "slept-through-epoch",
    "stale-fetch",
}
"""Experiments of the catalogue that the model refuses because it has no proxy of requests, by name."""
NOT_SIMULATED = [file for file in _CATALOGUE if file.stem in {*OF_REQUESTS, "pairs", "reader-returns"}]
SIMULATED = [file for file in _CATALOGUE if file not in NOT_SIMULATED]


def simulated(
    case: Case, folder: Path, *, seed: int | None = None, batches: int = 100, without: Sequence[int] = ()
) -> Simulation:
    """Run a case in virtual time into `folder`, in about `batches` batches, and write its lost and displaced records as
    findings.

    `seed`: None for that of the case. `without`: seqs of producer 0 that are removed from the final read."""
    coarse = with_linger(case, linger_for(case.experiment, batches))
    run = CaseDir(folder)
    simulation = run_in_model(coarse if seed is None else reseeded(coarse, seed), run, "")
    write_run(folder, findings=_gone(run, without))
    return simulation


def replayed(case: Case, folder: Path, *, seed: int, batches: int) -> tuple[Simulation, ConformanceFile]:
    """Simulate a case and replay it; return both results. Assert that every fault healed, the final read is complete,
    no step is forbidden, and each loss is explained."""
    simulation = simulated(case, folder, seed=seed, batches=batches)
    assert [life.reason for life in simulation.lives if life.stage.name != "RECOVERED"] == []
    assert simulation.complete, simulation.reasons
    told = conform(CaseDir(folder), simulation.case)
    assert told.forbidden is None, told.forbidden
    assert [one for one in told.classes if one.unexplained] == []
    return simulation, told


def lost(told: ConformanceFile) -> int:
    """Return the number of lost acknowledged records in the result of a replay."""
    return next(one.count for one in told.classes if one.anomaly == "lost")


def _gone(run: CaseDir, without: Sequence[int]) -> list[dict[str, object]]:
    sent = ds.dataset([str(part) for part in parts(run.produced)]).to_table(
        filter=pc.field("outcome") == int(Outcome.ACKED)
    )
    # With its schema: a run in which nothing could be read has no part.
    read = ds.dataset([str(part) for part in parts(run.consumed)], CONSUMED, "parquet").to_table(
        filter=pc.field("phase") == int(ReadPhase.FINAL)
    )
    mine, there = (
        table["producer"].to_numpy().astype(np.int64) * _SEQS + table["seq"].to_numpy()
        for table in (sent, read)
    )
    lost = ~np.isin(mine, np.setdiff1d(there, np.array(without, np.int64)))
    at = np.stack([mine, sent["offset"].to_numpy()], axis=1)
    copies = {(int(one), int(offset)) for one, offset in zip(there, read["offset"].to_numpy(), strict=True)}
    moved = (
        np.array([offset >= 0 and (int(one), int(offset)) not in copies for one, offset in at], np.bool_)
        & ~lost
    )
    return [
        {**row, "class": name, "detail": ""}
        for name, which in (("lost", lost), ("displaced", moved))
        for row in sent.filter(pa.array(which))
        .select(["topic", "partition", "producer", "seq", "offset"])
        .to_pylist()
    ]
