"""A broker with its single replica: its disk, its memory, and its life from start to stop.

`node.step` applies events: `(broker, event) → (broker, messages)`. Leading is in `leader.py`, following in
`follower.py`.
"""

from __future__ import annotations

from typing import NamedTuple

from ackproof_reference.log import UNKNOWN, Log, flush, lose_power, truncate
from ackproof_reference.messages import AlterPartition, AskEpochEnd, EpochEnd, Fetch, Fetched, Produced
from ackproof_reference.metadata import Metadata, Partition, Registration


class Progress(NamedTuple):
    """A leader's knowledge of another replica. `end`: offset of its last fetch, which counts as its log end; UNKNOWN
    before its first fetch. Without `replicated_by_next_fetch` (`Rules`), `end` includes the batches sent in answer to
    that fetch. `broker_epoch`: the incarnation of the broker that sent the fetch; UNKNOWN before it."""

    replica: int
    end: int = UNKNOWN
    broker_epoch: int = UNKNOWN


class Waiting(NamedTuple):
    """A produce request with acks=all that waits until the high watermark reaches offset `until`
    (DelayedProduce).

    `producer`, `sequence`: sender and first sequence number of its batch. `offset`: the first offset of the
    batch.
    """

    producer: int
    sequence: int
    offset: int
    until: int


class Leader(NamedTuple):
    """A replica that leads. `epoch`: its leader epoch. `start`: the log end offset when that epoch began.

    `progress`: one entry for each other replica. `waiting`: unanswered requests with acks=all. `pending`: the ISR in
    the leader's pending proposal, None without one. A proposal is pending until the controller's answer; after some
    errors it is pending until newer metadata (`isr_answered`). At most one proposal is in flight (KIP-497).
    """

    epoch: int
    start: int
    progress: tuple[Progress, ...]
    pending: tuple[int, ...] | None = None
    waiting: tuple[Waiting, ...] = ()


class Follower(NamedTuple):
    """A replica that follows. `leader`: the broker that it follows, or NO_LEADER; `epoch`: the leader epoch.

    `truncating`: it may not fetch before its log agrees with its leader's (before KIP-595). `remembered`: fetch
    positions of other replicas, which it recorded when it last led. It keeps them only without the rule
    `reset_followers` (`Rules`); else the field is ()."""

    leader: int
    epoch: int
    truncating: bool = False
    remembered: tuple[Progress, ...] = ()


class Process(NamedTuple):
    """A broker's memory, and its files other than the log. `epoch`: broker epoch (incarnation); while the broker is
    down, that of its last run.

    `clean`: True if the broker was stopped cleanly and left `.kafka_cleanshutdown` with that epoch. `metadata`: the
    newest image that the broker applied since its start; None: it applied none. `role`: None if the broker is down,
    applied no image yet, or has no replica."""

    up: bool
    epoch: int
    metadata: Metadata | None = None
    role: Leader | Follower | None = None
    clean: bool = False

    @property
    def image(self) -> Metadata:
        """Return the newest metadata image that this broker has applied. Call this only for a broker that has
        one.
        """
        assert self.metadata is not None
        return self.metadata

    @property
    def partition(self) -> Partition:
        """Return the partition as this broker knows it. Call this only for a broker that has metadata."""
        return self.image.partition


class Broker(NamedTuple):
    """One broker: its id, its disk (`log`) and its memory (`process`)."""

    id: int
    log: Log
    process: Process


Message = Fetch | Fetched | AskEpochEnd | EpochEnd | AlterPartition | Produced
BrokerAndMessages = tuple[Broker, tuple[Message, ...]]
"""A broker after a step, and the messages that it sends in that step, in order."""


def with_role(broker: Broker, role: Leader | Follower | None) -> Broker:
    """Return the broker as leader or follower of its partition; `role` None: without a replica."""
    process = broker.process
    return Broker(
        broker.id,
        broker.log,
        Process(process.up, process.epoch, process.metadata, role, process.clean),
    )


def kill(broker: Broker) -> Broker:
    """Return the broker after SIGKILL: its memory is lost; the log stays, with its page cache."""
    return Broker(broker.id, broker.log, Process(up=False, epoch=broker.process.epoch))


def power_off(broker: Broker, kept: int) -> Broker:
    """Return the broker after a power loss of its machine. Flushed batches stay. Of the other batches, those that end
    at or below offset `kept` stay (LogLoader.recoverLog)."""
    return Broker(broker.id, lose_power(broker.log, kept), Process(up=False, epoch=broker.process.epoch))


def with_checkpoint(broker: Broker, mark: int) -> Broker:
    """Return a dead broker whose replication-offset-checkpoint holds `mark`, an older high watermark. A
    higher `mark` changes nothing.

    The checkpoint is written every five seconds (ReplicaManager.checkpointHighWatermarks).
    """
    return broker._replace(log=broker.log._replace(high_watermark=min(mark, broker.log.high_watermark)))


def stop_cleanly(broker: Broker) -> Broker:
    """Return the broker after SIGTERM: its log is flushed, and its clean-shutdown file has this incarnation
    (KIP-966)."""
    return Broker(broker.id, flush(broker.log), Process(up=False, epoch=broker.process.epoch, clean=True))


def start(broker: Broker, registration: Registration) -> Broker:
    """Return the broker as a new incarnation with the registration that `register` returned: without metadata and role,
    still fenced.

    Its clean-shutdown file is removed at once. Loading the log drops epochs without batches (LogLoader.load).
    """
    return Broker(broker.id, truncate(broker.log, broker.log.end), Process(up=True, epoch=registration.epoch))
