"""Keeps results of earlier nights for `ackproof trend`: the last 60 batches of each of three experiments. Of each run
it keeps the producers' ledgers and the other files that the trend reads."""

from __future__ import annotations

import shutil
from pathlib import Path

from ackproof.base.errors import BadInput
from ackproof.cli.main import main_code
from ackproof.experiment.kafka import NEWEST
from ackproof.rundir.batch import BatchFile
from ackproof.rundir.layout import BatchDir, CaseDir

WATCHED = tuple(f"{name}-on-{NEWEST[-1]}-process" for name in ("baseline", "acks-matrix", "rolling-restart"))
"""Folders of the watched experiments' jobs, on the newest release; the workflow uploads their ledgers."""
NIGHTS = 60


def keep(shards: Path, history: Path) -> bool:
    """Copy the batches of the watched experiments from `shards` to `history`, remove all but the newest `NIGHTS` of
    each experiment, and write `trend.html` there. Return False if there is no batch, or the page could not be
    written."""
    for job in WATCHED:
        for found in sorted(shards.rglob(f"{job}/runs/*/batch.json")):
            if found.parent.name != "latest":
                _take(found.parent, history / found.parent.name)
    by_experiment: dict[str, list[Path]] = {}
    for batch in sorted(history.glob("*/batch.json")):
        by_experiment.setdefault(batch.parent.name.partition("-")[2], []).append(batch.parent)
    for nights in by_experiment.values():
        for old in nights[:-NIGHTS]:
            shutil.rmtree(old)
    return bool(by_experiment) and main_code(["trend", str(history)]) == 0


def _take(batch: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    try:
        cases = BatchFile.load(BatchDir(batch).batch_json).cases
    except BadInput as error:
        print(error)
        return
    for case in cases:
        run, there = CaseDir(batch / case.run), CaseDir(target / case.run)
        for name in ("case_json", "timeline", "audit_json", "verdict_json"):
            if (file := getattr(run, name)).exists():
                there.path.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, getattr(there, name))
        if run.produced.is_dir():
            shutil.copytree(run.produced, there.produced, dirs_exist_ok=True)
    shutil.copyfile(BatchDir(batch).batch_json, BatchDir(target).batch_json)
