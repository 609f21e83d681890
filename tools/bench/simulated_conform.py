"""Replays simulated runs, many seeds of every file: `python tools/bench/simulated_conform.py --seeds 10 [FILE…]`.

Simulation and replay must agree: no forbidden step, the leaders that the reference names, and exactly the lost records
explained. Prints one line for each run that disagrees, then their number; exit code 1 if there is any. A run and its
replay take about half a second of one core."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ackproof.plan import load
from ackproof.plan.cases import cases
from ackproof.plan.check_faults import lacks
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.model import ConformanceFile
from ackproof_model.replay.metadata import conform

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from simulated_run import simulated  # noqa: E402 — the tests are not a package


def disagreement(file: ConformanceFile) -> Iterator[str]:
    """Yield a sentence for each difference between the replay and the simulated run."""
    if file.forbidden is not None:
        yield f"forbidden: {file.forbidden.rule}: {file.forbidden.text}; {file.forbidden.state_before}"
    yield from (f"{one.anomaly}: {one.unexplained} unexplained" for one in file.classes if one.unexplained)
    if file.present:
        yield f"{file.present} must be gone and are there"
    for one in file.elections:
        if one.observed != one.reference:
            yield f"elected {one.observed}, and the reference names {one.reference}"
    yield from file.not_replayed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, default=sorted((ROOT / "experiments").glob("*.yaml")))
    parser.add_argument("--seeds", type=int, default=10)
    orders = parser.parse_args()
    began, count, bad, lost = time.monotonic(), 0, 0, 0
    for file in orders.files:
        if lacks(load(file).spec) is not None:
            continue
        for case in cases(load(file, backend="model"), repeat=1):
            for seed in range(orders.seeds):
                with tempfile.TemporaryDirectory() as folder:
                    run = Path(folder) / "run"
                    told = conform(CaseDir(run), simulated(case, run, seed=seed).case)
                count += 1
                lost += sum(one.count for one in told.classes)
                if said := list(disagreement(told)):
                    bad += 1
                    sys.stdout.write(f"{file.stem} {case.id} seed {seed}: {'; '.join(said)}\n")
    took = time.monotonic() - began
    sys.stdout.write(f"{count} runs, {bad} disagree, {lost} lost or displaced and explained, {took:.0f} s\n")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
