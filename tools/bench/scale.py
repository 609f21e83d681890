"""Does the audit share its work evenly? One worker against two, of a cluster beside a store.

    python tools/bench/scale.py [--records 10000000] [--layout own,hot] [--rounds 1] [--folder] [--keep DIR]

Makes a ledger of 12 partitions and one with all rows in one partition (3.2 rows a record: 31,000,000 records are 10^8
rows, for which making needs 8 GiB), puts them into an S3 server on the loopback (moto, which holds them in memory;
`--folder`: leaves them in a folder), and audits each on a standalone cluster of Spark with one worker of one core, then
with two. All processes of an audit together have as many cores of this machine as it has workers: else one worker
leaves the other cores to the driver and the JVMs, and two have less of them each. What is counted is held against what
was planted. The times of tasks come out of Spark's event log, and nobody looks at the processes meanwhile: that took a
quarter of a core, of which tasks of two workers felt more than those of one.

Printed of each audit: wall time (driver and workers, session start included), tasks and the sum of their times, the
longest task against the mean of its stage. Stages with less than a tenth of the sum are left out of that last figure,
and so is the job that starts the workers. Of the sum it is a part: `starts`. Each worker has its own start, however
little work there is, so it has a bar of its own.

Exit code 1: of the medians of the rounds, with two workers the sum without starts is larger by more than `--grows`
(0.1), a worker's start takes more than `--start` (4 s), or a longest task is more than `--most` (1.3) times the mean of
its stage.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
import audit_ledger  # noqa: E402 - the benches are no package
from bench_audit import check  # noqa: E402
from tests.audit.spark_cluster import cluster  # noqa: E402
from tests.support.s3 import CREDENTIALS, copied, s3_bucket  # noqa: E402

from ackproof.rundir.storage import locate, remove_tree  # noqa: E402

CONTENDER = Path(__file__).with_name("contender_audit.py")
CONF = {
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.pyspark.python": sys.executable,
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}
LEAST_SHARE = 0.1
"""Of the sum of all tasks: a stage with less says nothing of how even the work is."""


@dataclass(frozen=True)
class Task:
    """One task that succeeded, in seconds. `starts`: it does nothing but to start a worker."""

    stage: int
    seconds: float
    starts: bool


@dataclass(frozen=True)
class Shared:
    """An audit, and how its work was shared. `wall` in seconds."""

    wall: float
    counts: dict[str, int]
    tasks: tuple[Task, ...]

    @property
    def total(self) -> float:
        return sum(task.seconds for task in self.tasks)

    @property
    def starts(self) -> float:
        return sum(task.seconds for task in self.tasks if task.starts)

    @property
    def longest(self) -> float:
        """The longest task against the mean of its stage, of the stages that matter."""
        stages: dict[int, list[float]] = defaultdict(list)
        for task in self.tasks:
            if not task.starts:
                stages[task.stage].append(task.seconds)
        large = [seconds for seconds in stages.values() if sum(seconds) >= LEAST_SHARE * self.total]
        return max(max(seconds) / statistics.mean(seconds) for seconds in large)


def tasks_of(events: Path) -> tuple[Task, ...]:
    """What the event log says of an application's tasks, in the order in which they ended."""
    found: list[Task] = []
    starts: set[int] = set()
    for line in events.read_text("utf-8").splitlines():
        one = json.loads(line)
        if one["Event"] == "SparkListenerStageSubmitted":
            if "starting the workers" in one["Properties"]["spark.job.description"]:
                starts.add(one["Stage Info"]["Stage ID"])
        elif one["Event"] == "SparkListenerTaskEnd" and not (told := one["Task Info"])["Failed"]:
            seconds = (told["Finish Time"] - told["Launch Time"]) / 1000
            found.append(Task(one["Stage ID"], seconds, one["Stage ID"] in starts))
    return tuple(found)


@contextmanager
def cores(count: int) -> Iterator[None]:
    """What is started in this block has so many of this machine's cores together."""
    all_ = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(all_)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_)


def audited(ledger: Path, workers: int, folder: Path) -> Shared:
    """One audit, on a cluster of its own below `folder`."""
    events = folder / "events"
    events.mkdir(parents=True)
    with cores(workers), cluster(folder, workers) as running:
        conf = {**CONF, "spark.cores.max": str(workers), "spark.eventLog.dir": events.as_uri()}
        options = json.dumps({"master": running.master, "conf": conf})
        begin = time.monotonic()
        command = [sys.executable, str(CONTENDER), str(ledger), options]
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        wall = time.monotonic() - begin
    (log,) = events.iterdir()
    return Shared(wall, json.loads(said.splitlines()[-1]), tasks_of(log))


@contextmanager
def stored(ledgers: Sequence[Path], *, here: bool) -> Iterator[list[Path]]:
    """The same ledgers in a store, while the block lasts."""
    if here:
        yield list(ledgers)
        return
    os.environ.update(CREDENTIALS)
    with s3_bucket() as query:
        found = [locate(f"s3://bucket/{path.name}?{query}") for path in ledgers]
        try:
            for path, there in zip(ledgers, found, strict=True):
                copied(path / "ledger", there / "ledger")
            yield found
        finally:
            for there in found:
                remove_tree(there)


@dataclass(frozen=True)
class Medians:
    """Of the rounds with so many workers: seconds, seconds, and how much the longest task exceeds its mean."""

    workers: int
    total: float
    starts: float
    longest: float

    @classmethod
    def of(cls, workers: int, runs: Sequence[Shared]) -> Medians:
        found = [(run.total, run.starts, run.longest) for run in runs]
        return cls(workers, *map(statistics.median, zip(*found, strict=True)))

    @property
    def work(self) -> float:
        return self.total - self.starts


def growth(one: float, two: float) -> str:
    return f"{one:.1f} s and {two:.1f} s ({two / one - 1:+.0%})"


def wrong(one: Medians, two: Medians, bars: argparse.Namespace) -> list[str]:
    """Which bars are broken."""
    said: list[str] = []
    if two.work > (1 + bars.grows) * one.work:
        said.append(f"the work of two workers takes {growth(one.work, two.work)}")
    for of in (one, two):
        if of.starts > bars.start * of.workers:
            said.append(f"with {of.workers} workers the start of each takes {of.starts / of.workers:.1f} s")
        if of.longest > bars.most:
            said.append(f"with {of.workers} workers the longest task takes {of.longest:.2f} times the mean")
    return said


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--layout", default="own,hot")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--folder", action="store_true", help="leave the ledgers in a folder")
    parser.add_argument("--keep", type=Path, help="make the ledgers here, or use those that are there")
    parser.add_argument("--grows", type=float, default=0.1)
    parser.add_argument("--start", type=float, default=4.0)
    parser.add_argument("--most", type=float, default=1.3)
    chosen = parser.parse_args()
    broken: list[str] = []
    with ExitStack() as stack:
        work = Path(tempfile.mkdtemp(prefix="ackproof-scale-"))
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        made = [
            audit_ledger.written(chosen.keep or work, chosen.records, one) for one in chosen.layout.split(",")
        ]
        ledgers = stack.enter_context(stored([path for path, _ in made], here=chosen.folder))
        found: dict[tuple[str, int], list[Shared]] = defaultdict(list)
        print(f"{chosen.records:,} records, {'a folder' if chosen.folder else 's3'}, {os.cpu_count()} cores")
        print(f"{'':16} workers {'wall':>8} tasks {'sum':>8} {'starts':>8} longest   load", flush=True)
        for number in range(chosen.rounds):
            for (path, planted), there in zip(made, ledgers, strict=True):
                for workers in (1, 2):
                    one = audited(there, workers, work / f"{path.name}-{number}-{workers}")
                    check(one.counts, planted)
                    found[path.name, workers].append(one)
                    print(
                        f"{path.name:16} {workers:7} {one.wall:6.1f} s {len(one.tasks):5} {one.total:6.1f} s "
                        f"{one.starts:6.1f} s {one.longest:7.2f} {os.getloadavg()[0]:6.1f}",
                        flush=True,
                    )
        for path, _ in made:
            of_one, of_two = (Medians.of(workers, found[path.name, workers]) for workers in (1, 2))
            print(f"{path.name}: tasks take {growth(of_one.total, of_two.total)}, without starts", end=" ")
            print(growth(of_one.work, of_two.work))
            broken += [f"{path.name}: {said}" for said in wrong(of_one, of_two, chosen)]
    print("\n".join(broken) or "all bars hold")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
