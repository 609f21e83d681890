"""Transactions (KIP-98): their state in a partition's log, and their coordinator.

The coordinator's steps are `(transaction, request) → (transaction, error)`. It writes a decision (`PREPARE_…`) before
it sends markers, so a decision stands although its markers come late. Its own log counts as safe.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ackproof_reference.log import ABORT, COMMIT, DATA, Batch, Log
from ackproof_reference.messages import Error, Produce, WriteMarker
from ackproof_reference.producers import newest_epoch
from ackproof_reference.rules import Rules

# What a log says.


def marker_batch(log: Log, epoch: int, marker: WriteMarker) -> Batch:
    """Return the control batch that ends a transaction, to be appended at the log end in leader epoch `epoch`."""
    return Batch(
        log.end,
        epoch,
        marker.producer,
        -1,
        1,
        marker.producer_epoch,
        kind=COMMIT if marker.commit else ABORT,
        transactional=True,
        coordinator_epoch=marker.coordinator_epoch,
    )


def check_marker(log: Log, marker: WriteMarker, rules: Rules) -> Error:
    """Return the error with which a log refuses a marker; NONE if it accepts it
    (ProducerAppendInfo.appendEndTxnMarker).

    INVALID_PRODUCER_EPOCH: the producer epoch is older than the newest in this log, or the marker ends an earlier
    transaction than the open one (`strict_markers`). TRANSACTION_COORDINATOR_FENCED (`coordinator_epochs`): a marker in
    the log is of a newer coordinator.

    With `version` 2, the marker of a transaction has the epoch after that of its records. So while a transaction is
    open, `strict_markers` refuses a marker with the epoch of that transaction's records. Otherwise a marker of the
    producer's newest epoch in this log is accepted, also a second time."""
    known = newest_epoch(log, marker.producer)
    open_here = marker.producer in open_transactions(log)
    late = rules.strict_markers and marker.version > 1 and marker.producer_epoch == known and open_here
    if marker.producer_epoch < known or late:
        return Error.INVALID_PRODUCER_EPOCH
    coordinators = (batch.coordinator_epoch for batch in log.batches if batch.producer == marker.producer)
    if rules.coordinator_epochs and marker.coordinator_epoch < max(coordinators, default=-1):
        return Error.TRANSACTION_COORDINATOR_FENCED
    return Error.NONE


def open_transactions(log: Log) -> dict[int, int]:
    """Return, by id of each producer with an open transaction in this log, the offset at which it began."""
    began: dict[int, int] = {}
    for batch in log.batches:
        if batch.kind in (COMMIT, ABORT):
            began.pop(batch.producer, None)
        elif batch.transactional and batch.kind == DATA:
            began.setdefault(batch.producer, batch.base)
    return began


def last_stable_offset(log: Log) -> int:
    """Return the last stable offset: the start of the first open transaction, at most the high watermark."""
    return min([log.high_watermark, *open_transactions(log).values()])


def visible(log: Log, *, committed: bool) -> tuple[Batch, ...]:
    """Return the data batches that a reader gets. `committed` True: at read_committed, batches below the last stable
    offset that are not aborted. False: at read_uncommitted, all batches below the high watermark."""
    end = last_stable_offset(log) if committed else log.high_watermark
    below = [batch for batch in log.below(end) if batch.kind == DATA]
    if not committed:
        return tuple(below)
    return tuple(batch for batch in below if not batch.transactional or _ending(log, batch) == COMMIT)


def aborted(log: Log, batch: Batch) -> bool:
    """Return True if the transaction of a data batch was aborted according to this log; False for a batch without a
    transaction."""
    return batch.transactional and _ending(log, batch) == ABORT


def _ending(log: Log, batch: Batch) -> str:
    """Return the kind of the first marker (COMMIT, ABORT) of the batch's producer after it; DATA if there is
    none yet.
    """
    for later in log.batches:
        if later.base > batch.base and later.producer == batch.producer and later.kind in (COMMIT, ABORT):
            return later.kind
    return DATA


def needs_verification(log: Log, request: Produce, rules: Rules) -> bool:
    """Return True if a leader must ask the coordinator first: for a batch that would open a transaction in its log
    (KIP-890). False without `verify_transactions`."""
    return (
        rules.verify_transactions and request.transactional and request.producer not in open_transactions(log)
    )


# The coordinator.


class State(Enum):
    """State of a transactional id in the coordinator (TransactionState)."""

    EMPTY = "empty"
    ONGOING = "ongoing"
    PREPARE_COMMIT = "prepare commit"
    PREPARE_ABORT = "prepare abort"
    COMPLETE_COMMIT = "complete commit"
    COMPLETE_ABORT = "complete abort"


DECIDED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
_PREPARED = {True: State.PREPARE_COMMIT, False: State.PREPARE_ABORT}
_COMPLETE = {State.PREPARE_COMMIT: State.COMPLETE_COMMIT, State.PREPARE_ABORT: State.COMPLETE_ABORT}


class Transaction(NamedTuple):
    """The coordinator's state of one transactional id. `epoch`: producer epoch that may write now; -1: none
    was given out yet. `marker_epoch`: producer epoch in the markers.

    `partitions`: partitions in the transaction; after the decision, those whose marker is missing. `decided`: all
    partitions that the decision covers. `coordinator_epoch`: it is raised whenever another coordinator loads the state.
    `version`: transaction.version of the client; with 2 each transaction has its own epoch (KIP-890, second part).
    """

    producer: int
    epoch: int = -1
    state: State = State.EMPTY
    partitions: tuple[int, ...] = ()
    marker_epoch: int = -1
    decided: tuple[int, ...] = ()
    coordinator_epoch: int = 0
    version: int = 1


def init_producer(transaction: Transaction) -> tuple[Transaction, Error]:
    """Handle InitProducerId: a new epoch fences the previous producer; an open transaction is aborted first.

    Return the transaction and the error for the client. INVALID_TXN_STATE (Kafka: CONCURRENT_TRANSACTIONS): markers are
    in flight, possibly those of the abort that this request began. The client must repeat the request."""
    if transaction.state in DECIDED:
        return transaction, Error.INVALID_TXN_STATE
    epoch = transaction.epoch + 1
    if transaction.state is State.ONGOING:
        return _decide(transaction, epoch, commit=False), Error.INVALID_TXN_STATE
    return transaction._replace(epoch=epoch, state=State.EMPTY), Error.NONE


def _decide(transaction: Transaction, epoch: int, *, commit: bool) -> Transaction:
    return transaction._replace(
        epoch=epoch, state=_PREPARED[commit], marker_epoch=epoch, decided=transaction.partitions
    )


def add_partition(transaction: Transaction, epoch: int, partition: int) -> tuple[Transaction, Error]:
    """Return the transaction with a partition added, and the error for the client (AddPartitionsToTxn). A client asks
    for that before it sends the first record to the partition.

    The error is PRODUCER_FENCED for another epoch, INVALID_TXN_STATE while markers are in flight.
    """
    if epoch != transaction.epoch:
        return transaction, Error.PRODUCER_FENCED
    if transaction.state in DECIDED:
        return transaction, Error.INVALID_TXN_STATE
    partitions = tuple(sorted({*transaction.partitions, partition}))
    return transaction._replace(state=State.ONGOING, partitions=partitions), Error.NONE


def verified(transaction: Transaction, epoch: int, partition: int) -> bool:
    """Return True if a partition belongs to the open transaction of this producer epoch: the coordinator's
    answer to a leader that verifies a transaction (KIP-890)."""
    return (
        transaction.state is State.ONGOING
        and transaction.epoch == epoch
        and partition in transaction.partitions
    )


def end_transaction(transaction: Transaction, epoch: int, *, commit: bool) -> tuple[Transaction, Error]:
    """Decide a transaction (EndTxn); return the transaction and the error for the client.

    The error is PRODUCER_FENCED for another epoch, INVALID_TXN_STATE while markers are in flight or without an open
    transaction. Once all markers are written, a request that repeats the last decision gets NONE. With KIP-890's second
    part (`version` 2) a decision raises the producer epoch: the markers fence late records, and a repeated request is
    recognized by the epoch before. Without it, an EndTxn of the next transaction looks the same as a repeated one."""
    bumps = transaction.version > 1
    again = epoch == transaction.epoch - bumps
    if again and transaction.state is _COMPLETE[_PREPARED[commit]]:
        return transaction, Error.NONE
    if epoch != transaction.epoch and not (again and transaction.state in DECIDED):
        return transaction, Error.PRODUCER_FENCED
    if transaction.state is not State.ONGOING:
        return transaction, Error.INVALID_TXN_STATE
    return _decide(transaction, epoch + bumps, commit=commit), Error.NONE


def marker_for(transaction: Transaction, partition: int) -> WriteMarker | None:
    """Return the marker to write to a partition; None without a decision, or if the partition is not in the
    transaction or has its marker.
    """
    if transaction.state not in DECIDED or partition not in transaction.partitions:
        return None
    return WriteMarker(
        transaction.producer,
        transaction.marker_epoch,
        transaction.state is State.PREPARE_COMMIT,
        transaction.coordinator_epoch,
        transaction.version,
    )


def marker_written(transaction: Transaction, partition: int) -> Transaction:
    """Return the transaction after a partition got its marker; with the last marker it is complete. Call this only
    after the decision."""
    left = tuple(other for other in transaction.partitions if other != partition)
    if left:
        return transaction._replace(partitions=left)
    return transaction._replace(partitions=(), decided=(), state=_COMPLETE[transaction.state])


def taken_over(transaction: Transaction) -> Transaction:
    """Return a transaction as the next coordinator loads it
    (TransactionStateManager.loadTransactionMetadata).

    The transaction log does not say which markers are written, so all are written again. The coordinator epoch rises
    by one.
    """
    partitions = transaction.decided if transaction.state in DECIDED else transaction.partitions
    return transaction._replace(partitions=partitions, coordinator_epoch=transaction.coordinator_epoch + 1)
