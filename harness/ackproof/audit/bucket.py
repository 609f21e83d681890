"""One bucket from its rows to its findings: the passes over reading order, identities, offsets and times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field
from operator import add

import numpy as np

from ackproof.audit.identity import IdentityAudit, RangeReads
from ackproof.audit.offsets import OffsetAudit, ReadWalk, follow_reads
from ackproof.audit.outputs import FindingsWriter, Handover
from ackproof.audit.shares import CommitAudit
from ackproof.ledgers.load import STREAMS, Stream
from ackproof.ledgers.rows import LIVE, Ints, Rows, Schema, concat_rows
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.payload import Keys
from ackproof.rundir.payload_bulk import as_int64, content_sum
from ackproof.rundir.removals import Removal

OFFSETS_READ_AGAIN: Schema = {"offset": "i8"}


@dataclass(frozen=True)
class Totals:
    """Counts of ledger rows, made while they are read."""

    produced: int = 0
    acked: int = 0
    failed: int = 0
    indeterminate: int = 0
    consumed_live: int = 0
    consumed_final: int = 0
    consumed_committed: int = 0
    transactional: int = 0
    """Produced rows that belong to transactions."""
    untold: int = 0
    """Produced rows of transactions that the table does not know."""

    def plus(self, other: Totals) -> Totals:
        """Return the sum with another part of the same directory."""
        return Totals(*map(add, astuple(self), astuple(other)))


class BucketRows:
    """Rows of one bucket, or of a range of it, by stream."""

    def __init__(self) -> None:
        self._held: dict[Stream, list[Rows]] = defaultdict(list)

    def add(self, stream: Stream, rows: Rows) -> None:
        self._held[stream].append(rows)

    def __getitem__(self, stream: Stream) -> Rows:
        """Return all rows of a stream."""
        rows = concat_rows(self._held[stream], STREAMS[stream])
        self._held[stream] = [rows]
        return rows


@dataclass(frozen=True)
class ReadOrder:
    """Order of the reads of one bucket, or of a range of it."""

    walks: Mapping[Stream, ReadWalk]
    totals: Totals
    contents: tuple[int, int]
    """Content sums of the final reads, the second one at read_committed: see `payload.content_sum`."""

    def gaps(self, stream: Stream) -> Rows:
        return self.walks[stream].gaps

    @property
    def back(self) -> Rows:
        """Return the reads at which final readers went back."""
        both = (self.walks[stream].back.select(OFFSETS_READ_AGAIN) for stream in ("final", "committed"))
        return concat_rows(both, OFFSETS_READ_AGAIN)


def follow_bucket_reads(place: TopicPartition, rows: BucketRows, findings: FindingsWriter) -> ReadOrder:
    """Follow all readers of a bucket. Adds findings of class rewound."""
    reads: list[Stream] = [stream for stream in STREAMS if stream != "produced"]
    walks = {stream: follow_reads(rows[stream]) for stream in reads}
    add_rewound(place, walks, findings)
    totals = Totals(
        consumed_live=len(rows["live"]) + len(rows["live committed"]),
        consumed_final=len(rows["final"]),
        consumed_committed=len(rows["committed"]),
    )
    return ReadOrder(walks, totals, (_content_of(rows["final"]), _content_of(rows["committed"])))


def add_rewound(place: TopicPartition, walks: Mapping[Stream, ReadWalk], findings: FindingsWriter) -> None:
    """Add the reads at which live readers went back."""
    for stream in ("live", "live committed"):
        back = walks[stream].back
        findings.add(place, Anomaly.REWOUND, back, detail="not above the previous read")


def count_produced(produced: Rows, commits: CommitAudit) -> Totals:
    """Return the counts of produced rows, after the pass over identities."""
    acked, failed, indeterminate = np.bincount(produced["outcome"], minlength=len(Outcome)).tolist()
    return Totals(
        produced=len(produced),
        acked=acked,
        failed=failed,
        indeterminate=indeterminate,
        transactional=commits.transactional,
        untold=commits.untold,
    )


@dataclass
class BucketAudit:
    """Results of a bucket that is audited as a whole, complete once its messages are taken."""

    totals: Totals = field(default_factory=Totals)
    contents: tuple[int, int] = (0, 0)
    flaws: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    def audit(
        self,
        place: TopicPartition,
        rows: BucketRows,
        findings: FindingsWriter,
        commits: CommitAudit,
        keys: Mapping[int, Keys],
        removal: Removal,
    ) -> Iterator[Handover]:
        """Run all passes but the series. Yields what the bucket cannot decide alone.

        Raises `Rejected`, `UnreadablePart`, OSError.
        """
        read = follow_bucket_reads(place, rows, findings)
        identities, reads = IdentityAudit(place, findings, findings, commits, keys, removal), live_rows(rows)
        yield from identities.run(
            rows["produced"],
            RangeReads(
                rows["final"],
                rows["committed"],
                rows["live committed"],
                reads,
                read.gaps("live"),
                read.gaps("live committed"),
            ),
        )
        found = identities.result
        self.totals = read.totals.plus(count_produced(rows["produced"], commits))
        self.contents = read.contents
        self.flaws = OffsetAudit(place, findings).run(
            found.copies,
            reads,
            found.lost,
            found.skipped,
            read.back,
            read.gaps("final"),
            found.removed.among(reads),
        )


def live_rows(rows: BucketRows) -> Rows:
    """Return the rows of live readers."""
    return concat_rows((rows[stream] for stream in ("live", "live committed")), LIVE)


def sum_contents(contents: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return the sums over several ranges."""
    final, committed = zip(*contents, strict=True)
    return as_int64(sum(final) % (1 << 64)), as_int64(sum(committed) % (1 << 64))


def _content_of(rows: Rows) -> int:
    return as_int64(content_sum(rows["offset"], rows["producer"], rows["seq"], rows["intact"]) % (1 << 64))
