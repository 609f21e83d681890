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
from ackproof.rundir.documents import Document, write_atomically

Nodes: TypeAlias = tuple[int, ...]
CONTROL: Final = -1
"""API key that stands for a control record of the quorum, which has none."""


def parse_uuid(text: str) -> str:
    """Convert an id in URL-safe base64 (org.apache.kafka.common.Uuid) to the form of this file; '' stays ''.

    Raises ValueError if the text is not such an id.
    """
    return str(uuid.UUID(bytes=base64.urlsafe_b64decode(f"{text}=="))) if text else ""


class MetadataEntry(Document):
    """Fields of every record: `offset` in the metadata log, `epoch` of the controller, `timestamp_ms` of the
    append."""

    offset: int
    epoch: int
    timestamp_ms: int


class TopicCreated(MetadataEntry):
    """TopicRecord (2)."""

    kind: Literal["topic"] = "topic"
    topic: str
    topic_id: str


class TopicRemoved(MetadataEntry):
    """RemoveTopicRecord (9)."""

    kind: Literal["topic-removed"] = "topic-removed"
    topic: str
    topic_id: str


class PartitionChanged(MetadataEntry):
    """State of a partition after a PartitionRecord (3) or PartitionChangeRecord (5).

    The epochs are derived as in org.apache.kafka.metadata.PartitionRegistration.merge: each change increments the
    partition epoch, and each change that names a leader increments the leader epoch. `changed`: fields that this
    record names.
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
    """RegisterBrokerRecord (0)."""

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
    """BrokerRegistrationChangeRecord (17). A field is None if the record does not change it."""

    kind: Literal["broker"] = "broker"
    node: int
    broker_epoch: int
    fenced: bool | None = None
    controlled_shutdown: bool | None = None
    log_dirs: tuple[str, ...] | None = None


class BrokerUnregistered(MetadataEntry):
    """UnregisterBrokerRecord (1)."""

    kind: Literal["broker-unregistered"] = "broker-unregistered"
    node: int
    broker_epoch: int


class FeatureChanged(MetadataEntry):
    """FeatureLevelRecord (12)."""

    kind: Literal["feature"] = "feature"
    feature: str
    level: int


class ConfigChanged(MetadataEntry):
    """ConfigRecord (4). `resource`: 2 a topic, 4 a broker (name '': all brokers). `value` None: reset to the
    default."""

    kind: Literal["config"] = "config"
    resource: int
    name: str
    key: str
    value: str | None


class EligibleCleared(MetadataEntry):
    """ClearElrRecord (28): clears the eligible leader replicas and last known leaders of a topic's partitions; topic
    '': of all topics. Written since 4.1 when min.insync.replicas changes."""

    kind: Literal["eligible-cleared"] = "eligible-cleared"
    topic: str


class OtherEntry(MetadataEntry):
    """A record of another type, by its API key. `CONTROL`: a record that the quorum wrote for itself (a leader
    change)."""

    kind: Literal["other"] = "other"
    api_key: int


class LogEnded(MetadataEntry):
    """The last line of the file: the log ended at `offset`, and `records` lines precede this one.

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
    """Write the records to `path`, in one step."""
    write_atomically(path, "".join(record.model_dump_json() + "\n" for record in records))


def read_metadata(path: Path) -> Iterator[MetadataRecord]:
    """Yield the records. Raises `BadInput` if the file is missing or cannot be read."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    for number, line in enumerate(lines, start=1):
        try:
            yield _RECORD.validate_json(line)
        except ValueError as error:
            raise BadInput(f"{path}:{number}: not a record of the metadata log: {error}") from error
