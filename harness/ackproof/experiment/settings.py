"""Settings of Kafka and of its clients that an experiment may not give: one table, and nothing else decides.

Validation reads it for what a file says, the renderers of nodes and clients once more for what reaches them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class Scope(StrEnum):
    """Whose setting it is."""

    BROKER = "broker"
    """A node's: brokers, controllers, and the brokers of ZooKeeper mode."""
    TOPIC = "topic"
    PRODUCER = "producer"
    CONSUMER = "consumer"


class Reserved(NamedTuple):
    """A setting that an experiment may not give."""

    name: str
    """Its name; with a dot at its end, how the names of a group begin."""
    scopes: frozenset[Scope]
    why: str

    def covers(self, scope: Scope, name: str) -> bool:
        """Whether it speaks of this setting."""
        return scope in self.scopes and (
            name.startswith(self.name) if self.name[-1] == "." else name == self.name
        )


def _rows(scopes: str, why: str, *names: str) -> tuple[Reserved, ...]:
    return tuple(Reserved(name, frozenset(map(Scope, scopes.split())), why) for name in names)


def _field(field: str, *names: str) -> tuple[Reserved, ...]:
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
