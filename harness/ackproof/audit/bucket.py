"""Audits one bucket (all ledger rows of one partition in one directory): passes over the order of reads, over
identities (producer, seq) and over offsets turn its rows into findings."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ackproof.audit.identity import RangeReads, audit_identities
from ackproof.audit.offsets import ReadWalk, audit_offsets, follow_reads
from ackproof.audit.outputs import FindingsWriter, Handover
from ackproof.audit.shares import CommitAudit
from ackproof.ledgers.load import STREAMS, Stream
from ackproof.ledgers.rows import LIVE, Ints, Rows, Schema, concat_rows
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.payload import Keys
from ackproof.rundir.payload_bulk import as_int64, content_sum
from ackproof.rundir.removals import Removal, TimestampRule

OFFSETS_READ_AGAIN: Schema = {"offset": "i8"}


Totals: TypeAlias = Counter[str]
"""Numbers of ledger rows by name: the fields of `RecordCounts`; `consumed_committed`, rows of the final read at
read_committed; `transactional`, produced rows in transactions; `unlisted`, those of them whose transaction
`ledger/transactions` does not list."""


class BucketRows:
    """Ledger rows of one bucket (all rows of one partition in one directory), by stream. For a large bucket they may be
    limited to a range of one key: read_seq, seq, time or offset (`planning.KeyRange`). A stream is `produced` or a
    phase of reading (`final`, `live`, …). A stream without rows is an empty table."""

    def __init__(self) -> None:
        self._held: dict[Stream, list[Rows]] = defaultdict(list)

    def add(self, stream: Stream, rows: Rows) -> None:
        self._held[stream].append(rows)

    def __getitem__(self, stream: Stream) -> Rows:
        rows = concat_rows(self._held[stream], STREAMS[stream])
        self._held[stream] = [rows]
        return rows


@dataclass(frozen=True)
class ReadOrder:
    """Reads of a bucket (all rows of one partition), or of a range of its read_seq. Each is compared with the previous
    read of the same reader and assignment. A reader gets a new assignment number whenever its positions are set
    (rebalance, seek, reset), so a reset to a lower offset is no finding.

    `walks`: result of the comparison for each stream of reads (`final`, `live`, …). `totals`: numbers of reads of live
    readers, of the final read and of the final read at read_committed, by their names in `audit.json`. `contents`: sums
    of the hashes of the records that the final reads returned (`payload_bulk.content_sum`), at read_uncommitted and at
    read_committed.
    """

    walks: Mapping[Stream, ReadWalk]
    totals: Totals
    contents: tuple[int, int]

    @property
    def back(self) -> Rows:
        """Offsets at which a final reader, at either isolation level, went back: they are not above the offset of its
        previous read in the same assignment."""
        both = (self.walks[stream].back.select(OFFSETS_READ_AGAIN) for stream in ("final", "committed"))
        return concat_rows(both, OFFSETS_READ_AGAIN)


def follow_bucket_reads(place: TopicPartition, rows: BucketRows, findings: FindingsWriter) -> ReadOrder:
    """Compare each read of a bucket with the previous one of its reader and assignment, and return the results. Add a
    finding of class rewound for each read at which a live reader went back. Raises OSError if the findings cannot be
    written."""
    reads: list[Stream] = [stream for stream in STREAMS if stream != "produced"]
    walks = {stream: follow_reads(rows[stream]) for stream in reads}
    add_rewound(place, walks, findings)
    totals = Counter(
        consumed_live=len(rows["live"]) + len(rows["live committed"]),
        consumed_final=len(rows["final"]),
        consumed_committed=len(rows["committed"]),
    )
    return ReadOrder(walks, totals, (_content_of(rows["final"]), _content_of(rows["committed"])))


def add_rewound(place: TopicPartition, walks: Mapping[Stream, ReadWalk], findings: FindingsWriter) -> None:
    """Add findings of class rewound: a live reader read an offset that is not above the offset of its previous read in
    the same assignment. Raises OSError if they cannot be written."""
    for stream in ("live", "live committed"):
        back = walks[stream].back
        findings.add(place, Anomaly.REWOUND, back, detail="not above the previous read")


def count_produced(produced: Rows, commits: CommitAudit) -> Totals:
    """Return the numbers of produced rows: all, by outcome, in transactions, and in transactions that the table does
    not list. Call it after `audit_identities`, which counts the last two in `commits`."""
    acked, failed, indeterminate = np.bincount(produced["outcome"], minlength=len(Outcome)).tolist()
    return Counter(
        produced=len(produced),
        acked=acked,
        failed=failed,
        indeterminate=indeterminate,
        transactional=commits.transactional,
        unlisted=commits.unlisted,
    )


@dataclass(frozen=True)
class BucketAudit:
    """Results of a bucket that was audited as a whole.

    `totals`: numbers of its rows. `contents`: sums of the hashes of the records that the final reads returned
    (`payload_bulk.content_sum`), at read_uncommitted and at read_committed. `flaws`: offsets to which a final reader
    went back, or that it skipped although another read has a record there; ascending. `handovers`: rows that this
    bucket alone cannot decide on.
    """

    totals: Totals
    contents: tuple[int, int]
    flaws: Ints
    handovers: tuple[Handover, ...]


def audit_bucket(
    place: TopicPartition,
    rows: BucketRows,
    findings: FindingsWriter,
    commits: CommitAudit,
    keys: Mapping[int, Keys],
    removal: Removal,
    stamps: TimestampRule | None = None,
) -> BucketAudit:
    """Run all passes over the rows of one bucket, except the pass that builds its series. Findings are added to
    `findings`.

    `commits` compares reads with the outcomes of transactions. `keys`: producer → keys of its records; a producer whose
    records have none is missing. `removal`: settings and requests that may have removed records. `stamps`: timestamps
    that the records may have; None: any. Raises `Rejected` for invalid rows, `UnreadablePart` for an unreadable file,
    OSError if findings cannot be written.
    """
    read, live = follow_bucket_reads(place, rows, findings), live_rows(rows)
    reads = RangeReads(
        rows["final"],
        rows["committed"],
        rows["live committed"],
        live,
        read.walks["live"].gaps,
        read.walks["live committed"].gaps,
    )
    found = audit_identities(place, rows["produced"], reads, findings, commits, keys, removal, stamps=stamps)
    flaws = audit_offsets(
        place,
        findings,
        copies=found.copies,
        reads=live,
        lost=found.lost,
        skipped=found.skipped,
        back=read.back,
        gaps=read.walks["final"].gaps,
        removed=found.removed.among(live),
    )
    totals = read.totals + count_produced(rows["produced"], commits)
    return BucketAudit(totals, read.contents, flaws, found.handovers)


def live_rows(rows: BucketRows) -> Rows:
    """Return the rows of live readers at both isolation levels."""
    return concat_rows((rows[stream] for stream in ("live", "live committed")), LIVE)


def sum_contents(contents: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Add up the content sums of several ranges (at least one), each a pair for read_uncommitted and read_committed.
    Return the pair of totals modulo 2^64, as signed numbers."""
    final, committed = zip(*contents, strict=True)
    return as_int64(sum(final) % (1 << 64)), as_int64(sum(committed) % (1 << 64))


def _content_of(rows: Rows) -> int:
    return as_int64(content_sum(rows["offset"], rows["producer"], rows["seq"], rows["intact"]) % (1 << 64))
