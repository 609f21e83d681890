"""Replays real runs through the reference: `python tools/bench/conformance.py DIR…` (run directories, or folders of
runs).

Prints one line per run: replayed steps, forbidden steps, elections whose leader the reference names too, and lost
records with their explanations. A run that cannot be read is named and not counted. The exit code is 1 if a run has a
forbidden step, an unexplained loss, or another leader than the reference names. It is also 1 if a record is there that
must be gone."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from ackproof.base.errors import AckproofError
from ackproof.plan.cases import case_from_json
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.model import ConformanceFile
from ackproof_model.replay.metadata import conform


def runs(folders: list[Path]) -> Iterator[Path]:
    """Yield the audited runs with a metadata log in or below these folders, each once."""
    seen: set[Path] = set()
    for folder in folders:
        for path in sorted(folder.rglob("metadata.jsonl")):
            run = path.parent.parent.resolve()
            if run not in seen and CaseDir(run).audit_json.exists() and CaseDir(run).case_json.exists():
                seen.add(run)
                yield run


def line(file: ConformanceFile, seconds: float) -> str:
    """Return the result of a replay as one line. `seconds`: time that the replay took."""
    same = sum(one.observed == one.reference for one in file.elections)
    losses = ", ".join(
        f"{one.anomaly} {one.count} = {one.explained} explained + {one.by_interval} by interval + "
        f"{one.unexplained} unexplained + {one.not_replayed} not replayed"
        for one in file.classes
        if one.count
    )
    return (
        f"{file.replayed} steps, {file.forbidden_steps} forbidden, leaders {same} of {len(file.elections)} as the "
        f"reference names, must be gone {file.must_be_gone}, either way {file.either_way}, present {file.present}; "
        f"{losses or 'nothing lost'}; {seconds:.2f} s"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--steps", action="store_true", help="each kind of step, over all runs")
    asked = parser.parse_args()
    wrong = count = 0
    steps: dict[str, int] = {}
    for run in runs(asked.folders):
        began = time.monotonic()
        try:
            case = case_from_json(CaseFile.load(CaseDir(run).case_json).resolved)
            file = conform(CaseDir(run), case)
        except AckproofError as error:
            print(f"{run}: not read: {error}")
            continue
        count += 1
        print(f"{run.parent.name}/{run.name}: {line(file, time.monotonic() - began)}")
        for step in (file.forbidden, *file.more_forbidden):
            if step is not None:
                print(f"    forbidden: {step.rule}: {step.text}\n        before: {step.state_before}")
        for one in file.unexplained[:3]:
            print(
                f"    {one.anomaly}: {one.topic}/{one.partition} offset {one.offset} seq {one.seq}: {one.why}"
            )
        for reason in file.not_replayed:
            print(f"    not replayed: {reason}")
        differ = any(one.observed != one.reference for one in file.elections)
        wrong += bool(file.forbidden or file.unexplained_records or file.present or differ)
        for name, number in file.steps.items():
            steps[name] = steps.get(name, 0) + number
    print(f"{count} runs, {wrong} of them with something that is not as it should be")
    if asked.steps:
        print("\n".join(f"{number:7} {name}" for name, number in sorted(steps.items())))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
