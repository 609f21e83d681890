"""One bucket from its rows to its findings: the passes over reading order, identities, places and times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ackproof.audit.commits import CommitAudit, Parts
from ackproof.audit.findings_file import FindingsWriter
from ackproof.audit.identity import IdentityAudit
from ackproof.audit.load import STREAMS, Stream
from ackproof.audit.order import walk
from ackproof.audit.places import Flaws, PartitionAudit
from ackproof.audit.rows import Rows
from ackproof.audit.series import series_of
from ackproof.audit.spill import Scratch, SpillableRows
from ackproof.audit.transactions import Table
from ackproof.audit.unmatched import Presence, UnmatchedRows
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition


@dataclass
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

    def add(self, other: Totals) -> None:
        """Add the rows of another part of the same directory."""
        self.produced += other.produced
        self.acked += other.acked
        self.failed += other.failed
        self.indeterminate += other.indeterminate
        self.consumed_live += other.consumed_live
        self.consumed_final += other.consumed_final
        self.consumed_committed += other.consumed_committed
        self.transactional += other.transactional
        self.untold += other.untold


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
        self.flaws = Flaws()
        self.series: pa.Table | None = None

    def spillable(self, stream: Stream) -> SpillableRows:
        """Where the rows of one stream go."""
        return self._spillables[stream]

    def audit(self, findings: FindingsWriter) -> Iterator[Presence | UnmatchedRows | Parts]:
        """Count everything. What the bucket cannot know alone comes out.

        Raises `Rejected`, `UnreadablePart`, OSError.
        """
        produced, live, final = (
            self._spillables["produced"],
            self._spillables["live"],
            self._spillables["final"],
        )
        committed, committed_live = self._spillables["committed"], self._spillables["live committed"]
        self._count()
        live_walk, committed_live_walk = walk(live, self._most), walk(committed_live, self._most)
        for back in (live_walk.back, committed_live_walk.back):
            self._rewound(back, findings)
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
        self.totals.transactional, self.totals.untold = commits.transactional, commits.untold
        self.flaws = PartitionAudit(self.place, findings, self._most).run(
            identities.result, live, committed_live, final_walk, committed_walk.back
        )
        self.series = series_of(self.place, produced, [live, committed_live], self._most)

    def _rewound(self, back: SpillableRows, findings: FindingsWriter) -> None:
        for rows in back.chunks():
            findings.add(
                Anomaly.REWOUND,
                self.place,
                length=len(rows),
                producer=rows["producer"],
                offset=rows["offset"],
                seq=rows["seq"],
                detail="not above the read just before",
            )

    def _count(self) -> None:
        self.totals.consumed_live = len(self._spillables["live"]) + len(self._spillables["live committed"])
        self.totals.consumed_final = len(self._spillables["final"])
        self.totals.consumed_committed = len(self._spillables["committed"])
        for rows in self._spillables["produced"].chunks():
            self._count_outcomes(rows)

    def _count_outcomes(self, rows: Rows) -> None:
        counts = np.bincount(rows["outcome"], minlength=len(Outcome)).tolist()
        self.totals.produced += len(rows)
        self.totals.acked += counts[Outcome.ACKED]
        self.totals.failed += counts[Outcome.FAILED]
        self.totals.indeterminate += counts[Outcome.INDETERMINATE]
