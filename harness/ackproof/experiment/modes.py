"""Who keeps a cluster's metadata, as data: what follows from the mode for whoever plans, judges or simulates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True)
class MetadataMode:
    """A row for one `ClusterSpec.mode`."""

    server: str
    """What a node is called that keeps the metadata and holds no partitions."""
    broker_controls: bool
    """Whether the controller is one of the brokers, which the servers elect and which alone takes changes."""
    rules: str
    """What follows a release's number in the name of its rules (`3.9.2-zk`)."""
    registers_once: bool
    """Whether a broker registers once in the life of its process; else with each of its sessions."""
    session: str
    """The setting that says how long a broker may be silent."""
    timing: Mapping[str, str]
    """Short time-outs that suit experiments, beside those of both modes."""


_KRAFT: Final[Mapping[str, str]] = MappingProxyType(
    {
        # A dead broker is noticed within this session; a paused one keeps its place for as long.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "300",
        "controller.quorum.election.timeout.ms": "300",
        "controller.quorum.election.backoff.max.ms": "300",
        "controller.quorum.fetch.timeout.ms": "1000",
        "controller.quorum.request.timeout.ms": "1000",
        "controller.quorum.retry.backoff.ms": "20",
        "metadata.max.idle.interval.ms": "500",
        "unclean.leader.election.interval.ms": "2000",
    }
)
_ZOOKEEPER: Final[Mapping[str, str]] = MappingProxyType(
    {
        # As long as a KRaft broker's session above.
        "zookeeper.session.timeout.ms": "3000",
        # A broker exits when it has no session within this, by default as long as a session lasts: too short for
        # a machine on which ZooKeeper itself only starts.
        "zookeeper.connection.timeout.ms": "60000",
        "controlled.shutdown.retry.backoff.ms": "500",
    }
)

MODES: Final[Mapping[str, MetadataMode]] = MappingProxyType(
    {
        "kraft": MetadataMode("controller", False, "", True, "broker.session.timeout.ms", _KRAFT),
        "zookeeper": MetadataMode(
            "zookeeper", True, "-zk", False, "zookeeper.session.timeout.ms", _ZOOKEEPER
        ),
    }
)
