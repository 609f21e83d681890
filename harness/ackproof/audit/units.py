"""Units of work of Spark's tasks, and their answers. No Spark here.

A small directory is one unit (`DirectoryUnit`). In a large directory each bucket is a unit (`BucketUnit`), which reads
the row groups of its partition only. Row groups of several partitions are first taken apart (`SplitUnit`), once, into
files of the audited directory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from ackproof.audit.bucket import BucketAudit, BucketRows, Totals, audit_bucket, sum_contents
from ackproof.audit.offsets import MOST_PLACES
from ackproof.audit.outputs import NOTHING_DELETED, DeletedRecords, FindingsWriter, Outputs
from ackproof.audit.removed import unknown_removal
from ackproof.audit.series import AckStretch, build_series
from ackproof.audit.shares import CommitAudit, Share, cut_shares, resolve_share
from ackproof.ledgers.directory import Part, Rejected
from ackproof.ledgers.load import (
    EVERY_COLUMN,
    STAMPS,
    STREAMS,
    Piece,
    Spilled,
    SpillFile,
    Stream,
    UnreadablePart,
    UntrustedStatistics,
    read_piece,
)
from ackproof.ledgers.rows import Rows, concat_rows
from ackproof.ledgers.transactions import NO_TRANSACTIONS, TransactionFiles, TransactionTable
from ackproof.rundir import storage
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.payload import Keys
from ackproof.rundir.removals import Removal, TimestampRule
from ackproof.rundir.schema import SERIES

if TYPE_CHECKING:
    from ackproof.audit.group_units import GroupUnit


@dataclass(frozen=True)
class Limits:
    """Sizes, in rows, at which the audit changes its strategy. Every strategy gives the same counts; tests set small
    sizes.

    `whole_rows`: size up to which a directory or a consumer group is one unit of work. `range_rows`: size up to which a
    bucket (the rows of one partition) is not cut; also the size of a unit of a large group. `slice_rows`: size of a
    range of a cut bucket; cheap rows count less (`planning`). `split_rows`: size of the row groups of several
    partitions that one task splits. `share_rows`: ledger rows of the directory for each share of its identities.
    `task_rows`: size up to which small units share a task.
    """

    whole_rows: int = 1_000_000
    range_rows: int = 4_000_000
    slice_rows: int = 2_000_000
    split_rows: int = 1_500_000
    share_rows: int = 4_000_000
    task_rows: int = 400_000


@dataclass(frozen=True)
class AuditTarget:
    """An audited directory, as the tasks on its units see it. `number`: position among the audited directories.
    `open_producers`: producers with an incomplete ledger. `shares`: number of shares (inputs of tasks after Spark's
    shuffle) into which its identities are cut. `deleted`: records and attempts in windows that a soak deleted."""

    number: int
    outputs: Outputs
    open_producers: frozenset[int]
    shares: int
    transactions: TransactionFiles = NO_TRANSACTIONS
    deleted: DeletedRecords = NOTHING_DELETED
    keys: Mapping[int, Keys] = field(default_factory=dict)
    """Producer → keys of its records, for producers that use keys."""
    removals: Mapping[TopicPartition, Removal] | None = None
    """Partition → removals that may have hit its records; None: not known (no `removals.json`)."""

    timestamps: Mapping[TopicPartition, TimestampRule] = field(default_factory=dict)
    """Partition → timestamps that its records may have, where that is known."""

    @property
    def needed(self) -> frozenset[str]:
        """Columns that a bucket needs if it is audited as a whole."""
        return EVERY_COLUMN if self.timestamps else EVERY_COLUMN - STAMPS

    def removal(self, place: TopicPartition) -> Removal:
        if self.removals is None:
            return unknown_removal(place)
        return self.removals.get(place, Removal(place.topic, place.partition))

    def findings(self, unit: str) -> FindingsWriter:
        return FindingsWriter(self.outputs.findings(unit), self.deleted)

    def group_findings(self, unit: str, group: str) -> FindingsWriter:
        return FindingsWriter(self.outputs.findings(unit), group=group)


class WorkUnit(Protocol):
    """A part of one directory (`target`) that one task audits."""

    @property
    def target(self) -> AuditTarget: ...

    @property
    def rows(self) -> int:
        """Return the approximate number of rows to read."""
        ...


@dataclass(frozen=True)
class _PieceUnit:
    target: AuditTarget
    pieces: tuple[Piece, ...]

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)


@dataclass(frozen=True)
class DirectoryUnit(_PieceUnit):
    """A small directory that is audited as one unit, and its consumer groups."""

    groups: tuple[GroupUnit, ...] = ()


@dataclass(frozen=True)
class SplitUnit(_PieceUnit):
    """Row groups with rows of several partitions, to be split by partition into temporary files."""

    number: int
    """Position among the split units of the directory, which names its output files."""


@dataclass(frozen=True)
class BucketUnit(_PieceUnit):
    """One bucket (all rows of the partition `place`) of a large directory. One task audits it as a whole; if it has
    more than `Limits.range_rows` rows, and neither keys nor removed records, it is cut into ranges (`slices`)."""

    number: int
    """Number of the bucket, in order of partitions."""
    place: TopicPartition
    spilled: tuple[tuple[Stream, Spilled], ...]
    """Rows that were split out of mixed row groups: the stream, and where they are."""

    @property
    def rows(self) -> int:
        return super().rows + sum(spilled.rows for _, spilled in self.spilled)


@dataclass(frozen=True)
class SplitResult:
    """Result of a split unit. `found`: the temporary files that it wrote, (partition, stream, location of the rows) for
    each partition and stream."""

    target: AuditTarget
    found: tuple[tuple[TopicPartition, Stream, Spilled], ...]


@dataclass
class Tally:
    """Counts and file names of one directory, or of a part of it. `number`: position of the directory.

    `counts`: findings by class, and acked attempts whose records a soak deleted (`outputs.SPARED`). `flaws`: number of
    offsets that the final read skipped or went back to; `flaw_places`: partition and offset of the first of them.
    `contents`: content sums of the final reads at read_uncommitted and at read_committed. `series`: names of temporary
    files with the series of units.
    """

    number: int
    counts: Counter[str] = field(default_factory=Counter)
    totals: Totals = field(default_factory=Counter)
    unledgered: int = 0
    """Rows of the final read whose record no ledger has, while the ledger of their producer is incomplete."""
    flaws: int = 0
    flaw_places: list[tuple[TopicPartition, int]] = field(default_factory=list)
    contents: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    """Names of the findings files."""
    series: list[str] = field(default_factory=list)
    acks: dict[TopicPartition, list[AckStretch]] = field(default_factory=dict)
    """Acknowledgements of each range of time, for partitions whose bucket is cut."""
    groups: dict[str, Counter[str]] = field(default_factory=dict)
    """By consumer group: findings by class, and numbers of `GroupCounts` by their names."""

    def add(self, other: Tally) -> None:
        """Add the counts and file names of another part of the same directory to this one."""
        self.counts.update(other.counts)
        self.totals.update(other.totals)
        self.unledgered += other.unledgered
        self.flaws += other.flaws
        for place, sums in other.contents.items():
            self.contents[place] = sum_contents([self.contents.get(place, (0, 0)), sums])
        for place, acks in other.acks.items():
            self.acks.setdefault(place, []).extend(acks)
        for group, counts in other.groups.items():
            self.groups.setdefault(group, Counter()).update(counts)
        self.findings += other.findings
        self.series += other.series
        self.flaw_places = sorted(self.flaw_places + other.flaw_places)[:MOST_PLACES]


TROUBLES = (UnreadablePart, UntrustedStatistics, Rejected, OSError)


@dataclass(frozen=True)
class Trouble:
    """Error of a unit, which then has no counts. `number`: position of its directory among those audited. OSError: its
    output could not be written or read back. All other errors: the ledger cannot be used as it is. `pipeline` then
    audits the directory again without the broken file or its statistics, or gives it up."""

    number: int
    error: UnreadablePart | UntrustedStatistics | Rejected | OSError


def do_split(unit: SplitUnit) -> SplitResult | Trouble:
    """Split row groups by partition into temporary files of the audited directory. Return where the rows are. An error
    of a file is returned as `Trouble`."""
    gathered: dict[tuple[TopicPartition, Stream], list[Rows]] = defaultdict(list)
    try:
        for piece in unit.pieces:
            for stream, place, rows in read_piece(piece, unit.target.needed):
                gathered[place, stream].append(rows)
        with closing(SpillFile(unit.target.outputs.unfinished("rows", f"{unit.number}"))) as spill:
            found = tuple(
                (place, stream, spill.add(concat_rows(rows, STREAMS[stream])))
                for (place, stream), rows in sorted(gathered.items())
            )
    except TROUBLES as error:
        return Trouble(unit.target.number, error)
    return SplitResult(unit.target, found)


def do_bucket(unit: BucketUnit) -> Iterator[tuple[int, Share] | tuple[None, Tally | Trouble]]:
    """Audit one bucket (the rows of one partition) as a whole. First yield (share number, `Share`) for its rows about
    records that need other partitions' rows too: a later task audits each share. Last yield (None, counts), or (None,
    `Trouble`) after an error of a file."""
    target = unit.target
    name = f"{unit.number:06d}"
    findings = target.findings(name)
    rows = BucketRows()
    try:
        for piece in unit.pieces:
            for stream, place, some in read_piece(piece, target.needed):
                if place != unit.place:
                    raise UntrustedStatistics(piece.part.path)
                rows.add(stream, some)
        for stream, spilled in unit.spilled:
            rows.add(stream, spilled.load())
        commits = CommitAudit(unit.place, findings, TransactionTable(target.transactions))
        removal = target.removal(unit.place)
        stamps = target.timestamps.get(unit.place)
        audited = audit_bucket(unit.place, rows, findings, commits, target.keys, removal, stamps)
        for message in audited.handovers:
            yield from cut_shares(message, target.shares)
        findings.close()
        counted = _tally(target, name, {unit.place: (rows, audited)}, findings)
    except TROUBLES as error:
        yield None, Trouble(target.number, error)
        return
    yield None, counted


def do_whole(unit: DirectoryUnit) -> Iterator[Tally | Trouble]:
    """Audit a small directory and its consumer groups in one task. Yield the counts of the directory without its
    groups, then the counts of each group. After an error of a file, a `Trouble` takes the place of the counts."""
    yield do_directory(unit)
    if unit.groups:
        from ackproof.audit.group_units import (
            do_group,  # pydantic, which tasks of other directories do not need
        )

        for group in unit.groups:
            yield do_group(group)


def do_directory(unit: DirectoryUnit) -> Tally | Trouble:
    """Audit a small directory without its consumer groups, and return its counts. An error of a file is returned as
    `Trouble`."""
    target = unit.target
    buckets: dict[TopicPartition, BucketRows] = defaultdict(BucketRows)
    found: dict[TopicPartition, tuple[BucketRows, BucketAudit]] = {}
    findings = target.findings("0")
    given: list[Share] = []
    table = TransactionTable(target.transactions)
    try:
        for piece in unit.pieces:
            for stream, place, some in read_piece(piece, target.needed):
                buckets[place].add(stream, some)
        for place, rows in sorted(buckets.items()):
            commits = CommitAudit(place, findings, table)
            removal, stamps = target.removal(place), target.timestamps.get(place)
            audited = audit_bucket(place, rows, findings, commits, target.keys, removal, stamps)
            found[place] = rows, audited
            given += [share for message in audited.handovers for _, share in cut_shares(message, 1)]
        unledgered = resolve_share(given, target.open_producers, findings, target.deleted)
        findings.close()
        counted = _tally(target, "0", found, findings)
    except TROUBLES as error:
        return Trouble(target.number, error)
    counted.unledgered = unledgered
    return counted


def do_share(target: AuditTarget, number: int, given: Sequence[Share]) -> Tally | Trouble:
    """Audit one share: everything that the buckets of a directory sent about the same identities and transactions. It
    shows anomalies across partitions, such as misrouted records and torn transactions. Write their findings.

    Return a `Tally` with the number of findings by class and the names of the files; `Trouble` if the audit raises
    `Rejected` or OSError. `number`: number of the share, which is in the file names. `given`: rows that each bucket
    sent to the share.
    """
    findings = target.findings(f"share-{number}")
    try:
        unledgered = resolve_share(given, target.open_producers, findings, target.deleted)
        findings.close()
    except (Rejected, OSError) as error:
        return Trouble(target.number, error)
    return Tally(target.number, counts=findings.counts, unledgered=unledgered, findings=findings.files)


def _tally(
    target: AuditTarget,
    unit: str,
    found: Mapping[TopicPartition, tuple[BucketRows, BucketAudit]],
    findings: FindingsWriter,
) -> Tally:
    """Write the series (counts and latencies per 100 ms) of these buckets to one file. Return the counts of the buckets
    with the names of that file and of the findings file. `unit`: name of the unit of work, which is in the file's name.
    Raises OSError if the series cannot be written."""
    counted = Tally(target.number, counts=findings.counts, findings=findings.files)
    tables: list[pa.Table] = []
    for place, (rows, audited) in found.items():
        table, _ = build_series(place, rows["produced"], [rows["live"], rows["live committed"]])
        tables.append(table)
        counted.totals.update(audited.totals)
        counted.contents[place] = audited.contents
        counted.flaws += len(audited.flaws)
        counted.flaw_places += [(place, offset) for offset in audited.flaws[:MOST_PLACES].tolist()]
    counted.series = write_series(target, unit, tables)
    counted.flaw_places = sorted(counted.flaw_places)[:MOST_PLACES]
    return counted


def write_series(target: AuditTarget, unit: str, tables: Sequence[pa.Table]) -> list[str]:
    """Write the time series that one unit of work computed (`tables`, schema `SERIES`) to one Parquet file.

    Return a list with the name of the file; an empty list if there are no tables. Raises OSError if it cannot be
    written.
    """
    if not tables:
        return []
    path = target.outputs.unfinished("series", unit)
    with storage.create_parquet(path, SERIES) as writer:
        writer.write_table(pa.concat_tables(tables))
    return [path.name]


def find_unreadable_parts(parts: Sequence[Part]) -> dict[str, str]:
    """Read every part to its end. Return path → reason of the parts that cannot be read. Parts with other flaws, which
    the audit itself reports, are left out."""
    found: dict[str, str] = {}
    for part in parts:
        try:
            for _ in read_piece(Piece(part, part.groups)):
                pass
        except UnreadablePart as error:
            found[error.path] = error.reason
        except (Rejected, UntrustedStatistics):
            continue  # the audit itself will report it
    return found
