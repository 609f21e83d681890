"""Settings that an experiment may not give, and the settings of topics with the values that brokers accept.

Validation reads both for a file; the renderers of nodes and clients read the first table once more for what reaches
them. Topic settings are those of `LogConfig` (releases 3.9 to 4.4). A broker refuses a topic with any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from ackproof.experiment.backends import BACKENDS
from ackproof.experiment.kafka import numbers
from ackproof.experiment.problems import nearest, shorten

if TYPE_CHECKING:
    from ackproof.experiment.experiment import ExperimentSpec


class Scope(StrEnum):
    """Owner of a setting."""

    BROKER = "broker"
    """A node's: brokers, controllers, and the brokers of ZooKeeper mode."""
    TOPIC = "topic"
    PRODUCER = "producer"
    CONSUMER = "consumer"


class ReservedSetting(NamedTuple):
    """A setting that an experiment may not give."""

    name: str
    """Its name; with a dot at its end, how the names of a group begin."""
    scopes: frozenset[Scope]
    why: str

    def covers(self, scope: Scope, name: str) -> bool:
        """Return True if it is about this setting."""
        return scope in self.scopes and (
            name.startswith(self.name) if self.name[-1] == "." else name == self.name
        )


def _rows(scopes: str, why: str, *names: str) -> tuple[ReservedSetting, ...]:
    return tuple(ReservedSetting(name, frozenset(map(Scope, scopes.split())), why) for name in names)


def _field(field: str, *names: str) -> tuple[ReservedSetting, ...]:
    return _rows("producer", f"use the field {field}", *names)


_CODE: Final = "a file holds data and no code"
_SECRET: Final = "a run directory would keep it; what lets clients in comes from --client-config"
KEPT: Final = "a run directory would keep it"

RESERVED: Final = (
    *_rows("broker", "it gives out ids and roles", "process.roles", "node.id", "broker.id"),
    *_rows("broker", "it gives out ids and roles", "broker.id.generation.enable", "reserved.broker.max.id"),
    *_rows("broker", "cluster.controllers says how many controllers there are", "controller.quorum.voters"),
    *_rows("broker", "cluster.controllers says who votes", "controller.quorum.bootstrap.servers"),
    *_rows("broker", "cluster.controllers says who votes", "controller.quorum.auto.join.enable"),
    *_rows("broker", "it gives out addresses", "listeners", "advertised.listeners", "early.start.listeners"),
    *_rows("broker", "it gives out addresses", "controller.listener.names", "control.plane.listener.name"),
    *_rows("broker", "links between nodes must be known to it", "inter.broker.listener.name"),
    *_rows("broker", "data go into the run directory", "log.dir", "log.dirs", "metadata.log.dir"),
    *_rows("broker", "use the field cluster.racks", "broker.rack"),
    *_rows("broker", "it asks the nodes without credentials", "authorizer.class.name"),
    *_rows(
        "broker",
        "it talks to the nodes without encryption or credentials",
        *(
            "listener.security.protocol.map",
            "security.inter.broker.protocol",
            "listener.name.",
            "sasl.",
            "ssl.",
        ),
        *("zookeeper.ssl.", "zookeeper.clientCnxnSocket"),
    ),
    *_rows("broker", KEPT, "password.encoder.secret", "password.encoder.old.secret"),
    *_rows("broker", KEPT, "delegation.token.secret.key", "delegation.token.master.key"),
    *_rows("broker", "cluster.mode says whether there is ZooKeeper", "zookeeper.connect"),
    *_rows("broker", "the cluster stays in its mode", "zookeeper.metadata.migration.enable"),
    *_rows("topic", "its brokers have no tiered storage", "remote.storage.enable", "remote.log.copy.disable"),
    *_rows(
        "producer consumer",
        "it knows the addresses of the cluster",
        "bootstrap.servers",
        "metadata.broker.list",
    ),
    *_rows("producer consumer", "it tells its clients apart by it", "client.id"),
    *_rows("producer consumer", _SECRET, "sasl.", "ssl.", "security.", "enable.ssl.", "enable.sasl."),
    *_rows(
        "producer consumer", _CODE, "plugin.library.paths", "logger", "error_cb", "stats_cb", "throttle_cb"
    ),
    *_rows("producer consumer", _CODE, "oauth_cb", "on_delivery", "on_commit", "partitioner_cb"),
    *_field("acks", "acks", "request.required.acks"),
    *_field("idempotence", "enable.idempotence"),
    *_field("retries", "retries", "message.send.max.retries"),
    *_field("in_flight", "max.in.flight", "max.in.flight.requests.per.connection"),
    *_field("linger", "linger.ms", "queue.buffering.max.ms"),
    *_field("batch_size", "batch.size"),
    *_field("compression", "compression.type", "compression.codec"),
    *_field("delivery_timeout", "delivery.timeout.ms", "message.timeout.ms"),
    *_field("request_timeout", "request.timeout.ms"),
    *_field("transaction_size", "transactional.id"),
    *_field("transaction_timeout", "transaction.timeout.ms"),
    *_rows("producer", "every record's outcome is written down", "delivery.report.only.error"),
    *_rows("consumer", "use the field isolation", "isolation.level"),
    *_rows("consumer", "a reset must be seen, never silent", "auto.offset.reset"),
    *_rows("consumer", "readers assign their partitions themselves", "enable.auto.commit", "group.id"),
    *_rows("consumer", "readers assign their partitions themselves", "enable.auto.offset.store"),
    *_rows("consumer", "readers need it as it is", "enable.partition.eof"),
)
"""Every such setting, and why."""


def why_reserved(scope: Scope, name: str) -> str | None:
    """Why an experiment may not give this setting, without its name; None if it may."""
    return next((row.why for row in RESERVED if row.covers(scope, name)), None)


def refusal(scope: Scope, name: str) -> str | None:
    """The same as a sentence."""
    why = why_reserved(scope, name)
    if why is None:
        return None
    return (
        f"'{name}' has no place in a file: {why}"
        if why in (_SECRET, KEPT)
        else f"ackproof sets '{name}' itself: {why}"
    )


def field_of(name: str) -> str | None:
    """The field of `workload.producers` that stands for a setting of librdkafka's producer."""
    why = next((row.why for row in RESERVED if row.covers(Scope.PRODUCER, name)), "")
    return why.removeprefix("use the field ") if why.startswith("use the field ") else None


_INT: Final = 2**31 - 1
_LONG: Final = 2**63 - 1


@dataclass(frozen=True)
class _SettingValues:
    """Values of a setting, in words and as a test."""

    text: str
    accepts: Callable[[str], bool]


def _number(low: int = -_LONG - 1, high: int = _LONG, *, whole: bool = True) -> _SettingValues:
    def accepts(text: str) -> bool:
        if "_" in text or not text.isascii():
            return False
        try:
            return low <= (int(text) if whole else float(text)) <= high
        except ValueError:
            return False

    kind = "a whole number" if whole else "a number"
    if high >= _INT:
        return _SettingValues(f"{kind} from {low} up" if low > -_INT - 1 else kind, accepts)
    return _SettingValues(f"{kind} from {low} to {high}", accepts)


def _words(*words: str, several: bool = False) -> _SettingValues:
    """`several`: a comma-separated list of them."""
    return _SettingValues(
        f"{'one or more' if several else 'one'} of {', '.join(words)}",
        lambda text: all(part.strip() in words for part in text.split(",")) if several else text in words,
    )


_FLAG: Final = _SettingValues("true or false", lambda text: text.strip().lower() in ("true", "false"))
_ANY: Final = _SettingValues("a value of the broker's own grammar", lambda text: True)
_MS: Final = _number(0)

TOPIC_SETTINGS: Final[Mapping[str, _SettingValues]] = {
    "cleanup.policy": _words("compact", "delete", several=True),
    "compression.gzip.level": _number(-1, 9),
    "compression.lz4.level": _number(1, 17),
    "compression.type": _words("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "compression.zstd.level": _number(-131072, 22),
    "delete.retention.ms": _MS,
    "errors.deadletterqueue.group.enable": _FLAG,
    "file.delete.delay.ms": _MS,
    "flush.messages": _number(1),
    "flush.ms": _MS,
    "follower.replication.throttled.replicas": _ANY,
    "index.interval.bytes": _number(0, _INT),
    "internal.segment.bytes": _number(1, _INT),
    "leader.replication.throttled.replicas": _ANY,
    "local.retention.bytes": _number(-2),
    "local.retention.ms": _number(-2),
    "max.compaction.lag.ms": _number(1),
    "max.decompressed.message.bytes": _number(1, _INT - 8),
    "max.message.bytes": _number(0, _INT),
    "message.downconversion.enable": _FLAG,
    "message.format.version": _ANY,
    "message.timestamp.after.max.ms": _MS,
    "message.timestamp.before.max.ms": _MS,
    "message.timestamp.difference.max.ms": _MS,
    "message.timestamp.type": _words("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": _number(0, 1, whole=False),
    "min.compaction.lag.ms": _MS,
    "min.insync.replicas": _number(1, _INT),
    "preallocate": _FLAG,
    "remote.copy.lag.bytes": _number(-1),
    "remote.copy.lag.ms": _number(-1),
    "remote.log.copy.disable": _FLAG,
    "remote.log.delete.on.disable": _FLAG,
    "remote.storage.enable": _FLAG,
    "retention.bytes": _number(),
    "retention.ms": _number(-1),
    "segment.bytes": _number(1 << 20, _INT),
    "segment.index.bytes": _number(4, _INT),
    "segment.jitter.ms": _MS,
    "segment.ms": _number(1),
    "unclean.leader.election.enable": _FLAG,
}
"""Every topic setting and its values."""

_UNTIL_3_9: Final = frozenset(
    {"message.downconversion.enable", "message.format.version", "message.timestamp.difference.max.ms"}
)
_SINCE: Final[Mapping[str, tuple[int, int]]] = {
    "errors.deadletterqueue.group.enable": (4, 4),
    "internal.segment.bytes": (4, 1),
    "max.decompressed.message.bytes": (4, 4),
    "remote.copy.lag.bytes": (4, 4),
    "remote.copy.lag.ms": (4, 4),
}
_BEFORE_4_1: Final[Mapping[str, _SettingValues]] = {"segment.bytes": _number(14, _INT)}


class SettingProblem(NamedTuple):
    """Objection of a broker to a topic's setting: to its name, else to its value."""

    message: str
    name: bool = True
    nearest: str | None = None


def wrong_topic_setting(name: str, value: str, spec: ExperimentSpec) -> SettingProblem | None:
    """Return the objection of the experiment's brokers to a topic's setting; None if they accept it.

    Which release someone else's cluster has is not known, nor which settings an unknown release has: there only a near
    miss of a known name is wrong.
    """
    near = nearest(name, TOPIC_SETTINGS, cutoff=0.8)
    foreign, build = BACKENDS[spec.backend].foreign, spec.cluster.kafka
    kafka, unknown = build.version, foreign or not build.is_known
    if name not in TOPIC_SETTINGS:
        return (
            None
            if unknown and near is None
            else SettingProblem(f"Kafka has no topic setting '{name}'", nearest=near)
        )
    if unknown:
        return None
    line = numbers(kafka)[:2]
    if (why := refusal(Scope.TOPIC, name)) is not None:
        return SettingProblem(why)
    if name in _UNTIL_3_9 and line >= (4, 0):
        return SettingProblem(f"Kafka {kafka} has no {name}; 3.9 was the last with it")
    if line < (since := _SINCE.get(name, line)):
        return SettingProblem(f"Kafka {kafka} has no {name}; it came with {'.'.join(map(str, since))}")
    values = (_BEFORE_4_1 if line < (4, 1) else {}).get(name, TOPIC_SETTINGS[name])
    return (
        None
        if values.accepts(value)
        else SettingProblem(f"expected {values.text}, not '{shorten(value)}'", name=False)
    )
