"""One bucket from its rows to its findings: the passes over reading order, identities, places and times."""

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
from ackproof.rundir.payload import Keys, as_int64, content_sum
from ackproof.rundir.removals import Removal

OFFSETS_READ_AGAIN: Schema = {"offset": "i8"}


@dataclass(frozen=True)
class Totals:
    """Rows of the ledgers, as counted while they were read."""

    produced: int = 0
    acked: int = 0
    failed: int = 0
    indeterminate: int = 0
    consumed_live: int = 0
    consumed_final: int = 0
    consumed_committed: int = 0
    transactional: int = 0
    """Produced rows of transactions."""
    untold: int = 0
    """Produced rows of transactions of which the table says nothing."""

    def plus(self, other: Totals) -> Totals:
        """With the rows of another part of the same directory."""
        return Totals(*map(add, astuple(self), astuple(other)))


class BucketRows:
    """The rows of one bucket, or of a range of them, as they come."""

    def __init__(self) -> None:
        self._held: dict[Stream, list[Rows]] = defaultdict(list)

    def add(self, stream: Stream, rows: Rows) -> None:
        self._held[stream].append(rows)

    def __getitem__(self, stream: Stream) -> Rows:
        """All rows of a stream."""
        rows = concat_rows(self._held[stream], STREAMS[stream])
        self._held[stream] = [rows]
        return rows


@dataclass(frozen=True)
class ReadOrder:
    """What the reads of one bucket, or of a range of them, show of the order in which they were handed over."""

    walks: Mapping[Stream, ReadWalk]
    totals: Totals
    contents: tuple[int, int]
    """What the final readers wrote down of it, the second one at read_committed: see `rundir.payload`."""

    def gaps(self, stream: Stream) -> Rows:
        return self.walks[stream].gaps

    @property
    def back(self) -> Rows:
        """Where final readers went back."""
        both = (self.walks[stream].back.select(OFFSETS_READ_AGAIN) for stream in ("final", "committed"))
        return concat_rows(both, OFFSETS_READ_AGAIN)


def follow_bucket_reads(place: TopicPartition, rows: BucketRows, findings: FindingsWriter) -> ReadOrder:
    """The pass over the order of reads."""
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
    """What live readers went back over."""
    for stream in ("live", "live committed"):
        back = walks[stream].back
        findings.add(place, Anomaly.REWOUND, back, detail="not above the read just before")


def count_produced(produced: Rows, commits: CommitAudit) -> Totals:
    """Once the pass over identities is done."""
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
    """What a bucket that is audited at once comes to, once its messages are taken."""

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
        """Count all but the series. What the bucket cannot know alone comes out.

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
    """What live readers were handed."""
    return concat_rows((rows[stream] for stream in ("live", "live committed")), LIVE)


def sum_contents(contents: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """The sums over several ranges."""
    final, committed = zip(*contents, strict=True)
    return as_int64(sum(final) % (1 << 64)), as_int64(sum(committed) % (1 << 64))


def _content_of(rows: Rows) -> int:
    return as_int64(content_sum(rows["offset"], rows["producer"], rows["seq"], rows["intact"]) % (1 << 64))
