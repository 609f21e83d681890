"""The classes of one identity: lost, duplicate, resurrected, surfaced, displaced, reordered; and of one final row:
phantom, misrouted, corrupted. One pass over ranges of (producer, seq), each with its produced and its final rows.

What a bucket cannot know by itself goes out: which identities it produced and holds, and the final
rows of identities that it did not produce. `ackproof.audit.unmatched` brings these together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from ackproof.audit.commits import CommitAudit
from ackproof.audit.findings_file import FindingsWriter
from ackproof.audit.ledger import Rejected
from ackproof.audit.lookup import Identities, highest_over
from ackproof.audit.order import Gaps
from ackproof.audit.rows import FINAL, Bools, Handed, Ints, Rows, Schema, concat, first_repeated, group_starts
from ackproof.audit.spill import Scratch, SpillableRows, ranges
from ackproof.audit.transactions import Fates
from ackproof.audit.unmatched import UNMATCHED
from ackproof.rundir.anomalies import Anomaly, Inversion
from ackproof.rundir.arrow import joined
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition

COPIES: Schema = {"offset": "i8", "producer": "i4", "seq": "i8", "intact": "?"}
LOST: Schema = {"offset": "i8", "producer": "i4", "seq": "i8"}
OFFSETS: Schema = {"offset": "i8"}

_KEYS = ("producer", "seq")
_FAR = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class _Behind:
    """The least producer of the ranges done so far, and the lowest offset of its present records in them."""

    producer: int | None = None
    lowest: int = _FAR
    lowest_acked: int = _FAR


@dataclass(frozen=True)
class IdentityPass:
    """What the pass over identities leaves to the pass over places."""

    copies: SpillableRows
    """The final rows, each once."""
    lost: SpillableRows
    """Lost records that were acked with an offset."""
    skipped: SpillableRows
    """Offsets of present copies that a live reader passed over; not yet distinct."""


class IdentityAudit:
    """The pass over the identities of one bucket."""

    def __init__(
        self,
        place: TopicPartition,
        findings: FindingsWriter,
        gaps: Gaps,
        committed_gaps: Gaps,
        commits: CommitAudit,
        most: int,
        scratch: Scratch,
    ) -> None:
        self._place = place
        self._add = partial(findings.add, place)
        self._gaps = gaps
        self._committed_gaps = committed_gaps
        self._commits = commits
        self._most = most
        self.result = IdentityPass(
            SpillableRows(COPIES, most, scratch),
            SpillableRows(LOST, most, scratch),
            SpillableRows(OFFSETS, most, scratch),
        )
        self._behind = _Behind()

    def run(
        self,
        produced: SpillableRows,
        final: SpillableRows,
        committed: SpillableRows,
        committed_live: SpillableRows,
    ) -> Iterator[Handed]:
        """`committed`, `committed_live`: what readers at read_committed were handed, in the final read and before.

        Raises `Rejected` if an identity was produced twice.
        """
        of_transactions = [committed, committed_live] if len(committed) or len(committed_live) else []
        for rows in ranges([produced, final, *of_transactions], _KEYS, self._most):
            yield from self._range(*rows)

    def _range(
        self,
        produced: Rows,
        final: Rows,
        committed: Rows | None = None,
        committed_live: Rows | None = None,
    ) -> Iterator[Handed]:
        produced = _in_order(produced)
        copies = distinct_copies(final if committed is None else concat([final, committed], FINAL))
        self.result.copies.add(copies.select(COPIES))
        seq, offset, intact = produced.ints("seq"), copies.ints("offset"), copies.flags("intact")
        found = Identities(produced["producer"], seq).find(copies["producer"], copies.ints("seq"))
        found[_nobody(copies)] = -1
        self._row_classes(copies, found)
        own = np.flatnonzero((found >= 0) & intact)
        of, at = found[own], offset[own]
        # Copies are in order of offset: assigned backwards, the lowest offset of each identity stays.
        lowest = np.full(len(produced), _FAR, dtype=np.int64)
        lowest[of[::-1]] = at[::-1]
        present = np.zeros(len(produced), dtype=np.bool_)
        present[of] = True
        extra = own[at != lowest[of]]
        self._add(
            Anomaly.DUPLICATE, copies, extra, detail="another intact copy of a record that is there already"
        )
        fates = self._commits.fates(produced)
        self._record_classes(produced, present, lowest, of, at, fates)
        self._reordered(produced, present, lowest)
        epoch = copies["leader_epoch"][own].astype(np.int64)
        self._skipped(self._gaps, at, epoch)
        if fates is None:
            self._skipped(self._committed_gaps, at, epoch)
        else:
            visible = self._at_read_committed(produced, fates, committed, committed_live)
            owed = (fates.committed | (visible & ~fates.aborted))[of]
            self._skipped(self._committed_gaps, at[owed], epoch[owed])
            yield from self._commits.parts(produced, fates, visible)
        identities = {"producer": produced["producer"], "seq": seq, "present": present}
        yield Handed(self._place, "identities", Rows(identities, len(produced)))
        unmatched_at = np.flatnonzero((found < 0) & ~_nobody(copies))
        if len(unmatched_at):
            yield Handed(self._place, "unmatched", copies.select(UNMATCHED, unmatched_at))

    def _row_classes(self, copies: Rows, found: Ints) -> None:
        broken = np.flatnonzero(~copies.flags("intact"))
        self._add(Anomaly.CORRUPTED, copies, broken, detail="checksum broken")
        nobody = _nobody(copies)
        self._add(Anomaly.PHANTOM, copies, np.flatnonzero(nobody), detail="no identity")
        astray = np.flatnonzero(copies.flags("astray") & ((found >= 0) | nobody))
        self._add(Anomaly.MISROUTED, copies, astray, detail="its payload names another origin")

    def _at_read_committed(
        self, produced: Rows, fates: Fates, committed: Rows | None, live: Rows | None
    ) -> Bools:
        """Which records the final read at read_committed holds; what readers at read_committed should not have got."""
        visible = np.zeros(len(produced), dtype=np.bool_)
        known = Identities(produced["producer"], produced.ints("seq"))
        for who, reads in (("final", committed), ("live", live)):
            if reads is None or not len(reads):
                continue
            rows = distinct_copies(reads) if who == "final" else reads
            found = known.find(rows["producer"], rows.ints("seq"))
            found[_nobody(rows)] = -1
            self._commits.reads(rows, found, fates, who)
            if who == "final":
                visible[found[(found >= 0) & rows.flags("intact")]] = True
        return visible

    def _record_classes(
        self, produced: Rows, present: Bools, lowest: Ints, of: Ints, at: Ints, fates: Fates | None
    ) -> None:
        outcome, acked_at = produced["outcome"], produced.ints("offset")
        acked = outcome == Outcome.ACKED
        # what an aborted transaction held, or one of which nobody knows, nobody is owed
        lost = np.flatnonzero(acked & ~present if fates is None else acked & ~present & fates.committed)
        self._add(Anomaly.LOST, produced, lost)
        self.result.lost.add(produced.select(LOST, lost[acked_at[lost] >= 0]))
        in_place = np.zeros(len(produced), dtype=np.bool_)
        in_place[of[at == acked_at[of]]] = True
        moved = np.flatnonzero(acked & (acked_at >= 0) & present & ~in_place)
        if len(moved):
            words = joined("first found at offset ", lowest[moved])
            self._add(Anomaly.DISPLACED, produced, moved, detail=words)
        for anomaly, meant in (
            (Anomaly.RESURRECTED, Outcome.FAILED),
            (Anomaly.SURFACED, Outcome.INDETERMINATE),
        ):
            which = np.flatnonzero((outcome == meant) & present)
            self._add(anomaly, produced, which, offset=lowest[which])

    def _reordered(self, produced: Rows, present: Bools, lowest: Ints) -> None:
        """A record is behind a higher seq of its producer exactly if one of these has a lower offset."""
        there = np.flatnonzero(present)
        if not len(there):
            return
        producer, offset = produced["producer"][there], lowest[there]
        acked = produced["outcome"][there] == Outcome.ACKED
        acked_offset = np.where(acked, offset, _FAR)
        starts = group_starts([producer])
        first, last = int(producer[0]), int(producer[-1])
        of_last = self._behind if self._behind.producer == last else _Behind()
        wrong = np.flatnonzero(_least_behind(offset, starts, of_last.lowest) < offset)
        if len(wrong):
            both = acked[wrong] & (
                _least_behind(acked_offset, starts, of_last.lowest_acked)[wrong] < offset[wrong]
            )
            for which, detail in (
                (wrong[both], Inversion.BOTH_ACKED),
                (wrong[~both], Inversion.ONE_NOT_ACKED),
            ):
                self._add(Anomaly.REORDERED, produced, there[which], offset=offset[which], detail=detail)
        of_first = self._behind if self._behind.producer == first else _Behind()
        end = int(starts[1]) if len(starts) > 1 else len(there)
        self._behind = _Behind(
            first,
            min(of_first.lowest, int(offset[:end].min())),
            min(of_first.lowest_acked, int(acked_offset[:end].min())),
        )

    def _skipped(self, gaps: Gaps, at: Ints, epoch: Ints) -> None:
        """A copy is passed over if a gap holds it whose far end knows an epoch not below its own, or knows none."""
        if not len(gaps.after) or not len(at):
            return
        limit = np.where(gaps.epoch < 0, _FAR, gaps.epoch)
        height = highest_over(at, gaps.after, gaps.before, limit)
        over = (height >= 0) & ((epoch < 0) | (epoch <= height))
        self.result.skipped.add(Rows({"offset": at[over]}, int(np.count_nonzero(over))))


def _least_behind(offset: Ints, starts: Ints, after_last: int) -> Ints:
    """For each row the least offset of the rows behind it in its group; `after_last` stands behind the last group.

    Where a group ascends, this is simply the next row's offset, or anything not below it.
    """
    ends = np.append(starts[1:], len(offset))
    behind = np.full(len(offset), _FAR, dtype=np.int64)
    behind[:-1] = offset[1:]
    behind[ends - 1] = _FAR
    behind[-1] = after_last
    broken = np.logical_or.reduceat(behind < offset, starts)
    for group in np.flatnonzero(broken).tolist():
        low, high = int(starts[group]), int(ends[group])
        behind[low:high] = np.minimum.accumulate(behind[low:high][::-1])[::-1]
    return behind


def _nobody(rows: Rows) -> Bools:
    nobody: Bools = (rows["producer"] == -1) & (rows["seq"] == -1)
    return nobody


def _in_order(produced: Rows) -> Rows:
    ordered = produced.sorted_by("producer", "seq")
    producer, seq = ordered["producer"], ordered["seq"]
    if (twice := first_repeated(producer, seq)) is not None:
        raise Rejected(f"producer {int(producer[twice])}, seq {int(seq[twice])} was produced twice")
    return ordered


def distinct_copies(final: Rows) -> Rows:
    """Final rows in order of offset; those that agree in offset, producer, seq and intact count once.

    Of rows that are one, the lowest leader epoch is kept (-1, unknown, is lower than any), the time of the first
    read where there is one, and `astray` if any is.
    """
    rows = final.sorted_by("offset")
    if first_repeated(rows["offset"]) is None:
        return rows
    keys = ("offset", "producer", "seq", "intact")
    rows = rows.sorted_by(*keys)
    starts = group_starts([rows[key] for key in keys])
    if len(starts) == len(rows):
        return rows
    epoch = np.minimum.reduceat(rows["leader_epoch"], starts)
    astray = np.logical_or.reduceat(rows.flags("astray"), starts)
    kept = {**rows.take(starts).columns, "leader_epoch": epoch, "astray": astray}
    if "read_ns" in kept:
        kept["read_ns"] = np.minimum.reduceat(rows["read_ns"], starts)
    return Rows(kept, len(starts))
