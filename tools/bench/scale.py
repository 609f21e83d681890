"""Benchmark: does the audit share its work evenly between Spark workers? One worker against two, of a standalone
cluster.

    python tools/bench/scale.py [--records 10000000] [--layout own,hot] [--rounds 1] [--folder] [--keep DIR]

Makes a ledger of 12 partitions, and one with all rows in one partition (3.2 rows per record: 31,000,000 records are
10^8 rows, which take 8 GiB to make). Puts them into an S3 server on loopback (moto, which keeps them in memory), or
with `--folder` leaves them in a folder. Each ledger is audited on a Spark cluster with one worker of one core, then
with two workers. All processes of an audit together may use as many cores as it has workers: otherwise one worker would
leave the other cores to the driver and the JVMs. The counts are compared with what was planted. Task times come from
Spark's event log; processes are not sampled, because that took a quarter of a core.

Prints for each audit: wall time (driver and workers, session start included), number and total time of tasks, and the
longest task divided by the mean of its stage. This ratio leaves out stages with less than a tenth of the total, and the
job that starts the workers. The total includes that job (`starts`). Each worker has to start however little work there
is, so the start has a bar of its own.

Exit code 1 if, in the medians of the rounds, one of these holds. With two workers the total without starts is larger by
more than `--grows` (0.1). The start of a worker takes more than `--start` (4 s). A longest task is more than `--most`
(1.3) times the mean of its stage."""

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
"""Share of the total task time below which a stage is left out of the ratio of the longest task."""


@dataclass(frozen=True)
class Task:
    """One task of Spark that succeeded. `stage`: id of its stage. `seconds`: its time. `starts`: True if it only starts
    a worker."""

    stage: int
    seconds: float
    starts: bool


@dataclass(frozen=True)
class Shared:
    """One audit with its tasks. `wall`: wall time in seconds. `counts`: findings by class."""

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
        """The greatest ratio of the longest task to the mean of its stage, over the stages with at least `LEAST_SHARE`
        of the total."""
        stages: dict[int, list[float]] = defaultdict(list)
        for task in self.tasks:
            if not task.starts:
                stages[task.stage].append(task.seconds)
        large = [seconds for seconds in stages.values() if sum(seconds) >= LEAST_SHARE * self.total]
        return max(max(seconds) / statistics.mean(seconds) for seconds in large)


def tasks_of(events: Path) -> tuple[Task, ...]:
    """Return the successful tasks in a Spark event log, in the order in which they ended."""
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
    """Limit this process, and what it starts in the block, to `count` cores of the machine."""
    all_ = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(all_)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_)


def audited(ledger: Path, workers: int, folder: Path) -> Shared:
    """Run one audit on a Spark cluster of its own with this number of workers; return its wall time, counts and tasks.
    `folder`: for the cluster's files and event log."""
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
    """Copy the ledgers into an S3 server that runs while the block lasts, and yield their paths there. `here`: True to
    leave them where they are."""
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
    """Medians over the rounds with one number of workers: total task seconds, seconds of the starts, and the ratio of
    the longest task."""

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
    """Return a sentence for each bar that is exceeded. `one`, `two`: medians with one worker and with two."""
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
