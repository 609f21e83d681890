"""Units of a hot bucket: one with more rows than a task should hold. No Spark here.

    walk units (order) ──▶ gaps ──▶ slice units (identity, time) ══▶ place units (offset)
                                    order units: reordered again, where ranges cross

A walk unit follows each reader through a range of read_seq, in the order of reading. Its gaps are offsets that a reader
skipped between two successive reads of one assignment. Slice units need these gaps, and send lost and skipped records
to place units, through Spark's shuffle. A place unit audits a range of offsets. (Elsewhere, `place` is a topic
partition.) A share is the input of one task after the shuffle; offset ranges are shares too, from number `places` on.

Each unit counts one range of its key. Together they count the same as `audit_bucket`, which reads a bucket as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from ackproof.audit.bucket import (
    OFFSETS_READ_AGAIN,
    BucketRows,
    add_rewound,
    count_produced,
    follow_bucket_reads,
    live_rows,
)
from ackproof.audit.identity import (
    COPIES,
    LOST,
    OFFSETS,
    RangeReads,
    audit_identities,
    distinct_copies,
    find_crossings,
    recount_reordered,
)
from ackproof.audit.offsets import GAPS, MOST_PLACES, audit_offsets, join_ranges
from ackproof.audit.planning import (
    IDENTITY,
    OFFSET,
    ORDER,
    STAMPED_IDENTITY,
    TIME,
    KeyRange,
    count_ranges,
    cut_ranges,
    list_sources,
)
from ackproof.audit.series import build_series
from ackproof.audit.shares import CommitAudit, Share, cut_shares
from ackproof.audit.units import TROUBLES, AuditTarget, BucketUnit, Limits, Tally, Trouble, write_series
from ackproof.ledgers.load import STREAMS, Spilled, SpillFile, Stream
from ackproof.ledgers.rows import FINAL, LIVE, Rows, Schema, concat_rows, empty_rows
from ackproof.ledgers.transactions import TransactionTable
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.removals import Removal
from ackproof.rundir.schema import SERIES_BIN_NS

SpilledParts = tuple[Spilled, ...]
"""Temporary files of rows that earlier tasks wrote."""


@dataclass(frozen=True)
class _BucketRange:
    """Base of units that audit one range of a hot bucket: a partition with too many rows for one task. A unit is the
    work of one task.

    `bucket`: number of the bucket. `number`: position of the range among the bucket's ranges of its kind, from 0.
    """

    target: AuditTarget
    bucket: int
    place: TopicPartition
    number: int

    def name(self, step: str) -> str:
        return f"{self.bucket:06d}-{step}-{self.number:04d}"


@dataclass(frozen=True)
class WalkUnit(_BucketRange):
    """Unit that compares the reads of a bucket within a range of read_seq, each with the reader's previous read in the
    same assignment."""

    cut: KeyRange

    @property
    def rows(self) -> int:
        return self.cut.rows


@dataclass(frozen=True)
class SliceUnit(_BucketRange):
    """Unit that audits the records within a range of seqs, and builds the series within a range of times.

    `identity`, `time`: these two ranges. If a bucket has fewer ranges of one kind, its last units have None instead.
    `live_gaps`, `committed_gaps`: gaps of live readers at read_uncommitted and at read_committed. `places`: share
    number (in Spark's shuffle) of the bucket's first offset range; the next range has `places` + 1, and so on.
    `borders`: start of each offset range but the first.
    """

    identity: KeyRange | None
    time: KeyRange | None
    live_gaps: SpilledParts
    committed_gaps: SpilledParts
    places: int
    borders: tuple[int, ...]

    @property
    def rows(self) -> int:
        return sum(part.rows for part in (self.identity, self.time) if part is not None)


@dataclass(frozen=True)
class PlaceUnit(_BucketRange):
    """Unit that audits the reads at each offset within a range of offsets.

    `gaps`: gaps of the final reader at read_uncommitted. `back`: reads at which final readers went back.
    """

    cut: KeyRange
    gaps: SpilledParts
    back: SpilledParts


@dataclass(frozen=True)
class OrderUnit:
    """Unit that counts reordered records of one slice (`of`) again, compared with later ranges of seqs.

    Some of its records are at higher offsets than records of these ranges. `above`: lowest and highest
    offsets of the later ranges, by producer.
    """

    of: SliceUnit
    above: Rows

    @property
    def target(self) -> AuditTarget:
        return self.of.target

    @property
    def rows(self) -> int:
        return self.of.rows


@dataclass(frozen=True)
class WalkResult:
    """Result of a walk unit (`of`): its counts, and results for later units. `gaps`, `ends`: by stream, its gaps, and
    its first and last read of each assignment. `back`: the reads at which final readers went back."""

    number: int
    """Number of the audited directory."""
    of: WalkUnit
    counted: Tally
    gaps: Mapping[Stream, Spilled]
    back: Spilled
    ends: Mapping[Stream, Rows]


@dataclass(frozen=True)
class PlaceInput:
    """Lost and skipped records from one slice (a range of seqs) whose offsets lie in one offset range; `do_places` gets
    those of all slices."""

    lost: Rows
    skipped: Rows


@dataclass(frozen=True)
class SliceResult:
    """Result of a slice unit (`of`).

    `reordered`: counts of class reordered, within this range of seqs only; `counted` has all other counts. `spans`:
    lowest and highest offsets by producer, with which other ranges are compared.
    """

    number: int
    """Number of the audited directory."""
    of: SliceUnit
    counted: Tally
    reordered: Tally
    spans: Rows


def cut_walks(bucket: BucketUnit, limits: Limits) -> list[WalkUnit]:
    """Cut the reads of a hot bucket into ranges of read_seq. Return a walk unit for each."""
    sources = list_sources(bucket.pieces, bucket.spilled)
    cuts = cut_ranges(sources, ORDER, count_ranges(sources, ORDER, limits.slice_rows))
    return [
        WalkUnit(bucket.target, bucket.number, bucket.place, number, key_range)
        for number, key_range in enumerate(cuts)
    ]


def do_walk(unit: WalkUnit) -> WalkResult | Trouble:
    """Compare the reads of one partition within one range of read_seq: each with the previous one of the same reader
    and assignment in this range. Return the findings, the gaps, and the first and last read of each assignment, which
    the caller compares across ranges. An error of a file is returned as `Trouble`."""
    target, name = unit.target, unit.name("walk")
    findings = target.findings(name)
    try:
        read = follow_bucket_reads(unit.place, unit.cut.load(unit.place), findings)
        findings.close()
        with closing(SpillFile(target.outputs.unfinished("rows", name))) as file:
            gaps = {stream: file.add(walk.gaps) for stream, walk in read.walks.items()}
            back = file.add(read.back)
    except TROUBLES as error:
        return Trouble(target.number, error)
    counted = Tally(target.number, findings.counts, read.totals, findings=findings.files)
    counted.contents[unit.place] = read.contents
    return WalkResult(
        target.number, unit, counted, gaps, back, {name: walk.ends for name, walk in read.walks.items()}
    )


def cut_bucket(
    bucket: BucketUnit, walked: Sequence[WalkResult], limits: Limits, places: int
) -> tuple[Tally, list[SliceUnit], list[PlaceUnit]]:
    """Cut a hot bucket into slice units and place units, once all of its walk units are done. Return counts of findings
    at the borders between walk units, and the units of both kinds. Raises OSError if a file cannot be read or written.

    `walked`: the results of its walk units. `places`: share number for its first offset range; its other offset ranges
    get the numbers that follow.
    """
    walked = sorted(walked, key=lambda result: result.of.number)
    target, place, number = bucket.target, bucket.place, bucket.number
    border_walks = {
        stream: join_ranges([result.ends[stream] for result in walked], STREAMS[stream])
        for stream in walked[0].ends
    }
    name = f"{number:06d}-borders"
    findings = target.findings(name)
    add_rewound(place, border_walks, findings)
    findings.close()
    with closing(SpillFile(target.outputs.unfinished("rows", name))) as file:
        border_gaps = {stream: file.add(walk.gaps) for stream, walk in border_walks.items()}
        border_back = tuple(
            file.add(border_walks[stream].back.select(OFFSETS_READ_AGAIN))
            for stream in ("final", "committed")
        )

    def gaps(stream: Stream) -> SpilledParts:
        return tuple(
            kept for kept in (*(result.gaps[stream] for result in walked), border_gaps[stream]) if kept.rows
        )

    sources = list_sources(bucket.pieces, bucket.spilled)
    offsets = cut_ranges(sources, OFFSET, count_ranges(sources, OFFSET, limits.slice_rows))
    # The same number of both ranges: each task gets one range of seqs and one of times, so all take about as long.
    identity = STAMPED_IDENTITY if place in target.timestamps else IDENTITY
    count = max(count_ranges(sources, axis, limits.slice_rows) for axis in (identity, TIME))
    identities = cut_ranges(sources, identity, count, led_by="produced")
    times = cut_ranges(sources, TIME, count, multiple=SERIES_BIN_NS)
    borders = tuple(key_range.low for key_range in offsets[1:])
    slices = [
        SliceUnit(
            target, number, place, at, identity, time, gaps("live"), gaps("live committed"), places, borders
        )
        for at, (identity, time) in enumerate(zip_longest(identities, times))
    ]
    back = tuple(spilled for spilled in (*(result.back for result in walked), *border_back) if spilled.rows)
    place_units = [
        PlaceUnit(target, number, place, at, key_range, gaps("final"), back)
        for at, key_range in enumerate(offsets)
    ]
    return Tally(target.number, findings.counts, findings=findings.files), slices, place_units


def do_slice(
    unit: SliceUnit,
) -> Iterator[tuple[int, Share | PlaceInput] | tuple[None, SliceResult | Trouble]]:
    """Audit one range of seqs, and build the series of one range of times. Yields (number in the shuffle, message): the
    contributions to shares, and the lost and skipped records by offset range. The last item is (None, `SliceResult` or
    `Trouble`)."""
    target, place = unit.target, unit.place
    findings, order = (target.findings(unit.name(step)) for step in ("slice", "order"))
    counted, reordered = Tally(target.number, findings.counts), Tally(target.number, order.counts)
    commits = CommitAudit(place, findings, TransactionTable(target.transactions))
    try:
        produced, reads = _load_identities(unit)
        removal = Removal(place.topic, place.partition)
        stamps = target.timestamps.get(place)
        found = audit_identities(place, produced, reads, findings, commits, {}, removal, order, stamps)
        for message in found.handovers:
            yield from cut_shares(message, target.shares)
        yield from _split_by_offset(unit, found.lost, found.skipped)
        spans = found.spans
        findings.close()
        order.close()
        counted.totals = count_produced(produced, commits)
        del produced, reads, found, message  # free this memory before the next range is read
        if unit.time is not None:
            rows = unit.time.load(place)
            table, acks = build_series(place, rows["produced"], [rows["live"], rows["live committed"]])
            counted.acks[place] = [] if acks is None else [acks]
            counted.series = write_series(target, unit.name("slice"), [table])
    except TROUBLES as error:
        yield None, Trouble(target.number, error)
        return
    counted.findings, reordered.findings = findings.files, order.files
    yield None, SliceResult(target.number, unit, counted, reordered, spans)


def _load_identities(unit: SliceUnit) -> tuple[Rows, RangeReads]:
    """Return the produced rows of the unit's range of seqs, and the reads of the same identities; no rows if the unit
    has no range of seqs."""
    rows = BucketRows()
    kept: tuple[SpilledParts, SpilledParts] = ((), ())
    if unit.identity is not None:
        rows, kept = unit.identity.load(unit.place), (unit.live_gaps, unit.committed_gaps)
    gaps = (_load_spilled(spilled, GAPS) for spilled in kept)
    return rows["produced"], RangeReads(
        rows["final"], rows["committed"], rows["live committed"], empty_rows(LIVE), *gaps
    )


def _load_spilled(kept: SpilledParts, schema: Schema) -> Rows:
    return concat_rows((spilled.load() for spilled in kept), schema)


def _split_by_offset(unit: SliceUnit, lost: Rows, skipped: Rows) -> Iterator[tuple[int, PlaceInput]]:
    """Yield (share number, lost and skipped records) for each offset range that has some.

    The first slice yields all ranges, so that each range is audited.
    """
    at = [
        np.searchsorted(np.array(unit.borders, np.int64), rows.ints("offset"), side="right")
        for rows in (lost, skipped)
    ]
    for number in range(len(unit.borders) + 1):
        placed = PlaceInput(
            *(rows.take(where == number) for rows, where in zip((lost, skipped), at, strict=True))
        )
        if unit.number == 0 or len(placed.lost) or len(placed.skipped):
            yield unit.places + number, placed


def do_places(unit: PlaceUnit, given: Sequence[PlaceInput]) -> Tally | Trouble:
    """Audit one range of offsets, and return its counts. `given`: the lost and skipped records in it, from each slice.
    An error of a file is returned as `Trouble`."""
    target, place = unit.target, unit.place
    findings = target.findings(unit.name("places"))
    try:
        rows = unit.cut.load(place)
        copies = distinct_copies(concat_rows([rows["final"], rows["committed"]], FINAL)).select(COPIES)
        back = _load_spilled(unit.back, OFFSETS_READ_AGAIN)
        reads = live_rows(rows)
        wrong = audit_offsets(
            place,
            findings,
            copies=copies,
            reads=reads,
            lost=concat_rows((placed.lost for placed in given), LOST),
            skipped=concat_rows((placed.skipped for placed in given), OFFSETS),
            back=back.take((back["offset"] >= unit.cut.low) & (back["offset"] <= unit.cut.last)),
            gaps=_load_spilled(unit.gaps, GAPS),
            removed=np.zeros(len(reads), dtype=np.bool_),
        )
        findings.close()
    except TROUBLES as error:
        return Trouble(target.number, error)
    counted = Tally(target.number, findings.counts, flaws=len(wrong), findings=findings.files)
    counted.flaw_places = [(place, offset) for offset in wrong[:MOST_PLACES].tolist()]
    return counted


def split_reordered(slices: Sequence[SliceResult]) -> tuple[list[OrderUnit], list[Tally]]:
    """Return an order unit for each slice (range of seqs) that must be counted again, and the counts of class reordered
    of all other slices. A slice is counted again if it has a record at a higher offset than a record of the same
    producer in a later slice. Its first count did not compare records of different slices."""
    slices = sorted(slices, key=lambda result: result.of.number)
    crossing = dict(find_crossings([result.spans for result in slices]))
    units = [OrderUnit(slices[number].of, above) for number, above in crossing.items()]
    return units, [result.reordered for number, result in enumerate(slices) if number not in crossing]


def do_order(unit: OrderUnit) -> Tally | Trouble:
    """Count the reordered records of a range of seqs again, compared with the offsets of higher ranges. Return the
    counts. An error of a file is returned as `Trouble`."""
    findings = unit.target.findings(unit.of.name("order"))
    try:
        recount_reordered(unit.of.place, *_load_identities(unit.of), unit.above, findings)
        findings.close()
    except TROUBLES as error:
        return Trouble(unit.target.number, error)
    return Tally(unit.target.number, findings.counts, findings=findings.files)
