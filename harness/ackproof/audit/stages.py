"""The audit as a job: tasks over units of work, and one shuffle by identity. Nothing here knows Spark but by `Edge`.

::

    split units ──▶ (rows put aside by bucket)
    whole units ───────────────────────────────────────▶ counts
    bucket units ──▶ counts
                └──▶ shares ══ shuffle by identity ══▶ counts

Only counts, the first thousand flawed places and where rows were put aside come to the driver.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Generic, Protocol, TypeAlias

import pyarrow as pa

from ackproof.audit.planning import AnyUnit, tasks
from ackproof.audit.units import (
    BucketUnit,
    Counted,
    Limits,
    Split,
    SplitUnit,
    Target,
    Trouble,
    Whole,
    do_bucket,
    do_share,
    do_split,
    do_whole,
)
from ackproof.audit.unmatched import Share

_MOST_PARTITIONS = 64
_RESULT = -1

Key: TypeAlias = tuple[int, int]
"""Number of the directory, and of the share (-1: not a share but a result)."""
Message: TypeAlias = Counted | Trouble | Share | Split
Keyed: TypeAlias = tuple[Key, Message]
Group = Sequence[AnyUnit]


@dataclass(frozen=True)
class Job(Generic[AnyUnit]):
    """One task for each group. With a `judge` the messages of each key come to one call of it, whole."""

    what: str
    """What it does, to be told with the progress."""
    groups: Sequence[Group[AnyUnit]]
    task: Callable[[Iterable[Group[AnyUnit]]], Iterator[Keyed]]
    judge: Callable[[Iterable[Keyed]], Iterator[Message]] | None = None
    partitions: int = 0
    """So many tasks judge."""


class Edge(Protocol):
    """How Spark runs a job. Raises `AuditFailed` if Spark dies; Ctrl-C cancels it."""

    def __call__(self, job: Job[AnyUnit]) -> list[Message]:
        """What the judges say, or the tasks where there is no judge."""
        ...


def split(edge: Edge, units: Sequence[SplitUnit], limits: Limits) -> list[Message]:
    """Take mixed row groups apart."""
    return edge(Job("taking row groups apart", tasks(units, limits), _split_task)) if units else []


def count(edge: Edge, units: Sequence[Whole | BucketUnit], limits: Limits) -> list[Message]:
    """Audit whole directories and buckets, and what no bucket knows alone."""
    if not units:
        return []
    wholes = [unit for unit in units if isinstance(unit, Whole)]
    buckets = [unit for unit in units if isinstance(unit, BucketUnit)]
    groups: list[Group[Whole | BucketUnit]] = [*tasks(buckets, limits), *tasks(wholes, limits)]
    job = Job("counting", groups, partial(_count_task, limits=limits))
    if buckets:
        concerned = {unit.target.number: unit.target for unit in buckets}
        partitions = min(_MOST_PARTITIONS, sum(target.shares for target in concerned.values()))
        job = replace(job, judge=partial(_share_task, targets=concerned), partitions=partitions)
    return edge(job)


def calm_arrow() -> None:
    """Spark runs one task per core: Arrow's own threads would only get in its way."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def _split_task(groups: Iterable[Group[SplitUnit]]) -> Iterator[Keyed]:
    calm_arrow()
    for unit in chain.from_iterable(groups):
        yield (unit.target.number, _RESULT), do_split(unit)


def _count_task(groups: Iterable[Group[Whole | BucketUnit]], limits: Limits) -> Iterator[Keyed]:
    calm_arrow()
    for unit in chain.from_iterable(groups):
        number = unit.target.number
        if isinstance(unit, BucketUnit):
            for share, message in do_bucket(unit, limits):
                yield (number, _RESULT if share is None else share), message
        else:
            yield (number, _RESULT), do_whole(unit, limits)


def _share_task(messages: Iterable[Keyed], targets: Mapping[int, Target]) -> Iterator[Message]:
    given: dict[Key, list[Share]] = defaultdict(list)
    for key, message in messages:
        if isinstance(message, Share):
            given[key].append(message)
        else:
            yield message
    for (number, share), of_share in given.items():
        yield do_share(targets[number], share, of_share)
