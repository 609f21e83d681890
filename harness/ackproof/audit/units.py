"""The pieces of work that Spark's tasks do, and what they send back. Nothing here knows Spark.

A small directory is one unit (`Whole`). Of a large one each bucket is a unit (`BucketUnit`), which reads the row
groups that hold its partition alone; row groups of several partitions are taken apart beforehand (`SplitUnit`), once,
into files beside the ledger.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa

from ackproof.audit.bucket import Bucket, Totals
from ackproof.audit.findings_file import FindingsWriter
from ackproof.audit.ledger import Part, Rejected
from ackproof.audit.load import STREAMS, Mistrusted, Piece, Stream, UnreadablePart, read
from ackproof.audit.outputs import Outputs
from ackproof.audit.places import MOST_PLACES
from ackproof.audit.rows import Rows, concat
from ackproof.audit.spill import Scratch, Spilled, SpillFile
from ackproof.audit.transactions import NO_TRANSACTIONS, Table, TransactionFiles
from ackproof.audit.unmatched import Share, resolve, shares
from ackproof.rundir import storage
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import SERIES


@dataclass(frozen=True)
class Limits:
    """Where the audit changes its way. All ways give the same counts; the tests make these small."""

    whole_rows: int = 1_000_000
    """A directory with at most so many rows is one unit."""
    range_rows: int = 4_000_000
    """A bucket with more rows is audited in ranges of at most so many."""
    split_rows: int = 1_500_000
    """Rows of mixed row groups that one task takes apart."""
    share_rows: int = 4_000_000
    """Identities and unmatched rows per share, about."""
    task_rows: int = 400_000
    """Small units are put together until a task has so many rows."""


@dataclass(frozen=True)
class Target:
    """One directory, as the tasks see it."""

    number: int
    outputs: Outputs
    open_producers: frozenset[int]
    shares: int
    transactions: TransactionFiles = NO_TRANSACTIONS


@dataclass(frozen=True)
class Unit:
    """A piece of work of one directory."""

    target: Target
    pieces: tuple[Piece, ...]

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)


@dataclass(frozen=True)
class Whole(Unit):
    """A directory that is one piece of work."""


@dataclass(frozen=True)
class SplitUnit(Unit):
    """Row groups to take apart by bucket."""

    number: int


@dataclass(frozen=True)
class BucketUnit(Unit):
    """One bucket of a large directory."""

    number: int
    """Buckets of a directory are numbered in order of their places."""
    place: TopicPartition
    spilled: tuple[tuple[Stream, Spilled], ...]

    @property
    def rows(self) -> int:
        return super().rows + sum(spilled.length for _, spilled in self.spilled)


@dataclass(frozen=True)
class Split:
    """Where the rows of each bucket are now."""

    target: Target
    found: tuple[tuple[TopicPartition, Stream, Spilled], ...]


@dataclass
class Counted:
    """What was counted in (a part of) one directory."""

    number: int
    counts: Counter[str] = field(default_factory=Counter)
    totals: Totals = field(default_factory=Totals)
    unledgered: int = 0
    flaws: int = 0
    flaw_places: list[tuple[TopicPartition, int]] = field(default_factory=list)
    contents: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    """Names of the files that hold them."""
    series: list[str] = field(default_factory=list)

    def add(self, other: Counted) -> None:
        """Add another part of the same directory."""
        self.counts.update(other.counts)
        self.totals = self.totals.plus(other.totals)
        self.unledgered += other.unledgered
        self.flaws += other.flaws
        self.contents.update(other.contents)
        self.findings += other.findings
        self.series += other.series
        self.flaw_places = sorted(self.flaw_places + other.flaw_places)[:MOST_PLACES]


TROUBLES = (UnreadablePart, Mistrusted, Rejected, OSError)


@dataclass(frozen=True)
class Trouble:
    """Why a unit of a directory came to no count. OSError: what concerns it cannot be written, or read back."""

    number: int
    error: UnreadablePart | Mistrusted | Rejected | OSError


def do_split(unit: SplitUnit) -> Split | Trouble:
    """Take row groups apart by bucket."""
    gathered: dict[tuple[TopicPartition, Stream], list[Rows]] = defaultdict(list)
    try:
        for piece in unit.pieces:
            for stream, place, rows in read(piece):
                gathered[place, stream].append(rows)
        with closing(SpillFile(unit.target.outputs.unfinished("rows", f"{unit.number}"))) as spill:
            found = tuple(
                (place, stream, spill.add(concat(rows, STREAMS[stream])))
                for (place, stream), rows in sorted(gathered.items())
            )
    except TROUBLES as error:
        return Trouble(unit.target.number, error)
    return Split(unit.target, found)


def do_bucket(
    unit: BucketUnit, limits: Limits
) -> Iterator[tuple[int, Share] | tuple[None, Counted | Trouble]]:
    """Audit one bucket: its shares of the second stage, each with its number, and what was counted."""
    target = unit.target
    name = f"{unit.number:06d}"
    findings = FindingsWriter(target.outputs.findings(name))
    with Scratch() as scratch:
        bucket = Bucket(unit.place, limits.range_rows, scratch, Table(target.transactions))
        try:
            for piece in unit.pieces:
                for stream, place, rows in read(piece):
                    if place != unit.place:
                        raise Mistrusted(piece.part.path)
                    bucket.spillable(stream).add(rows)
            for stream, spilled in unit.spilled:
                bucket.spillable(stream).add_spilled(spilled)
            for message in bucket.audit(findings):
                yield from shares(message, target.shares)
            findings.close()
            counted = _counted(target, name, [bucket], findings)
        except TROUBLES as error:
            yield None, Trouble(target.number, error)
            return
    yield None, counted


def do_whole(unit: Whole, limits: Limits) -> Counted | Trouble:
    """Audit one small directory."""
    target = unit.target
    buckets: dict[TopicPartition, Bucket] = {}
    findings = FindingsWriter(target.outputs.findings("0"))
    given: list[Share] = []
    table = Table(target.transactions)
    with Scratch() as scratch:
        try:
            for piece in unit.pieces:
                for stream, place, rows in read(piece):
                    if place not in buckets:
                        buckets[place] = Bucket(place, limits.range_rows, scratch, table)
                    buckets[place].spillable(stream).add(rows)
            for place in sorted(buckets):
                for message in buckets[place].audit(findings):
                    given.extend(share for _, share in shares(message, 1))
            unledgered = resolve(given, target.open_producers, findings)
            findings.close()
            counted = _counted(target, "0", [buckets[place] for place in sorted(buckets)], findings)
        except TROUBLES as error:
            return Trouble(target.number, error)
    counted.unledgered = unledgered
    return counted


def do_share(target: Target, number: int, given: Sequence[Share]) -> Counted | Trouble:
    """Judge what the buckets of one directory could not, for one share of the identities."""
    findings = FindingsWriter(target.outputs.findings(f"share-{number}"))
    try:
        unledgered = resolve(given, target.open_producers, findings)
        findings.close()
    except (Rejected, OSError) as error:
        return Trouble(target.number, error)
    return Counted(target.number, counts=findings.counts, unledgered=unledgered, findings=findings.files)


def _counted(target: Target, unit: str, buckets: Sequence[Bucket], findings: FindingsWriter) -> Counted:
    """Writes their series, too. Raises OSError."""
    counted = Counted(target.number, counts=findings.counts, findings=findings.files)
    counted.series = _write_series(target, unit, buckets)
    for bucket in buckets:
        counted.totals = counted.totals.plus(bucket.totals)
        counted.contents[bucket.place] = bucket.contents
        counted.flaws += bucket.flaws.count
        counted.flaw_places += [(bucket.place, offset) for offset in bucket.flaws.lowest]
    counted.flaw_places = sorted(counted.flaw_places)[:MOST_PLACES]
    return counted


def _write_series(target: Target, unit: str, buckets: Sequence[Bucket]) -> list[str]:
    tables = [bucket.series for bucket in buckets if bucket.series is not None]
    if not tables:
        return []
    path = target.outputs.unfinished("series", unit)
    with storage.writer(path, SERIES) as writer:
        writer.write_table(pa.concat_tables(tables))
    return [path.name]


def unreadable_parts(parts: Sequence[Part]) -> dict[str, str]:
    """Read every part to its end: which cannot be read, by their paths, and why."""
    found: dict[str, str] = {}
    for part in parts:
        try:
            for _ in read(Piece(part, part.groups)):
                pass
        except UnreadablePart as error:
            found[error.path] = error.reason
        except (Rejected, Mistrusted):
            continue  # the audit proper meets it again
    return found
