"""One bucket from its rows to its findings: the passes over reading order, identities, places and times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from itertools import chain
from operator import add

import numpy as np
import pyarrow as pa

from ackproof.audit.commits import CommitAudit
from ackproof.audit.findings_file import FindingsWriter
from ackproof.audit.identity import IdentityAudit
from ackproof.audit.load import STREAMS, Stream
from ackproof.audit.order import walk
from ackproof.audit.places import Flaws, PartitionAudit
from ackproof.audit.rows import Handed
from ackproof.audit.series import series_of
from ackproof.audit.spill import Scratch, SpillableRows
from ackproof.audit.transactions import Table
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.content import signed, total
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition


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


class Bucket:
    """The rows of one topic and partition of one directory."""

    def __init__(self, place: TopicPartition, most: int, scratch: Scratch, table: Table) -> None:
        self.place = place
        self._most = most
        self._spillables: dict[Stream, SpillableRows] = {
            stream: SpillableRows(schema, most, scratch) for stream, schema in STREAMS.items()
        }
        self._scratch = scratch
        self._table = table
        self.totals = Totals()
        self.contents = (0, 0)
        """What the final readers wrote down of it, the second one at read_committed: see `rundir.content`."""
        self.flaws = Flaws()
        self.series: pa.Table | None = None

    def spillable(self, stream: Stream) -> SpillableRows:
        """Where the rows of one stream go."""
        return self._spillables[stream]

    def audit(self, findings: FindingsWriter) -> Iterator[Handed]:
        """Count everything. What the bucket cannot know alone comes out.

        Raises `Rejected`, `UnreadablePart`, OSError.
        """
        produced, live, final, committed_live, committed = self._spillables.values()
        outcomes = np.zeros(len(Outcome), dtype=np.int64)
        for rows in produced.chunks():
            outcomes += np.bincount(rows["outcome"], minlength=len(Outcome))
        live_walk, committed_live_walk = walk(live, self._most), walk(committed_live, self._most)
        for rows in chain(live_walk.back.chunks(), committed_live_walk.back.chunks()):
            findings.add(self.place, Anomaly.REWOUND, rows, detail="not above the read just before")
        final_walk, committed_walk = walk(final, self._most), walk(committed, self._most)
        commits = CommitAudit(self.place, findings, self._table)
        identities = IdentityAudit(
            self.place,
            findings,
            live_walk.gaps,
            committed_live_walk.gaps,
            commits,
            self._most,
            self._scratch,
        )
        yield from identities.run(produced, final, committed, committed_live)
        acked, failed, indeterminate = outcomes.tolist()
        self.totals = Totals(
            produced=len(produced),
            acked=acked,
            failed=failed,
            indeterminate=indeterminate,
            consumed_live=len(live) + len(committed_live),
            consumed_final=len(final),
            consumed_committed=len(committed),
            transactional=commits.transactional,
            untold=commits.untold,
        )
        self.contents = (_content(final), _content(committed))
        self.flaws = PartitionAudit(self.place, findings, self._most).run(
            identities.result, live, committed_live, final_walk, committed_walk.back
        )
        self.series = series_of(self.place, produced, [live, committed_live], self._most)


def _content(rows: SpillableRows) -> int:
    found = 0
    for some in rows.chunks():
        found += total(some["offset"], some["producer"], some["seq"], some["intact"])
    return signed(found % (1 << 64))
