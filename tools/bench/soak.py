"""Runs a soak with planted lies and measures memory: each lie must be found within two windows, nothing else may be
found, and no process of the harness may grow.

``python tools/bench/soak.py --lies 1500,1560,1620 --settled 600 -- run experiments/soak.yaml --soak 30m --keep 3`` runs
`ackproof` with the words after `--` in this process. At the seconds of the load in `--lies`, its first producer lies,
once in each way (`tests/cluster/lies/lying_producer.py`). Every five seconds the resident memory (VmRSS) of this
process, and of each process of the run that is no node, is recorded. At the end the tool prints the memory of each
twice: ``--settled`` seconds after the begin of the load (at most half of it), and at its end. It also prints the slope
(least squares) in MiB per hour.

Exit code 1 if a lie was found later or not at all, or something else was found. Also if the processes that lived
throughout grow together by more than ``--most`` MiB per hour. Also if `ackproof` did not exit with 1 (without lies:
0)."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ackproof.base.processes import find_children
from ackproof.cli.main import main as ackproof
from ackproof.clients.librdkafka import adapter
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.windows import read_windows

EVERY_S = 5.0
LIAR = Path(__file__).parents[2] / "tests" / "cluster" / "lies"
LIES = ("lost", "duplicate", "resurrected")
HARMLESS = {"surfaced"}
FEWEST = 10
"""Least number of memory samples of a process for which a slope is computed."""


def resident_mib(pid: int) -> float | None:
    """Return the resident memory (VmRSS) of a process in MiB; None if the process is gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return None


def is_producer(role: str) -> bool:
    return role.startswith("p") and role[1:].isdigit()


@dataclass
class Weigher:
    """Samples memory, and requests the lies at their times; set `stop` to end it. `lies`: file to create → second of
    the load. `looks`: samples, each with the seconds of the load (`s`, negative before it) and MiB by role."""

    lies: dict[Path, float]
    looks: list[dict[str, float]] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    over_s: float = 0.0
    """Second of the load at which a producer was last seen running."""

    def watch(self) -> None:
        began = time.monotonic()
        while not self.stop.wait(EVERY_S):
            found = {"harness": resident_mib(os.getpid())}
            for child in find_children():
                if child.owner_pid == os.getpid() and not child.role.startswith(
                    ("broker", "controller", "node")
                ):
                    found[child.role] = resident_mib(child.pid)
            now = time.monotonic() - began
            if any(map(is_producer, found)):
                self.over_s = now
            elif not self.over_s:
                began = time.monotonic()
            self.looks.append({"s": now, **{role: mib for role, mib in found.items() if mib is not None}})
            for lie in [lie for lie, at in self.lies.items() if self.over_s >= at]:
                del self.lies[lie]
                lie.touch()


def told(looks: list[dict[str, float]], settled_s: float, until_s: float) -> float:
    """Print the memory of each process of the harness (by its role, such as `p0`), and its growth (slope), if it has at
    least `FEWEST` samples. Return the slope, in MiB per hour, of the summed memory of the processes that are in every
    sample; 0 with fewer than `FEWEST` samples. Only samples (`looks`) from second `settled_s` to `until_s` of the load
    count."""
    of_load = [look for look in looks if settled_s <= look["s"] <= until_s]
    by_role: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for look in of_load:
        for role, mib in look.items():
            if role != "s":
                by_role[role].append((look["s"], mib))
    lasting = {role for role, points in by_role.items() if len(points) == len(of_load)}
    together = [(look["s"], sum(look[role] for role in lasting)) for look in of_load]
    print(f"from {settled_s:.0f} s to {until_s:.0f} s of the load, {len(of_load)} looks")
    slope = 0.0
    for role, points in [*sorted(by_role.items()), ("all that last", together)]:
        if len(points) < FEWEST:
            continue
        seconds, mib = np.array(points).T
        slope = float(np.polyfit(seconds, mib, 1)[0]) * 3600
        print(
            f"{role:>16}: {mib[0]:7.1f} MiB, {mib[-1]:7.1f} at the end, {mib.min():7.1f} to {mib.max():7.1f}; "
            f"slope {slope:+8.2f} MiB/h"
        )
    return slope


def wrong(run: CaseDir, asked: bool) -> Iterator[str]:
    """Yield a sentence if a kind of lie did not happen, and one for each lie that was not found in its window or the
    next. Yield one more for each class of which the windows found another number than planted, except those in
    `HARMLESS`. `asked`: True if lies were requested."""
    audited = list(read_windows(run))
    found = {name: at for at, one in enumerate(audited) for name in one.counts}
    lies = run.clients / "p0" / "lies.jsonl"
    lines = lies.read_text(encoding="ascii").splitlines() if asked else []
    when = {one["lie"]: one["t_ns"] for one in map(json.loads, lines)}
    if asked and when.keys() != set(LIES):
        yield f"of the lies only {sorted(when)} were told"
    for lie, t_ns in when.items():
        first = next(at for at, one in enumerate(audited) if one.from_ns <= t_ns < one.to_ns)
        if lie not in found:
            yield f"{lie}, told in window {first}, was found by no window"
            continue
        print(f"{lie}: told in window {first}, found by window {found[lie]}")
        if found[lie] - first > 1:
            yield f"{lie}, told in window {first}, was found by window {found[lie]} only"
    counts = {name: sum(one.counts.get(name, 0) for one in audited) for name in found}
    for name, count in counts.items():
        if name not in HARMLESS and count != (name in when):
            yield f"{name}: {count} found, {int(name in when)} planted"
    deleted = sum(one.deleted for one in audited)
    acked = sum(one.acked for one in audited)
    print(f"{len(audited)} windows, {deleted} of them deleted; {acked:,} acknowledged; found {counts}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lies", default="", help="three seconds of the load")
    parser.add_argument("--settled", type=float, default=600.0, help="seconds before memory is to be flat")
    parser.add_argument("--most", type=float, default=16.0, help="MiB an hour")
    parser.add_argument("--looks", type=Path, help="write what was looked at to this file")
    parser.add_argument("words", nargs="+")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        times = [float(at) for at in given.lies.split(",") if at]
        weigher = Weigher({Path(folder) / lie: at for lie, at in zip(LIES, times, strict=False)})
        if times:
            adapter.PRODUCER_MODULE = "lying_producer"
            os.environ["LIES"] = folder
            os.environ["PYTHONPATH"] = os.pathsep.join([str(LIAR), os.environ.get("PYTHONPATH", "")])
        thread = threading.Thread(target=weigher.watch, daemon=True)
        thread.start()
        code = ackproof(given.words, standalone_mode=False)
        weigher.stop.set()
        thread.join()
    if given.looks:
        given.looks.write_text("".join(json.dumps(look) + "\n" for look in weigher.looks), encoding="ascii")
    out = Path(given.words[given.words.index("--out") + 1]) if "--out" in given.words else Path("runs")
    (run,) = (CaseDir(path.parent) for path in (out / "latest").resolve().glob("*/case.json"))
    problems = list(wrong(run, bool(times)))
    slope = told(weigher.looks, min(given.settled, weigher.over_s / 2), weigher.over_s - EVERY_S)
    if slope > given.most:
        problems.append(f"all processes together grow by {slope:.1f} MiB an hour, more than {given.most:.1f}")
    if code != (1 if times else 0):
        problems.append(f"ackproof ended with exit code {code}")
    print("\n".join(problems) or "as it should be")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
