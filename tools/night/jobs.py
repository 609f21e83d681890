"""The jobs of a night: every experiment against every release on every backend, storms, and the slow tests.

Each experiment that Java clients can run has one more job with these, on processes and the newest release."""

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
"""Prefix of the names of experiments without any fault. A finding in them, except a harmless one (`results.HARMLESS`),
is a bug of the harness, or of a Kafka that fails without a fault."""
STORM = "storm"
"""Prefix of the names of experiments whose seed is the date of the night."""
SLOW_TESTS = "tests marked nightly"
CLAIMS = "all claims, and their duds"
FAULT_TABLE = "every fault on every backend"
MUTANTS = "changes that tests notice: "
ROOMS = ("audit", "faults", "judge", "predict", "quantities", "reference", "repeats", "replay", "rundir")
"""Rooms that have mutation tests (tools/mutation)."""
TESTS = Path(__file__).resolve().parents[2] / "tests"
BITES = ("test_faults_*.py", "test_bites*.py")
"""Test modules that confirm faults on real clusters."""
PLANTED = "planted bugs that are found"
PLANTED_MODULE = "tools.planted.run"
PLANTED_NIGHTS = 7
"""Number of nights in which all planted bugs are run, a share each night."""
ASKED = "test_claims.py"
"""Test module that runs the claims; it takes half an hour or more."""
PAIR_NIGHTS = 14
"""Number of nights in which all pairs of fault kinds are run, a share each night."""
_RELEASE = "cluster.kafka"
_CLIENTS = ("workload.producers.client", "workload.consumers.client")


@dataclass(frozen=True)
class Job:
    """One call of `ackproof run` for `file`, or of the Python module `module` if `file` is None. `words`: its
    arguments. `weight`: number of cases, for a module a tenth of the night's cases; jobs are distributed over shards by
    it. `control`: True if the experiment has no fault."""

    name: str
    weight: int
    file: Path | None = None
    words: tuple[str, ...] = ()
    control: bool = False
    module: str = "pytest"


@dataclass(frozen=True)
class Refused:
    """An experiment on a release and backend that validation refuses, for the reason `why`."""

    name: str
    why: str


@dataclass(frozen=True)
class Night:
    """The jobs of one night, and the combinations that validation refuses."""

    jobs: tuple[Job, ...]
    refused: tuple[Refused, ...]

    def repeated(self, times: int) -> Night:
        """Return the night with each case of each experiment run `times` times. Jobs of pairs of faults, whose cases
        are a share of all pairs, are run once."""
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
    """Return all jobs of a night. `slow_tests`: True to add the jobs of Python modules: slow tests, claims, fault
    table, planted bugs, mutation tests. Raises `BadInput` for an experiment file that is invalid with its own release
    and backend."""
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
        slow = (
            "-m",
            "nightly or hypothesis",  # Hypothesis marks its tests: they have more examples at night
            *(f"--ignore-glob=*/{name}" for name in (*BITES, f"cluster/{ASKED}")),
        )
        jobs.append(Job(SLOW_TESTS, share, words=slow))
        jobs.append(Job(CLAIMS, share, words=("-m", "nightly", str(TESTS / "cluster" / ASKED))))
        jobs.append(Job(FAULT_TABLE, share, words=("--whole-table", ",".join(backends), *bites)))
        part = f"{date.toordinal() % PLANTED_NIGHTS + 1}/{PLANTED_NIGHTS}"
        jobs.append(Job(PLANTED, share, words=("--shard", part), module=PLANTED_MODULE))
        jobs += [Job(MUTANTS + room, share, words=(room,), module="tools.mutation.mutate") for room in ROOMS]
    return Night(tuple(jobs), tuple(refused))


def shard_of(jobs: Sequence[Job], index: int, count: int) -> tuple[Job, ...]:
    """Return the jobs of shard `index` (from 1) of `count`. Jobs are distributed by weight, the heaviest first, each to
    the shard with the least weight so far. Raises `BadInput` for a shard that does not exist."""
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
    """Return the jobs for this date's share of all pairs of faults, on processes only: on the newest release, and on
    the oldest in KRaft and ZooKeeper mode. A release that `releases` lacks is left out."""
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
    """Return the job of one experiment on one release and backend, or the reason why it is refused. `release` None: the
    experiment's matrix varies the release. `client`: library for its producers and readers, which must not change its
    verdicts; '': the file's own."""
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
