"""Contents of the batches in a replica's log, compared with the records of a final read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ackproof.rundir.arrow import rows_of
from ackproof.rundir.ledger import FinalRows
from ackproof.rundir.outcome import ReadPhase
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.payload import COMMIT_MARKER, UNKNOWN_CONTENT
from ackproof.rundir.payload_bulk import content_hashes


class ComparedBatches(NamedTuple):
    """Comparison of a replica's batches with the records of the final read.

    `same`, `other`: numbers of batches with the same contents, and with other contents. `first`: first offset of the
    first batch in `other`; -1 for none. `unknown`: number of batches that cannot be compared, because their content is
    unknown, or the read does not have the whole batch. `agreed`: number of batches in `other` for which live readers
    got the same records as the final reader.
    """

    same: int
    other: int
    first: int
    unknown: int
    agreed: int = 0


def compare(
    read: FinalRows,
    place: TopicPartition,
    log: pa.Table,
    start: int,
    end: int,
    *,
    committed: bool = False,
    summed: int | None = None,
) -> ComparedBatches:
    """Compare a replica's batches with the final read of a partition, which covers the offsets `start` …
    `end` - 1. Control batches and batches that end before `start` are left out.

    `log`: the batches, as rows of `replicas.BATCHES`. `committed`: compare with the read at read_committed, which has
    no records of aborted transactions. `summed`: content sum of all rows of the read, from the audit; None: unknown. If
    the log has the same sum, the rows are not read. If a ledger part cannot be read, all batches are unknown.
    """
    log = log.sort_by("first_offset")
    holds = _committed_contents(log) if committed else log["content"].to_numpy()
    log = log.append_column("holds", pa.array(holds))
    log = log.filter(pc.and_(pc.invert(log["control"]), pc.greater_equal(log["last_offset"], start)))
    inside = pc.and_(pc.greater_equal(log["first_offset"], start), pc.less(log["last_offset"], end))
    known = pc.and_(inside, pc.not_equal(log["holds"], UNKNOWN_CONTENT)).to_numpy()
    first = log["first_offset"].to_numpy()
    if known.all() and int(log["holds"].to_numpy().sum()) == summed:
        return ComparedBatches(len(first), 0, -1, 0)
    phase, live = ReadPhase.FINAL, ReadPhase.LIVE
    if committed:
        phase, live = ReadPhase.FINAL_COMMITTED, ReadPhase.LIVE_COMMITTED
    try:
        sums = _sum_contents(read, place, phase, first)
        differs = known & (sums != log["holds"].to_numpy().view(np.uint64))
        agreed = 0
        if differs.any():
            agreed = int((differs & (sums != 0) & (sums == _sum_contents(read, place, live, first))).sum())
    except (OSError, pa.ArrowException):
        return ComparedBatches(0, 0, -1, len(first))  # the audit names a part that cannot be read
    return ComparedBatches(
        same=int((known & ~differs).sum()),
        other=int(differs.sum()),
        first=int(first[np.argmax(differs)]) if differs.any() else -1,
        unknown=int((~known).sum()),
        agreed=agreed,
    )


def _sum_contents(
    read: FinalRows, place: TopicPartition, phase: ReadPhase, first: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    """Return, for each batch, the sum of the content hashes of its records that the phase's readers read; what several
    live readers read counts once. `first`: first offset of each batch, ascending."""
    sums = np.zeros(len(first) + 1, np.uint64)  # the last one: before all batches
    rows = read.read_partition(place, phase).select(["offset", "producer", "seq", "intact"])
    if phase in (ReadPhase.LIVE, ReadPhase.LIVE_COMMITTED):
        # Several readers read the same, and one that went back reads it again.
        rows = rows.group_by(rows.column_names).aggregate([]).sort_by("offset")
    if rows.num_rows:
        offsets, *identity = (rows[name].to_numpy() for name in rows.column_names)
        position = np.searchsorted(first, offsets, side="right") - 1
        # A reader gets a batch in one go: so there are few runs of rows of one batch, whatever their order.
        runs = np.flatnonzero(np.diff(position, prepend=position[0] - 1))
        np.add.at(sums, position[runs], np.add.reduceat(content_hashes(offsets, *identity), runs))
    return sums[:-1]


def _committed_contents(log: pa.Table) -> npt.NDArray[np.int64]:
    """Return, for each batch, the sum of the content hashes of those records that a reader at read_committed gets.
    `log`: all batches of a replica, sorted by offset.

    For a transactional batch, the next marker of its producer id decides. The sum is 0 if this marker aborts, and
    `UNKNOWN_CONTENT` if there is no such marker. For a control batch, the value is the type of its marker.
    """
    holds: npt.NDArray[np.int64] = log["content"].to_numpy().copy()
    next_marker: dict[int, int] = {}
    rows = list(enumerate(rows_of(log, "producer_id", "control", "transactional")))
    for position, (producer_id, control, transactional) in reversed(rows):
        if control:
            next_marker[producer_id] = holds[position]
        elif transactional and (marker := next_marker.get(producer_id, UNKNOWN_CONTENT)) != COMMIT_MARKER:
            holds[position] = UNKNOWN_CONTENT if marker == UNKNOWN_CONTENT else 0
    return holds
