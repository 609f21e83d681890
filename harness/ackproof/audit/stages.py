"""The audit as Spark sees it: tasks over units of work, and one shuffle by identity.

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
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from ackproof.audit.planning import tasks
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

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

_MOST_PARTITIONS = 64

Key: TypeAlias = tuple[int, int | None]
"""Number of the directory, and of the share (None: not a share but a result)."""
Message: TypeAlias = Counted | Trouble | Share


def split(context: SparkContext, units: Sequence[SplitUnit], limits: Limits) -> list[Split | Trouble]:
    """Take mixed row groups apart."""
    if not units:
        return []
    groups = tasks(units, limits)
    found: list[Split | Trouble] = (
        context.parallelize(groups, len(groups)).mapPartitions(_split_task).collect()
    )
    return found


def count(
    context: SparkContext,
    units: Sequence[Whole | BucketUnit],
    limits: Limits,
) -> list[Counted | Trouble]:
    """Audit whole directories and buckets, and what no bucket knows alone."""
    if not units:
        return []
    wholes = [unit for unit in units if isinstance(unit, Whole)]
    buckets = [unit for unit in units if isinstance(unit, BucketUnit)]
    groups: list[Sequence[Whole | BucketUnit]] = [*tasks(buckets, limits), *tasks(wholes, limits)]
    tasked = context.parallelize(groups, len(groups))
    messages: RDD[tuple[Key, Message]] = tasked.mapPartitions(partial(_count_task, limits=limits))
    if not buckets:
        return [message for message in messages.values().collect() if not isinstance(message, Share)]
    concerned = {unit.target.number: unit.target for unit in buckets}
    partitions = min(_MOST_PARTITIONS, sum(target.shares for target in concerned.values()))
    shuffled = messages.partitionBy(partitions, _partition_of)
    judge: Callable[[Iterable[tuple[Key, Message]]], Iterator[Counted | Trouble]]
    judge = partial(_share_task, targets=concerned)
    return shuffled.mapPartitions(judge).collect()


def _partition_of(key: Key) -> int:
    return key[0] + (key[1] or 0)


def _calm_arrow() -> None:
    """Spark runs one task per core: Arrow's own threads would only get in its way."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def _split_task(groups: Iterable[Sequence[SplitUnit]]) -> Iterator[Split | Trouble]:
    _calm_arrow()
    yield from map(do_split, chain.from_iterable(groups))


def _count_task(
    groups: Iterable[Sequence[Whole | BucketUnit]], limits: Limits
) -> Iterator[tuple[Key, Message]]:
    _calm_arrow()
    for unit in chain.from_iterable(groups):
        number = unit.target.number
        if isinstance(unit, BucketUnit):
            for share, message in do_bucket(unit, limits):
                yield (number, share), message
        else:
            yield (number, None), do_whole(unit, limits)


def _share_task(
    messages: Iterable[tuple[Key, Message]], targets: Mapping[int, Target]
) -> Iterator[Counted | Trouble]:
    given: dict[tuple[int, int], list[Share]] = defaultdict(list)
    for (number, share), message in messages:
        if isinstance(message, Share):
            assert share is not None
            given[number, share].append(message)
        else:
            yield message
    for (number, share), of_share in given.items():
        yield do_share(targets[number], share, of_share)
