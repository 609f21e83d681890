"""Audit by offset: the class rewound and the gaps of each reader; and the classes of one offset: overwritten, vanished,
conflict, skipped, and the flaws of the final read.

Reads are ordered by read_seq within each (reader, assignment) of a bucket. A valid ledger has no equal read_seq; if
there are any, offset, leader epoch and identity order them, so that counts do not depend on the order of files. A large
bucket is cut by read_seq for the first pass and by offset for the second. Two reads are of the same record if producer
and seq are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ackproof.audit.outputs import FindingsWriter
from ackproof.ledgers.lookup import Lookup, are_covered, highest_over
from ackproof.ledgers.rows import Bools, Ints, Rows, Schema, concat_rows, distinct_values, group_starts
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.partition import TopicPartition

GAPS: Schema = {"after": "i8", "before": "i8", "epoch": "i8", "first_epoch": "i8"}
"""Pairs of consecutive reads with offsets between them. `after`, `before`: the offsets of the first and of
the second read; `first_epoch`, `epoch`: their leader epochs (-1: unknown).
"""
_KEYS = ("reader", "assignment", "read_seq", "offset", "leader_epoch", "producer", "seq")


@dataclass(frozen=True)
class ReadWalk:
    """Result of comparing each read with the previous read of the same reader and assignment. A reader gets a new
    assignment number whenever its positions are set, as after a reset.

    `gaps`: distinct pairs of consecutive reads with offsets between them (`GAPS`). `back`: reads at an offset not above
    that of the previous read. `ends`: first and last read of each assignment, with which ranges are joined.
    """

    gaps: Rows
    back: Rows
    ends: Rows


def follow_reads(reads: Rows) -> ReadWalk:
    """Compare each read with the previous read of the same reader and assignment, in the order of read_seq. Return the
    gaps, the reads that went back, and the first and last read of each assignment."""
    ordered = reads.sorted_by(*_KEYS)
    starts = group_starts([ordered["reader"], ordered["assignment"]])
    ends = distinct_values(np.concatenate([starts, np.append(starts, len(ordered))[1:] - 1]))
    return _steps(ordered, np.ones(max(0, len(ordered) - 1), dtype=np.bool_), ordered.take(ends))


def join_ranges(ends: Sequence[Rows], schema: Schema) -> ReadWalk:
    """Compare the last read of each range with the first read of the next, by reader and assignment. Return the gaps at
    these borders, and the reads that went back there. `ends`: `ReadWalk.ends` of each range, in order. `schema`:
    columns of a read."""
    number = np.repeat(np.arange(len(ends)), [len(rows) for rows in ends])
    ranged = {**concat_rows(ends, schema).columns, "range": number}
    ordered = Rows(ranged, len(number)).sorted_by(*_KEYS)
    return _steps(ordered, ordered["range"][1:] != ordered["range"][:-1], ordered)


def _steps(ordered: Rows, asked: Bools, ends: Rows) -> ReadWalk:
    """Compare consecutive rows of one reader and assignment, and return the gaps and the reads that went back, with
    `ends`. `asked[i]`: True to compare row i with row i + 1."""
    offset, epoch = ordered.ints("offset"), ordered.ints("leader_epoch")
    same = asked
    for key in ("reader", "assignment"):
        same = same & (ordered[key][1:] == ordered[key][:-1])
    rises = offset[1:] > offset[:-1]
    back = ordered.take(np.flatnonzero(same & ~rises) + 1)
    leaps = np.flatnonzero(same & rises & (offset[1:] - offset[:-1] != 1))
    columns = {
        "after": offset[leaps],
        "before": offset[leaps + 1],
        "epoch": epoch[leaps + 1],
        "first_epoch": epoch[leaps],
    }
    gaps = Rows(columns, len(leaps)).sorted_by(*GAPS)
    return ReadWalk(gaps.take(group_starts([gaps[name] for name in GAPS])), back, ends)


MOST_PLACES = 1000
"""`final_read` in `audit.json` names at most this many flawed offsets: the lowest ones."""

_FAR = 1 << 62
"""A number above every leader epoch and offset, for "no limit"."""
_RECORDS: Schema = {"offset": "i8", "producer": "i4", "seq": "i8"}


def audit_offsets(
    place: TopicPartition,
    findings: FindingsWriter,
    *,
    copies: Rows,
    reads: Rows,
    lost: Rows,
    skipped: Rows,
    back: Rows,
    gaps: Rows,
    removed: Bools,
) -> Ints:
    """Compare the reads at each offset of one bucket, or of a range of it. Add findings of the classes overwritten,
    vanished, skipped and conflict. Return the flaws of the final read, as ascending offsets.

    Flaws are offsets to which a final reader went back, and offsets that it skipped although another read shows a
    record there.

    `copies`: the distinct final rows. `reads`: the live rows. `removed`: True for each live row whose record a setting
    or an administrator may have removed later. `lost`: lost records that were acknowledged with an offset. `skipped`:
    offsets of present copies in a live reader's gaps. `back`: reads at which final readers went back. `gaps`: gaps of
    the final reader at read_uncommitted. Raises OSError if the findings cannot be written.

    Gaps at read_committed are no flaw. Records of aborted transactions may lie there; if records of another transaction
    do, that transaction is reported as torn.
    """
    copies = copies.sorted_by("offset", "producer", "seq")
    starts = group_starts([copies["offset"]])
    occupied = copies.ints("offset")[starts]
    lookup = Lookup(occupied)
    if len(lost) and len(copies):
        # A lost record has no intact row in this partition: an intact row at its offset belongs to another record.
        intact = np.logical_or.reduceat(copies.flags("intact"), starts)
        at = lookup.find(lost.ints("offset"))
        taken = np.flatnonzero((at >= 0) & intact[at])
        findings.add(place, Anomaly.OVERWRITTEN, lost, taken, detail="another record is at its offset")
    at = lookup.find(reads.ints("offset"))
    other = _other_than_first(reads, copies, starts, at)
    vanished = _vanished(reads, other[~removed[other]], copies, starts, at)
    detail = "read live, missing from the final read at its offset"
    findings.add(place, Anomaly.VANISHED, vanished, group_starts([vanished["offset"]]), detail=detail)
    unlike_final = reads.ints("offset")[other[at[other] >= 0]]
    among_live = _several_records(reads.take(other[at[other] < 0]))
    conflicts = np.concatenate([unlike_final, _several_records(copies), among_live])
    for anomaly, offsets, detail in (
        (Anomaly.SKIPPED, skipped.ints("offset"), "a live reader skipped it"),
        (Anomaly.CONFLICT, conflicts, "reads returned different records"),
    ):
        once = distinct_values(offsets)
        findings.add(place, anomaly, Rows({"offset": once}, len(once)), detail=detail)
    over = [gaps.ints("after"), gaps.ints("before")]
    only_live = _passed_over(reads.take(np.flatnonzero((at < 0) & ~removed)), gaps)
    passed = np.concatenate([occupied[are_covered(occupied, over)], only_live])
    return distinct_values(np.concatenate([passed, back.ints("offset")]))


def _other_than_first(reads: Rows, copies: Rows, starts: Ints, at: Ints) -> Ints:
    """Return the indices of live reads whose record is not the first final row at their offset: it is another one, or
    there is no final row.

    `starts`: index of the first copy of each occupied offset. `at`: index into `starts` for each read; -1: no copy.
    """
    if not len(copies):
        return np.arange(len(reads), dtype=np.int64)
    first = starts[at]  # index -1 takes the last element: masked below
    same = (copies["producer"][first] == reads["producer"]) & (copies["seq"][first] == reads["seq"])
    return np.flatnonzero(~(same & (at >= 0)))


def _vanished(reads: Rows, other: Ints, copies: Rows, starts: Ints, at: Ints) -> Rows:
    """Return those of the reads with indices `other` whose record is in no final row at their offset, sorted by offset.

    `starts`, `at`: as in `_other_than_first`, by which all reads in `other` differ from the first final row at their
    offset. So only offsets with several final rows need another comparison.
    """
    sizes = np.diff(np.append(starts, len(copies)))
    several = (at[other] >= 0) & (sizes[at[other]] > 1) if len(starts) else np.zeros(len(other), np.bool_)
    if several.any():
        candidates = other[several]
        several_at = np.zeros(len(starts), dtype=np.bool_)
        several_at[at[candidates]] = True
        there = _among(reads.take(candidates), copies.take(np.flatnonzero(np.repeat(several_at, sizes))))
        other = np.sort(np.concatenate([other[~several], candidates[~there]]))
    return reads.take(other).sorted_by("offset", "producer", "seq")


def _passed_over(reads: Rows, gaps: Rows) -> Ints:
    """Return the offsets of those reads that the final read skipped: they lie in one of its gaps. Each offset comes
    once.

    Epochs rise with offsets in a log: a record of an older epoch than the record before the gap was truncated, and
    another record took its offset. Such reads are left out.
    """
    reads = reads.sorted_by("offset")
    offset, epoch = reads.ints("offset"), reads.ints("leader_epoch")
    over = gaps.ints("after"), gaps.ints("before")
    # The lowest epoch over all gaps around each offset: `highest_over` of negated epochs. Without a gap it is `_FAR`.
    lowest = -np.maximum(highest_over(offset, *over, -gaps.ints("first_epoch")), -_FAR)
    return distinct_values(offset[(lowest < _FAR) & ((epoch < 0) | (epoch >= lowest))])


def _several_records(rows: Rows) -> Ints:
    """Return the offsets at which these rows show two or more different records."""
    if not len(rows):
        return np.empty(0, dtype=np.int64)
    rows = rows.sorted_by("offset", "producer", "seq")
    offset = rows.ints("offset")
    differs = (rows["producer"][1:] != rows["producer"][:-1]) | (rows["seq"][1:] != rows["seq"][:-1])
    several: Ints = offset[1:][(offset[1:] == offset[:-1]) & differs]
    return several


def _among(reads: Rows, copies: Rows) -> Bools:
    """Return a mask: True for each read whose (offset, producer, seq) is also among the copies."""
    both = concat_rows([copies.select(_RECORDS), reads.select(_RECORDS)], _RECORDS)
    keys = [both[name] for name in _RECORDS]
    order = np.lexsort(tuple(reversed(keys)))
    starts = group_starts([key[order] for key in keys])
    number = np.zeros(len(order), dtype=np.int64)
    number[starts] = 1
    group = np.empty(len(order), dtype=np.int64)
    group[order] = np.cumsum(number) - 1
    in_copies = np.zeros(len(starts), dtype=np.bool_)
    in_copies[group[: len(copies)]] = True
    result: Bools = in_copies[group[len(copies) :]]
    return result
