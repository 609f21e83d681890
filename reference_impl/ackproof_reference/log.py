"""A replica's log: batches, leader epochs, high watermark, and the offset up to which it is flushed.

Offsets count records; a batch is atomic: it is appended, fetched, truncated and lost as a whole. A log is never changed
in place: a function that changes it returns a new one. A log survives the kill of its process as a whole; a power loss
can remove what is not flushed (`lose_power`).
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import NamedTuple

UNKNOWN = -1
"""An epoch or an offset that is not known (Kafka's UNDEFINED_EPOCH and UNDEFINED_EPOCH_OFFSET)."""

DATA, COMMIT, ABORT = "data", "commit", "abort"
"""The kinds of batches: records, and the two markers that end a transaction."""


class Batch(NamedTuple):
    """Records `sequence` … `sequence + length - 1` of a producer at offsets `base` … `base + length - 1`.

    `epoch`: leader epoch of the leader that appended it. `producer_epoch` below 0: no idempotence. `kind`: DATA, or the
    marker COMMIT or ABORT, which is one control record with `sequence` -1 (KIP-98). `key`: key of the records, -1:
    none. `coordinator_epoch`: epoch of the coordinator that wrote a marker, -1 for data.
    """

    base: int
    epoch: int
    producer: int
    sequence: int
    length: int = 1
    producer_epoch: int = -1
    kind: str = DATA
    transactional: bool = False
    key: int = -1
    coordinator_epoch: int = -1

    @property
    def next(self) -> int:
        """Offset after the last record."""
        return self.base + self.length


_BASE = itemgetter(0)


class EpochEntry(NamedTuple):
    """A leader epoch and the offset at which it began (a line of leader-epoch-checkpoint)."""

    epoch: int
    start: int


class Log(NamedTuple):
    """One replica's copy of one partition, as on its disk.

    `batches`, `epochs`: oldest first. `start`, `end`: log start offset and log end offset (LEO). `high_watermark`
    counts as checkpointed at once. `flushed` is the recovery point: records from there on are only in the page cache.
    """

    batches: tuple[Batch, ...] = ()
    epochs: tuple[EpochEntry, ...] = ()
    start: int = 0
    end: int = 0
    high_watermark: int = 0
    flushed: int = 0

    @property
    def last_epoch(self) -> int:
        """Newest leader epoch in the epoch cache; UNKNOWN if the cache is empty."""
        return self.epochs[-1].epoch if self.epochs else UNKNOWN

    def below(self, offset: int) -> tuple[Batch, ...]:
        """Return the batches whose last offset is below `offset`."""
        batches = self.batches
        if batches and batches[-1].next <= offset:
            return batches
        return tuple(batch for batch in batches if batch.next <= offset)

    def read(self, offset: int, limit: int) -> tuple[Batch, ...]:
        """Return the first batches that hold `offset` or later offsets, at most `limit`."""
        batches = self.batches
        first = bisect_right(batches, offset, key=_BASE)
        if first and batches[first - 1].next > offset:
            first -= 1
        return batches[first : first + limit]


def append(log: Log, batch: Batch) -> Log:
    """Return the log with a batch at its end (UnifiedLog.append). A follower appends the batch as the leader wrote it.

    If the batch's epoch is newer than all in the epoch cache, it enters the cache. Epochs without batches then leave
    it (LeaderEpochFileCache.maybeTruncateNonMonotonicEntries). Raises ValueError for a batch that begins below the log
    end: an error of the model.
    """
    if batch.base < log.end:
        raise ValueError(f"{batch} does not continue a log that ends at {log.end}")
    epochs = log.epochs
    if batch.epoch > log.last_epoch:
        kept = tuple(entry for entry in epochs if entry.start < batch.base)
        epochs = (*kept, EpochEntry(batch.epoch, batch.base))
    return Log((*log.batches, batch), epochs, log.start, batch.next, log.high_watermark, log.flushed)


def begin_epoch(log: Log, epoch: int) -> Log:
    """Return the log with a leader epoch that begins at its end, even without a record yet
    (LeaderEpochFileCache.assign, KIP-101).

    Entries that began at or after the log end belong to leaders that wrote nothing; they leave the cache.
    """
    kept = tuple(entry for entry in log.epochs if entry.epoch < epoch and entry.start < log.end)
    return log._replace(epochs=(*kept, EpochEntry(epoch, log.end)))


def end_of_epoch(log: Log, epoch: int) -> EpochEntry:
    """Return the newest epoch of this log that is not above `epoch` (LeaderEpochFileCache.endOffsetFor, KIP-279).
    `start` of the result is the offset at which that epoch ends.

    If all epochs of the log are newer, return `epoch` with the start of the oldest one. Return (UNKNOWN, UNKNOWN) if
    all are older, if the log has no epochs, or if `epoch` is UNKNOWN."""
    if epoch == UNKNOWN or epoch > log.last_epoch:
        return EpochEntry(UNKNOWN, UNKNOWN)
    if epoch == log.last_epoch:
        return EpochEntry(epoch, log.end)
    if epoch < log.epochs[0].epoch:
        return EpochEntry(epoch, log.epochs[0].start)
    floor = max(entry.epoch for entry in log.epochs if entry.epoch <= epoch)
    after = min(entry.start for entry in log.epochs if entry.epoch > epoch)
    return EpochEntry(floor, after)


def parting(log: Log, leaders: Log) -> int | None:
    """Return the offset at which a follower's log (`log`) diverges from its leader's (`leaders`, KIP-595).

    None if the follower's log does not diverge, or has no epoch. UNKNOWN, with which `truncate` removes all,
    if its last epoch is newer than all of the leader's.
    """
    if log.last_epoch == UNKNOWN:
        return None
    end = end_of_epoch(leaders, log.last_epoch)
    if end.epoch == log.last_epoch and end.start >= log.end:
        return None
    # If `end` is unknown, so are both offsets: UNKNOWN lies below every offset.
    return min(end.start, end_of_epoch(log, end.epoch).start)


def truncate(log: Log, offset: int) -> Log:
    """Return the log truncated to an offset, with the epoch cache, the high watermark and the recovery point
    (UnifiedLog.truncateTo). A batch with later offsets is removed as a whole; UNKNOWN removes all.

    Even without a batch to remove, epochs that began at the log end leave the cache: they have no batches.
    """
    if offset >= log.end:
        return log._replace(epochs=tuple(entry for entry in log.epochs if entry.start < log.end))
    kept = log.below(offset)
    end = max(kept[-1].next if kept else log.start, log.start)
    epochs = tuple(entry for entry in log.epochs if entry.start < end)
    return Log(kept, epochs, log.start, end, min(log.high_watermark, end), min(log.flushed, end))


def restart_at(offset: int) -> Log:
    """Return the log of a replica that dropped everything and goes on at `offset`, the leader's log start
    (ReplicaManager.truncateFullyAndStartAt)."""
    return Log(start=offset, end=offset, high_watermark=offset, flushed=offset)


def flush(log: Log) -> Log:
    """Return the log after fsync: its present records survive a power loss."""
    return log._replace(flushed=log.end)


def lose_power(log: Log, kept: int) -> Log:
    """Return the log after a power loss: it ends at offset `kept`, or at the recovery point if that is higher
    (LogLoader.recoverLog truncates there)."""
    return truncate(log, max(kept, log.flushed))


def last_batches(log: Log, producer: int, limit: int = 5) -> tuple[Batch, ...]:
    """Return the newest data batches of a producer, at most `limit`, oldest first
    (ProducerStateEntry.NUM_BATCHES_TO_RETAIN is 5)."""
    found: list[Batch] = []
    for batch in reversed(log.batches):
        if batch.producer == producer and batch.kind == DATA:
            found.append(batch)
            if len(found) == limit:
                break
    return tuple(reversed(found))
