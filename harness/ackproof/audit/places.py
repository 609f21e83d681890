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
from ackproof.audit.rows import LIVE, Bools, Ints, Rows, Schema, concat, distinct, group_starts, order_of
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
                back = concat([_offsets(back), _offsets(of_transactions[1])], _OFFSETS)
            wrong = self._range(copies, reads, lost, skipped, back, final_walk)
            flaws.count += len(wrong)
            flaws.lowest = [*wrong[:MOST_PLACES].tolist(), *flaws.lowest][:MOST_PLACES]
        return flaws

    def _range(
        self, copies: Rows, reads: Rows, lost: Rows, skipped: Rows, back: Rows, final_walk: Walk
    ) -> Ints:
        order = order_of([copies["offset"], copies["producer"], copies["seq"]])
        if order is not None:
            copies = copies.take(order)
        starts = group_starts([copies["offset"]])
        held = copies.ints("offset")[starts]
        lookup = Lookup(held)
        self._overwritten(lost, copies, starts, lookup)
        self._skipped(skipped)
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
        self.findings.add(
            Anomaly.OVERWRITTEN,
            self.place,
            length=len(which),
            producer=lost["producer"][which],
            offset=lost["offset"][which],
            seq=lost["seq"][which],
            detail="another record holds its offset",
        )

    def _skipped(self, skipped: Rows) -> None:
        offsets = distinct(skipped.ints("offset"))
        self.findings.add(
            Anomaly.SKIPPED,
            self.place,
            length=len(offsets),
            offset=offsets,
            detail="a live reader passed over it",
        )

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
        order = order_of([rows["offset"], rows["producer"], rows["seq"]])
        if order is not None:
            rows = rows.take(order)
        rows = rows.take(group_starts([rows["offset"]]))
        self.findings.add(
            Anomaly.VANISHED,
            self.place,
            length=len(rows),
            producer=rows["producer"],
            offset=rows["offset"],
            seq=rows["seq"],
            detail="read live, not among the final records there",
        )

    def _conflict(self, reads: Rows, other: Ints, copies: Rows, starts: Ints, at: Ints) -> None:
        offset = reads.ints("offset")
        unlike_final = offset[other[at[other] >= 0]]
        places = distinct(
            np.concatenate(
                [unlike_final, _several_records(copies), _several_records(reads.take(other[at[other] < 0]))]
            )
        )
        self.findings.add(
            Anomaly.CONFLICT,
            self.place,
            length=len(places),
            offset=places,
            detail="reads gave different records",
        )


def _offsets(rows: Rows) -> Rows:
    return Rows({"offset": rows["offset"]}, len(rows))


def _several_records(rows: Rows) -> Ints:
    """Offsets at which these rows show more than one record (each perhaps several times)."""
    if not len(rows):
        return np.empty(0, dtype=np.int64)
    order = order_of([rows["offset"], rows["producer"], rows["seq"]])
    if order is not None:
        rows = rows.take(order)
    offset = rows.ints("offset")
    differs = (rows["producer"][1:] != rows["producer"][:-1]) | (rows["seq"][1:] != rows["seq"][:-1])
    several: Ints = offset[1:][(offset[1:] == offset[:-1]) & differs]
    return several


def _among(reads: Rows, copies: Rows) -> Bools:
    """Which of the reads have their (offset, producer, seq) among the copies."""
    names = tuple(_RECORDS)
    both = concat(
        [Rows({name: rows[name] for name in names}, len(rows)) for rows in (copies, reads)],
        _RECORDS,
    )
    keys = [both[name] for name in names]
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
