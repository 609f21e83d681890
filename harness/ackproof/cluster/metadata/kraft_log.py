"""The KRaft metadata log, decoded: leaders, ISRs, registrations and fencing, as the controllers wrote them.

Source: the messages of org.apache.kafka.common.metadata (`metadata/src/main/resources/common/metadata/*.json`) and
PartitionRegistration.merge. A record is framed by three unsigned varints: frame version, API key, version.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from ackproof.cluster.disks.log import Segment, records, segments, unsigned_varint
from ackproof.cluster.metadata.protocol import BodyReader, NotDecoded
from ackproof.rundir.metadata import (
    CONTROL,
    BrokerChanged,
    BrokerRegistered,
    BrokerUnregistered,
    ConfigChanged,
    EligibleCleared,
    FeatureChanged,
    MetadataRecord,
    OtherEntry,
    PartitionChanged,
    TopicCreated,
    TopicRemoved,
)

FOLDER: Final = "__cluster_metadata-0"
_FRAME_VERSION: Final = 1


_Position: TypeAlias = dict[str, Any]
"""Position and time of a record in the log: `offset`, `epoch` and `timestamp_ms`."""


class _BodyReader(BodyReader):
    """Reader of a message body in the flexible encoding (KIP-482)."""

    def __init__(self, data: bytes, at: int = 0, version: int = 0) -> None:
        super().__init__(data, at)
        self.version = version

    def id(self) -> str:
        return str(uuid.UUID(bytes=self.take(16)))

    def count(self) -> int:
        value, self.at = unsigned_varint(self.data, self.at)
        return value

    def text(self) -> str | None:
        size = self.count() - 1
        return None if size < 0 else self.take(size).decode()

    def nodes(self) -> tuple[int, ...]:
        return tuple(self.number("i") for _ in range(self.count() - 1))

    def ids(self) -> tuple[str, ...]:
        return tuple(self.id() for _ in range(self.count() - 1))

    def tagged(self) -> dict[int, _BodyReader]:
        """Read the tagged fields (KIP-482), and return a reader of each field's bytes by tag number."""
        found: dict[int, _BodyReader] = {}
        for _ in range(self.count()):
            tag, size = self.count(), self.count()
            found[tag] = _BodyReader(self.take(size))
        return found


@dataclass
class MetadataLog:
    """Decoder of the KRaft metadata log. It remembers topics and partitions, because a record names a topic by its id
    and holds only changed fields."""

    _topics: dict[str, str] = field(default_factory=dict)
    _partitions: dict[tuple[str, int], PartitionChanged] = field(default_factory=dict)

    def decode(self, value: bytes, when: _Position) -> MetadataRecord:
        """Decode one record. `when`: offset, leader epoch and timestamp of the record. A record of a type without a
        decoder becomes an `OtherEntry`. Raises `NotDecoded` for a form that the decoder does not know, and for a change
        of an unknown topic or partition."""
        try:
            frame, at = unsigned_varint(value, 0)
            api_key, at = unsigned_varint(value, at)
            version, at = unsigned_varint(value, at)
            if frame != _FRAME_VERSION:
                raise ValueError(f"frame version {frame}")
            decoder = _DECODERS.get(api_key)
            if decoder is None:
                return OtherEntry(**when, api_key=api_key)
            body = _BodyReader(value, at, version)
            decided = decoder(self, body, when)
            if body.at != len(value):  # fields that this decoder does not know
                raise ValueError(f"{len(value) - body.at} bytes behind its last field")
        except (ValueError, struct.error, KeyError) as error:
            raise NotDecoded(f"offset {when['offset']} of the metadata log: {error!r}") from error
        return decided

    def _topic(self, body: _BodyReader, when: _Position) -> MetadataRecord:
        name, topic_id = body.text() or "", body.id()
        body.tagged()
        self._topics[topic_id] = name
        return TopicCreated(**when, topic=name, topic_id=topic_id)

    def _topic_removed(self, body: _BodyReader, when: _Position) -> MetadataRecord:
        topic_id = body.id()
        body.tagged()
        name = self._topics.pop(topic_id)
        for place in [place for place in self._partitions if place[0] == topic_id]:
            del self._partitions[place]
        return TopicRemoved(**when, topic=name, topic_id=topic_id)

    def _eligible_cleared(self, body: _BodyReader, when: _Position) -> MetadataRecord:
        topic = body.text() or ""
        body.tagged()
        for place, before in self._partitions.items():
            if topic in ("", before.topic) and (before.elr or before.last_known_elr):
                # A change like any other, without a record of its own (ReplicationControlManager.removeTopicElrs).
                update = {"elr": (), "last_known_elr": (), "partition_epoch": before.partition_epoch + 1}
                self._partitions[place] = before.model_copy(update=update)
        return EligibleCleared(**when, topic=topic)

    def _partition(self, body: _BodyReader, when: _Position) -> MetadataRecord:
        partition, topic_id = body.number("i"), body.id()
        replicas, isr, removing, adding = body.nodes(), body.nodes(), body.nodes(), body.nodes()
        leader, leader_epoch, partition_epoch = body.number("i"), body.number("i"), body.number("i")
        directories = body.ids() if body.version >= 1 else ()
        tags = body.tagged()
        decided = PartitionChanged(
            **when,
            topic=self._topics[topic_id],
            partition=partition,
            leader=leader,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            replicas=replicas,
            isr=isr,
            adding=adding,
            removing=removing,
            recovering=0 in tags and tags[0].flag(),
            elr=tags[1].nodes() if 1 in tags else (),
            last_known_elr=tags[2].nodes() if 2 in tags else (),
            directories=directories,
            changed=("created",),
        )
        self._partitions[topic_id, partition] = decided
        return decided

    def _partition_change(self, body: _BodyReader, when: _Position) -> MetadataRecord:
        partition, topic_id = body.number("i"), body.id()
        before, tags = self._partitions[topic_id, partition], body.tagged()
        update: dict[str, object] = {**when, "partition_epoch": before.partition_epoch + 1}
        for tag, name in _LISTS.items():
            if tag in tags:
                update[name] = tags[tag].nodes()
        if _LEADER in tags:
            update |= {"leader": tags[_LEADER].number("i"), "leader_epoch": before.leader_epoch + 1}
        if _RECOVERING in tags:
            update["recovering"] = tags[_RECOVERING].flag()
        if _DIRECTORIES in tags:
            update["directories"] = tags[_DIRECTORIES].ids()
        update["changed"] = tuple(_CHANGES[tag] for tag in sorted(tags) if tag in _CHANGES)
        decided = before.model_copy(update=update)
        self._partitions[topic_id, partition] = decided
        return decided


_LEADER, _RECOVERING, _DIRECTORIES = 1, 5, 8
_LISTS: Final = {0: "isr", 2: "replicas", 3: "removing", 4: "adding", 6: "elr", 7: "last_known_elr"}
_CHANGES: Final = {**_LISTS, _LEADER: "leader", _RECOVERING: "recovering", _DIRECTORIES: "directories"}


def _broker_registered(_log: MetadataLog, body: _BodyReader, when: _Position) -> MetadataRecord:
    node = body.number("i")
    if body.version >= 2:
        body.flag()  # whether it migrates from ZooKeeper
    incarnation, broker_epoch = body.id(), body.number("q")
    for _ in range(body.count() - 1):  # endpoints: name, host, port, protocol
        body.text()
        body.text()
        body.number("h")
        body.number("h")
        body.tagged()
    for _ in range(body.count() - 1):  # features: name, lowest, highest
        body.text()
        body.number("h")
        body.number("h")
        body.tagged()
    rack = body.text() or ""
    fenced = body.flag()
    controlled_shutdown = body.version >= 1 and body.flag()
    tags = body.tagged()
    return BrokerRegistered(
        **when,
        node=node,
        broker_epoch=broker_epoch,
        incarnation=incarnation,
        fenced=fenced,
        controlled_shutdown=controlled_shutdown,
        log_dirs=tags[0].ids() if 0 in tags else (),
        rack=rack,
    )


def _broker_unregistered(_log: MetadataLog, body: _BodyReader, when: _Position) -> MetadataRecord:
    node, broker_epoch = body.number("i"), body.number("q")
    body.tagged()
    return BrokerUnregistered(**when, node=node, broker_epoch=broker_epoch)


def _broker_change(_log: MetadataLog, body: _BodyReader, when: _Position) -> MetadataRecord:
    node, broker_epoch, tags = body.number("i"), body.number("q"), body.tagged()
    return BrokerChanged(
        **when,
        node=node,
        broker_epoch=broker_epoch,
        fenced=tags[0].number("b") > 0 if 0 in tags else None,
        controlled_shutdown=tags[1].number("b") > 0 if 1 in tags else None,
        log_dirs=tags[2].ids() if 2 in tags else None,
    )


def _feature(_log: MetadataLog, body: _BodyReader, when: _Position) -> MetadataRecord:
    feature, level = body.text() or "", body.number("h")
    body.tagged()
    return FeatureChanged(**when, feature=feature, level=level)


def _config(_log: MetadataLog, body: _BodyReader, when: _Position) -> MetadataRecord:
    resource, name, key, value = body.number("b"), body.text() or "", body.text() or "", body.text()
    body.tagged()
    return ConfigChanged(**when, resource=resource, name=name, key=key, value=value)


_DECODERS: Final[Mapping[int, Callable[[MetadataLog, _BodyReader, _Position], MetadataRecord]]] = {
    0: _broker_registered,
    1: _broker_unregistered,
    2: MetadataLog._topic,
    3: MetadataLog._partition,
    4: _config,
    5: MetadataLog._partition_change,
    9: MetadataLog._topic_removed,
    12: _feature,
    17: _broker_change,
    28: MetadataLog._eligible_cleared,
}
"""Decoder of each type of record that is decoded, by its API key."""


def decode(folder: Path) -> Iterator[MetadataRecord]:
    """Decode every record of a controller's log in `folder`, also those that are not committed. Yields nothing if there
    is no log.

    Raises `NotDecoded` for records in an unknown form, and for a log whose beginning was cut off after a snapshot.
    Raises ValueError for compressed or invalid records, OSError if a file cannot be read.
    """
    files = segments(folder)
    if files and files[0].base > 0:
        raise NotDecoded(f"{folder}: it begins at offset {files[0].base}, what was before is in a snapshot")
    yield from _decode(files)


def levels_in(checkpoint: Path) -> dict[str, int]:
    """Return feature name → level in force, from a formatted metadata checkpoint. Raises `NotDecoded` for a record
    in an unknown form, ValueError for compressed or invalid records, OSError if a file cannot be read."""
    decided = (one for one in _decode([Segment(checkpoint)]) if isinstance(one, FeatureChanged))
    return {one.feature: one.level for one in decided}


def _decode(files: Iterable[Segment]) -> Iterator[MetadataRecord]:
    log = MetadataLog()
    for segment in files:
        for batch in segment.batches():
            for record in records(segment.path, batch):
                when = {"offset": record.offset, "epoch": batch.epoch, "timestamp_ms": record.timestamp_ms}
                control = OtherEntry(**when, api_key=CONTROL) if batch.control else None
                yield control or log.decode(record.value or b"", when)
