"""How the audit hands its work to Spark, as jobs of so many tasks: an edge that does nothing writes them down."""

from __future__ import annotations

from itertools import chain
from types import SimpleNamespace

import pytest

from ackproof.audit import stages
from ackproof.audit.units import Limits
from ackproof.spark.job import Job


class Recording:
    """`came`: how many cores elsewhere there are, whenever that is asked."""

    def __init__(self, *came: int) -> None:
        self._came = list(came)
        self.jobs: list[Job] = []

    @property
    def cores_elsewhere(self) -> int:
        return self._came.pop(0)

    def __call__(self, job: Job) -> list:
        self.jobs.append(job)
        return []


@pytest.mark.parametrize(
    ("came", "rows", "cores"),
    [
        ((0,), 10**12, []),
        ((2, 2), 10**12, [2]),
        ((2, 8, 8), 10**12, [2, 8]),  # a master says 2 before any worker has come
        ((100_000, 100_000), 10**12, [512]),
        ((2, 100), 100_000_000, [2]),  # the rows make no more than a task for each of a hundred
        ((2,), 8_000_000, []),
        ((2, 2), 8_000_001, [2]),
    ],
)
def test_workers_elsewhere_are_started_as_they_come(came, rows, cores) -> None:
    edge = Recording(*came)
    assert stages.started(edge, rows, Limits()) is edge
    assert [(job.what, len(job.groups), job.partitions) for job in edge.jobs] == [
        ("starting the workers", count, count) for count in cores
    ]


def test_whoever_starts_says_something_to_each_of_those_that_judge() -> None:
    edge = Recording(3, 3)
    stages.started(edge, 10**9, Limits())
    (job,) = edge.jobs
    messages = list(job.task(iter(job.groups)))
    assert {sum(key) % job.partitions for key, _ in messages} == {0, 1, 2}
    assert job.judge is not None
    assert list(job.judge(iter(messages))) == [None] * len(messages)


@pytest.mark.parametrize(
    ("units", "tasks"),
    [(1, 1), (12, 12), (13, 13), (23, 23), (24, 12), (26, 13), (36, 12), (40, 14), (300, 100)],
)
@pytest.mark.parametrize("rows", [1_000_000, 2_000_000])
def test_walks_are_put_together_as_long_as_there_are_a_dozen_tasks(units, tasks, rows) -> None:
    edge = Recording()
    given = [SimpleNamespace(number=number, rows=rows) for number in range(units)]
    assert stages.walk(edge, given, Limits()) == []
    (job,) = edge.jobs
    assert len(job.groups) == tasks
    assert sorted(unit.number for unit in chain.from_iterable(job.groups)) == list(range(units))
