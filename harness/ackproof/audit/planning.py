"""Plan units of work from footers of ledger parts, and cut hot buckets (partitions with too many rows for one task)
into ranges. Planning reads no rows.

A range of a hot bucket is read by one task from the row groups that may hold its rows: decoding a row group
again costs less than writing its rows down. A row outside the span in its footer is `UntrustedStatistics`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapreplace
from itertools import chain
from typing import Final, TypeVar

import numpy as np

from ackproof.audit.bucket import BucketRows
from ackproof.audit.units import (
    AuditTarget,
    BucketUnit,
    DirectoryUnit,
    Limits,
    SplitResult,
    SplitUnit,
    WorkUnit,
)
from ackproof.ledgers.directory import SCHEMAS, Ledger, RowGroup
from ackproof.ledgers.load import PHASES, STAMPS, Piece, Spilled, Stream, UntrustedStatistics, read_piece
from ackproof.ledgers.rows import Rows
from ackproof.rundir.partition import TopicPartition
from ackproof.spark.job import group_by_rows

_UNIT_COST_ROWS = 20_000
"""Fixed cost of a unit, as the number of rows that take as long. It is added to the unit's rows."""
_TOGETHER, _A_CORE, _FEWEST = 3, 4, 10

AnyUnit = TypeVar("AnyUnit", bound=WorkUnit)


@dataclass(frozen=True)
class Plan:
    """Units of one directory: the directory as one unit (`whole`); or `splits` first, and then one unit per bucket."""

    whole: DirectoryUnit | None
    """The directory as one unit; None for a large directory."""
    splits: tuple[SplitUnit, ...]
    """Row groups with several partitions, to split first."""
    direct: dict[TopicPartition, tuple[Piece, ...]]
    """Row groups of each bucket that need no split."""


def plan_units(ledger: Ledger, target: AuditTarget, limits: Limits, doubted: frozenset[str]) -> Plan:
    """Plan the units of a directory from the footers of its ledger's parts: one unit if it is small, else units by
    bucket. `doubted`: paths of files whose statistics are not trusted."""
    parts = [
        part
        if part.path not in doubted
        else replace(
            part, groups=tuple(RowGroup(group.number, group.rows, None, None, None) for group in part.groups)
        )
        for part in ledger.parts
    ]
    if sum(part.rows for part in parts) <= limits.whole_rows:
        return Plan(DirectoryUnit(target, tuple(Piece(part, part.groups) for part in parts)), (), {})
    direct: dict[TopicPartition, list[Piece]] = defaultdict(list)
    mixed: list[Piece] = []
    for part in parts:
        pure: dict[TopicPartition, list[RowGroup]] = defaultdict(list)
        rest: list[RowGroup] = []
        for group in part.groups:
            if not group.rows:
                continue
            if group.topic is not None and group.partition is not None and group.spans:
                pure[TopicPartition(group.topic, group.partition)].append(group)
            else:
                rest.append(group)
        for place, groups in pure.items():
            direct[place].append(Piece(part, tuple(groups)))
        mixed += (Piece(part, groups) for groups in group_by_rows(rest, limits.split_rows))
    even = chain.from_iterable(
        group_by_rows((piece for piece in mixed if piece.part.kind == kind), limits.split_rows)
        for kind in SCHEMAS
    )
    splits = tuple(SplitUnit(target, pieces, number) for number, pieces in enumerate(even))
    return Plan(None, splits, {place: tuple(pieces) for place, pieces in direct.items()})


def bucket_units(planned: Plan, target: AuditTarget, splits: Iterable[SplitResult]) -> list[BucketUnit]:
    """Return one unit per bucket of a large directory: the row groups in its plan that need no split, and the rows that
    were split out of mixed row groups. `splits`: results of the split units."""
    spilled: dict[TopicPartition, list[tuple[Stream, Spilled]]] = defaultdict(list)
    for split in splits:
        for place, stream, where in split.found:
            spilled[place].append((stream, where))
    places = sorted(planned.direct.keys() | spilled.keys())
    return [
        BucketUnit(target, planned.direct.get(place, ()), number, place, tuple(spilled.get(place, ())))
        for number, place in enumerate(places)
    ]


def group_tasks(units: Sequence[AnyUnit], limits: Limits, cores: int) -> list[list[AnyUnit]]:
    """Return the units in tasks of even cost, the most expensive task first. `cores`: number of cores on other
    machines, whose workers get fewer and larger tasks (`count_tasks`); 0: all tasks run on this machine."""
    costs = [unit.rows + _UNIT_COST_ROWS for unit in units]
    small = sum(cost for cost in costs if cost < limits.task_rows)
    large = sum(cost >= limits.task_rows for cost in costs)
    count = count_tasks(large + math.ceil(small / limits.task_rows), cores)
    # The most expensive unit that is left goes to the task with the lowest cost so far.
    found: list[list[AnyUnit]] = [[] for _ in range(count)]
    waiting = [(0, number) for number in range(count)]
    for at in sorted(range(len(units)), key=lambda at: -costs[at]):
        cost, number = waiting[0]
        found[number].append(units[at])
        heapreplace(waiting, (cost + costs[at], number))
    return [found[number] for _, number in sorted(waiting, key=lambda task: (-task[0], task[1]))]


def count_tasks(count: int, cores: int) -> int:
    """Return the number of tasks that are left of `count` small tasks after merging. `cores`: number of cores on other
    machines; 0: nothing is merged.

    Spark needs 0.03 s to schedule a task of 0.1 s. So up to three become one, as long as each core gets four tasks
    and at least ten are left.
    """
    together = min(_TOGETHER, count // max(_FEWEST, _A_CORE * cores)) if cores else 1
    return math.ceil(count / max(1, together))


@dataclass(frozen=True)
class CutAxis:
    """A way to cut a bucket into ranges of one key, such as read_seq, seq, time or offset.

    `keys`: key column of each stream; other streams are not read. `needed`: columns that the pass over the ranges
    reads. `light`: streams whose rows take a third of the time of other rows, and count a third when ranges are sized.
    """

    keys: Mapping[Stream, str]
    needed: frozenset[str]
    light: frozenset[Stream] = frozenset()


_READS: Final[tuple[Stream, ...]] = ("live", "final", "live committed", "committed")
_RECORD: Final = frozenset({"offset", "producer", "seq", "intact"})
ORDER: Final = CutAxis(
    dict.fromkeys(_READS, "read_seq"), _RECORD | {"reader", "assignment", "read_seq", "leader_epoch"}
)
IDENTITY: Final = CutAxis(
    dict.fromkeys(("produced", *_READS[1:]), "seq"),
    _RECORD | {"outcome", "txn", "leader_epoch", "astray", "read_ns"},
)
STAMPED_IDENTITY: Final = replace(IDENTITY, needed=IDENTITY.needed | STAMPS | {"at_ns"})
"""`IDENTITY` for partitions whose records' timestamps are checked: it reads the columns of times as well."""
OFFSET: Final = CutAxis(dict.fromkeys(_READS, "offset"), _RECORD | {"leader_epoch"})
TIME: Final = CutAxis(
    {"produced": "at_ns", "live": "read_ns", "live committed": "read_ns"},
    frozenset({"outcome", "at_ns", "latency_ns", "read_ns"}),
    frozenset({"live", "live committed"}),
)

_LIGHT: Final = 1 / 3
_OPENED: Final = 30_000
"""Fixed cost of opening a row group, in rows; at most its own rows, so that no range holds twice its share.
"""
LEAST, GREATEST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class RowSource:
    """Rows of a bucket: one row group of a part, or one stream in a temporary file of an earlier task."""

    held: Piece | tuple[Stream, Spilled]

    @property
    def rows(self) -> int:
        return self.held.rows if isinstance(self.held, Piece) else self.held[1].rows

    def keys(self, axis: CutAxis) -> set[str]:
        return {axis.keys[stream] for stream in self.streams & axis.keys.keys()}

    def span(self, key: str) -> tuple[int, int]:
        return (self.held.groups[0] if isinstance(self.held, Piece) else self.held[1]).spans[key]

    @property
    def streams(self) -> set[Stream]:
        """Streams (`produced`, `final`, `live`, …) that may have rows in this source. Reads of each phase, such as live
        or final, are one stream. If the footer does not tell the phase, all streams of reads are returned."""
        if not isinstance(self.held, Piece):
            return {self.held[0]}
        if self.held.part.kind == "produced":
            return {"produced"}
        phase = self.held.groups[0].phase
        # An unknown phase is found when its rows are read.
        return {stream for value, stream in PHASES.items() if value == phase} or set(PHASES.values())

    def cost(self, axis: CutAxis) -> float:
        return self.rows * (_LIGHT if self.streams & axis.keys.keys() <= axis.light else 1.0)

    def read(self, place: TopicPartition, axis: CutAxis) -> Iterator[tuple[Stream, Rows]]:
        """Yield (stream, rows) of partition `place` with the columns that `axis` needs. Streams without a key in `axis`
        are left out. A temporary file is read whole, with all its columns.

        Raises OSError or `UnreadablePart` if the file cannot be read, `UntrustedStatistics` if a row contradicts its
        footer, `Rejected` for invalid rows.
        """
        if not isinstance(self.held, Piece):
            yield self.held[0], self.held[1].load()
            return
        spans = self.held.groups[0].spans
        for stream, at, rows in read_piece(self.held, needed=axis.needed):
            if at != place or stream not in self.streams:
                raise UntrustedStatistics(self.held.part.path)
            if (key := axis.keys.get(stream)) is None:
                continue
            least, greatest = spans[key]
            if rows[key].min() < least or rows[key].max() > greatest:
                raise UntrustedStatistics(self.held.part.path)
            yield stream, rows


@dataclass(frozen=True)
class KeyRange:
    """Rows of a bucket whose key is in the range `low` … `last`, both included: the input of one unit. `sources`: those
    that may hold rows of the range. Rows of streams without a key in `axis` are left out."""

    sources: tuple[RowSource, ...]
    axis: CutAxis
    low: int
    last: int
    rows: int
    """Approximate number of rows."""

    def load(self, place: TopicPartition) -> BucketRows:
        """Read the rows of the range, which are all of partition `place`. Raises `UnreadablePart` or
        `UntrustedStatistics` for a broken part, `Rejected` for invalid rows, OSError if a temporary file
        cannot be read."""
        found = BucketRows()
        for source in self.sources:
            for stream, rows in source.read(place, self.axis):
                key = rows[self.axis.keys[stream]]
                inside = (key >= self.low) & (key <= self.last)
                found.add(stream, rows if inside.all() else rows.take(inside))
        return found


def count_ranges(sources: Sequence[RowSource], axis: CutAxis, most: int) -> int:
    """Return the number of ranges of about `most` rows each into which a bucket is cut. 0: `axis` has no key for any of
    its rows. A row of a light stream counts a third. `sources`: the bucket's rows."""
    return math.ceil(sum(source.cost(axis) for source in sources if source.keys(axis)) / most)


def cut_ranges(
    sources: Sequence[RowSource],
    axis: CutAxis,
    count: int,
    *,
    led_by: Stream | None = None,
    multiple: int = 1,
) -> list[KeyRange]:
    """Cut a bucket into at most `count` ranges of about equal cost, in ascending order of the key.

    Together they cover all keys; a `count` below 2 gives one range. `sources`: the bucket's rows. `led_by`: stream
    whose row groups decide the borders; all streams decide if it is None or has no rows. `multiple`: borders are
    multiples of this number.
    """
    spans = [
        (source, min(low for low, _ in found), max(high for _, high in found))
        for source in sources
        if source.rows and (found := [source.span(key) for key in source.keys(axis)])
    ]
    rows = sum(source.rows for source, _, _ in spans)
    leading = [entry for entry in spans if led_by in entry[0].streams] or spans
    costs = [(low, high, source.cost(axis)) for source, low, high in leading]
    borders = find_borders([(low, high, cost + min(cost, _OPENED)) for low, high, cost in costs], count)
    borders = sorted({border // multiple * multiple for border in borders})
    return [
        KeyRange(
            tuple(source for source, least, greatest in spans if least <= last and greatest >= low),
            axis,
            low,
            last,
            rows // (len(borders) + 1),
        )
        for low, last in zip([LEAST, *borders], [*(border - 1 for border in borders), GREATEST], strict=True)
    ]


def find_borders(spans: Sequence[tuple[int, int, float]], count: int) -> list[int]:
    """Return the keys at which `count` ranges of about equal cost begin, except the first range; [] without `spans`, or
    if `count` is below 2. A key may come several times.

    `spans`: (least key, greatest key, cost) of each row group. Assumes that rows lie evenly in the span of their group.
    """
    if count < 2 or not spans:
        return []
    base = min(low for low, _, _ in spans)
    at = np.array([[low - base, high + 1 - base] for low, high, _ in spans], np.float64)
    density = np.array([cost / (high + 1 - low) for low, high, cost in spans])
    points = np.concatenate([at[:, 0], at[:, 1]])
    order = np.argsort(points, kind="stable")
    points = points[order]
    height = np.cumsum(np.concatenate([density, -density])[order])
    mass = np.concatenate([[0.0], np.cumsum(height[:-1] * np.diff(points))])
    wanted = mass[-1] * np.arange(1, count) / count
    # Near the greatest of all numbers a float is rounded to one beyond it.
    return [min(base + int(border), GREATEST) for border in np.interp(wanted, mass, points)]


def list_sources(pieces: Sequence[Piece], spilled: Sequence[tuple[Stream, Spilled]]) -> list[RowSource]:
    """Return one source per row group of `pieces`, then one per entry of `spilled`: the stream of some rows,
    and their location in a temporary file."""
    return [RowSource(Piece(piece.part, (group,))) for piece in pieces for group in piece.groups] + [
        RowSource(spilled_rows) for spilled_rows in spilled
    ]
