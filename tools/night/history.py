"""What is kept of each night, so that `ackproof trend` can tell one from the next: of some experiments the ledger of
producers and what it is measured by."""

from __future__ import annotations

import shutil
from pathlib import Path

from ackproof.base.errors import BadInput
from ackproof.cli.main import main_code
from ackproof.experiment.kafka import NEWEST
from ackproof.rundir.batch import BatchFile
from ackproof.rundir.layout import BatchDir, CaseDir

WATCHED = tuple(f"{name}-on-{NEWEST[-1]}-process" for name in ("baseline", "acks-matrix", "rolling-restart"))
"""The folders of their jobs, of the newest release; the workflow uploads the ledgers of these."""
NIGHTS = 60


def keep(shards: Path, history: Path) -> bool:
    """Take over what these shards have of the watched experiments, forget what is older than so many nights, and write
    `trend.html` there. False: there was nothing to write it of."""
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
