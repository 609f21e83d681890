"""Whose records lie at which offset: batch by batch, what a log on disk has beside what the final reader wrote down."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ackproof.rundir.ledger import FinalRows
from ackproof.rundir.outcome import ReadPhase
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.payload import COMMIT_MARKER, UNKNOWN_CONTENT, content_hashes


class Compared(NamedTuple):
    """Batches of a log, by what came of comparing them with the ledger of the final read."""

    same: int
    other: int
    first: int
    """The first offset of the first of the others; -1 where there is none."""
    unknown: int
    """Batches whose records could not be read, or that reach beyond what was read."""


def compare(
    read: FinalRows,
    place: TopicPartition,
    log: pa.Table,
    start: int,
    end: int,
    *,
    committed: bool = False,
    summed: int | None = None,
) -> Compared:
    """Compare a replica's batches, rows of `replicas.BATCHES`, with the read of a partition from `start` to `end`.

    `committed`: with that at read_committed. Of what a marker aborted it is handed nothing. `summed`: what the audit
    came to over all rows of the read; where the log comes to the same the rows need not be read again.
    """
    log = log.sort_by("first_offset")
    holds = _committed(log) if committed else log["content"].to_numpy()
    log = log.append_column("holds", pa.array(holds))
    log = log.filter(pc.and_(pc.invert(log["control"]), pc.greater_equal(log["last_offset"], start)))
    inside = pc.and_(pc.greater_equal(log["first_offset"], start), pc.less(log["last_offset"], end))
    known = pc.and_(inside, pc.not_equal(log["holds"], UNKNOWN_CONTENT)).to_numpy()
    first = log["first_offset"].to_numpy()
    if known.all() and int(log["holds"].to_numpy().sum()) == summed:
        return Compared(len(first), 0, -1, 0)
    sums = np.zeros(len(first) + 1, np.uint64)  # the last one: before all batches
    phase = ReadPhase.FINAL_COMMITTED if committed else ReadPhase.FINAL
    try:
        rows = read.of(place, phase).select(["offset", "producer", "seq", "intact"])
    except (OSError, pa.ArrowException):
        return Compared(0, 0, -1, len(first))  # the audit says that a part cannot be read
    if rows.num_rows:
        offsets, *who = (rows[name].to_numpy() for name in rows.column_names)
        at = np.searchsorted(first, offsets, side="right") - 1
        # A reader is handed a batch in one go: so there are few runs of rows of one batch, whatever their order.
        runs = np.flatnonzero(np.diff(at, prepend=at[0] - 1))
        np.add.at(sums, at[runs], np.add.reduceat(content_hashes(offsets, *who), runs))
    differs = known & (sums[:-1] != log["holds"].to_numpy().view(np.uint64))
    return Compared(
        same=int((known & ~differs).sum()),
        other=int(differs.sum()),
        first=int(first[np.argmax(differs)]) if differs.any() else -1,
        unknown=int((~known).sum()),
    )


def _committed(log: pa.Table) -> npt.NDArray[np.int64]:
    """The content of each batch, in order of offsets, as far as the next marker of its producer committed it."""
    holds: npt.NDArray[np.int64] = log["content"].to_numpy().copy()
    next_marker: dict[int, int] = {}
    columns = (log[name].to_pylist() for name in ("producer_id", "control", "transactional"))
    for at, (producer_id, control, transactional) in reversed(list(enumerate(zip(*columns, strict=True)))):
        if control:
            next_marker[producer_id] = holds[at]
        elif transactional and (marker := next_marker.get(producer_id, UNKNOWN_CONTENT)) != COMMIT_MARKER:
            holds[at] = UNKNOWN_CONTENT if marker == UNKNOWN_CONTENT else 0
    return holds
