"""Which records the log of a compacted partition need not hold: those that a later one of their key took the place of.

Compaction keeps, of each key, at least the record with the highest offset (org.apache.kafka.storage.internals.log
Cleaner). So what is owed of a key is the last that was acknowledged, unless one behind it is there. A tombstone may go,
too, after delete.retention.ms, with all that it deleted: it is owed as long as an older record of its key is there.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ackproof.ledgers.rows import Bools, Ints, Rows
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.payload import Keys

_NONE, _FAR = -1, int(np.iinfo(np.int64).max)


class Superseded:
    """Of one partition. `copies`: the final rows, each once. Without `keys` nothing is superseded."""

    def __init__(self, keys: Mapping[int, Keys], produced: Rows, copies: Rows) -> None:
        self._of = {producer: _Last(own, producer, produced, copies) for producer, own in keys.items()}

    def among(self, rows: Rows) -> Bools:
        """Which of these records are, by their producer, seq and offset."""
        found = np.zeros(len(rows), dtype=np.bool_)
        for producer, last in self._of.items():
            own = rows["producer"] == producer
            found[own] = last.before(rows.ints("seq")[own], rows.ints("offset")[own])
        return found


class _Last:
    """By key of a producer, what is last of it. An acknowledgement without an offset goes by its seq: it is that of an
    idempotent producer, which keeps its order, or promises nothing (acks=0)."""

    def __init__(self, keys: Keys, producer: int, produced: Rows, copies: Rows) -> None:
        self._keys = keys
        there = copies.take((copies["producer"] == producer) & copies.flags("intact"))
        acked = produced.take((produced["producer"] == producer) & (produced["outcome"] == Outcome.ACKED))
        unplaced = acked.take(acked.ints("offset") < 0)
        deleting = acked.take(keys.deletes(acked.ints("seq")))
        offset, self._oldest = self._most("offset", there, acked), -self._most("offset", there, sign=-1)
        deleted = self._most("offset", deleting)
        self._offset: Ints = np.where((deleted == offset) & (self._oldest >= deleted), offset, offset - 1)
        self._seq, self._unplaced = self._most("seq", there, acked), self._most("seq", unplaced)

    def _most(self, column: str, *several: Rows, sign: int = 1) -> Ints:
        """The greatest of each key; with `sign` -1 that of the negated numbers."""
        found = np.full(self._keys.count, _NONE if sign > 0 else -_FAR, dtype=np.int64)
        for rows in several:
            np.maximum.at(found, rows.ints("seq") % self._keys.count, sign * rows.ints(column))
        return found

    def before(self, seq: Ints, offset: Ints) -> Bools:
        """Which of its records need not be there."""
        key = seq % self._keys.count
        gone = self._keys.deletes(seq) & (seq == self._seq[key]) & (self._oldest[key] == _FAR)
        placed = (offset <= self._offset[key]) | (seq < self._unplaced[key])
        found: Bools = np.where(offset >= 0, placed, (seq < self._seq[key]) | gone)
        return found
