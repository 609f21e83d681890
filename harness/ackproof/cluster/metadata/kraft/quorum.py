"""The voters of a KRaft quorum, looked at from outside."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from ackproof.cluster import queries
from ackproof.cluster.addresses import Address
from ackproof.cluster.metadata.protocol import ASK_S, Runs
from ackproof.cluster.protocol import PartitionState
from ackproof.cluster.wire import Connection, WireError
from ackproof.rundir.partition import TopicPartition


class KraftQuorum:
    """See `MetadataQuorum`. Each voter is asked where `addresses` says."""

    def __init__(self, addresses: Mapping[int, Address], runs: Runs) -> None:
        self._links = {node: Connection(address, timeout_s=ASK_S) for node, address in addresses.items()}
        self._runs = runs

    def serves(self, node_id: int) -> bool:
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

    def bars(self, broker: int) -> bool:
        """Never: a KRaft broker waits by itself until its old session has ended."""
        del broker
        return False

    def close(self) -> None:
        for link in self._links.values():
            link.close()
