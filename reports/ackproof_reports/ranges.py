"""Where findings are: per class and partition, as stretches of consecutive offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.rundir.anomalies import Anomaly

RANGED: Final = (Anomaly.LOST, Anomaly.VANISHED)
"""Classes whose places are shown as ranges."""
MOST: Final = 200
"""Ranges kept of one group; how many there are is known all the same."""
SPANS: Final = 600
"""Parts of the coarse view of a group, for a bar of so many columns."""


@dataclass(frozen=True)
class Range:
    """A stretch of findings. By offset where it is known, else by the producer's seq (then with gaps)."""

    anomaly: str
    topic: str
    partition: int
    producer: int | None
    first: int
    last: int
    count: int


@dataclass(frozen=True)
class Group:
    """All findings of one class in one partition; where offsets are unknown, of one producer in it."""

    anomaly: str
    topic: str
    partition: int
    producer: int | None
    count: int
    first: int
    last: int
    ranges: tuple[Range, ...]
    """At most `MOST`, from the lowest."""
    total: int
    """How many ranges there are."""
    spans: tuple[tuple[int, int], ...]
    """The same places, seen from so far that there are at most `SPANS`."""


def groups_of(table: pa.Table) -> list[Group]:
    """Arrange findings (columns class, topic, partition, producer, offset, seq) by their places.

    A producer counts its seq over all its partitions, so that neighbours within one partition are a few numbers
    apart: gaps up to four times the number of partitions (at least 16) stay within a stretch.
    """
    known = pc.greater_equal(table.column("offset"), 0)
    found = [
        _group(str(anomaly), str(topic), int(partition), None, part.column("offset"), 1)
        for (anomaly, topic, partition), part in _parts(table.filter(known), ("class", "topic", "partition"))
    ]
    unknown = table.filter(pc.invert(known))
    gap = max(16, 4 * unknown.group_by(["topic", "partition"]).aggregate([]).num_rows)
    found += [
        _group(str(anomaly), str(topic), int(partition), int(producer), part.column("seq"), gap)
        for (anomaly, topic, partition, producer), part in _parts(
            unknown, ("class", "topic", "partition", "producer")
        )
    ]
    return sorted(
        found, key=lambda g: (RANGED.index(g.anomaly), g.topic, g.partition, g.producer or -1, g.first)
    )


def _group(
    anomaly: str, topic: str, partition: int, producer: int | None, column: pa.ChunkedArray, gap: int
) -> Group:
    numbers = column.combine_chunks()
    numbers = numbers.take(pc.sort_indices(numbers))
    first, last = numbers[0].as_py(), numbers[-1].as_py()
    kept, total = stretches(numbers, gap, MOST)
    spans, _ = stretches(numbers, max(gap, (last - first) // SPANS), SPANS + 1)
    return Group(
        anomaly=anomaly,
        topic=topic,
        partition=partition,
        producer=producer,
        count=len(numbers),
        first=first,
        last=last,
        ranges=tuple(Range(anomaly, topic, partition, producer, *stretch) for stretch in kept),
        total=total,
        spans=tuple((start, end) for start, end, _ in spans),
    )


def _parts(table: pa.Table, keys: Sequence[str]) -> Iterator[tuple[tuple[str | int, ...], pa.Table]]:
    for row in table.group_by(list(keys)).aggregate([]).to_pylist():
        part = table
        for key in keys:
            part = part.filter(pc.equal(part.column(key), row[key]))
        yield tuple(row[key] for key in keys), part


def stretches(numbers: pa.Array, gap: int, most: int) -> tuple[list[tuple[int, int, int]], int]:
    """The first `most` runs of sorted numbers at most `gap` apart (first, last, how many), and how many there are."""
    if not len(numbers):
        return [], 0
    apart = pc.fill_null(pc.greater(pc.pairwise_diff(numbers), gap), False)
    breaks = pc.indices_nonzero(apart)
    total = len(breaks) + 1
    starts = [0, *breaks.slice(0, most).to_pylist()]
    ends = [*starts[1:], len(numbers)]
    found = [
        (numbers[start].as_py(), numbers[end - 1].as_py(), end - start)
        for start, end in zip(starts[:most], ends[:most], strict=True)
    ]
    return found, total
