"""The classes of one place (topic, partition, offset): overwritten, vanished, conflict, skipped; and the flaws of
the final read. A bucket that is cut is cut at borders of offset.

Two reads are of the same record when producer and seq are equal, so nobody equals nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ackproof.audit.findings_file import FindingsWriter
from ackproof.ledgers.lookup import Lookup, covered, highest_over
from ackproof.ledgers.rows import Bools, Ints, Rows, Schema, concat, distinct, group_starts
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.partition import TopicPartition

MOST_PLACES = 1000
"""So many places of final_read are named, the lowest."""

_FAR = 1 << 62
"""Above every leader epoch."""
_RECORDS: Schema = {"offset": "i8", "producer": "i4", "seq": "i8"}


@dataclass(frozen=True)
class PartitionAudit:
    """The pass over the places of one bucket, or of a range of them. The findings go to the writer."""

    place: TopicPartition
    findings: FindingsWriter

    def run(
        self, copies: Rows, reads: Rows, lost: Rows, skipped: Rows, back: Rows, gaps: Rows, removed: Bools
    ) -> Ints:
        """The offsets that a final reader went back to, or passed over though another read shows them.

        `copies`: the final rows, each once; `reads`: the live ones; `removed`: which of these show a record that was
        removed since, as a setting or an administrator asked; `skipped`: the offsets of present copies that one passed
        over; `back`: of final readers, where they went back; `gaps`: what the one at read_uncommitted passed over. What
        the one at read_committed passed over is no flaw: it may belong to aborted transactions, and where it does not
        the transaction is torn.
        """
        copies = copies.sorted_by("offset", "producer", "seq")
        starts = group_starts([copies["offset"]])
        held = copies.ints("offset")[starts]
        lookup = Lookup(held)
        self._overwritten(lost, copies, starts, lookup)
        self._offsets(Anomaly.SKIPPED, skipped.ints("offset"), "a live reader passed over it")
        at = lookup.find(reads.ints("offset"))
        other = self._other_than_first(reads, copies, starts, at)
        self._vanished(reads, other[~removed[other]], copies, starts, at)
        self._conflict(reads, other, copies, starts, at)
        over = [gaps.ints("after"), gaps.ints("before")]
        only_live = _passed_over(reads.take(np.flatnonzero((at < 0) & ~removed)), gaps)
        passed = np.concatenate([held[covered(held, over)], only_live])
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


def _passed_over(reads: Rows, gaps: Rows) -> Ints:
    """The offsets of these reads that a gap of the final read holds.

    Epochs rise with offsets in a log: a record of an older epoch than the record before the gap was truncated, and
    whatever lies in the gap now took its place.
    """
    reads = reads.sorted_by("offset")
    offset, epoch = reads.ints("offset"), reads.ints("leader_epoch")
    over = gaps.ints("after"), gaps.ints("before")
    lowest = -np.maximum(highest_over(offset, *over, -gaps.ints("first_epoch")), -_FAR)
    return distinct(offset[(lowest < _FAR) & ((epoch < 0) | (epoch >= lowest))])


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
