"""The order in which each reader was handed its records: what it went back over, what it passed over.

Within (reader, assignment), both of one bucket, in order of read_seq. Equal read_seq, which no sane ledger holds,
are taken in order of offset, leader epoch and identity, so that the counts do not depend on the order of files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ackproof.ledgers.rows import Bools, Rows, Schema, concat, distinct, group_starts

GAPS: Schema = {"after": "i8", "before": "i8", "epoch": "i8", "first_epoch": "i8"}
"""Pairs of consecutive reads that left offsets between them, and the leader epochs of the second and of the first
(-1: not known)."""
_KEYS = ("reader", "assignment", "read_seq", "offset", "leader_epoch", "producer", "seq")


@dataclass(frozen=True)
class Walk:
    """What the reads of one bucket, or of a range of them, show of their order."""

    gaps: Rows
    """Each once."""
    back: Rows
    """The reads that are at an offset not above the read just before."""
    ends: Rows
    """The first and the last read of each assignment: what lies between ranges is seen there."""


def walk(reads: Rows) -> Walk:
    """Go through reads in the order in which they were handed over."""
    ordered = reads.sorted_by(*_KEYS)
    starts = group_starts([ordered["reader"], ordered["assignment"]])
    ends = (
        distinct(np.concatenate([starts, np.append(starts[1:], len(ordered)) - 1])) if len(starts) else starts
    )
    return _steps(ordered, np.ones(max(0, len(ordered) - 1), dtype=np.bool_), ordered.take(ends))


def between(ends: Sequence[Rows], schema: Schema) -> Walk:
    """What shows where one range of reads ends and another begins. `ends`: those of each range."""
    number = np.repeat(np.arange(len(ends)), [len(rows) for rows in ends])
    ranged = {**concat(ends, schema).columns, "range": number}
    ordered = Rows(ranged, len(number)).sorted_by(*_KEYS)
    return _steps(ordered, ordered["range"][1:] != ordered["range"][:-1], ordered)


def _steps(ordered: Rows, asked: Bools, ends: Rows) -> Walk:
    """`asked`: which of the steps from a row to the next one."""
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
    return Walk(each_once(Rows(columns, len(leaps))), back, ends)


def each_once(gaps: Rows) -> Rows:
    """The distinct ones, in order."""
    ordered = gaps.sorted_by(*GAPS)
    starts = group_starts([ordered[name] for name in GAPS])
    return ordered if len(starts) == len(ordered) else ordered.take(starts)
