"""A broker with its one replica: what it keeps on disk, what a kill takes, and its life from start to stop.

`step` is the way in: `(broker, event) → (broker, messages)`. Leading is in `leader.py`, following in `follower.py`.
"""

from __future__ import annotations

from typing import NamedTuple

from ackproof_reference.log import UNKNOWN, Log, flush, lose_power, truncate
from ackproof_reference.messages import AlterPartition, AskEpochEnd, EpochEnd, Fetch, Fetched, Produced
from ackproof_reference.metadata import Metadata, Partition, Registration


class Progress(NamedTuple):
    """A leader's knowledge of another replica: where its last fetch began (UNKNOWN: none), and its incarnation."""

    replica: int
    end: int = UNKNOWN
    broker_epoch: int = UNKNOWN


class Waiting(NamedTuple):
    """A produce request with acks=all in the purgatory, until the high watermark reaches `until` (DelayedProduce)."""

    producer: int
    sequence: int
    offset: int
    until: int


class Leader(NamedTuple):
    """A replica that leads since `start`, the log end when its epoch began.

    `pending` is the ISR it has proposed and not heard of; at most one proposal is under way (KIP-497).
    """

    epoch: int
    start: int
    progress: tuple[Progress, ...]
    pending: tuple[int, ...] | None = None
    waiting: tuple[Waiting, ...] = ()


class Follower(NamedTuple):
    """A replica that follows; `truncating`: no fetch before its log agrees with its leader's (until KIP-595).

    `remembered` is what it knew of others when it led; only rules that do not forget it fill it.
    """

    leader: int
    epoch: int
    truncating: bool = False
    remembered: tuple[Progress, ...] = ()


class Process(NamedTuple):
    """A broker's memory, and its files other than the log.

    `epoch` is the incarnation, also of the last one while it is down; `clean`: it was stopped cleanly and
    left `.kafka_cleanshutdown` with that epoch. `metadata` is the newest image that it applied.
    """

    up: bool
    epoch: int
    metadata: Metadata | None = None
    role: Leader | Follower | None = None
    clean: bool = False

    @property
    def image(self) -> Metadata:
        """Return the image that this broker knows; only a broker with metadata may be asked."""
        assert self.metadata is not None
        return self.metadata

    @property
    def partition(self) -> Partition:
        """The partition as this broker knows it. Only for a broker that has metadata."""
        return self.image.partition


class Broker(NamedTuple):
    """One broker: number, disk, memory."""

    id: int
    log: Log
    process: Process


Message = Fetch | Fetched | AskEpochEnd | EpochEnd | AlterPartition | Produced
Step = tuple[Broker, tuple[Message, ...]]


def with_role(broker: Broker, role: Leader | Follower | None) -> Broker:
    """The broker in another role."""
    process = broker.process
    return Broker(
        broker.id,
        broker.log,
        Process(process.up, process.epoch, process.metadata, role, process.clean),
    )


def kill(broker: Broker) -> Broker:
    """SIGKILL: memory goes, the log stays, page cache and all."""
    return Broker(broker.id, broker.log, Process(up=False, epoch=broker.process.epoch))


def power_off(broker: Broker, kept: int) -> Broker:
    """The machine loses power: of what was never flushed only a prefix is left (LogLoader.recoverLog)."""
    return Broker(broker.id, lose_power(broker.log, kept), Process(up=False, epoch=broker.process.epoch))


def with_checkpoint(broker: Broker, mark: int) -> Broker:
    """A dead broker whose replication-offset-checkpoint names an older high watermark: it is written every five seconds
    (ReplicaManager.checkpointHighWatermarks)."""
    return broker._replace(log=broker.log._replace(high_watermark=min(mark, broker.log.high_watermark)))


def stop_cleanly(broker: Broker) -> Broker:
    """SIGTERM: logs are flushed and a clean-shutdown file names this incarnation (KIP-966)."""
    return Broker(broker.id, flush(broker.log), Process(up=False, epoch=broker.process.epoch, clean=True))


def start(broker: Broker, registration: Registration) -> Broker:
    """A new incarnation, registered and still fenced; the clean-shutdown file is removed at once.

    Loading the log drops epochs in which nothing was written (LogLoader.load).
    """
    return Broker(broker.id, truncate(broker.log, broker.log.end), Process(up=True, epoch=registration.epoch))
