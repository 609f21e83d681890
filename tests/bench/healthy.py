"""Healthy runs: nothing that Kafka forbids happens, so that every verdict must be PASS, and no finding made.

    python tests/bench/healthy.py [--runs 50] [--batch 10] [--at-most N] [--out runs/healthy]

No faults; kills of leaders, of followers and of the controller, a restart and a pause, all with acks=all on two
replicas and idempotent producers. Prints each run that is not PASS with its reasons, then the numbers. What was run
is kept in `figures.jsonl` of the folder, a line per run, and the next call goes on from there: --at-most N runs no
more than N in this call. The exit code is 0 when all so far passed without a finding.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ackproof.rundir.documents import BatchCase, BatchFile

ACKPROOF = Path(sys.executable).with_name("ackproof")
CLUSTER = """\
name: {name}
cluster: {{brokers: 3, controllers: 1}}
topics:
  orders: {{partitions: 2, config: {{min.insync.replicas: 2}}}}
workload:
  producers: {{count: 2, acks: all, idempotence: true, rate: 2000/s}}
  consumers: {{live: 1}}
  duration: 2s
"""
FAULTS = {
    "calm": "",
    "leader-kill": "faults: [{kill: {target: leader(orders/0)}, when: acked >= 1000, restart_after: 2s}]",
    "follower-kill": "faults: [{kill: {target: followers(orders/0)}, at: 1s, restart_after: 1s}]",
    "controller-kill": "faults: [{kill: {target: controller}, at: 1s, restart_after: 1s}]",
    "leader-restart": "faults: [{restart: {target: leader(orders/1)}, at: 1s}]",
    "leader-pause": "faults: [{pause: {target: leader(orders/0)}, at: 1s, for: 4s}]",
}
KINDS = (
    "calm",
    "leader-kill",
    "calm",
    "follower-kill",
    "calm",
    "leader-kill",
    "controller-kill",
    "leader-kill",
)
KINDS += ("leader-restart", "leader-pause")
FIGURES = {"produced", "acked", "failed", "indeterminate", "consumed_live", "consumed_final", "surfaced"}
"""Counts of a case that are no findings; an indeterminate attempt may surface."""


@dataclass
class Tally:
    """What the runs so far came to."""

    verdicts: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)

    def add(self, case: BatchCase) -> None:
        self.verdicts[str(case.verdict or "no verdict")] += 1
        for name, count in case.counts.items():
            (self.records if name in FIGURES else self.found)[name] += count

    @property
    def well(self) -> bool:
        return set(self.verdicts) == {"PASS"} and not any(self.found.values())


def files_of(kinds: Sequence[str], folder: Path) -> Iterator[Path]:
    """One experiment file for each kind that is wanted, with as many repeats."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, count in Counter(kinds).items():
        file = folder / f"{kind}.yaml"
        file.write_text(f"{CLUSTER.format(name=kind)}{FAULTS[kind]}\nrepeat: {count}\n", encoding="utf-8")
        yield file


def run_batch(number: int, kinds: Sequence[str], own: Path) -> BatchFile:
    """Run these as one batch by the command."""
    files = list(files_of(kinds, own / "files"))
    done = subprocess.run(
        [ACKPROOF, "run", *files, "--out", own / "runs", "--seed", str(number), "--json"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    try:
        return BatchFile.model_validate_json(done.stdout)
    except ValueError:
        raise SystemExit(f"batch {number} left no batch.json:\n{done.stderr}") from None


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="healthy runs must pass")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--at-most", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=Path("runs/healthy"))
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    tally, began, figures = Tally(), time.monotonic(), given.out / "figures.jsonl"
    if figures.exists():
        for line in figures.read_text(encoding="utf-8").splitlines():
            tally.add(BatchCase.model_validate_json(line))
    done = tally.verdicts.total()
    for first in range(done, min(given.runs, done + given.at_most), given.batch):
        kinds = [KINDS[i % len(KINDS)] for i in range(first, min(first + given.batch, given.runs))]
        own = given.out / f"{first:02d}-{time.strftime('%H%M%S')}"
        for case in run_batch(first, kinds, own).cases:
            tally.add(case)
            with figures.open("a", encoding="utf-8") as file:
                file.write(case.model_dump_json() + "\n")
            found = {name: n for name, n in case.counts.items() if n and name not in FIGURES}
            if str(case.verdict) != "PASS" or found:
                print(f"{case.run}: {case.verdict} {found} {case.error or ''}", *case.reasons, sep="\n    ")
        print(
            f"after {tally.verdicts.total()} runs, {time.monotonic() - began:.0f} s: {dict(tally.verdicts)}, "
            f"findings {dict(+tally.found)}, load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    print(f"verdicts: {dict(tally.verdicts)}, findings: {dict(+tally.found)}, records: {dict(tally.records)}")
    return 0 if tally.well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
