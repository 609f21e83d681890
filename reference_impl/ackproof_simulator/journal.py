"""Records the controller's decisions, and starts and ends of processes, in a simulated run, in order.

The decisions become the metadata log that real controllers would leave, which the replay reads; starts and ends become
events of the timeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ackproof.experiment.kafka import ELR
from ackproof.rundir.metadata import (
    BrokerChanged,
    BrokerRegistered,
    ConfigChanged,
    FeatureChanged,
    MetadataRecord,
    PartitionChanged,
    TopicCreated,
    TopicRemoved,
)
from ackproof.rundir.timeline import NodeEnded, NodeStarted
from ackproof_reference.metadata import NO_LEADER, Partition
from ackproof_simulator.clock import MS, Clock

if TYPE_CHECKING:
    from ackproof_simulator.partition import PartitionRun

_TOPIC: Final = 2
_BROKERS: Final = 4
_CONTROLLER_EPOCH: Final = 1
_NAMED: Final = ("replicas", "leader", "isr", "elr", "adding", "removing")


class Change(NamedTuple):
    """A change of a partition's state by the controller, at virtual time `at_ns`. The partition epoch alone may have
    changed. `place`: index of the partition in `World`. `before`, `image`: its state before and after.

    Creations and deletions of topics are no changes."""

    at_ns: int
    place: int
    image: Partition
    before: Partition


class Journal:
    """Record of the controller's decisions, and of starts and ends of processes, during a simulated run. `records`: the
    decisions as a metadata log, in offset order.

    `wall_ns`: wall-clock time of the run's start. `log_dirs`: number of log dirs per broker; a single log dir is not
    recorded.
    """

    def __init__(self, clock: Clock, wall_ns: int, log_dirs: int) -> None:
        self._clock, self._wall_ns = clock, wall_ns
        self._dirs = range(log_dirs) if log_dirs > 1 else range(0)
        self.records: list[MetadataRecord] = []
        self.changes: list[Change] = []
        self.lives: list[tuple[int, int, NodeStarted | NodeEnded]] = []
        """Starts and ends of processes, each with time in ns and node."""
        self.topic_ids: dict[str, str] = {}
        """Topic id of the newest incarnation of each topic."""
        self.moving = False
        """True if a replica has just moved to another log dir of its broker; the next recorded change reports it."""

    def begin(
        self,
        brokers: Sequence[int],
        topics: Mapping[str, Mapping[str, str]],
        partitions: Sequence[PartitionRun],
        *,
        elr: bool,
    ) -> None:
        """Record the state at time 0: brokers, features, topics and partitions.

        `topics`: each topic's own settings. `elr`: True if eligible leader replicas are on.
        """
        if elr:
            self.note(FeatureChanged, feature=ELR, level=1)
        for broker in brokers:
            self.registered(broker, 1)
            self.note(BrokerChanged, node=broker, broker_epoch=1, fenced=False)
        for topic, config in topics.items():
            self.created(topic, config)
        for partition in partitions:
            self.partition(partition)

    def note(self, kind: Callable[..., MetadataRecord], **fields: object) -> None:
        timestamp_ms = (self._wall_ns + self._clock.now) // MS
        offset = len(self.records)
        self.records.append(kind(offset=offset, epoch=_CONTROLLER_EPOCH, timestamp_ms=timestamp_ms, **fields))

    def lived(self, node: int, what: NodeStarted | NodeEnded) -> None:
        self.lives.append((self._clock.now, node, what))

    def registered(self, node: int, epoch: int) -> None:
        """Record that a broker registered. `epoch`: its new broker epoch, from which its incarnation id is made."""
        self.note(
            BrokerRegistered,
            node=node,
            broker_epoch=epoch,
            incarnation=f"{node}.{epoch}",
            fenced=True,
            log_dirs=tuple(dir_name(node, folder) for folder in self._dirs),
        )

    def created(self, topic: str, config: Mapping[str, str]) -> None:
        self.topic_ids[topic] = f"{topic}@{self._clock.now}"
        self.note(TopicCreated, topic=topic, topic_id=self.topic_ids[topic])
        for key, value in config.items():
            self.configured(topic, key, value)

    def dropped(self, topic: str) -> None:
        self.note(TopicRemoved, topic=topic, topic_id=self.topic_ids[topic])

    def configured(self, topic: str, key: str, value: str | None) -> None:
        """Record a new value of a setting of a topic, or of all brokers (`topic` ''). `value` None: reset to the
        default."""
        self.note(ConfigChanged, resource=_TOPIC if topic else _BROKERS, name=topic, key=key, value=value)

    def changed(self, place: int, partition: PartitionRun, before: Partition) -> None:
        """Record the change of a partition from `before` to its present image. `place`: the partition's index in
        `World`."""
        image = partition.image.partition
        self.changes.append(Change(self._clock.now, place, image, before))
        names = [name for name in _NAMED if getattr(before, name) != getattr(image, name)]
        self.partition(partition, (*names, "directories") if self.moving else names)
        self.moving = False

    def partition(self, partition: PartitionRun, changed: Sequence[str] = ("created",)) -> None:
        image = partition.image.partition
        self.note(
            PartitionChanged,
            topic=partition.topic,
            partition=partition.number,
            leader=image.leader,
            leader_epoch=image.leader_epoch,
            partition_epoch=image.epoch,
            replicas=image.replicas,
            isr=image.isr,
            adding=image.adding,
            removing=image.removing,
            elr=image.elr,
            last_known_elr=() if image.last_known_leader == NO_LEADER else (image.last_known_leader,),
            recovering=image.recovering,
            directories=tuple(
                dir_name(one, partition.folder_at(one)) for one in image.replicas if self._dirs
            ),
            changed=tuple(changed),
        )


def dir_name(broker: int, folder: int) -> str:
    """Return the directory id of a log dir as the journal writes it, `<broker>.<number>`; numbers count from
    0.
    """
    return f"{broker}.{folder}"
