"""Runs of an experiment with and without planted bugs: one `ackproof run` with a case for each Kafka."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, cast

from pydantic import JsonValue

from ackproof.experiment.problems import plain
from ackproof.plan.source import parse, read
from ackproof.rundir.batch import BatchFile
from ackproof.rundir.layout import BatchDir

from .bugs import Bug
from .results import Seen, see_run

CONTROL: Final = ""
"""Name of the run without a bug, in mappings whose keys are names of bugs."""
_KAFKA: Final = "cluster.kafka"
_CASE_S: Final = 240.0
_AUDIT_S: Final = 240.0
_ACKPROOF: Final = Path(sys.executable).with_name("ackproof")


def derive_experiment(bugs: Sequence[Bug], *, control: bool) -> tuple[dict[str, JsonValue], list[str]]:
    """Return the experiment that these bugs share, with one Kafka per bug, and the ids of its cases.

    `control`: True to add the release without a bug, as the first Kafka. Raises ValueError if the case of the bugs does
    not name exactly one value of each axis."""
    first = bugs[0]
    file, raw = read(first.file)
    whole = cast("dict[str, JsonValue]", plain(parse(raw, file)))
    axes = cast("dict[str, list[JsonValue]]", whole.get("matrix", {}))
    matrix: dict[str, JsonValue] = {axis: values for axis, values in axes.items() if axis != _KAFKA}
    builds: list[JsonValue] = [first.release] if control else []
    builds += [{"version": bug.release, "patch": str(bug.rules), "name": bug.name} for bug in bugs]
    cell = [_choose(axis, axes[axis], first) for axis in matrix]
    names = [*([first.release] if control else []), *(bug.name for bug in bugs)]
    return {**whole, "matrix": {**matrix, _KAFKA: builds}}, [
        ",".join((*cell, f"kafka={name}")) for name in names
    ]


def _choose(axis: str, values: Sequence[JsonValue], bug: Bug) -> str:
    """Return the name of the one value of an axis that the bug's case names. Raises ValueError if it names none or
    several."""
    chosen = [label for value in values if (label := _label(axis, value)) in bug.case]
    if len(chosen) != 1:
        raise ValueError(
            f"{bug.name}: its case {bug.case} names {len(chosen)} values of {axis} in {bug.file}"
        )
    return chosen[0]


def _label(axis: str, value: JsonValue) -> str:
    """Return the name of an axis value in case ids: `acks=all`, or the name of a group of settings."""
    if isinstance(value, Mapping):
        return str(value["name"])
    last = axis.rpartition("[")[2].removesuffix("]") if axis.endswith("]") else axis.rpartition(".")[2]
    return f"{last}={str(value).lower() if isinstance(value, bool) else value}"


def run_batch(
    bugs: Sequence[Bug], folder: Path, *, control: bool, before: Sequence[str] = ()
) -> dict[str, Seen]:
    """Run the bugs' experiment; return what each case showed, by the name of its bug (`CONTROL`: without a bug).

    A case without a verdict is missing in the result. All files go below `folder`, which is emptied first. `control`:
    True to run the release without a bug, too. `before`: words before the command, such as `nice -n 10`. Raises
    `subprocess.TimeoutExpired` after 240 s per case and 240 s for the audit; with `before` there is no limit.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    derived = folder / f"{bugs[0].experiment}.yaml"
    experiment, ids = derive_experiment(bugs, control=control)
    derived.write_text(json.dumps(experiment, indent=1), encoding="utf-8")
    words = [word for case in ids for word in ("--case", case)]
    bound = _AUDIT_S + _CASE_S * (len(bugs) + control) if not before else None
    with (folder / "log.txt").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [*before, _ACKPROOF, "run", derived, *words, "--out", folder / "runs"],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "NO_COLOR": "1"},
        )
        try:
            process.wait(timeout=bound)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    latest = folder / "runs" / "latest"
    return read_batch(latest.resolve(), [bug.name for bug in bugs]) if latest.exists() else {}


def read_batch(batch: Path, names: Sequence[str]) -> dict[str, Seen]:
    """Read a batch whose cases differ in their Kafka. Return what each case showed, by the name of its bug (`CONTROL`:
    the release without a bug). `names`: the bugs of the batch. Cases without a verdict are left out. Raises `BadInput`
    for an unreadable `batch.json`."""
    seen: dict[str, Seen] = {}
    for case in BatchFile.load(BatchDir(batch).batch_json).cases:
        kafka = case.settings.get(_KAFKA)
        name = kafka if kafka in names else CONTROL
        if case.verdict is not None and case.run:
            seen[str(name)] = see_run(batch / case.run, str(name))
    return seen
