"""Who keeps a cluster's metadata, and so knows which node is the active controller.

A keeper looks at the servers that `layout.spec.controller_ids` names: the voters of a KRaft quorum (here), or
ZooKeeper (`ackproof.cluster.metadata.zookeeper`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from ackproof.cluster import queries
from ackproof.cluster.addresses import Address
from ackproof.cluster.protocol import PartitionState
from ackproof.cluster.wire import Connection, WireError
from ackproof.rundir.partition import TopicPartition

ASK_S: Final = 1.0
"""How long one look at one node may take."""

Runs = Callable[[int], bool]
"""Whether the process of a node runs (not paused)."""


class Keeper(Protocol):
    """The servers that keep the metadata, looked at from outside."""

    def serves(self, node_id: int) -> bool:
        """Whether this server takes part and knows who leads the servers. Raises `WireError` without an answer."""

    def controller(self) -> int | None:
        """The active controller, None while nobody says that it is."""

    def partitions(self, topics: Iterable[str]) -> dict[TopicPartition, PartitionState]:
        """What the servers themselves hold of these topics; empty where brokers must be asked."""

    def holds(self, broker: int) -> bool:
        """Whether a process of this broker that has ended still keeps another one from starting."""

    def close(self) -> None:
        """Give back connections. May be called again."""


class KraftQuorum:
    """The voters of a KRaft quorum, each asked where `addresses` says."""

    def __init__(self, addresses: Mapping[int, Address], runs: Runs) -> None:
        self._links = {node: Connection(address, timeout_s=ASK_S) for node, address in addresses.items()}
        self._runs = runs

    def serves(self, node_id: int) -> bool:
        """See `Keeper`."""
        return queries.quorum_leader(self._links[node_id], ASK_S / 2) >= 0

    def controller(self) -> int | None:
        """Of those that say that they lead the quorum, the one with the newest epoch."""
        leads = []
        for node_id, link in self._links.items():
            if self._runs(node_id):
                with contextlib.suppress(WireError):
                    quorum = queries.quorum(link)
                    leads.append((quorum.epoch, quorum.leader))
        return max(leads)[1] if leads else None

    def partitions(self, topics: Iterable[str]) -> dict[TopicPartition, PartitionState]:
        """Nothing: a controller does not tell clients of partitions."""
        del topics
        return {}

    def holds(self, broker: int) -> bool:
        """Never: a KRaft broker waits by itself until its old session has ended."""
        del broker
        return False

    def close(self) -> None:
        """See `Keeper`."""
        for link in self._links.values():
            link.close()
