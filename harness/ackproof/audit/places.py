"""The classes of one place (topic, partition, offset): overwritten, vanished, conflict, skipped; and the flaws of
the final read. One pass over ranges of offsets.

Two reads are of the same record when producer and seq are equal, so nobody equals nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ackproof.audit.findings_file import FindingsWriter
from ackproof.audit.identity import IdentityPass
from ackproof.audit.lookup import Lookup, covered
from ackproof.audit.order import Walk
from ackproof.audit.rows import LIVE, Bools, Ints, Rows, Schema, concat, distinct, group_starts
from ackproof.audit.spill import SpillableRows, ranges
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.partition import TopicPartition

MOST_PLACES = 1000
"""So many places of final_read are named, the lowest."""

_OFFSETS: Schema = {"offset": "i8"}
_RECORDS: Schema = {"offset": "i8", "producer": "i4", "seq": "i8"}


@dataclass
class Flaws:
    """Offsets that a final reader went back to, or passed over though another read shows them."""

    count: int = 0
    lowest: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class PartitionAudit:
    """The pass over the places of one bucket."""

    place: TopicPartition
    findings: FindingsWriter
    most: int

    def run(
        self,
        identities: IdentityPass,
        live: SpillableRows,
        committed_live: SpillableRows,
        final_walk: Walk,
        committed_back: SpillableRows,
    ) -> Flaws:
        """The findings go to the writer; what is wrong with the final read comes back.

        `committed_back`: where the final reader at read_committed went back. What it passed over is no flaw: it may
        belong to aborted transactions, and where it does not the transaction is torn.
        """
        flaws = Flaws()
        spillables = [identities.copies, live, identities.lost, identities.skipped, final_walk.back]
        if len(committed_live) or len(committed_back):
            spillables += [committed_live, committed_back]
        for copies, reads, lost, skipped, back, *of_transactions in ranges(
            spillables, ("offset",), self.most
        ):
            if of_transactions:
                reads = concat([reads, of_transactions[0]], LIVE)
                back = concat([back.select(_OFFSETS), of_transactions[1].select(_OFFSETS)], _OFFSETS)
            wrong = self._range(copies, reads, lost, skipped, back, final_walk)
            flaws.count += len(wrong)
            flaws.lowest = [*wrong[:MOST_PLACES].tolist(), *flaws.lowest][:MOST_PLACES]
        return flaws

    def _range(
        self, copies: Rows, reads: Rows, lost: Rows, skipped: Rows, back: Rows, final_walk: Walk
    ) -> Ints:
        copies = copies.sorted_by("offset", "producer", "seq")
        starts = group_starts([copies["offset"]])
        held = copies.ints("offset")[starts]
        lookup = Lookup(held)
        self._overwritten(lost, copies, starts, lookup)
        self._offsets(Anomaly.SKIPPED, skipped.ints("offset"), "a live reader passed over it")
        at = lookup.find(reads.ints("offset"))
        other = self._other_than_first(reads, copies, starts, at)
        self._vanished(reads, other, copies, starts, at)
        self._conflict(reads, other, copies, starts, at)
        only_live = distinct(reads.ints("offset")[at < 0])
        gaps = [final_walk.gaps.after, final_walk.gaps.before]
        passed = np.concatenate([held[covered(held, gaps)], only_live[covered(only_live, gaps)]])
        return distinct(np.concatenate([passed, back.ints("offset")]))

    def _overwritten(self, lost: Rows, copies: Rows, starts: Ints, lookup: Lookup) -> None:
        # A lost record has no intact row of its own in this partition: an intact one at its offset is another's.
        if not len(lost) or not len(copies):
            return
        intact = np.logical_or.reduceat(copies.flags("intact"), starts)
        at = lookup.find(lost.ints("offset"))
        which = np.flatnonzero((at >= 0) & intact[at])
        detail = "another record holds its offset"
        self.findings.add(self.place, Anomaly.OVERWRITTEN, lost, which, detail=detail)

    @staticmethod
    def _other_than_first(reads: Rows, copies: Rows, starts: Ints, at: Ints) -> Ints:
        """Live reads whose record is not the first of the final ones at their place (or there is none)."""
        if not len(copies):
            return np.arange(len(reads), dtype=np.int64)
        first = starts[at]  # at −1 this is the last place: masked below
        same = (
            (copies["producer"][first] == reads["producer"])
            & (copies["seq"][first] == reads["seq"])
            & (at >= 0)
        )
        return np.flatnonzero(~same)

    def _vanished(self, reads: Rows, other: Ints, copies: Rows, starts: Ints, at: Ints) -> None:
        if not len(other):
            return
        gone = other
        sizes = np.diff(np.append(starts, len(copies)))
        several = (
            (at[other] >= 0) & (sizes[at[other]] > 1) if len(starts) else np.zeros(len(other), dtype=np.bool_)
        )
        if several.any():
            candidates = other[several]
            asked = np.zeros(len(starts), dtype=np.bool_)
            asked[at[candidates]] = True
            there = _among(reads.take(candidates), copies.take(np.flatnonzero(np.repeat(asked, sizes))))
            gone = np.sort(np.concatenate([other[~several], candidates[~there]]))
        rows = reads.take(gone)
        rows = rows.sorted_by("offset", "producer", "seq")
        first = group_starts([rows["offset"]])
        detail = "read live, not among the final records there"
        self.findings.add(self.place, Anomaly.VANISHED, rows, first, detail=detail)

    def _conflict(self, reads: Rows, other: Ints, copies: Rows, starts: Ints, at: Ints) -> None:
        offset = reads.ints("offset")
        unlike_final = offset[other[at[other] >= 0]]
        among_live = _several_records(reads.take(other[at[other] < 0]))
        several = np.concatenate([unlike_final, _several_records(copies), among_live])
        self._offsets(Anomaly.CONFLICT, several, "reads gave different records")

    def _offsets(self, anomaly: Anomaly, offsets: Ints, detail: str) -> None:
        once = distinct(offsets)
        self.findings.add(self.place, anomaly, Rows({"offset": once}, len(once)), detail=detail)


def _several_records(rows: Rows) -> Ints:
    """Offsets at which these rows show more than one record (each perhaps several times)."""
    if not len(rows):
        return np.empty(0, dtype=np.int64)
    rows = rows.sorted_by("offset", "producer", "seq")
    offset = rows.ints("offset")
    differs = (rows["producer"][1:] != rows["producer"][:-1]) | (rows["seq"][1:] != rows["seq"][:-1])
    several: Ints = offset[1:][(offset[1:] == offset[:-1]) & differs]
    return several


def _among(reads: Rows, copies: Rows) -> Bools:
    """Which of the reads have their (offset, producer, seq) among the copies."""
    both = concat([copies.select(_RECORDS), reads.select(_RECORDS)], _RECORDS)
    keys = [both[name] for name in _RECORDS]
    order = np.lexsort(tuple(reversed(keys)))
    starts = group_starts([key[order] for key in keys])
    number = np.zeros(len(order), dtype=np.int64)
    number[starts] = 1
    group = np.empty(len(order), dtype=np.int64)
    group[order] = np.cumsum(number) - 1
    held = np.zeros(len(starts), dtype=np.bool_)
    held[group[: len(copies)]] = True
    result: Bools = held[group[len(copies) :]]
    return result
