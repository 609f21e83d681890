"""Messages between brokers, the controller and clients: Kafka's requests, reduced to the fields that are used."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ackproof_reference.log import Batch, EpochEntry
from ackproof_reference.metadata import Partition


class Error(Enum):
    """Kafka's errors, reduced to those that the protocol core uses; the values are Kafka's error codes."""

    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    INVALID_TXN_STATE = 48
    TRANSACTION_COORDINATOR_FENCED = 52
    PRODUCER_FENCED = 90
    INVALID_UPDATE_VERSION = 95
    INELIGIBLE_REPLICA = 107


class Produce(NamedTuple):
    """A produce request with one batch of `length` records, numbered from `sequence`. `acks`: 0, 1 or -1 (all).
    `producer_epoch` -1: no idempotence. `key` -1: the records have no key."""

    producer: int
    sequence: int
    acks: int
    length: int = 1
    producer_epoch: int = -1
    key: int = -1
    transactional: bool = False


class Produced(NamedTuple):
    """The answer to a produce request, or to a marker that is refused (`sequence` -1). `offset`: the batch's first
    offset, -1 with an error.
    """

    producer: int
    sequence: int
    error: Error
    offset: int


class WriteMarker(NamedTuple):
    """Request of the transaction coordinator to end a transaction on one partition (WriteTxnMarkers, KIP-98).

    `commit`: False to abort it. `coordinator_epoch`: leader epoch of the coordinator's partition of the transaction
    log. `version`: transaction.version of the producer (2 since KIP-890's second part).
    """

    producer: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int = 0
    version: int = 1


class Fetch(NamedTuple):
    """A follower's request for the records from its log end (`offset`) on. `broker_epoch`: the follower's incarnation.

    `leader_epoch`: epoch in which it follows (KIP-320). `last_epoch`: the last epoch in its log (KIP-595); UNKNOWN if
    it has none.
    """

    follower: int
    leader: int
    broker_epoch: int
    leader_epoch: int
    offset: int
    last_epoch: int


class Fetched(NamedTuple):
    """The response to a Fetch: batches, or `diverging` where the logs diverge (KIP-595). `diverging`: the leader's
    newest epoch that is not above the follower's last epoch; its `start` is the offset at which that epoch ends.

    `leader_epoch`, `offset`: as in the request.

    `leader_start`, `leader_end`: bounds of the leader's log, with OFFSET_OUT_OF_RANGE only.
    """

    follower: int
    leader: int
    leader_epoch: int
    offset: int
    error: Error = Error.NONE
    batches: tuple[Batch, ...] = ()
    high_watermark: int = 0
    diverging: EpochEntry | None = None
    leader_start: int = 0
    leader_end: int = 0


class AskEpochEnd(NamedTuple):
    """OffsetForLeaderEpoch (KIP-101): a follower's request for the end of `epoch` in its leader's log. `leader_epoch`:
    epoch in which the follower follows."""

    follower: int
    leader: int
    leader_epoch: int
    epoch: int


class EpochEnd(NamedTuple):
    """The answer to `AskEpochEnd`. `asked`: the epoch in the request. `end`: the epoch that the leader found
    (`end_of_epoch`); its `start` is the offset at which that epoch ends. Before KIP-279 `end` names the epoch `asked`
    in place of the found one. `end` is (UNKNOWN, UNKNOWN) if all epochs in the leader's log are older than `asked`."""

    follower: int
    leader: int
    leader_epoch: int
    asked: int
    error: Error
    end: EpochEntry


class AlterPartition(NamedTuple):
    """A leader's proposal of a new ISR (KIP-497). `isr_epochs`: the incarnation (broker epoch) of each member of `isr`:
    if the member joins, as in its last fetch, else as in the leader's metadata (KIP-903).
    """

    leader: int
    broker_epoch: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    isr_epochs: tuple[int, ...]


class Altered(NamedTuple):
    """The response to an AlterPartition. `partition`: its state after the change; None with an error."""

    leader: int
    leader_epoch: int
    error: Error
    partition: Partition | None = None
