"""The settings of a node as its experiment means them, before anybody knows where it will stand; a later one wins::

defaults     what suits a small cluster on one machine
timing       `chaos`: short time-outs for experiments; `script`: so long that nothing happens by itself; `kafka`:
             nothing, so Kafka's own
cluster      `cluster.config` of the experiment, in which those of its broker file (`settings_from`) are
node         `cluster.broker_config` of this node
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ackproof.experiment.setting_effects import kafka_default
from ackproof.experiment.spec import ClusterSpec

_CHAOS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # Followers paused for less stay in the ISR; it shrinks within 1.5 times this.
        "replica.lag.time.max.ms": "4000",
        "replica.fetch.wait.max.ms": "100",
        "replica.fetch.backoff.ms": "100",
        # Leaders move when a fault moves them, and not by themselves.
        "auto.leader.rebalance.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "num.network.threads": "1",
        "num.io.threads": "2",
        "background.threads": "2",
        # Kafka's own 128 MB are half of the heap.
        "log.cleaner.dedupe.buffer.size": str(4 << 20),
    }
)


_SCRIPT: Final[Mapping[str, str]] = MappingProxyType(
    {
        # Nobody leaves the ISR, gives a request up that waits, or asks for anything that no step lets through.
        **dict.fromkeys(
            (
                "replica.lag.time.max.ms",
                "replica.socket.timeout.ms",
                "controller.socket.timeout.ms",
                "controller.quorum.fetch.timeout.ms",
                "controller.quorum.request.timeout.ms",
                "request.timeout.ms",
            ),
            "600000",
        ),
        "replica.fetch.wait.max.ms": "50",
        # One batch for each fetch: the first is always sent, however large.
        "replica.fetch.max.bytes": "1",
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "500",
    }
)
"""Beside those of `chaos`."""


def configured(spec: ClusterSpec, node_id: int) -> dict[str, str]:
    """The settings of a node that do not depend on where it stands: all but the necessities."""
    return {
        **_defaults(spec),
        **timing_settings(spec),
        **_rack(spec, node_id),
        **spec.config,
        **spec.broker_config.get(node_id, {}),
    }


def _defaults(spec: ClusterSpec) -> dict[str, str]:
    copies = str(min(3, spec.brokers))
    majority = str(min(2, spec.brokers))
    values = {
        # A topic that somebody misspells must not come into being.
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": majority,
    }
    if not spec.kafka.version.startswith("3."):
        values |= {
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": majority,
        }
    return values


def timing_settings(spec: ClusterSpec) -> dict[str, str]:
    """What `timing` sets of every node."""
    match spec.timing:
        case "chaos":
            return {**_CHAOS, **spec.metadata.timing}
        case "script":
            return {**_CHAOS, **spec.metadata.timing, **_SCRIPT}
        case "kafka":
            return {}


def time_out(spec: ClusterSpec, name: str) -> int:
    """The shortest time-out of this name that any node has, in milliseconds. Raises KeyError for a setting that Kafka
    does not have."""
    return min(_time_outs(spec, name))


def longest_time_out(spec: ClusterSpec, name: str) -> int:
    """The longest of them, likewise."""
    return max(_time_outs(spec, name))


def _time_outs(spec: ClusterSpec, name: str) -> list[int]:
    usual = timing_settings(spec).get(name, kafka_default(name))
    given = [spec.config, *({**spec.config, **own} for own in spec.broker_config.values())]
    return [int(config.get(name, usual)) for config in given]


def _rack(spec: ClusterSpec, node_id: int) -> dict[str, str]:
    rack = spec.rack_of(node_id) if node_id in spec.broker_ids else ""
    return {"broker.rack": rack} if rack else {}
