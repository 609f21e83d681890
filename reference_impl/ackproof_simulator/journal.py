"""What was decided and what became of processes in a simulated run, in order; and the same as the metadata log that
controllers would have left, which the replay reads (`conform`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from ackproof.experiment.releases import ELR
from ackproof.rundir.metadata import (
    BrokerChanged,
    BrokerRegistered,
    ConfigDecided,
    Decided,
    FeatureDecided,
    MetadataRecord,
    PartitionDecided,
    TopicCreated,
    TopicRemoved,
)
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import NodeEnded, NodeStarted
from ackproof_reference.metadata import NO_LEADER, Partition
from ackproof_simulator.clock import MS

_TOPIC: Final = 2
_BROKERS: Final = 4
_CONTROLLER_EPOCH: Final = 1


class Change(NamedTuple):
    """A partition has another leader, epoch, ISR or assignment. `place`: its index among all."""

    at_ns: int
    place: int
    image: Partition
    before: Partition


class Standing(StrEnum):
    """What a registration changes to."""

    REGISTERED = "registered"
    FENCED = "fenced"
    UNFENCED = "unfenced"
    STOPPING = "stopping"


class Stood(NamedTuple):
    """A broker's registration changed; `epoch` is that of its incarnation."""

    at_ns: int
    node: int
    standing: Standing
    epoch: int


class LostDir(NamedTuple):
    """A broker lost a log dir; `left`: the numbers of those that work."""

    at_ns: int
    node: int
    epoch: int
    left: tuple[int, ...]


class MovedDir(NamedTuple):
    """A replica lies in another log dir of its broker; its partition's next change tells the controllers."""

    at_ns: int
    place: TopicPartition
    node: int
    folder: int


class Configured(NamedTuple):
    """A setting of a topic, or of all brokers (''), changed; None: back to what it was without it."""

    at_ns: int
    topic: str
    key: str
    value: str | None


class Levelled(NamedTuple):
    """A feature has another level."""

    at_ns: int
    feature: str
    level: int


class Dropped(NamedTuple):
    """A topic was deleted."""

    at_ns: int
    topic: str


class Created(NamedTuple):
    """A topic was made anew: its partitions, by their index among all."""

    at_ns: int
    topic: str
    images: tuple[tuple[int, Partition], ...]


class Lived(NamedTuple):
    """A process started or ended."""

    at_ns: int
    node: int
    what: NodeStarted | NodeEnded


Entry: TypeAlias = Change | Stood | LostDir | MovedDir | Configured | Levelled | Dropped | Created | Lived


class Beginning(NamedTuple):
    """What there is at time 0: brokers, features, and each topic's own settings and partitions."""

    brokers: Sequence[int]
    elr: bool
    topics: Mapping[str, Mapping[str, str]]
    places: Sequence[TopicPartition]
    images: Sequence[Partition]
    log_dirs: int = 1
    """Of each broker; partitions are dealt to them in turn."""


NOTHING_YET: Final = Beginning((), False, {}, (), ())


class _Log:
    """Records take offsets as they come."""

    def __init__(self, wall_ns: int, began: Beginning) -> None:
        self._wall_ns = wall_ns
        self._next = 0
        self._dirs = began.log_dirs if began.log_dirs > 1 else 0
        self.moved: dict[tuple[TopicPartition, int], int] = {}
        self._places = {place: number for number, place in enumerate(began.places)}
        self.topic_ids: dict[str, str] = {}

    def directories(self, place: TopicPartition, replicas: Sequence[int]) -> tuple[str, ...]:
        """The log dir of each replica; with one a broker nobody asks."""
        number = self._places[place]
        if not self._dirs:
            return ()
        at = {broker: self.moved.get((place, broker), number % self._dirs) for broker in replicas}
        return tuple(_dir(broker, folder) for broker, folder in at.items())

    def log_dirs(self, broker: int) -> tuple[str, ...]:
        """All of a broker's."""
        return tuple(_dir(broker, number) for number in range(self._dirs))

    def head(self, at_ns: int) -> Decided:
        """What every record has."""
        self._next += 1
        return Decided(
            offset=self._next - 1, epoch=_CONTROLLER_EPOCH, timestamp_ms=(self._wall_ns + at_ns) // MS
        )


def _dir(broker: int, number: int) -> str:
    return f"{broker}.{number}"


def topic_id(topic: str, created_ns: int) -> str:
    """The id of a topic that was created at this time."""
    return f"{topic}@{created_ns}"


def topic_ids(topic: str, journal: Sequence[Entry]) -> tuple[str, ...]:
    """The ids of a topic's incarnations, oldest first."""
    again = [entry.at_ns for entry in journal if isinstance(entry, Created) and entry.topic == topic]
    return tuple(topic_id(topic, at_ns) for at_ns in (0, *again))


def metadata_of(began: Beginning, journal: Sequence[Entry], wall_ns: int) -> Iterator[MetadataRecord]:
    """The metadata log of a run that began at this wall-clock time."""
    log = _Log(wall_ns, began)
    yield from _first(began, log)
    moving = False
    for entry in journal:
        if isinstance(entry, Change):
            yield _partition(
                log, entry.at_ns, began.places[entry.place], entry.image, entry.before, moved=moving
            )
            moving = False
        elif isinstance(entry, Stood):
            yield _stood(log, entry)
        elif isinstance(entry, LostDir):
            left = tuple(_dir(entry.node, number) for number in entry.left)
            head = vars(log.head(entry.at_ns))
            yield BrokerChanged(**head, node=entry.node, broker_epoch=entry.epoch, log_dirs=left)
        elif isinstance(entry, MovedDir):
            log.moved[entry.place, entry.node] = entry.folder
            moving = True
        elif isinstance(entry, Configured):
            yield _configured(log, entry)
        elif isinstance(entry, Levelled):
            yield FeatureDecided(**vars(log.head(entry.at_ns)), feature=entry.feature, level=entry.level)
        elif isinstance(entry, Dropped):
            yield TopicRemoved(
                **vars(log.head(entry.at_ns)), topic=entry.topic, topic_id=log.topic_ids[entry.topic]
            )
        elif isinstance(entry, Created):
            yield from _created(log, entry.at_ns, entry.topic, began.topics[entry.topic])
            for place, image in entry.images:
                yield _partition(log, entry.at_ns, began.places[place], image, None)


def _first(began: Beginning, log: _Log) -> Iterator[MetadataRecord]:
    if began.elr:
        yield FeatureDecided(**vars(log.head(0)), feature=ELR, level=1)
    for broker in began.brokers:
        yield _stood(log, Stood(0, broker, Standing.REGISTERED, 1))
        yield _stood(log, Stood(0, broker, Standing.UNFENCED, 1))
    for topic, config in began.topics.items():
        yield from _created(log, 0, topic, config)
    for place, image in zip(began.places, began.images, strict=True):
        yield _partition(log, 0, place, image, None)


def _created(log: _Log, at_ns: int, topic: str, config: Mapping[str, str]) -> Iterator[MetadataRecord]:
    log.topic_ids[topic] = topic_id(topic, at_ns)
    yield TopicCreated(**vars(log.head(at_ns)), topic=topic, topic_id=log.topic_ids[topic])
    for key, value in config.items():
        yield _configured(log, Configured(at_ns, topic, key, value))


def _stood(log: _Log, entry: Stood) -> MetadataRecord:
    head = vars(log.head(entry.at_ns))
    if entry.standing is Standing.REGISTERED:
        name = f"{entry.node}.{entry.epoch}"
        return BrokerRegistered(
            **head,
            node=entry.node,
            broker_epoch=entry.epoch,
            incarnation=name,
            fenced=True,
            log_dirs=log.log_dirs(entry.node),
        )
    fenced = {Standing.FENCED: True, Standing.UNFENCED: False}.get(entry.standing)
    stopping = True if entry.standing is Standing.STOPPING else None
    return BrokerChanged(
        **head, node=entry.node, broker_epoch=entry.epoch, fenced=fenced, controlled_shutdown=stopping
    )


def _configured(log: _Log, entry: Configured) -> MetadataRecord:
    return ConfigDecided(
        **vars(log.head(entry.at_ns)),
        resource=_TOPIC if entry.topic else _BROKERS,
        name=entry.topic,
        key=entry.key,
        value=entry.value,
    )


def _partition(
    log: _Log,
    at_ns: int,
    place: TopicPartition,
    image: Partition,
    before: Partition | None,
    *,
    moved: bool = False,
) -> MetadataRecord:
    names = ("replicas", "leader", "isr", "elr", "adding", "removing")
    changed = (
        ("created",)
        if before is None
        else tuple(name for name in names if getattr(before, name) != getattr(image, name))
    )
    return PartitionDecided(
        **vars(log.head(at_ns)),
        topic=place[0],
        partition=place[1],
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
        directories=log.directories(place, image.replicas),
        changed=(*changed, "directories") if moved else changed,
    )
