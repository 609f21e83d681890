"""The backends on which a case can run, one row each, and the preparations that faults require before a cluster starts.

A backend's row says which abilities it lacks, and why. A new backend needs a row here, its name in `Backend`, and, if
it runs brokers, code in `ackproof.cluster.backends`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from ackproof.base.advice import Advice

Backend: TypeAlias = Literal["process", "docker", "auto", "attach", "model"]


class Need(StrEnum):
    """Preparation that a fault or an observer requires before the cluster starts. A cluster is prepared for all needs
    of its case."""

    BROKER_LINKS = "links among brokers, and from brokers to controllers"
    CONTROLLER_LINKS = "links among controllers"
    CLIENT_LINKS = "links from clients to brokers"
    PACKETS = "rules for single packets"
    CLOCKS = "wall clocks of the nodes that can be set"
    DISKS = "file systems of their own for the nodes' data"
    BROKER_REQUESTS = "requests among brokers, and from brokers to controllers"
    CONTROLLER_REQUESTS = "requests among controllers"
    CLIENT_REQUESTS = "requests from clients to brokers"
    DISKS_WHERE_ROOT = "file systems of their own for the nodes' data, where they can be mounted"
    METRICS = "an exporter of metrics in each node"
    CODE = "rules in the code of the nodes"


LINKS: Final = frozenset({Need.BROKER_LINKS, Need.CONTROLLER_LINKS, Need.CLIENT_LINKS})
"""Needs for network links that faults can affect, each for one class of links."""
REQUESTS: Final[Mapping[Need, Need]] = MappingProxyType(
    {
        Need.BROKER_REQUESTS: Need.BROKER_LINKS,
        Need.CONTROLLER_REQUESTS: Need.CONTROLLER_LINKS,
        Need.CLIENT_REQUESTS: Need.CLIENT_LINKS,
    }
)
"""Need to affect single requests on a class of links → the need for these links."""
DISKS: Final = frozenset({Need.DISKS, Need.DISKS_WHERE_ROOT})
"""Needs for a separate file system for each node. With `DISKS_WHERE_ROOT` alone, nodes get none if the machine does not
permit mounts."""


class Ability(StrEnum):
    """Capability of a backend, which some kinds of faults (`FaultSpec.ASKS`) and some observers (field `observe` of an
    experiment) need. Ordinary requests of Kafka's protocol need none."""

    PROCESSES = "nodes that can be killed, paused and started again"
    RELEASES = "nodes that can be started with another release"
    LINKS = "links that can be broken"
    REQUESTS = "links whose requests can be touched"
    CLOCKS = "wall clocks that can be set"
    DISKS = "disks that can be broken and looked at"
    ZOOKEEPER = "ZooKeeper's servers within reach"
    DELETION = "topics that may be deleted while a case runs"
    METRICS = "nodes that tell their own metrics"
    ASKED = "brokers that may be asked for what they refuse"


@dataclass(frozen=True)
class BackendRow:
    """Abilities and properties of a backend, which planning, running and judging look up."""

    lacks: Mapping[Ability, str] = field(default_factory=dict)
    """Abilities that the backend lacks, each with a reason that completes "not possible on this backend, because …"."""
    prepares: frozenset[Need] = frozenset()
    """Needs that the backend can prepare before a cluster starts."""
    simulated: bool = False
    """True if the nodes are virtual. Some faults cannot hit virtual nodes (`FaultSpec.NOT_SIMULATED`)."""
    foreign: bool = False
    """True if ackproof does not own the cluster: it owns only the topics of the case, and has none of the nodes'
    files."""


_LAID: Final = LINKS | DISKS | {Need.PACKETS, Need.CLOCKS, Need.METRICS, Need.CODE} | REQUESTS.keys()

BACKENDS: Final[Mapping[str, BackendRow]] = MappingProxyType(
    {
        "process": BackendRow(prepares=_LAID),
        "docker": BackendRow(prepares=_LAID),
        "auto": BackendRow(prepares=_LAID),
        "attach": BackendRow(
            lacks={
                Ability.PROCESSES: Advice(
                    "the processes of a cluster that someone else runs are out of reach", "use `command`"
                ),
                Ability.RELEASES: "the brokers of a cluster that someone else runs are not ours to restart",
                Ability.LINKS: "the links of a cluster that someone else runs are not ours to break",
                Ability.REQUESTS: "the links of a cluster that someone else runs are not ours to lay through a "
                "proxy, and what they carry may be encrypted or ask for a login",
                Ability.CLOCKS: Advice(
                    "the clocks of a cluster that someone else runs are out of reach", "use `command`"
                ),
                Ability.DISKS: "the disks of a cluster that someone else runs are not ours to break or look at",
                Ability.ZOOKEEPER: "ZooKeeper of a cluster that someone else runs is not ours to touch",
                Ability.DELETION: "on a cluster that someone else runs nothing is deleted before the end",
                Ability.METRICS: "no exporter can be put into brokers that someone else runs",
                Ability.ASKED: "brokers that someone else runs are not asked to append what they refuse",
            },
            foreign=True,
        ),
        "model": BackendRow(
            lacks={
                Ability.METRICS: "its brokers are no processes and have none",
                Ability.ASKED: "its brokers answer no questions",
            },
            simulated=True,
        ),
    }
)
