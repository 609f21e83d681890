"""The order in which each reader was handed its records: what it went back over, what it passed over.

Within (reader, assignment), both of one bucket, in order of read_seq. Equal read_seq, which no sane ledger holds,
are taken in order of offset, leader epoch and identity, so that the counts do not depend on the order of files.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ackproof.audit.rows import Ints, Rows, concat, group_starts, order_of
from ackproof.audit.spill import SpillableRows, ranges

_KEYS = ("reader", "assignment", "read_seq", "offset", "leader_epoch", "producer", "seq")


@dataclass(frozen=True)
class Gaps:
    """Pairs of consecutive reads that left offsets between them; distinct, in no order."""

    after: Ints
    """Offset of the read before the gap."""
    before: Ints
    """Offset of the read behind the gap."""
    epoch: Ints
    """Leader epoch of the read behind the gap, -1 unknown."""


@dataclass(frozen=True)
class Walk:
    """What the reads of one bucket show of their order."""

    gaps: Gaps
    back: SpillableRows
    """The reads that are at an offset not above the read just before."""


def walk(reads: SpillableRows, most: int) -> Walk:
    """Go through the reads of one bucket in the order in which they were handed over."""
    back = SpillableRows(reads.schema, most, reads.scratch)
    found: list[tuple[Ints, Ints, Ints]] = []
    successor: Rows | None = None  # ranges come last first: the first row of the range behind this one
    for (rows,) in ranges([reads], _KEYS, most):
        if not len(rows):
            continue
        ordered = rows.sorted_by(*_KEYS)
        if successor is not None:
            ordered = concat([ordered, successor], reads.schema)
        offset, epoch = ordered.ints("offset"), ordered.ints("leader_epoch")
        same = np.ones(len(ordered) - 1, dtype=np.bool_)
        for key in ("reader", "assignment"):
            same &= ordered[key][1:] == ordered[key][:-1]
        rises = offset[1:] > offset[:-1]
        behind = np.flatnonzero(same & ~rises) + 1
        if len(behind):
            back.add(ordered.take(behind))
        leaps = np.flatnonzero(same & rises & (offset[1:] - offset[:-1] != 1))
        if len(leaps):
            found.append(_distinct(offset[leaps], offset[leaps + 1], epoch[leaps + 1]))
        successor = ordered.slice(0, 1).copied()
    columns = (
        [np.concatenate(column) for column in zip(*found, strict=True)]
        if found
        else [np.empty(0, np.int64)] * 3
    )
    return Walk(Gaps(*_distinct(*columns)), back)


def _distinct(after: Ints, before: Ints, epoch: Ints) -> tuple[Ints, Ints, Ints]:
    order = order_of([after, before, epoch])
    if order is not None:
        after, before, epoch = after[order], before[order], epoch[order]
    starts = group_starts([after, before, epoch])
    return after[starts], before[starts], epoch[starts]
