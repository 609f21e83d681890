"""Transactions (KIP-98): what a log says of them, and their coordinator.

The coordinator's steps are `(transaction, request) → (transaction, error)`; what it decides it writes down before it
sends markers (`PREPARE_…`), so a decision stands although its markers come late. Its own log is taken as safe.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ackproof_reference.log import ABORT, COMMIT, DATA, Batch, Log
from ackproof_reference.messages import Error, Produce, WriteMarker
from ackproof_reference.rules import Rules

# What a log says.


def marker_batch(log: Log, epoch: int, marker: WriteMarker) -> Batch:
    """The control batch that ends a transaction, at the log's end, in a leader epoch."""
    kind = COMMIT if marker.commit else ABORT
    return Batch(log.end, epoch, marker.producer, -1, 1, marker.producer_epoch, kind=kind, transactional=True)


def open_transactions(log: Log) -> dict[int, int]:
    """Each producer with an open transaction in this log, and the offset where it began."""
    began: dict[int, int] = {}
    for batch in log.batches:
        if batch.kind in (COMMIT, ABORT):
            began.pop(batch.producer, None)
        elif batch.transactional and batch.kind == DATA:
            began.setdefault(batch.producer, batch.base)
    return began


def last_stable_offset(log: Log) -> int:
    """Where a reader at read_committed stops: the first open transaction, at most the high watermark."""
    return min([log.high_watermark, *open_transactions(log).values()])


def visible(log: Log, *, committed: bool) -> tuple[Batch, ...]:
    """The data batches that a reader is handed: below the last stable offset, without what was aborted.

    At read_uncommitted: all below the high watermark.
    """
    end = last_stable_offset(log) if committed else log.high_watermark
    below = [batch for batch in log.below(end) if batch.kind == DATA]
    if not committed:
        return tuple(below)
    return tuple(batch for batch in below if not batch.transactional or _ending(log, batch) == COMMIT)


def aborted(log: Log, batch: Batch) -> bool:
    """Whether the transaction of a data batch was aborted, as this log says; False for one without a transaction."""
    return batch.transactional and _ending(log, batch) == ABORT


def _ending(log: Log, batch: Batch) -> str:
    """The kind of the first marker of its producer after a batch; DATA if there is none yet."""
    for later in log.batches:
        if later.base > batch.base and later.producer == batch.producer and later.kind in (COMMIT, ABORT):
            return later.kind
    return DATA


def needs_verification(log: Log, request: Produce, rules: Rules) -> bool:
    """Whether a leader must ask the coordinator first: a batch that would open a transaction in its log (KIP-890)."""
    return (
        rules.verify_transactions and request.transactional and request.producer not in open_transactions(log)
    )


# The coordinator.


class State(Enum):
    """A transactional id's state (TransactionState)."""

    EMPTY = "empty"
    ONGOING = "ongoing"
    PREPARE_COMMIT = "prepare commit"
    PREPARE_ABORT = "prepare abort"


class Transaction(NamedTuple):
    """What the coordinator knows of one transactional id.

    `epoch` is the producer epoch that may act now, `marker_epoch` that of the markers under way. `partitions` are those
    that take part; while markers
    go out: those that still lack theirs.
    """

    producer: int
    epoch: int = -1
    state: State = State.EMPTY
    partitions: tuple[int, ...] = ()
    marker_epoch: int = -1


def init_producer(transaction: Transaction) -> tuple[Transaction, Error]:
    """A client comes with this transactional id: a new epoch fences who had it; an open transaction is aborted first.

    While markers are under way it has to come again (CONCURRENT_TRANSACTIONS, here INVALID_TXN_STATE).
    """
    if transaction.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT):
        return transaction, Error.INVALID_TXN_STATE
    epoch = transaction.epoch + 1
    if transaction.state is State.ONGOING:
        fenced = transaction._replace(epoch=epoch, state=State.PREPARE_ABORT, marker_epoch=epoch)
        return fenced, Error.INVALID_TXN_STATE
    return transaction._replace(epoch=epoch), Error.NONE


def add_partition(transaction: Transaction, epoch: int, partition: int) -> tuple[Transaction, Error]:
    """A partition joins the transaction before the first record is sent to it (AddPartitionsToTxn)."""
    if epoch != transaction.epoch:
        return transaction, Error.PRODUCER_FENCED
    if transaction.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT):
        return transaction, Error.INVALID_TXN_STATE
    partitions = tuple(sorted({*transaction.partitions, partition}))
    return transaction._replace(state=State.ONGOING, partitions=partitions), Error.NONE


def verified(transaction: Transaction, epoch: int, partition: int) -> bool:
    """Whether a partition takes part in the open transaction of this epoch (the leader's question, KIP-890)."""
    return (
        transaction.state is State.ONGOING
        and transaction.epoch == epoch
        and partition in transaction.partitions
    )


def end_transaction(
    transaction: Transaction, epoch: int, rules: Rules, *, commit: bool
) -> tuple[Transaction, Error]:
    """Decide (EndTxn). With KIP-890's second part the markers carry the next epoch, which fences late records."""
    if epoch != transaction.epoch:
        return transaction, Error.PRODUCER_FENCED
    if transaction.state is not State.ONGOING:
        return transaction, Error.INVALID_TXN_STATE
    next_epoch = epoch + 1 if rules.bump_every_transaction else epoch
    state = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
    return transaction._replace(state=state, epoch=next_epoch, marker_epoch=next_epoch), Error.NONE


def marker_for(transaction: Transaction, partition: int) -> WriteMarker | None:
    """The marker that a partition still lacks."""
    if transaction.state not in (State.PREPARE_COMMIT, State.PREPARE_ABORT):
        return None
    if partition not in transaction.partitions:
        return None
    commit = transaction.state is State.PREPARE_COMMIT
    return WriteMarker(transaction.producer, transaction.marker_epoch, commit)


def marker_written(transaction: Transaction, partition: int) -> Transaction:
    """A partition has its marker; with the last one the transaction is over."""
    left = tuple(other for other in transaction.partitions if other != partition)
    state = transaction.state if left else State.EMPTY
    return transaction._replace(partitions=left, state=state)
