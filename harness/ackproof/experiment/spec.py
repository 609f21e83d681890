"""The parts of an experiment as types: what a file says, with every default filled in (docs/experiments.md).

Durations are seconds, sizes bytes, rates records per second. The descriptions here are what editors show while a
file is being written (`ackproof.plan.schema`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from ackproof.base.advice import expected
from ackproof.base.units import Duration, Rate, Size, wrong
from ackproof.experiment.base import Config, Flag, Spec, Text, Whole, matching
from ackproof.experiment.client import ClientChoice, ClientField
from ackproof.experiment.group import GroupName, GroupSpec, ServiceSpec, ShareGroupSpec
from ackproof.experiment.kafka import DEFAULT, KRAFT, MODES, BrokerFileField, Kafka, KafkaBuild, MetadataMode
from ackproof.experiment.roles import FIRST_CONTROLLER, Members

Acks: TypeAlias = Literal["0", "1", "all"]

LONGEST_TOPIC: Final = 249

AUTO_CREATED: Final = {"partitions": "num.partitions", "replication_factor": "default.replication.factor"}
"""Fields that a topic takes from the brokers if they create it, each with the brokers' setting. Both are 1 by
default."""

_ACKS: Final = {0: "0", 1: "1", -1: "all", "0": "0", "1": "1", "-1": "all", "all": "all"}
_TOPIC: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}\Z")
_NODE: Final = re.compile(r"[0-9]{1,9}\Z")
_FEATURE: Final = re.compile(r"[a-z][a-z.]{0,99}\Z")


def _read_acks(value: object) -> object:
    if isinstance(value, (int, str)) and not isinstance(value, bool) and value in _ACKS:
        return _ACKS[value]
    raise wrong(expected("0, 1 or all"))


def _read_node(value: object) -> object:
    if isinstance(value, str) and _NODE.match(value):
        return int(value)
    return value


def _refuse_kraft(name: str) -> str:
    if name == KRAFT:
        raise wrong("kraft.version is no level to choose: it follows from how the quorum is formed")
    return name


def attached_topic(name: str, run_id: str) -> str:
    """Return the name that a run gives to the topic `name` on a cluster that ackproof did not start. It
    contains the first 10 characters of the run id."""
    return f"ackproof-{run_id[:10]}-{name}"


AcksField: TypeAlias = Annotated[
    Acks, BeforeValidator(_read_acks), WithJsonSchema({"enum": [0, 1, -1, "0", "1", "-1", "all"]})
]
TopicName: TypeAlias = Annotated[
    str,
    matching(_TOPIC, "a topic's name: up to 249 letters, digits, '.', '_' and '-'"),
    WithJsonSchema({"type": "string", "pattern": r"^[A-Za-z0-9._-]{1,249}$"}),
]
Features: TypeAlias = dict[
    Annotated[
        str,
        AfterValidator(_refuse_kraft),
        matching(_FEATURE, "the name of a feature, such as eligible.leader.replicas.version"),
        WithJsonSchema({"type": "string", "pattern": "^[a-z][a-z.]{0,99}$"}),
    ],
    Annotated[int, Field(strict=True, ge=0, le=32767)],
]
NodeId: TypeAlias = Annotated[int, BeforeValidator(_read_node), Field(strict=True, ge=1, le=2**31 - 1)]
_ONE_OR_MANY: Final = BeforeValidator(lambda value: value if isinstance(value, list | tuple) else (value,))
"""Turn a single value into a tuple of one, so that a file, or an axis of its matrix, need not write a list."""
NodeIds: TypeAlias = Annotated[
    tuple[NodeId, ...],
    _ONE_OR_MANY,
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}),
]
Racks: TypeAlias = Annotated[
    tuple[Text, ...],
    _ONE_OR_MANY,
    Field(max_length=50),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]


class ClusterSpec(Spec):
    """Description of the cluster under test: Kafka version, nodes, racks, settings and disks."""

    kafka: Kafka = Field(
        KafkaBuild(DEFAULT),
        description="Version of Kafka in quotes, or newest; or a build of your own (path), a release with a patch, an "
        "image.",
    )
    mode: Literal["kraft", "zookeeper"] = Field(
        "kraft", description="Who keeps the metadata: a KRaft quorum, or ZooKeeper (Kafka 3.9 and no later)."
    )
    brokers: Whole = Field(3, ge=1, le=50, description="How many brokers; their ids are 1, 2, …")
    controllers: Whole = Field(
        1,
        json_schema_extra={"enum": [1, 3, 5]},
        description="How many isolated controllers (1, 3 or 5); their ids are 101, 102, … "
        "Ignored when combined. In ZooKeeper mode: how many ZooKeeper servers.",
    )
    combined: Flag = Field(False, description="Every broker is a controller too.")
    racks: tuple[Text, ...] = Field(
        (), max_length=50, description="Racks, assigned round-robin to the nodes of each kind."
    )
    controller_racks: Racks = Field((), description="Racks of the controllers, if they differ from `racks`.")
    rack_aware: Flag = Field(True, description="Tell brokers their rack: Kafka spreads replicas over racks.")
    start_order: NodeIds = Field(
        (),
        description="Brokers that start first, in this order: each after its predecessor is registered and unfenced.",
    )
    timing: Literal["chaos", "script", "kafka"] = Field(
        "chaos",
        description="Default time-outs: short ones that suit experiments, such that nothing happens by itself while a "
        "script goes on, or Kafka's own.",
    )
    settings_from: BrokerFileField = Field(
        None,
        description="A broker file of your own (server.properties), relative to this file: its settings come below "
        "config, and timing is kafka unless given.",
    )
    config: Config = Field(default_factory=dict, description="Kafka settings of every node.")
    broker_config: dict[NodeId, Config] = Field(
        default_factory=dict, description="Kafka settings of single brokers, by their id."
    )
    features: Features = Field(
        default_factory=dict,
        description="Feature levels other than the release's own, such as eligible.leader.replicas.version: 0.",
    )
    log_dirs: Whole = Field(
        1, ge=1, le=8, description="Log dirs of each broker (JBOD); with several metadata has one of its own."
    )
    disk: Size = Field(
        4 << 30,
        ge=64 << 20,
        le=1 << 40,
        description="Size of the file system of its own that each node gets if a fault needs one.",
    )
    heap: Size = Field(256 << 20, ge=64 << 20, le=64 << 30, description="Java heap of each node.")
    _of_groups: dict[str, str] = PrivateAttr(default_factory=dict)

    @field_validator("controllers")
    @classmethod
    def _quorum(cls, value: int) -> int:
        if value not in (1, 3, 5):
            raise wrong(f"expected 1, 3 or 5 controllers, not {value}")
        return value

    @property
    def of_groups(self) -> dict[str, str]:
        """Broker settings that the experiment's groups need, as `serve` set them. Settings of `timing`, `config` and
        `broker_config` override them."""
        return self._of_groups

    def serve(self, groups: Iterable[GroupSpec | ShareGroupSpec]) -> None:
        """Set `of_groups` to the broker settings that these groups need. If groups need different values of a setting,
        the last group decides."""
        self._of_groups = {}
        for group in groups:
            self._of_groups |= group.broker_settings

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(range(1, self.brokers + 1))

    @property
    def controller_ids(self) -> tuple[int, ...]:
        """Node ids of controllers or ZooKeeper servers: the brokers' ids in combined mode, else from 101."""
        if self.combined:
            return self.broker_ids
        return tuple(range(FIRST_CONTROLLER, FIRST_CONTROLLER + self.controllers))

    @property
    def kafka_ids(self) -> tuple[int, ...]:
        """Node ids of nodes that run Kafka: brokers and controllers, but not ZooKeeper servers."""
        others = () if self.metadata.broker_controls else self.controller_ids
        return tuple(dict.fromkeys((*self.broker_ids, *others)))

    @property
    def metadata(self) -> MetadataMode:
        return MODES[self.mode]

    @property
    def members(self) -> Members:
        """The ids and racks of the cluster's nodes. Partition leaders and the active controller are left at -1
        (unknown)."""
        return Members.in_racks(self.broker_ids, self.controller_ids, self.racks, self.controller_racks)

    def rack_of(self, broker: int) -> str:
        """Return the rack that a broker is configured with; '' if it has none, or without `rack_aware`."""
        return self.members.racks.get(broker, "") if self.rack_aware else ""


class TopicSpec(Spec):
    """One topic. With an `assignment`, its partitions and replication factor follow from the assignment unless
    given."""

    partitions: Whole = Field(1, ge=1, le=10_000, description="How many partitions.")
    replication_factor: Whole = Field(3, ge=1, le=50, description="Replicas of each partition.")
    assignment: tuple[tuple[NodeId, ...], ...] | None = Field(
        None, max_length=10_000, description="Brokers of each partition's replicas, preferred leader first."
    )
    config: Config = Field(default_factory=dict, description="Kafka settings of the topic.")
    auto_created: Flag = Field(
        False,
        description="A broker creates it at the first request for it, with its num.partitions and "
        "default.replication.factor.",
    )

    @model_validator(mode="before")
    @classmethod
    def _follow_assignment(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        rows = data.get("assignment")
        if not isinstance(rows, (list, tuple)) or not rows or not isinstance(rows[0], (list, tuple)):
            return data
        return {"partitions": len(rows), "replication_factor": len(rows[0]), **data}


class ProducerSpec(Spec):
    """The producers, each a process of its own."""

    client: ClientField = Field(
        default_factory=ClientChoice,
        description="Client library of the producers: librdkafka, java, or {java: RELEASE}.",
    )
    count: Whole = Field(1, ge=1, le=100, description="How many producers.")
    acks: AcksField = Field("all", description="Whose acknowledgement counts: 0, 1 or all.")
    idempotence: Flag = Field(
        False, description="enable.idempotence: no duplicates, no reordering by retries."
    )
    retries: Whole | None = Field(
        None, ge=0, le=2**31 - 1, description="Retries of a batch; without it the client's default."
    )
    in_flight: Whole | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="Requests in flight per connection; without it the client's default.",
    )
    linger: Duration = Field(0.005, le=900, description="How long a batch waits for more records.")
    batch_size: Size | None = Field(None, ge=1, le=2**31 - 1, description="Most bytes of a batch.")
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = Field(
        "none", description="Codec of a batch."
    )
    rate: Rate = Field(None, description="Records per second of all producers together, or full.")
    value_size: Size = Field(100, ge=1, le=64 << 20, description="Size of each record's value.")
    delivery_timeout: Duration = Field(
        30.0, gt=0, description="How long a record may be tried before its delivery counts as failed."
    )
    request_timeout: Duration | None = Field(None, gt=0, description="How long a broker may take to answer.")
    topics: tuple[Text, ...] | None = Field(
        None, min_length=1, description="Topics written to; all by default."
    )
    keys: Whole | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="How many keys the records of a producer have, in turn; without it none has one.",
    )
    tombstone_every: Whole | None = Field(
        None, ge=2, le=1_000_000, description="Every Nth record of a key is a tombstone: it has no value."
    )
    transaction_size: Whole | None = Field(
        None, ge=1, le=1_000_000, description="Records of a transaction; without it there are none."
    )
    abort_share: float = Field(
        0.0, ge=0, le=1, description="Share of the transactions that are aborted on purpose."
    )
    transaction_timeout: Duration = Field(
        10.0, ge=1, le=900, description="After how long the coordinator aborts an open transaction."
    )
    config: Config = Field(default_factory=dict, description="Further settings of the client library.")


class ConsumerSpec(Spec):
    """The live readers, which read while producers write, each a process of its own. The final read after the load
    takes place in any case."""

    client: ClientField = Field(
        default_factory=ClientChoice,
        description="Client library of the live readers: librdkafka, java, or {java: RELEASE}. The final read is "
        "always by librdkafka.",
    )
    live: Whole = Field(0, ge=0, le=100, description="How many readers read while the load goes on.")
    isolation: Literal["read_uncommitted", "read_committed"] = Field(
        "read_uncommitted", description="isolation.level of the live readers."
    )
    racks: Racks = Field((), description="Racks of the readers (client.rack), assigned round-robin.")
    commit_every: Duration | None = Field(
        None,
        ge=0.01,
        le=600,
        description="Interval at which each reader commits the offsets that it has read, and waits for the "
        "response. Without it, none commits.",
    )
    start: Literal["earliest", "committed"] = Field(
        "earliest",
        description="Where a reader starts: at the beginning of each log, or at the committed offset of its group, if "
        "it has one. A reader that replaces a killed one takes over its group.",
    )
    config: Config = Field(default_factory=dict, description="Further settings of the client library.")

    def config_of(self, reader: int) -> Config:
        """Return the settings of one reader (counted from 0), with its rack unless `config` sets `client.rack`."""
        return (
            {"client.rack": self.racks[reader % len(self.racks)], **self.config}
            if self.racks
            else self.config
        )


class WorkloadSpec(Spec):
    """The load: producers, live readers, a service under test, consumer groups and share groups."""

    producers: ProducerSpec = Field(default_factory=ProducerSpec, description="The producers.")
    consumers: ConsumerSpec = Field(default_factory=ConsumerSpec, description="The live readers.")
    service: ServiceSpec | None = Field(None, title="Service", description="A service under test.")
    groups: dict[GroupName, GroupSpec] = Field(
        default_factory=dict, title="Groups", description="Consumer groups, by their group id."
    )
    share_groups: dict[GroupName, ShareGroupSpec] = Field(
        default_factory=dict, title="Share groups", description="Share groups, by their group id."
    )
    duration: Duration = Field(
        15.0, gt=0, description="How long the load lasts at least; it goes on until all faults have healed."
    )
