"""Settings that an experiment must not set, and the topic settings with the values that brokers accept.

Both tables serve the check of a file. The code that renders the settings of nodes and clients checks them against the
first table again. Topic settings are those of `LogConfig` (releases 3.9 to 4.4). A broker refuses a topic with any
other setting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from ackproof.base.advice import Advice
from ackproof.experiment.kafka import numbers
from ackproof.experiment.problems import nearest, shorten

if TYPE_CHECKING:
    from ackproof.experiment.experiment import ExperimentSpec


class Scope(StrEnum):
    """Scope of a Kafka setting: a node, a topic, a producer or a consumer."""

    BROKER = "broker"
    """Settings of nodes: brokers, controllers, and the brokers of ZooKeeper mode."""
    TOPIC = "topic"
    PRODUCER = "producer"
    CONSUMER = "consumer"


_CODE: Final = "a file holds data and no code"
_BYTES: Final = "keys and values are bytes"
_SECRET: Final = Advice("a run directory would keep it", "what lets clients in comes from --client-config")
KEPT: Final = "a run directory would keep it"
_PLAIN_TEXT: Final = "it talks to the nodes without encryption or credentials"
_FIELD: Final = "use the field "

_RESERVED: Final[tuple[tuple[str, ...], ...]] = (
    ("broker", "it gives out ids and roles", "process.roles", "node.id", "broker.id"),
    ("broker", "it gives out ids and roles", "broker.id.generation.enable", "reserved.broker.max.id"),
    ("broker", "cluster.controllers says how many controllers there are", "controller.quorum.voters"),
    ("broker", "cluster.controllers says who votes", "controller.quorum.bootstrap.servers"),
    ("broker", "cluster.controllers says who votes", "controller.quorum.auto.join.enable"),
    ("broker", "it gives out addresses", "listeners", "advertised.listeners", "early.start.listeners"),
    ("broker", "it gives out addresses", "controller.listener.names", "control.plane.listener.name"),
    ("broker", "links between nodes must be known to it", "inter.broker.listener.name"),
    ("broker", "data go into the run directory", "log.dir", "log.dirs", "metadata.log.dir"),
    ("broker", "use the field cluster.racks", "broker.rack"),
    ("broker", "it asks the nodes without credentials", "authorizer.class.name"),
    ("broker", _PLAIN_TEXT, "listener.security.protocol.map", "security.inter.broker.protocol"),
    (
        "broker",
        _PLAIN_TEXT,
        "listener.name.",
        "sasl.",
        "ssl.",
        "zookeeper.ssl.",
        "zookeeper.clientCnxnSocket",
    ),
    ("broker", KEPT, "password.encoder.secret", "password.encoder.old.secret"),
    ("broker", KEPT, "delegation.token.secret.key", "delegation.token.master.key"),
    ("broker", "cluster.mode says whether there is ZooKeeper", "zookeeper.connect"),
    ("broker", "the cluster stays in its mode", "zookeeper.metadata.migration.enable"),
    ("topic", "its brokers have no tiered storage", "remote.storage.enable", "remote.log.copy.disable"),
    (
        "producer consumer",
        "it knows the addresses of the cluster",
        "bootstrap.servers",
        "metadata.broker.list",
    ),
    ("producer consumer", "it tells its clients apart by it", "client.id"),
    ("producer consumer", _SECRET, "sasl.", "ssl.", "security.", "enable.ssl.", "enable.sasl."),
    ("producer consumer", _CODE, "plugin.library.paths", "logger", "error_cb", "stats_cb", "throttle_cb"),
    ("producer consumer", _CODE, "interceptor.classes", "metric.reporters", "config.providers"),
    ("producer", "the harness chooses each partition", "partitioner.class"),
    ("producer", "it decides for how long a call may block", "max.block.ms"),
    ("producer", _BYTES, "key.serializer", "value.serializer"),
    ("consumer", _BYTES, "key.deserializer", "value.deserializer"),
    ("producer consumer", _CODE, "oauth_cb", "on_delivery", "on_commit", "partitioner_cb"),
    ("producer", f"{_FIELD}acks", "acks", "request.required.acks"),
    ("producer", f"{_FIELD}idempotence", "enable.idempotence"),
    ("producer", f"{_FIELD}retries", "retries", "message.send.max.retries"),
    ("producer", f"{_FIELD}in_flight", "max.in.flight", "max.in.flight.requests.per.connection"),
    ("producer", f"{_FIELD}linger", "linger.ms", "queue.buffering.max.ms"),
    ("producer", f"{_FIELD}batch_size", "batch.size"),
    ("producer", f"{_FIELD}compression", "compression.type", "compression.codec"),
    ("producer", f"{_FIELD}delivery_timeout", "delivery.timeout.ms", "message.timeout.ms"),
    ("producer", f"{_FIELD}request_timeout", "request.timeout.ms"),
    ("producer", f"{_FIELD}transaction_size", "transactional.id"),
    ("producer", f"{_FIELD}transaction_timeout", "transaction.timeout.ms"),
    ("producer", "every record's outcome is written down", "delivery.report.only.error"),
    ("consumer", "use the field isolation", "isolation.level"),
    ("consumer", "a reset must be seen, never silent", "auto.offset.reset"),
    ("consumer", "readers assign their partitions themselves", "enable.auto.commit", "group.id"),
    ("consumer", "readers assign their partitions themselves", "enable.auto.offset.store"),
    ("consumer", "readers need it as it is", "enable.partition.eof"),
)
"""Rows: scopes separated by spaces, reason, and names. Settings of clients are those of librdkafka and of the Java
client."""
RESERVED: Final[Mapping[Scope, Mapping[str, str]]] = {
    scope: {name: why for scopes, why, *names in _RESERVED if scope in scopes.split() for name in names}
    for scope in Scope
}
"""Scope → name → why an experiment may not give the setting. A name that ends in a dot stands for all names that begin
with it."""


def why_reserved(scope: Scope, name: str) -> str | None:
    """Return the reason why an experiment must not set this setting; None if it may.

    The reason does not repeat the setting's name (see `refusal` for a whole sentence).
    """
    return next(
        (
            why
            for known, why in RESERVED[scope].items()
            if name == known or (known[-1] == "." and name.startswith(known))
        ),
        None,
    )


def refusal(scope: Scope, name: str) -> Advice | None:
    """Return a sentence that says why an experiment must not set this setting; None if it may."""
    why = why_reserved(scope, name)
    if why is None:
        return None
    kept = why in (_SECRET, KEPT)
    return Advice(why).after(
        f"'{name}' has no place in a file: " if kept else f"ackproof sets '{name}' itself: "
    )


def field_of(name: str) -> str | None:
    """Return the field of `workload.producers` that replaces a setting of a producer library; None if there is no such
    field."""
    why = why_reserved(Scope.PRODUCER, name) or ""
    return why.removeprefix(_FIELD) if why.startswith(_FIELD) else None


_INT: Final = 2**31 - 1
_LONG: Final = 2**63 - 1


_Values: TypeAlias = tuple[str, Callable[[str], bool]]
"""Accepted values of a setting: their description in words, and a function that returns True for an accepted text."""


def _number(low: int = -_LONG - 1, high: int = _LONG, *, whole: bool = True) -> _Values:
    def accepts(text: str) -> bool:
        if "_" in text or not text.isascii():
            return False
        try:
            return low <= (int(text) if whole else float(text)) <= high
        except ValueError:
            return False

    kind = "a whole number" if whole else "a number"
    if high >= _INT:
        return (f"{kind} from {low} up" if low > -_INT - 1 else kind, accepts)
    return (f"{kind} from {low} to {high}", accepts)


def _words(*words: str, several: bool = False) -> _Values:
    """Return a description and a test of a setting's value, which must be one of `words`. `several`: a comma-separated
    list of these words is accepted too."""
    return (
        f"{'one or more' if several else 'one'} of {', '.join(words)}",
        lambda text: all(part.strip() in words for part in text.split(",")) if several else text in words,
    )


_FLAG: Final = ("true or false", lambda text: text.strip().lower() in ("true", "false"))
_ANY: Final = ("a value of the broker's own grammar", lambda text: True)
_MS: Final = _number(0)

TOPIC_SETTINGS: Final[Mapping[str, _Values]] = {
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
"""Every topic setting of any release from 3.9 to 4.4, with its accepted values in the newest release that has it."""

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
_BEFORE_4_1: Final[Mapping[str, _Values]] = {"segment.bytes": _number(14, _INT)}


def wrong_topic_setting(name: str, value: str, spec: ExperimentSpec) -> tuple[Advice, bool] | None:
    """Return an objection that the experiment's brokers would have to a setting of a topic; None if they accept it.

    The objection is (message, True if it is about the name rather than the value). On a cluster that ackproof did not
    start, or with an unknown release, the valid settings are not known. Then only a name that nearly is the name of a
    known setting is objected to.
    """
    kafka = spec.cluster.kafka
    unknown = spec.ground.foreign or not kafka.is_known
    if name not in TOPIC_SETTINGS:
        near = nearest(name, TOPIC_SETTINGS, cutoff=0.8)
        missing = Advice(f"Kafka has no topic setting '{name}'", suggestion=near)
        return None if unknown and near is None else (missing, True)
    if unknown:
        return None
    line = numbers(kafka.version)[:2]
    if (why := refusal(Scope.TOPIC, name)) is not None:
        return why, True
    if name in _UNTIL_3_9 and line >= (4, 0):
        return Advice(f"Kafka {kafka.version} has no {name}", "3.9 was the last with it"), True
    if line < (since := _SINCE.get(name, line)):
        came = f"it came with {'.'.join(map(str, since))}"
        return Advice(f"Kafka {kafka.version} has no {name}", came), True
    text, accepts = (_BEFORE_4_1 if line < (4, 1) else {}).get(name, TOPIC_SETTINGS[name])
    return None if accepts(value) else (Advice(f"expected {text}, not '{shorten(value)}'"), False)
