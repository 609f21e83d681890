"""The jobs of a night: every experiment against every release on every backend, storms, and the slow tests.

Every experiment that applies runs once more with Java clients, on processes and the newest release.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ackproof.base.errors import BadInput
from ackproof.experiment.client import JAVA
from ackproof.experiment.kafka import NEWEST
from ackproof.faults.pairs import pair_storm_of
from ackproof.plan import InvalidExperiment, cases, load
from ackproof.run.options import BatchOptions, plan_batch

CONTROL = "baseline"
"""Experiments whose name begins so break nothing: any finding is a bug of the harness."""
STORM = "storm"
"""Experiments whose name begins so take the night's date as their seed."""
SLOW_TESTS = "tests marked nightly"
CLAIMS = "all claims, and their duds"
FAULT_TABLE = "every fault on every backend"
MUTANTS = "changes that tests notice: "
ROOMS = ("audit", "faults", "judge", "predict", "quantities", "reference", "repeats", "replay", "rundir")
"""What tools/mutation changes."""
TESTS = Path(__file__).resolve().parents[2] / "tests"
BITES = ("test_faults_*.py", "test_bites*.py")
"""Where faults are seen to bite."""
PLANTED = "planted bugs that are found"
PLANTED_MODULE = "tools.planted.run"
PLANTED_NIGHTS = 7
"""In so many nights all planted bugs have been run, a share each night."""
ASKED = "test_claims.py"
"""Where claims are asked, all of them; half an hour, and as much for those whose faults are spared."""
PAIR_NIGHTS = 14
"""In so many nights all pairs of fault kinds have been run, a share each night."""
_RELEASE = "cluster.kafka"
_CLIENTS = ("workload.producers.client", "workload.consumers.client")


@dataclass(frozen=True)
class Job:
    """One call of `ackproof run`, or of a Python module when `file` is None. `weight`: cases, for an even spread."""

    name: str
    weight: int
    file: Path | None = None
    words: tuple[str, ...] = ()
    control: bool = False
    module: str = "pytest"


@dataclass(frozen=True)
class Refused:
    """What validation does not let run, and why: an experiment about what a release or a backend does not have."""

    name: str
    why: str


@dataclass(frozen=True)
class Night:
    """All that one night does."""

    jobs: tuple[Job, ...]
    refused: tuple[Refused, ...]

    def repeated(self, times: int) -> Night:
        """The same, each case of each experiment so many times; pairs of faults, whose cases are shares, once."""
        words = ("--repeat", str(times))
        again = (
            replace(job, weight=job.weight * times, words=(*job.words, *words))
            if job.file is not None and "--shard" not in job.words
            else job
            for job in self.jobs
        )
        return replace(self, jobs=tuple(again))


def plan_night(
    files: Iterable[Path],
    releases: Sequence[str],
    backends: Sequence[str],
    date: datetime.date,
    *,
    slow_tests: bool,
) -> Night:
    """Every job of a night. Raises `BadInput` for a file that is wrong by itself, not only for some release."""
    jobs: list[Job] = []
    refused: list[Refused] = []
    for file in sorted(files):
        spec = load(file).spec  # which also tells a broken file from one that a release refuses
        if pair_storm_of(spec) is not None:
            jobs += _pair_jobs(file, releases, backends, date)
            continue
        varies = _RELEASE in spec.matrix
        for release in (None,) if varies else releases:
            tried = [_job(file, release, backend, date) for backend in backends]
            if release in (None, NEWEST[-1]) and "process" in backends:
                tried.append(_job(file, release, "process", date, JAVA))
            for one in tried:
                if isinstance(one, Job):
                    jobs.append(one)
                else:
                    refused.append(one)
    if slow_tests:
        share = sum(job.weight for job in jobs) // 10 + 1
        bites = sorted(str(file) for name in BITES for file in TESTS.rglob(name))
        slow = ("-m", "nightly", *(f"--ignore-glob=*/{name}" for name in (*BITES, f"cluster/{ASKED}")))
        jobs.append(Job(SLOW_TESTS, share, words=slow))
        jobs.append(Job(CLAIMS, share, words=("-m", "nightly", str(TESTS / "cluster" / ASKED))))
        jobs.append(Job(FAULT_TABLE, share, words=("--whole-table", ",".join(backends), *bites)))
        part = f"{date.toordinal() % PLANTED_NIGHTS + 1}/{PLANTED_NIGHTS}"
        jobs.append(Job(PLANTED, share, words=("--shard", part), module=PLANTED_MODULE))
        jobs += [Job(MUTANTS + room, share, words=(room,), module="tools.mutation.mutate") for room in ROOMS]
    return Night(tuple(jobs), tuple(refused))


def shard_of(jobs: Sequence[Job], index: int, count: int) -> tuple[Job, ...]:
    """The jobs of shard `index` (from 1) of `count`: the heaviest first, each to the shard that has least so far."""
    if not 1 <= index <= count:
        raise BadInput(f"shard {index}/{count}: there are shards 1 to {count}")
    loads = [0] * count
    mine: list[Job] = []
    for job in sorted(jobs, key=lambda job: (-job.weight, job.name)):
        lightest = loads.index(min(loads))
        loads[lightest] += job.weight
        if lightest == index - 1:
            mine.append(job)
    return tuple(sorted(mine, key=lambda job: job.name))


def _pair_jobs(
    file: Path, releases: Sequence[str], backends: Sequence[str], date: datetime.date
) -> list[Job]:
    """The share of all pairs that this date has: of the newest release, and of the first in both modes."""
    grounds = [(NEWEST[-1], "kraft"), (NEWEST[0], "kraft"), (NEWEST[0], "zookeeper")]
    shard = (date.toordinal() % PAIR_NIGHTS + 1, PAIR_NIGHTS)
    jobs: list[Job] = []
    for release, mode in grounds:
        if release not in releases or "process" not in backends:
            continue
        settings = (f"{_RELEASE}={release}", f"cluster.mode={mode}")
        planned = plan_batch(BatchOptions((file,), settings=settings, shard=shard))
        words = [word for setting in settings for word in ("--set", setting)]
        words += ["--shard", f"{shard[0]}/{shard[1]}", "--backend", "process"]
        name = f"{file.stem} {shard[0]} of {shard[1]} on {release}, {mode}"
        jobs.append(Job(name, len(planned.cases), file, tuple(words)))
    return jobs


def _job(
    file: Path, release: str | None, backend: str, date: datetime.date, client: str = ""
) -> Job | Refused:
    """One experiment against one release; `None` for an experiment whose own matrix goes through releases. `client`:
    library of all its clients, '': those of the file. Its verdicts are to be the same.
    """
    name = f"{file.stem} on {release}, {backend}" if release else f"{file.stem}, {backend}"
    name += f", {client}" if client else ""
    settings = (f"{_RELEASE}={release}",) if release else ()
    settings += tuple(f"{kind}={client}" for kind in _CLIENTS if client)
    try:
        plan = load(file, settings, backend=backend)
    except InvalidExperiment as error:
        return Refused(name, "; ".join(dict.fromkeys(problem.message for problem in error.problems)))
    words = [word for setting in settings for word in ("--set", setting)] + ["--backend", backend]
    if plan.spec.name.startswith(STORM):
        words += ["--seed", f"{date:%Y%m%d}"]
    return Job(name, len(cases(plan)), file, tuple(words), plan.spec.name.startswith(CONTROL))
