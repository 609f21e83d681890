"""Find the missing acknowledged records of a partition that Kafka removed on purpose. They are not lost.

Retention removes old records below the log start. Compaction removes superseded records. Deleting a topic removes all
of its records. `rundir.removals` has the times. If an offset was acknowledged for two records, the log was truncated in
between: the first record is lost.

Compaction keeps at least the record with the highest offset of each key
(org.apache.kafka.storage.internals.log.Cleaner). So the last acknowledged record of a key must exist, unless a later
one of its key does. A tombstone may also go after delete.retention.ms, once the records that it deleted are gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ackproof.ledgers.lookup import Identities
from ackproof.ledgers.rows import Bools, Ints, Rows, concat_rows
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.payload import Keys
from ackproof.rundir.removals import EVER, Removal

_LOCATED = {"producer": "i4", "seq": "i8", "offset": "i8"}


def unknown_removal(place: TopicPartition) -> Removal:
    """Return the removal to assume for a partition if the run has no `removals.json`: its topic was compacted during
    the whole run."""
    return Removal(
        place.topic, place.partition, compacted_until_ns=EVER, compacted_why="a later record of its key"
    )


class RemovedRecords:
    """Records of one partition that Kafka may have removed on purpose. The audit does not count them as lost if they
    are missing.

    `keys`: producer → keys of its records; a producer whose records have none is missing. `produced`: produced rows,
    sorted by producer and seq; all masks are over these rows. `copies`: the distinct final rows. `live`: rows of live
    readers. `deleted`, `expired`, `compacted`: masks by the cause of removal. `possible`: False if nothing in `removal`
    can have removed a record; then all masks are False.
    """

    def __init__(
        self, removal: Removal, keys: Mapping[int, Keys], produced: Rows, copies: Rows, live: Rows
    ) -> None:
        self.removal = removal
        self._produced = produced
        none = np.zeros(len(produced), np.bool_)
        self.deleted, self.expired, self.compacted = none, none, none
        self._superseded = SupersededRecords({}, produced, copies)
        compacts = bool(keys) and removal.compacted_until_ns >= 0
        self.possible = bool(len(produced)) and (compacts or removal.removes)
        if not self.possible:
            return
        self._known = Identities(produced["producer"], produced.ints("seq"))
        self._offset, self._done = produced.ints("offset"), produced.ints("at_ns")
        self._sent: Ints = self._done - np.maximum(produced.ints("latency_ns"), 0)
        self._old_enough: Bools = self._sent <= removal.expired_until_ns
        self._acked: Bools = produced["outcome"] == Outcome.ACKED
        if removal.deleted_ns >= 0:
            self.deleted = self._deleted()
        self._held: Bools = ~self._replaced()
        if removal.log_start > 0:
            self.expired = self._expired(removal.log_start, copies, live) & ~self.deleted
        if compacts:
            self._superseded = self._superseding(keys, copies)
            occupied = np.isin(self._offset, copies.ints("offset"))
            gone = self._superseded.among(produced) & self._held & ~occupied
            self.compacted = gone & ~self.deleted & ~self.expired

    def causes(self) -> Iterator[tuple[Anomaly, Bools, str]]:
        """Yield (class, mask of produced rows, reason): the class explains these rows if they are missing.

        A row is in one class at most.
        """
        yield Anomaly.EXPIRED, self.expired, self.removal.expired_why
        yield Anomaly.COMPACTED, self.compacted, self.removal.compacted_why
        yield Anomaly.DELETED, self.deleted, self.removal.deleted_why

    @property
    def explained(self) -> Bools:
        """Mask: True for each produced row whose absence a removal explains."""
        return self.deleted | self.expired | self.compacted

    @property
    def at_read_committed(self) -> Bools:
        """Mask like `explained`, for the final read at read_committed. That read starts after the other one, so that
        more records may have expired by then."""
        start = self.removal.committed_start
        if not self.possible or start <= self.removal.log_start:
            return self.explained
        return self.explained | (self._old_enough & self._held & (self._offset >= 0) & (self._offset < start))

    def among(self, reads: Rows) -> Bools:
        """Return a mask: True for each of these reads of live readers whose record may have been removed on purpose
        after the read."""
        removal, offset = self.removal, reads.ints("offset")
        gone = self._superseded.among(reads)
        if not self.possible:
            return gone
        found = self._known.find(reads["producer"], reads.ints("seq"))
        own, read_ns = found >= 0, reads.ints("read_ns")
        gone |= own & self._old_enough[found] & (offset >= 0) & (offset < removal.log_start)
        gone |= read_ns <= removal.deleted_ns
        gone |= own & self.deleted[found] & (read_ns <= removal.deleted_until_ns)
        return gone

    def _deleted(self) -> Bools:
        """Return a mask: True for each acknowledged record that went with its deleted topic.

        It was acknowledged before the deletion was requested, or afterwards by a leader that did not know of the
        deletion. Such a leader continues the old offsets; the offsets of a new topic begin at 0.
        """
        removal = self.removal
        placed = self._acked & (self._offset >= 0)
        order = np.flatnonzero(placed)[np.argsort(self._done[placed], kind="stable")]
        highest = np.concatenate([[-1], np.maximum.accumulate(self._offset[order])])
        before = highest[np.searchsorted(self._done[order], self._sent, side="left")]
        late = (self._sent <= removal.deleted_until_ns) & ((self._offset < 0) | (self._offset > before))
        gone: Bools = self._acked & ((self._done <= removal.deleted_ns) | late)
        return gone

    def _replaced(self) -> Bools:
        """Return a mask: True for each record at whose offset another record was acknowledged later. Records that went
        with a deleted topic are left out."""
        placed = np.flatnonzero(self._acked & (self._offset >= 0) & ~self.deleted)
        order = placed[np.lexsort((self._done[placed], self._offset[placed]))]
        twice = np.zeros(len(self._produced), np.bool_)
        twice[order[:-1]] = self._offset[order[:-1]] == self._offset[order[1:]]
        return twice

    def _superseding(self, keys: Mapping[int, Keys], copies: Rows) -> SupersededRecords:
        """Return the records that compaction may have removed, because a later record of their key supersedes them.

        The later record was sent before the last time with cleanup.policy compact ended, and its offset, if it is
        known, lies below the active segment of some replica. A final row without a produced row has no send time. It
        counts only if the topic was compacted to the end of the run.
        """
        below = self.removal.compacted_below
        timely = (self._sent <= self.removal.compacted_until_ns) & (self._offset < below)
        found = self._known.find(copies["producer"], copies.ints("seq"))
        unknown = self.removal.compacted_until_ns == EVER
        there = np.where(found >= 0, timely[found], unknown) & (copies.ints("offset") < below)
        return SupersededRecords(
            keys, self._produced.take(np.flatnonzero(timely)), copies.take(np.flatnonzero(there))
        )

    def _expired(self, start: int, copies: Rows, live: Rows) -> Bools:
        """Return a mask: True for each record that is below the log start (`start`) and older than the retention time.
        A record at whose offset another one was acknowledged later is lost, and left out.

        The position of a record that was acknowledged without an offset follows from its neighbours (`_by_position`).
        """
        gone: Bools = (self._offset >= 0) & (self._offset < start)
        if bool((self._acked & (self._offset < 0)).any()):
            gone |= self._by_position(start, copies, live)
        gone &= self._held & self._old_enough
        return gone

    def _by_position(self, start: int, copies: Rows, live: Rows) -> Bools:
        """Return a mask: True for each record that was below the log start, or that was acknowledged without an offset
        and may have been below it.

        Reads show the offsets of some records. Every other record lies between its neighbours: a producer's records of
        one partition are in order, and every offset below the log start held a record. An offset there is free if no
        record is known to have had it. Of a run of successive missing records, the first n may have been there. n is
        the number of free offsets between the neighbours of the run. All runs together get no more records than there
        are free offsets.
        """
        # the offset at which each record was acknowledged, found, or read live; -1 unknown
        at = np.where(self._acked, self._offset, -1)
        seen = concat_rows([live.select(_LOCATED), copies.select(_LOCATED)], _LOCATED)
        found = self._known.find(seen["producer"], seen.ints("seq"))
        own = found >= 0
        own[own] &= at[found[own]] < 0
        at[found[own]] = seen.ints("offset")[own]
        explained: Bools = (at >= 0) & (at < start)
        missing = np.flatnonzero(self._acked & (self._offset < 0) & (at < 0))
        free = np.setdiff1d(np.arange(start, dtype=np.int64), at)
        left, producer = len(free), self._produced["producer"]
        apart = np.flatnonzero((np.diff(missing) > 1) | (np.diff(producer[missing]) != 0)) + 1
        for run in np.split(missing, apart) if len(missing) else ():
            begin, end = int(run[0]), int(run[-1]) + 1
            before = begin > 0 and producer[begin - 1] == producer[begin]
            after = end < len(at) and producer[end] == producer[begin]
            low = int(at[begin - 1]) if before else -1
            high = min(int(at[end]), start) if after and at[end] >= 0 else start
            room = int(np.searchsorted(free, high) - np.searchsorted(free, low + 1))
            count = max(0, min(end - begin, room, left))
            explained[begin : begin + count] = True
            left -= count
        return explained


_NONE, _FAR = -1, int(np.iinfo(np.int64).max)


class SupersededRecords:
    """Records of one partition that compaction may have removed: a later record of the same key supersedes them.

    `produced`, `copies`: the produced rows and distinct final rows that can supersede an earlier record of their key.
    Without `keys` nothing is superseded.
    """

    def __init__(self, keys: Mapping[int, Keys], produced: Rows, copies: Rows) -> None:
        self._of = {producer: _LastOfKey(own, producer, produced, copies) for producer, own in keys.items()}

    def among(self, rows: Rows) -> Bools:
        """Return a mask: True for each of `rows` that a later record of its key supersedes. `rows` has the columns
        producer, seq and offset."""
        found = np.zeros(len(rows), dtype=np.bool_)
        for producer, last in self._of.items():
            own = rows["producer"] == producer
            found[own] = last.is_superseded(rows.ints("seq")[own], rows.ints("offset")[own])
        return found


class _LastOfKey:
    """Bounds for the records of one producer, by key: compaction may have removed what lies below the last record of
    its key.

    The last record is the last that was acknowledged or found in the log; it may itself be gone if it is a tombstone.
    Records are compared by offset. Without offsets (-1) they are compared by seq: their producer is idempotent and
    keeps its order, or promises nothing (acks=0).
    """

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
        """Return the greatest value of a column for each key, over all `several` rows; -1 for a key without rows. With
        `sign` = -1 the values are negated first, and a key without rows has a number below all of them."""
        found = np.full(self._keys.count, _NONE if sign > 0 else -_FAR, dtype=np.int64)
        for rows in several:
            np.maximum.at(found, rows.ints("seq") % self._keys.count, sign * rows.ints(column))
        return found

    def is_superseded(self, seq: Ints, offset: Ints) -> Bools:
        """Return a mask: True for each of this producer's records that compaction may have removed. `offset` is -1
        where the acknowledgement had none."""
        key = seq % self._keys.count
        gone = self._keys.deletes(seq) & (seq == self._seq[key]) & (self._oldest[key] == _FAR)
        placed = (offset <= self._offset[key]) | (seq < self._unplaced[key])
        found: Bools = np.where(offset >= 0, placed, (seq < self._seq[key]) | gone)
        return found
