"""`observed/metadata.jsonl`: the controllers' metadata log, record by record.

One JSON object a line, in the order of the log; `kind` is the type of record.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from ackproof.base.errors import BadInput
from ackproof.rundir.document import Document, write_atomically

Nodes: TypeAlias = tuple[int, ...]
CONTROL: Final = -1
"""API key of `OtherEntry` that stands for a control record of the metadata quorum, which has no API key."""


def parse_uuid(text: str) -> str:
    """Return a Kafka id (org.apache.kafka.common.Uuid, URL-safe base64) in hexadecimal UUID form; '' stays ''. Raises
    ValueError if the text is no such id."""
    return str(uuid.UUID(bytes=base64.urlsafe_b64decode(f"{text}=="))) if text else ""


class MetadataEntry(Document):
    """Fields of every record. `offset`: offset in the metadata log (in ZooKeeper mode: the zxid). `epoch`: epoch of the
    controller that wrote it (in ZooKeeper mode: 0 if the record is not of a partition). `timestamp_ms`: time of its
    append, ms since the Unix epoch."""

    offset: int
    epoch: int
    timestamp_ms: int


class TopicCreated(MetadataEntry):
    """A topic was created: TopicRecord (API key 2)."""

    kind: Literal["topic"] = "topic"
    topic: str
    topic_id: str


class TopicRemoved(MetadataEntry):
    """A topic was deleted: RemoveTopicRecord (API key 9)."""

    kind: Literal["topic-removed"] = "topic-removed"
    topic: str
    topic_id: str


class PartitionChanged(MetadataEntry):
    """State of a partition after a PartitionRecord (3) or PartitionChangeRecord (5). `leader` -1: no leader.

    The epochs are derived as in org.apache.kafka.metadata.PartitionRegistration.merge: each change increments the
    partition epoch, and each change that names a leader increments the leader epoch. In ZooKeeper mode, the znode has
    both. `changed`: fields that this record names; `created` for a new partition, `state` for any change of a znode.
    """

    kind: Literal["partition"] = "partition"
    topic: str
    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: Nodes
    isr: Nodes
    adding: Nodes = ()
    removing: Nodes = ()
    elr: Nodes = ()
    """Eligible leader replicas (KIP-966)."""
    last_known_elr: Nodes = ()
    recovering: bool = False
    """The leader was elected uncleanly and has not recovered its ISR yet."""
    directories: tuple[str, ...] = ()
    """Id of each replica's log dir, in the order of `replicas` (KIP-858); empty: unknown."""
    changed: tuple[str, ...] = ()


class BrokerRegistered(MetadataEntry):
    """A broker registered: RegisterBrokerRecord (API key 0). `incarnation`: id of the start of its process (in
    ZooKeeper mode: of its session, in hexadecimal)."""

    kind: Literal["broker-registered"] = "broker-registered"
    node: int
    broker_epoch: int
    incarnation: str
    fenced: bool
    controlled_shutdown: bool = False
    log_dirs: tuple[str, ...] = ()
    """Ids of the broker's online log dirs (KIP-858)."""
    rack: str = ""
    """Rack of the broker; '' none."""


class BrokerChanged(MetadataEntry):
    """A broker's registration changed: BrokerRegistrationChangeRecord (API key 17). A field is None if the record does
    not change it. In ZooKeeper mode the broker's znode was removed, and `fenced` is True."""

    kind: Literal["broker"] = "broker"
    node: int
    broker_epoch: int
    fenced: bool | None = None
    controlled_shutdown: bool | None = None
    log_dirs: tuple[str, ...] | None = None


class BrokerUnregistered(MetadataEntry):
    """A broker was unregistered: UnregisterBrokerRecord (API key 1)."""

    kind: Literal["broker-unregistered"] = "broker-unregistered"
    node: int
    broker_epoch: int


class FeatureChanged(MetadataEntry):
    """A feature such as metadata.version has a new level: FeatureLevelRecord (API key 12)."""

    kind: Literal["feature"] = "feature"
    feature: str
    level: int


class ConfigChanged(MetadataEntry):
    """A dynamic config changed: ConfigRecord (API key 4). `resource`: 2 a topic, 4 a broker (`name` '': all
    brokers). `value` None: reset to the default.
    """

    kind: Literal["config"] = "config"
    resource: int
    name: str
    key: str
    value: str | None


class EligibleCleared(MetadataEntry):
    """The eligible leader replicas (ELR) and last known leaders of a topic were cleared: ClearElrRecord (API key 28).
    `topic` '': of all topics. Written since Kafka 4.1 when min.insync.replicas changes."""

    kind: Literal["eligible-cleared"] = "eligible-cleared"
    topic: str


class OtherEntry(MetadataEntry):
    """A record of a type that this module does not decode. `api_key`: its type; `CONTROL` for a control
    record of the quorum (a leader change).
    """

    kind: Literal["other"] = "other"
    api_key: int


class LogEnded(MetadataEntry):
    """The last line of the file. `offset`: log end offset of the metadata log. `records`: number of lines before this.

    Files of older versions and of the simulator do not have it.
    """

    kind: Literal["end"] = "end"
    records: int


MetadataRecord: TypeAlias = Annotated[
    TopicCreated
    | TopicRemoved
    | PartitionChanged
    | BrokerRegistered
    | BrokerChanged
    | BrokerUnregistered
    | FeatureChanged
    | ConfigChanged
    | EligibleCleared
    | OtherEntry
    | LogEnded,
    Field(discriminator="kind"),
]
_RECORD: TypeAdapter[MetadataRecord] = TypeAdapter(MetadataRecord)


def write_metadata(path: Path, records: Iterable[MetadataRecord]) -> None:
    """Write the records to `path`, one line each; a reader sees the old file or the new one. Raises OSError if it
    cannot be written."""
    write_atomically(path, "".join(record.model_dump_json() + "\n" for record in records))


def read_metadata(path: Path) -> Iterator[MetadataRecord]:
    """Yield the records of a file that `write_metadata` wrote, also the `LogEnded` at its end. Raises `BadInput` if it
    is missing or unreadable."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    for number, line in enumerate(lines, start=1):
        try:
            yield _RECORD.validate_json(line)
        except ValueError as error:
            raise BadInput(f"{path}:{number}: not a record of the metadata log: {error}") from error
