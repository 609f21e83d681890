"""Names of settings that the checks know: those that ackproof makes itself, and Kafka's topic settings."""

from __future__ import annotations

from typing import Final

_FIELD: Final = "use the field {}"

NODE_SETTINGS: Final[dict[str, str]] = dict.fromkeys(
    (
        "node.id",
        "broker.id",
        "process.roles",
        "listeners",
        "advertised.listeners",
        "listener.security.protocol.map",
        "inter.broker.listener.name",
        "security.inter.broker.protocol",
        "controller.listener.names",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
        "zookeeper.connect",
    ),
    "it gives out ids, roles and addresses",
) | {
    "log.dir": "data go into the run directory",
    "log.dirs": "data go into the run directory",
    "metadata.log.dir": "data go into the run directory",
    "broker.rack": _FIELD.format("cluster.racks"),
}
"""Settings of a node that an experiment may not give, and why."""

OF_SECURITY: Final = ("sasl.", "ssl.", "security.", "enable.ssl.", "enable.sasl.")
"""How settings of clients begin that may hold a secret: an experiment's settings stand in every run directory."""

_CLIENT: Final[dict[str, str]] = {
    "bootstrap.servers": "it knows the addresses of the cluster",
    "metadata.broker.list": "it knows the addresses of the cluster",
}

PRODUCER_SETTINGS: Final[dict[str, str]] = _CLIENT | {
    name: _FIELD.format(field)
    for field, names in {
        "acks": ("acks", "request.required.acks"),
        "idempotence": ("enable.idempotence",),
        "retries": ("retries", "message.send.max.retries"),
        "in_flight": ("max.in.flight", "max.in.flight.requests.per.connection"),
        "linger": ("linger.ms", "queue.buffering.max.ms"),
        "batch_size": ("batch.size",),
        "compression": ("compression.type", "compression.codec"),
        "delivery_timeout": ("delivery.timeout.ms", "message.timeout.ms"),
        "request_timeout": ("request.timeout.ms",),
    }.items()
    for name in names
}
"""Settings of librdkafka's producer that have a field of their own."""

CONSUMER_SETTINGS: Final[dict[str, str]] = _CLIENT | {
    "isolation.level": _FIELD.format("isolation"),
    "auto.offset.reset": "a reset must be seen, never silent",
    "enable.auto.commit": "readers assign their partitions themselves",
    "group.id": "readers assign their partitions themselves",
    "enable.partition.eof": "readers need it as it is",
}
"""Settings of librdkafka's consumer that an experiment may not give, and why."""

TOPIC_SETTINGS: Final = frozenset(
    {
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "internal.segment.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.downconversion.enable",
        "message.format.version",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    }
)
"""Kafka's topic settings (org.apache.kafka.common.config.TopicConfig, 3.9 and 4.x). Kafka refuses topics with
others; only a near miss of one of these is an error here, so that a newer Kafka's settings pass."""
