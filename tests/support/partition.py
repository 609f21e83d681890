"""Makes small states of the reference implementation: logs, partitions, leaders and followers."""

from __future__ import annotations

from ackproof_reference.broker import Broker, Follower, Leader, Process, Progress
from ackproof_reference.log import Batch, Log, append
from ackproof_reference.messages import Fetch
from ackproof_reference.metadata import Metadata, Partition, Registration

REPLICAS = (1, 2, 3)


def log(*epochs: int, high_watermark: int = 0, flushed: int = 0) -> Log:
    """Return a log with one record per given leader epoch, in order; the sequence number of a record is its offset.
    `flushed`: the recovery point; later records are only in the page cache."""
    made = Log()
    for place, epoch in enumerate(epochs):
        made = append(made, Batch(place, epoch, 0, place))
    return made._replace(high_watermark=high_watermark, flushed=flushed)


def partition(
    leader: int = 1,
    isr: tuple[int, ...] = REPLICAS,
    epoch: int = 0,
    version: int = 0,
    replicas: tuple[int, ...] = REPLICAS,
    elr: tuple[int, ...] = (),
    last: int = -1,
) -> Partition:
    """Return a partition led by `leader` in leader epoch `epoch`, with partition epoch `version`. `elr`: eligible
    leader replicas. `last`: last known leader, -1 if there is a leader."""
    return Partition(replicas, leader, epoch, version, isr, elr, last)


def metadata(of: Partition, *, fenced: tuple[int, ...] = (), stopping: tuple[int, ...] = ()) -> Metadata:
    """Return metadata with this partition and all brokers in their first incarnation. `fenced`, `stopping`: brokers
    that are fenced, or in controlled shutdown."""
    return Metadata(of, tuple(Registration(i, 0, i in fenced, i in stopping) for i in REPLICAS))


def leading(
    held: Log,
    ends: dict[int, int] | None = None,
    of: Partition | None = None,
    start: int = 0,
    broker: int = 1,
    known: Metadata | None = None,
) -> Broker:
    """Return a broker that leads since offset `start`. `held`: its log. `ends`: log end offsets that it knows, by
    follower; of the others it knows none. `known`: its metadata, default: of this partition."""
    of = of or partition()
    ends = ends or {}
    progress = tuple(Progress(r, ends.get(r, -1), 0 if r in ends else -1) for r in of.replicas if r != broker)
    return Broker(
        broker, held, Process(True, 0, known or metadata(of), Leader(of.leader_epoch, start, progress))
    )


def following(held: Log, of: Partition | None = None, broker: int = 2, *, truncating: bool = False) -> Broker:
    """Return a broker that follows the leader of a partition. `truncating`: True if it may not fetch before its log
    agrees with the leader's."""
    of = of or partition()
    return Broker(
        broker, held, Process(True, 0, metadata(of), Follower(of.leader, of.leader_epoch, truncating))
    )


def fetch(
    offset: int, last_epoch: int = 0, follower: int = 2, epoch: int = 0, broker_epoch: int = 0
) -> Fetch:
    """Return a fetch by `follower` from broker 1, in leader epoch `epoch`. `last_epoch`: the last epoch in its log."""
    return Fetch(follower, 1, broker_epoch, epoch, offset, last_epoch)
