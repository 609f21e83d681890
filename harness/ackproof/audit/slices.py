"""The pieces of work of a hot bucket: one with more rows than a task should hold. Nothing here knows Spark.

::

    walk units (order) ──▶ gaps ──▶ slice units (identity, time) ══▶ place units (offset)
                                              └──▶ what is reordered, again, where ranges cross

Each counts one range of its key, and together they count what `Audited` counts of a bucket that is read at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from ackproof.audit.bucket import BACK, both_live, counted_of, read_in_order, rewound
from ackproof.audit.identity import (
    COPIES,
    LOST,
    OFFSETS,
    IdentityAudit,
    Reads,
    crossings,
    distinct_copies,
    reordered_below,
)
from ackproof.audit.offsets import GAPS, MOST_PLACES, PartitionAudit, between
from ackproof.audit.planning import IDENTITY, OFFSET, ORDER, TIME, Cut, cut, narrow, ranges
from ackproof.audit.series import series_of
from ackproof.audit.shares import CommitAudit, Share, shares
from ackproof.audit.units import TROUBLES, BucketUnit, Counted, Limits, Target, Trouble, write_series
from ackproof.ledgers.load import STREAMS, Spilled, SpillFile, Stream
from ackproof.ledgers.rows import FINAL, LIVE, Rows, Schema, concat, empty
from ackproof.ledgers.transactions import Table
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.removals import Removal
from ackproof.rundir.schema import SERIES_BIN_NS

Kept = tuple[Spilled, ...]
"""Rows that tasks before put aside."""


@dataclass(frozen=True)
class Range:
    """A range of a hot bucket: what a task is to know of it."""

    target: Target
    bucket: int
    place: TopicPartition
    number: int

    def name(self, step: str) -> str:
        """Of what its task writes."""
        return f"{self.bucket:06d}-{step}-{self.number:04d}"


@dataclass(frozen=True)
class WalkUnit(Range):
    """A range of read_seq."""

    cut: Cut

    @property
    def rows(self) -> int:
        return self.cut.rows


@dataclass(frozen=True)
class SliceUnit(Range):
    """A range of seqs, and one of times."""

    identity: Cut | None
    time: Cut | None
    live_gaps: Kept
    committed_gaps: Kept
    places: int
    """Number of the first of the shares that are ranges of offsets."""
    borders: tuple[int, ...]
    """Where the second of these begins, and so on."""

    @property
    def rows(self) -> int:
        return sum(one.rows for one in (self.identity, self.time) if one is not None)


@dataclass(frozen=True)
class PlaceUnit(Range):
    """A range of offsets."""

    cut: Cut
    gaps: Kept
    back: Kept


@dataclass(frozen=True)
class OrderUnit:
    """A range of seqs in which records are behind some of higher ranges."""

    of: SliceUnit
    above: Rows

    @property
    def target(self) -> Target:
        return self.of.target

    @property
    def rows(self) -> int:
        return self.of.rows


@dataclass(frozen=True)
class Walked:
    """What the order of reads shows in one range."""

    number: int
    """Of the directory."""
    of: WalkUnit
    counted: Counted
    gaps: Mapping[Stream, Spilled]
    back: Spilled
    ends: Mapping[Stream, Rows]


@dataclass(frozen=True)
class Placed:
    """What the places of one range of offsets are to know of identities."""

    lost: Rows
    skipped: Rows


@dataclass(frozen=True)
class Sliced:
    """What was counted in a range of seqs. `reordered`: but for what is behind records of higher ranges (`spans`)."""

    number: int
    """Of the directory."""
    of: SliceUnit
    counted: Counted
    reordered: Counted
    spans: Rows


def walks_of(bucket: BucketUnit, limits: Limits) -> list[WalkUnit]:
    """Cut its reads."""
    sources = narrow(bucket.pieces, bucket.spilled)
    cuts = cut(sources, ORDER, ranges(sources, ORDER, limits.slice_rows))
    return [
        WalkUnit(bucket.target, bucket.number, bucket.place, number, one) for number, one in enumerate(cuts)
    ]


def do_walk(unit: WalkUnit) -> Walked | Trouble:
    """What its readers went back over, and passed over."""
    target, name = unit.target, unit.name("walk")
    findings = target.findings(name)
    try:
        read = read_in_order(unit.place, unit.cut.load(unit.place), findings)
        findings.close()
        with closing(SpillFile(target.outputs.unfinished("rows", name))) as file:
            gaps = {stream: file.add(walk.gaps) for stream, walk in read.walks.items()}
            back = file.add(read.back)
    except TROUBLES as error:
        return Trouble(target.number, error)
    counted = Counted(target.number, findings.counts, read.totals, findings=findings.files)
    counted.contents[unit.place] = read.contents
    return Walked(
        target.number, unit, counted, gaps, back, {name: walk.ends for name, walk in read.walks.items()}
    )


def sliced(
    bucket: BucketUnit, walked: Sequence[Walked], limits: Limits, places: int
) -> tuple[Counted, list[SliceUnit], list[PlaceUnit]]:
    """Cut the rest of a bucket whose reads are walked. `places`: the number that its first range of offsets gets.

    What lies between the ranges of reads is counted here. Raises OSError.
    """
    walked = sorted(walked, key=lambda one: one.of.number)
    target, place, number = bucket.target, bucket.place, bucket.number
    between_ = {
        stream: between([one.ends[stream] for one in walked], STREAMS[stream]) for stream in walked[0].ends
    }
    name = f"{number:06d}-seams"
    findings = target.findings(name)
    rewound(place, between_, findings)
    findings.close()
    with closing(SpillFile(target.outputs.unfinished("rows", name))) as file:
        seams = {stream: file.add(walk.gaps) for stream, walk in between_.items()}
        turned = tuple(file.add(between_[stream].back.select(BACK)) for stream in ("final", "committed"))

    def gaps(stream: Stream) -> Kept:
        return tuple(kept for kept in (*(one.gaps[stream] for one in walked), seams[stream]) if kept.rows)

    sources = narrow(bucket.pieces, bucket.spilled)
    offsets = cut(sources, OFFSET, ranges(sources, OFFSET, limits.slice_rows))
    # As many of both: a task with a range of each takes as long as any other.
    count = max(ranges(sources, axis, limits.slice_rows) for axis in (IDENTITY, TIME))
    identities = cut(sources, IDENTITY, count, led_by="produced")
    times = cut(sources, TIME, count, multiple=SERIES_BIN_NS)
    borders = tuple(one.low for one in offsets[1:])
    slices = [
        SliceUnit(
            target, number, place, at, identity, time, gaps("live"), gaps("live committed"), places, borders
        )
        for at, (identity, time) in enumerate(zip_longest(identities, times))
    ]
    over, back = gaps("final"), tuple(one for one in (*(one.back for one in walked), *turned) if one.rows)
    placed = [PlaceUnit(target, number, place, at, one, over, back) for at, one in enumerate(offsets)]
    return Counted(target.number, findings.counts, findings=findings.files), slices, placed


def do_slice(unit: SliceUnit) -> Iterator[tuple[int, Share | Placed] | tuple[None, Sliced | Trouble]]:
    """Audit the identities and the times of a range: what others are to know, each with its number, and the counts."""
    target, place = unit.target, unit.place
    findings, order = (target.findings(unit.name(step)) for step in ("slice", "order"))
    counted, reordered = Counted(target.number, findings.counts), Counted(target.number, order.counts)
    commits = CommitAudit(place, findings, Table(target.transactions))
    identities = IdentityAudit(place, findings, order, commits, {}, Removal(place.topic, place.partition))
    try:
        produced, reads = _identities(unit)
        for message in identities.run(produced, reads):
            yield from shares(message, target.shares)
        found = identities.result
        yield from _by_place(unit, found.lost, found.skipped)
        findings.close()
        order.close()
        counted.totals = counted_of(produced, commits)
        del produced, reads  # before as much again is read
        if unit.time is not None:
            rows = unit.time.load(place)
            table, acks = series_of(place, rows["produced"], [rows["live"], rows["live committed"]])
            counted.acks[place] = [] if acks is None else [acks]
            counted.series = write_series(target, unit.name("slice"), [table])
    except TROUBLES as error:
        yield None, Trouble(target.number, error)
        return
    counted.findings, reordered.findings = findings.files, order.files
    yield None, Sliced(target.number, unit, counted, reordered, found.spans)


def _identities(unit: SliceUnit) -> tuple[Rows, Reads]:
    """What is produced, and what is read of that."""
    if unit.identity is None:
        none = {stream: empty(schema) for stream, schema in STREAMS.items()}
        return none["produced"], Reads(
            none["final"], none["committed"], none["live committed"], none["live"], empty(GAPS), empty(GAPS)
        )
    rows = unit.identity.load(unit.place)
    gaps = (_loaded(kept, GAPS) for kept in (unit.live_gaps, unit.committed_gaps))
    return rows["produced"], Reads(
        rows["final"], rows["committed"], rows["live committed"], empty(LIVE), *gaps
    )


def _loaded(kept: Kept, schema: Schema) -> Rows:
    """Raises OSError."""
    return concat((one.load() for one in kept), schema)


def _by_place(unit: SliceUnit, lost: Rows, skipped: Rows) -> Iterator[tuple[int, Placed]]:
    """The first slice says something to all ranges of offsets, so that each is audited."""
    at = [
        np.searchsorted(np.array(unit.borders, np.int64), rows.ints("offset"), side="right")
        for rows in (lost, skipped)
    ]
    for number in range(len(unit.borders) + 1):
        placed = Placed(
            *(rows.take(where == number) for rows, where in zip((lost, skipped), at, strict=True))
        )
        if unit.number == 0 or len(placed.lost) or len(placed.skipped):
            yield unit.places + number, placed


def do_places(unit: PlaceUnit, given: Sequence[Placed]) -> Counted | Trouble:
    """Audit the places of a range of offsets."""
    target, place = unit.target, unit.place
    findings = target.findings(unit.name("places"))
    try:
        rows = unit.cut.load(place)
        copies = distinct_copies(concat([rows["final"], rows["committed"]], FINAL)).select(COPIES)
        back = _loaded(unit.back, BACK)
        reads = both_live(rows)
        wrong = PartitionAudit(place, findings).run(
            copies,
            reads,
            concat((one.lost for one in given), LOST),
            concat((one.skipped for one in given), OFFSETS),
            back.take((back["offset"] >= unit.cut.low) & (back["offset"] <= unit.cut.last)),
            _loaded(unit.gaps, GAPS),
            np.zeros(len(reads), dtype=np.bool_),
        )
        findings.close()
    except TROUBLES as error:
        return Trouble(target.number, error)
    counted = Counted(target.number, findings.counts, flaws=len(wrong), findings=findings.files)
    counted.flaw_places = [(place, offset) for offset in wrong[:MOST_PLACES].tolist()]
    return counted


def crossed(slices: Sequence[Sliced]) -> tuple[list[OrderUnit], list[Counted]]:
    """Of the slices of one bucket those to be looked at again, and what is reordered in the others."""
    slices = sorted(slices, key=lambda one: one.of.number)
    again = dict(crossings([one.spans for one in slices]))
    units = [OrderUnit(slices[number].of, above) for number, above in again.items()]
    return units, [one.reordered for number, one in enumerate(slices) if number not in again]


def do_order(unit: OrderUnit) -> Counted | Trouble:
    """What is reordered in a range of seqs, with what is known of higher ones."""
    findings = unit.target.findings(unit.of.name("order"))
    try:
        reordered_below(unit.of.place, *_identities(unit.of), unit.above, findings)
        findings.close()
    except TROUBLES as error:
        return Trouble(unit.target.number, error)
    return Counted(unit.target.number, findings.counts, findings=findings.files)
