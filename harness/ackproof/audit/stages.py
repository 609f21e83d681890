"""The audit as Spark jobs: tasks over units of work, and one shuffle. An *edge* (`spark.edges`) runs a job: on Spark's
executors, or in this process.

    split units ──▶ rows put aside by bucket
    walk units ──▶ gaps of readers of hot buckets
    directory units ──▶ counts
    bucket units, slice units ──▶ counts, and shares ══ shuffle by identity or offset ══▶ counts
    order units ──▶ counts

The driver gets counts, the first thousand flawed offsets, ends of ranges, and locations of rows put aside.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TypeAlias

import numpy as np

from ackproof.audit.planning import AnyUnit, count_tasks, group_tasks
from ackproof.audit.shares import Share
from ackproof.audit.slices import (
    PlaceInput,
    PlaceUnit,
    SliceResult,
    SliceUnit,
    WalkResult,
    do_places,
    do_slice,
)
from ackproof.audit.units import (
    AuditTarget,
    BucketUnit,
    DirectoryUnit,
    Limits,
    SplitResult,
    SplitUnit,
    Tally,
    Trouble,
    do_bucket,
    do_share,
    do_split,
    do_whole,
)
from ackproof.rundir.arrow import limit_arrow_threads
from ackproof.spark.job import Edge, Job, Key

_MOST_PARTITIONS = 512
_HEAP = 192 << 20
"""Bytes that a task of `Limits.slice_rows` rows needs. The empty job (`start_workers`) allocates them once, and malloc
keeps them for the tasks (`spark.driver`)."""
_RESULT = -1

Message: TypeAlias = Tally | Trouble | Share | SplitResult | WalkResult | SliceResult | PlaceInput
Counting: TypeAlias = DirectoryUnit | BucketUnit | SliceUnit
Keyed: TypeAlias = tuple[Key, Message]
"""Answer of a task, with its key in the shuffle: number of the directory, and number of the share. A negative share
number marks a result. Numbers from `AuditTarget.shares` on are ranges of offsets."""
Group = Sequence[AnyUnit]


def start_workers(edge: Edge, rows: int, limits: Limits) -> Edge:
    """Run an empty job on the workers of other machines, if there are more than `limits.range_rows` rows for each of
    their cores. Return `edge`.

    `rows`: number of rows to audit. A worker's first task takes 20 times the mean, because it loads Python, modules and
    the heap. The empty job spends this time before the audit needs the worker. Raises `AuditFailed` if Spark dies.
    """
    ready = 0
    while ready < (cores := min(edge.cores_elsewhere, _MOST_PARTITIONS)) and rows > cores * limits.range_rows:
        edge(Job("starting the workers", range(cores), _start_task, _started_task, cores))
        ready = cores  # more cores may have registered since
    return edge


def split_row_groups(edges: Callable[[], Edge], units: Sequence[SplitUnit], limits: Limits) -> list[Message]:
    """Split row groups that hold several partitions. Return a `SplitResult` or a `Trouble` for each unit. Raises
    `AuditFailed` if Spark dies.

    `edges` starts Spark when it is first called. A single task runs in this process, because Spark may still be
    starting.
    """
    if len(group_tasks(units, limits, 0)) <= 1:
        return [do_split(unit) for unit in units]
    return run_units(edges(), "taking row groups apart", units, limits, do_split)


def run_units(
    edge: Edge, what: str, units: Sequence[AnyUnit], limits: Limits, do: Callable[[AnyUnit], Message]
) -> list[Message]:
    """Run a Spark job that calls `do` on each unit, and return its results in any order; [] without units.

    `edge` runs the job. `what`: name of the job in messages. Raises `AuditFailed` if Spark dies.
    """
    if not units:
        return []
    return edge(Job(what, group_tasks(units, limits, edge.cores_elsewhere), partial(_do_each, do=do)))


def count_units(
    edge: Edge, units: Sequence[Counting], places: Mapping[Key, PlaceUnit], limits: Limits
) -> list[Message]:
    """Audit directories, buckets and slices of hot buckets, then, after a shuffle, shares and ranges of offsets.

    `places`: unit of each range of offsets, by its key in the shuffle. Returns the counts (`Tally`, `SliceResult`) of
    all units, or a `Trouble` for each that failed. Raises `AuditFailed` if Spark dies.
    """
    if not units:
        return []
    parts = [unit for unit in units if not isinstance(unit, DirectoryUnit)]
    wholes = [unit for unit in units if isinstance(unit, DirectoryUnit)]
    cores = edge.cores_elsewhere
    groups: list[Group[Counting]] = [*group_tasks(parts, limits, cores), *group_tasks(wholes, limits, cores)]
    job = Job("counting", groups, _count_task)
    if parts:
        concerned = {unit.target.number: unit.target for unit in parts}
        # A share of identities takes a hundredth of the time of a range of offsets: it gets no task of its own.
        judges = max(sum(target.shares for target in concerned.values()), len(places))
        judge = partial(_judge_task, targets=concerned, places=places)
        job = replace(job, judge=judge, partitions=min(_MOST_PARTITIONS, count_tasks(judges, cores)))
    return edge(job)


def _start_task(numbers: Iterable[int]) -> Iterator[tuple[Key, None]]:
    import pyarrow.fs
    import pyarrow.parquet  # noqa: F401 - both are imported where a path or a file is met

    limit_arrow_threads()
    np.ones(_HEAP, np.uint8)
    for number in numbers:
        yield (number, 0), None
        yield (number, 1), None  # for the next task, which may run at another worker


def _started_task(messages: Iterable[tuple[Key, None]]) -> Iterator[None]:
    for _, message in messages:
        yield message


def _do_each(groups: Iterable[Group[AnyUnit]], do: Callable[[AnyUnit], Message]) -> Iterator[Keyed]:
    limit_arrow_threads()
    for unit in chain.from_iterable(groups):
        yield (unit.target.number, _RESULT), do(unit)


def _count_task(groups: Iterable[Group[Counting]]) -> Iterator[Keyed]:
    limit_arrow_threads()
    for unit in chain.from_iterable(groups):
        number = unit.target.number
        if isinstance(unit, DirectoryUnit):
            for tally in do_whole(unit):
                yield (number, _RESULT), tally
            continue
        found: Iterator[tuple[int | None, Message]]
        if isinstance(unit, BucketUnit):
            found, at = do_bucket(unit), unit.number
        else:
            found, at = do_slice(unit), unit.bucket + unit.number
        for share, message in found:
            # Results pass through the second stage unchanged. Spread them over its tasks.
            yield (number, _RESULT - at if share is None else share), message


def _judge_task(
    messages: Iterable[Keyed], targets: Mapping[int, AuditTarget], places: Mapping[Key, PlaceUnit]
) -> Iterator[Message]:
    limit_arrow_threads()
    shares: dict[Key, list[Share]] = defaultdict(list)
    placed: dict[Key, list[PlaceInput]] = defaultdict(list)
    for key, message in messages:
        if isinstance(message, Share):
            shares[key].append(message)
        elif isinstance(message, PlaceInput):
            placed[key].append(message)
        else:
            yield message
    for key, of_range in placed.items():
        yield do_places(places[key], of_range)
    for (number, share), of_share in shares.items():
        yield do_share(targets[number], share, of_share)
