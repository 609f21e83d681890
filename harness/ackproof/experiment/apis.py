"""Kafka's APIs by name: their keys, and on which kinds of connections nodes and clients send them.

The keys are those of https://kafka.apache.org/protocol#protocol_api_keys. Who sends what is KRaft's (release 3.9 and
later), read from Kafka's sources: clients' requests in `KafkaApis`, what a broker sends to controllers in the classes
that hold a `NodeToControllerChannelManager`, and to its peers in the fetcher threads and transaction coordinators.
Left out is what only administrators send, and what cannot be asked without changing something (`questions`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from types import MappingProxyType
from typing import Final

from ackproof.experiment.links import LinkEnds
from ackproof.experiment.spec import ClusterSpec


class Flow(StrEnum):
    """A kind of connection, by who opens it to whom."""

    CLIENTS = "clients to brokers"
    BROKERS = "brokers to brokers"
    CONTROLLERS = "brokers to controllers"
    QUORUM = "controllers to controllers"


@dataclass(frozen=True)
class Api:
    """An API. `since`: the first of the supported lines in which it is sent; '' in all of them."""

    name: str
    key: int
    flows: frozenset[Flow]
    since: str = ""

    def sent_in(self, release: str) -> bool:
        """Whether nodes and clients of this release send it."""
        return not self.since or _order(release) >= _order(self.since)


def _order(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")[:2]))


def _table() -> dict[str, Api]:
    clients, brokers, controllers, quorum = ({flow} for flow in Flow)
    everywhere = frozenset(Flow)
    rows: tuple[tuple[str, int, set[Flow] | frozenset[Flow], str], ...] = (
        ("Produce", 0, clients, ""),
        ("Fetch", 1, everywhere, ""),
        ("ListOffsets", 2, clients | brokers, ""),
        ("Metadata", 3, clients, ""),
        ("OffsetCommit", 8, clients, ""),
        ("OffsetFetch", 9, clients, ""),
        ("FindCoordinator", 10, clients, ""),
        ("JoinGroup", 11, clients, ""),
        ("Heartbeat", 12, clients, ""),
        ("LeaveGroup", 13, clients, ""),
        ("SyncGroup", 14, clients, ""),
        ("ApiVersions", 18, everywhere, ""),
        ("InitProducerId", 22, clients, ""),
        ("OffsetForLeaderEpoch", 23, clients | brokers, ""),
        ("AddPartitionsToTxn", 24, clients | brokers, ""),
        ("AddOffsetsToTxn", 25, clients, ""),
        ("EndTxn", 26, clients, ""),
        ("WriteTxnMarkers", 27, brokers, ""),
        ("TxnOffsetCommit", 28, clients, ""),
        ("Vote", 52, quorum, ""),
        ("BeginQuorumEpoch", 53, quorum, ""),
        ("EndQuorumEpoch", 54, quorum, ""),
        ("AlterPartition", 56, controllers, ""),
        ("FetchSnapshot", 59, controllers | quorum, ""),
        ("BrokerRegistration", 62, controllers, ""),
        ("BrokerHeartbeat", 63, controllers, ""),
        ("AllocateProducerIds", 67, controllers, ""),
        ("ConsumerGroupHeartbeat", 68, clients, "4.0"),
        ("AssignReplicasToDirs", 73, controllers, ""),
    )
    return {name: Api(name, key, frozenset(flows), since) for name, key, flows, since in rows}


APIS: Final[Mapping[str, Api]] = MappingProxyType(_table())


def flows_of(ends: LinkEnds, cluster: ClusterSpec) -> frozenset[Flow]:
    """The kinds of connections that a link of these roles has; empty where nobody opens one."""
    if ends.source is None:
        return frozenset({Flow.CLIENTS})
    if cluster.combined:
        return frozenset({Flow.BROKERS, Flow.CONTROLLERS, Flow.QUORUM})
    found = set()
    for of_source, of_target in product(ends.source.sides(), ends.target.sides()):
        if of_target:
            found.add(Flow.QUORUM if of_source else Flow.CONTROLLERS)
        elif not of_source:
            found.add(Flow.BROKERS)
    return frozenset(found)
