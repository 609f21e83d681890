"""One bucket from its rows to its findings: the passes over reading order, identities, places and times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field
from operator import add

import numpy as np

from ackproof.audit.identity import IdentityAudit, Reads
from ackproof.audit.offsets import PartitionAudit, Walk, walk
from ackproof.audit.outputs import FindingsWriter, Handed
from ackproof.audit.shares import CommitAudit
from ackproof.ledgers.load import STREAMS, Stream
from ackproof.ledgers.rows import LIVE, Ints, Rows, Schema, concat
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.payload import Keys, as_int64, content_sum
from ackproof.rundir.removals import Removal

BACK: Schema = {"offset": "i8"}


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


class Streams:
    """The rows of one bucket, or of a range of them, as they come."""

    def __init__(self) -> None:
        self._held: dict[Stream, list[Rows]] = defaultdict(list)

    def add(self, stream: Stream, rows: Rows) -> None:
        self._held[stream].append(rows)

    def __getitem__(self, stream: Stream) -> Rows:
        """All rows of a stream."""
        rows = concat(self._held[stream], STREAMS[stream])
        self._held[stream] = [rows]
        return rows


@dataclass(frozen=True)
class Read:
    """What the reads of one bucket, or of a range of them, show of the order in which they were handed over."""

    walks: Mapping[Stream, Walk]
    totals: Totals
    contents: tuple[int, int]
    """What the final readers wrote down of it, the second one at read_committed: see `rundir.payload`."""

    def gaps(self, stream: Stream) -> Rows:
        return self.walks[stream].gaps

    @property
    def back(self) -> Rows:
        """Where final readers went back."""
        both = (self.walks[stream].back.select(BACK) for stream in ("final", "committed"))
        return concat(both, BACK)


def read_in_order(place: TopicPartition, rows: Streams, findings: FindingsWriter) -> Read:
    """The pass over the order of reads."""
    reads: list[Stream] = [stream for stream in STREAMS if stream != "produced"]
    walks = {stream: walk(rows[stream]) for stream in reads}
    rewound(place, walks, findings)
    totals = Totals(
        consumed_live=len(rows["live"]) + len(rows["live committed"]),
        consumed_final=len(rows["final"]),
        consumed_committed=len(rows["committed"]),
    )
    return Read(walks, totals, (_content(rows["final"]), _content(rows["committed"])))


def rewound(place: TopicPartition, walks: Mapping[Stream, Walk], findings: FindingsWriter) -> None:
    """What live readers went back over."""
    for stream in ("live", "live committed"):
        back = walks[stream].back
        findings.add(place, Anomaly.REWOUND, back, detail="not above the read just before")


def counted_of(produced: Rows, commits: CommitAudit) -> Totals:
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
class Audited:
    """What a bucket that is audited at once comes to, once its messages are taken."""

    totals: Totals = field(default_factory=Totals)
    contents: tuple[int, int] = (0, 0)
    flaws: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    def audit(
        self,
        place: TopicPartition,
        rows: Streams,
        findings: FindingsWriter,
        commits: CommitAudit,
        keys: Mapping[int, Keys],
        removal: Removal,
    ) -> Iterator[Handed]:
        """Count all but the series. What the bucket cannot know alone comes out.

        Raises `Rejected`, `UnreadablePart`, OSError.
        """
        read = read_in_order(place, rows, findings)
        identities, reads = IdentityAudit(place, findings, findings, commits, keys, removal), both_live(rows)
        yield from identities.run(
            rows["produced"],
            Reads(
                rows["final"],
                rows["committed"],
                rows["live committed"],
                reads,
                read.gaps("live"),
                read.gaps("live committed"),
            ),
        )
        found = identities.result
        self.totals = read.totals.plus(counted_of(rows["produced"], commits))
        self.contents = read.contents
        self.flaws = PartitionAudit(place, findings).run(
            found.copies,
            reads,
            found.lost,
            found.skipped,
            read.back,
            read.gaps("final"),
            found.removed.among(reads),
        )


def both_live(rows: Streams) -> Rows:
    """What live readers were handed."""
    return concat((rows[stream] for stream in ("live", "live committed")), LIVE)


def together(contents: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """The sums over several ranges."""
    final, committed = zip(*contents, strict=True)
    return as_int64(sum(final) % (1 << 64)), as_int64(sum(committed) % (1 << 64))


def _content(rows: Rows) -> int:
    return as_int64(content_sum(rows["offset"], rows["producer"], rows["seq"], rows["intact"]) % (1 << 64))
