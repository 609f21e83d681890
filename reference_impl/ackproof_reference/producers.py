"""Checks of idempotent producers: the leader knows the last five batches of each (KIP-98, ProducerAppendInfo)."""

from __future__ import annotations

from ackproof_reference.log import Batch, Log, last_batches
from ackproof_reference.messages import Error, Produce
from ackproof_reference.rules import Rules


def newest_epoch(log: Log, producer: int) -> int:
    """Return a producer's newest producer epoch in this log, of records or markers; -1 if it has none. Older
    epochs are fenced.
    """
    return max((batch.producer_epoch for batch in log.batches if batch.producer == producer), default=-1)


def check_sequence(log: Log, request: Produce, rules: Rules) -> tuple[Error, Batch | None]:
    """Check a batch's sequence number against the producer's last batches in the log; return (error, duplicate).

    (NONE, None): it may be appended, as every batch without idempotence may. (NONE, batch): the log has it already, as
    this batch. Otherwise (INVALID_PRODUCER_EPOCH or OUT_OF_ORDER_SEQUENCE_NUMBER, None). A producer that the log does
    not know may begin at any sequence; a new producer epoch begins at 0.
    """
    if request.producer_epoch < 0 or not rules.idempotence:
        return Error.NONE, None
    if request.producer_epoch < newest_epoch(log, request.producer):
        return Error.INVALID_PRODUCER_EPOCH, None
    known = last_batches(log, request.producer)
    if not known:
        return Error.NONE, None
    last = known[-1]
    if request.producer_epoch > last.producer_epoch:
        return (Error.NONE if request.sequence == 0 else Error.OUT_OF_ORDER_SEQUENCE_NUMBER), None
    for batch in known:
        if (batch.producer_epoch, batch.sequence, batch.length) == (
            request.producer_epoch,
            request.sequence,
            request.length,
        ):
            return Error.NONE, batch
    if request.sequence != last.sequence + last.length:
        return Error.OUT_OF_ORDER_SEQUENCE_NUMBER, None
    return Error.NONE, None
