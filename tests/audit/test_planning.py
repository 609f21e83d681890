"""Tests of how the audit cuts its work into jobs and tasks for Spark."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackproof.audit import stages
from ackproof.audit.planning import (
    GREATEST,
    IDENTITY,
    LEAST,
    OFFSET,
    TIME,
    CutAxis,
    RowSource,
    count_ranges,
    count_tasks,
    cut_ranges,
    group_tasks,
)
from ackproof.audit.slices import do_walk
from ackproof.audit.units import Limits
from ackproof.ledgers.load import Spilled, Stream
from ackproof.spark.job import Job


class Recording:
    """Edge that records jobs and runs none. `came`: the values that `cores_elsewhere` returns, in order."""

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
    assert stages.start_workers(edge, rows, Limits()) is edge
    assert [(job.what, len(job.groups), job.partitions) for job in edge.jobs] == [
        ("starting the workers", count, count) for count in cores
    ]


def test_whoever_starts_says_something_to_each_of_those_that_judge() -> None:
    edge = Recording(3, 3)
    stages.start_workers(edge, 10**9, Limits())
    (job,) = edge.jobs
    messages = list(job.task(iter(job.groups)))
    assert {sum(key) % job.partitions for key, _ in messages} == {0, 1, 2}
    assert job.judge is not None
    assert list(job.judge(iter(messages))) == [None] * len(messages)


FEWER = [(1, 1), (10, 10), (19, 19), (20, 10), (29, 15), (30, 10), (35, 12), (36, 12), (40, 14), (300, 100)]


@pytest.mark.parametrize(("units", "tasks"), FEWER)
def test_units_are_put_together_as_long_as_there_are_ten_tasks(units, tasks) -> None:
    edge = Recording(2)
    walks = [SimpleNamespace(number=number, rows=1_000_000 + number % 3) for number in range(units)]
    assert stages.run_units(edge, "following readers", walks, Limits(), do_walk) == []
    (job,) = edge.jobs
    sizes = [len(group) for group in job.groups]
    assert len(sizes) == tasks
    assert max(sizes) - min(sizes) <= 1
    assert sorted(unit.number for unit in chain.from_iterable(job.groups)) == list(range(units))


@pytest.mark.parametrize(
    ("cores", "tasks"), [(0, 36), (1, 12), (3, 12), (4, 18), (5, 36), (9, 36), (100, 36)]
)
def test_each_core_elsewhere_gets_four_tasks_before_any_are_put_together(cores, tasks) -> None:
    assert count_tasks(36, cores) == tasks
    edge = Recording(cores)
    walks = [SimpleNamespace(number=number, rows=1_000_000) for number in range(36)]
    stages.run_units(edge, "following readers", walks, Limits(), do_walk)
    assert len(edge.jobs[0].groups) == tasks


@pytest.mark.parametrize(("cores", "judges", "each"), [(0, 36, 1), (2, 12, 3), (4, 18, 2), (9, 36, 1)])
def test_ranges_of_places_are_judged_by_threes_too(cores, judges, each) -> None:
    edge = Recording(cores)
    target = SimpleNamespace(number=3, shares=25)
    units = [SimpleNamespace(target=target, rows=4_000_000)] * 36
    places = {(3, 25 + number): None for number in range(36)}
    stages.count_units(edge, units, places, Limits())
    (job,) = edge.jobs
    assert job.partitions == judges
    assert set(Counter(sum(key) % judges for key in places).values()) == {each}


@given(
    st.lists(st.integers(0, 3_000_000), min_size=1, max_size=80),
    st.integers(0, 20),
    st.sampled_from([1, 400_000]),
)
def test_each_unit_is_in_one_task_and_none_does_much_more_than_another(rows, cores, task_rows) -> None:
    units = [SimpleNamespace(number=number, rows=one) for number, one in enumerate(rows)]
    found = group_tasks(units, Limits(task_rows=task_rows), cores)
    assert sorted(unit.number for unit in chain.from_iterable(found)) == list(range(len(units)))
    does = [sum(unit.rows + 20_000 for unit in task) for task in found]
    assert min(does) > 0
    assert does == sorted(does, reverse=True)
    # greedy: none exceeds another by more than the last unit that it got, which is its smallest
    for task, sum_ in zip(found, does, strict=True):
        assert len(task) == 1 or sum_ - min(unit.rows + 20_000 for unit in task) <= min(does)


def source(stream: Stream, low: int, high: int, rows: int) -> RowSource:
    spans = dict.fromkeys(("at_ns", "read_ns", "seq", "offset", "read_seq"), (low, high))
    return RowSource((stream, Spilled("", 0, rows, (), spans)))


def borders(sources: list[RowSource], axis: CutAxis, count: int) -> list[int]:
    cuts = cut_ranges(sources, axis, count)
    assert (cuts[0].low, cuts[-1].last) == (LEAST, GREATEST)
    assert [one.last + 1 for one in cuts[:-1]] == [one.low for one in cuts[1:]], (
        "no value is in two, or in none"
    )
    return [one.low for one in cuts[1:]]


def test_what_is_produced_costs_three_times_what_is_read_live() -> None:
    # 900 attempts cost 900, then 900 reads cost 300: of 1200 each half is 600.
    both = [source("produced", 0, 899, 900), source("live", 900, 1799, 900)]
    assert borders(both, TIME, 2) == [600]
    assert borders(both, TIME, 4) == [300, 600, 900]
    assert borders(both, TIME, 8) == [150, 300, 450, 600, 750, 900, 1350], (
        "of reads no more than three times as many"
    )
    assert (count_ranges(both, TIME, 400), count_ranges(both, TIME, 401)) == (3, 3)
    assert borders([source("produced", 0, 999, 1000)], TIME, 4) == [250, 500, 750]


def test_streams_that_an_axis_does_not_cut_are_in_no_range() -> None:
    live = [source("live", 0, 9, 100)]
    assert (count_ranges(live, IDENTITY, 10), count_ranges(live, TIME, 10)) == (0, 4)
    (one,) = cut_ranges(live, IDENTITY, 3)
    assert (one.low, one.last, one.sources, one.rows) == (LEAST, GREATEST, (), 0)


def test_a_row_group_costs_something_besides_its_rows_and_at_most_as_much() -> None:
    # 90,000 rows cost 120,000, three times 30,000 cost 180,000: the half is in the midst of the first of these three.
    sources = [source("final", 0, 89_999, 90_000)]
    sources += [source("final", low, low + 29_999, 30_000) for low in (90_000, 120_000, 150_000)]
    assert borders(sources, OFFSET, 2) == [105_000]
    # However many there are, none of two ranges has more than two thirds of the rows.
    tiny = [source("final", 10**9 + low, 10**9 + low, 1) for low in range(1000)]
    assert borders([source("final", 0, 999, 1000), *tiny], OFFSET, 2) == [10**9]
