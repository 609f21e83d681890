"""What there is to be seen of a partition: on the controller's disk, on the brokers' disks, and by asking the brokers.

None of it asks the proxy. The controller's metadata log says who leads and who is in sync whatever the brokers know;
the brokers' logs say how far they reach, whether their processes run or not; a broker's answer to ListOffsets with a
leader epoch says which epoch its own replica is in (Partition.checkCurrentLeaderEpoch).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from ackproof.cluster import queries
from ackproof.cluster.disks.log import log_end
from ackproof.cluster.metadata.protocol import NotDecoded
from ackproof.cluster.protocol import Cluster, LocalNode, NodeState, local
from ackproof.network.wire import Connection, Question, WireError
from ackproof.rundir.metadata import (
    BrokerChanged,
    BrokerRegistered,
    EligibleCleared,
    MetadataRecord,
    PartitionChanged,
)
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import ScriptState

_ASK_S: Final = 1.0


@dataclass(frozen=True)
class Decided:
    """What the controller has decided up to now. `records`: all of them, in order."""

    records: tuple[MetadataRecord, ...] = ()
    partition: PartitionChanged | None = None
    fenced: frozenset[int] = frozenset()
    registered: dict[int, int] = field(default_factory=dict)
    """The newest registration of each broker, by its broker epoch."""


class Looks:
    """Looks at one partition of a cluster on this machine. `base`: what counts as the beginning."""

    def __init__(self, cluster: Cluster, place: TopicPartition) -> None:
        self._cluster = cluster
        self.place = place
        self._brokers: tuple[LocalNode, ...] = local(cluster.brokers())
        self._folders = [node.disk.metadata_dir for node in local(cluster.controllers())]
        self.base = ScriptState()

    def decided(self) -> Decided:
        """By the controller's log. Raises `NotDecoded`, OSError while it is being written at its end."""
        from ackproof.cluster.metadata import metadata_of  # files are read without ZooKeeper's client

        found = Decided()
        fenced: set[int] = set()
        registered: dict[int, int] = {}
        partition: PartitionChanged | None = None
        records = tuple(metadata_of(self._cluster.spec).decode(self._folders))
        for record in records:
            match record:
                case PartitionChanged(topic=self.place.topic, partition=self.place.partition):
                    partition = record
                case BrokerRegistered():
                    registered[record.node] = record.broker_epoch
                    (fenced.add if record.fenced else fenced.discard)(record.node)
                case BrokerChanged(fenced=bool(now)):
                    (fenced.add if now else fenced.discard)(record.node)
                case EligibleCleared() if partition is not None and record.topic in ("", self.place.topic):
                    partition = partition.model_copy(update={"elr": ()})
                case _:
                    pass
        brokers = set(self._cluster.spec.broker_ids)
        return Decided(records, partition, frozenset(fenced & brokers), registered) if records else found

    def seen(self, acked: int) -> ScriptState | None:
        """All of it now, as it counts from the beginning; None while the controller's log cannot be read."""
        try:
            decided = self.decided()
        except (NotDecoded, OSError):
            return None
        if (partition := decided.partition) is None:
            return None
        base = self.base
        epoch = partition.leader_epoch
        ends, marks, believed, down = {}, {}, {}, []
        for node in self._brokers:
            if (folder := node.disk.partition(*self.place)) is not None:
                ends[node.id] = log_end(folder) - base.ends.get(node.id, 0)
            if node.state() is NodeState.GONE:
                down.append(node.id)
        for broker, link in self._cluster.running_links().items():
            with contextlib.suppress(WireError):
                own, mark = self._asked(link, epoch, base.epoch)
                if own is not None:
                    believed[broker] = own - base.epoch
                if mark is not None:
                    marks[broker] = mark - max(base.high_watermarks.values(), default=0)
        return ScriptState(
            leader=partition.leader,
            epoch=epoch - base.epoch,
            partition_epoch=partition.partition_epoch - base.partition_epoch,
            isr=partition.isr,
            elr=partition.elr,
            fenced=tuple(sorted(decided.fenced)),
            down=tuple(down),
            believed=believed,
            ends=ends,
            high_watermarks=marks,
            acked=acked - base.acked,
        )

    def knows(self, broker: int, decided: Decided) -> bool:
        """Whether a broker has learnt all of this, and its replica is in the partition's epoch."""
        partition, link = decided.partition, self._cluster.running_links().get(broker)
        if partition is None or link is None:
            return False
        try:
            there = queries.partitions(link, [self.place.topic], _ASK_S).get(self.place)
            alive = queries.brokers(link, _ASK_S)
            own, _ = self._asked(link, partition.leader_epoch, partition.leader_epoch)
        except WireError:
            return False
        return (
            there is not None
            and own == partition.leader_epoch
            and (there.leader, there.leader_epoch) == (partition.leader, partition.leader_epoch)
            and (set(there.isr), set(there.eligible)) == (set(partition.isr), set(partition.elr))
            and alive == frozenset(self._cluster.spec.broker_ids) - decided.fenced
        )

    def _asked(self, link: Connection, newest: int, oldest: int) -> tuple[int | None, int | None]:
        """Which epoch the broker's own replica is in, and its high watermark."""
        epochs = range(newest, max(oldest, 0) - 1, -1)
        questions = [self._of_epoch(epoch) for epoch in epochs]
        mark, *answers = link.ask_all([queries.ask_high_watermark(self.place), *questions], timeout_s=_ASK_S)
        own = next(
            (epoch for epoch, answer in zip(epochs, answers, strict=True) if queries.read_offsets(answer)),
            None,
        )
        return own, queries.read_high_watermark(mark)

    def _of_epoch(self, epoch: int) -> Question:
        rows = [(self.place.topic, [(self.place.partition, epoch, queries.LATEST)])]
        return Question(
            "ListOffsets",
            5,
            replica_id=queries.DEBUGGING_REPLICA,
            isolation_level=queries.READ_UNCOMMITTED,
            topics=rows,
        )


def notable(
    records: Sequence[MetadataRecord], place: TopicPartition, fenced: Collection[int]
) -> Iterator[tuple[str, int, str]]:
    """Of these records what a script must know of: its kind, the broker that it is about (0 none), and it in words.

    `fenced`: who was before them. A broker that has stopped in good order is fenced, and once more when its session
    ends: that is nothing.
    """
    now = set(fenced)
    for record in records:
        match record:
            case BrokerChanged(fenced=True, controlled_shutdown=None) if record.node in now:
                continue
            case BrokerRegistered() | BrokerChanged(fenced=bool()):
                (now.add if record.fenced else now.discard)(record.node)
            case _:
                pass
        match record:
            case PartitionChanged(topic=place.topic, partition=place.partition) if record.changed != (
                "directories",
            ):
                leader = f"broker {record.leader}" if record.leader >= 0 else "nobody"
                said = f"{leader} leads in epoch {record.leader_epoch}, ISR {list(record.isr)}, ELR {list(record.elr)}"
                yield "partition", 0, f"the controller decided: {said}"
            case BrokerRegistered():
                yield "broker", record.node, f"broker {record.node} registered"
            case BrokerChanged() if record.fenced is not None or record.controlled_shutdown is not None:
                word = {True: "was fenced", False: "was unfenced", None: "began to shut down"}[record.fenced]
                yield "broker", record.node, f"broker {record.node} {word}"
            case EligibleCleared(topic=place.topic):
                yield "partition", 0, f"the controller forgot who was eligible for {place.topic}"
            case _:
                pass
