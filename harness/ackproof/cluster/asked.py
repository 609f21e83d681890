"""What every cluster says when its brokers are asked, whoever runs it."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from ackproof.base.errors import BadInput
from ackproof.cluster import queries
from ackproof.cluster.protocol import Node, PartitionEnds, PartitionState
from ackproof.cluster.views import ends_at, merge
from ackproof.cluster.wire import Connection, WireError
from ackproof.rundir.partition import TopicPartition

N = TypeVar("N", bound=Node)


class AskedCluster(ABC, Generic[N]):
    """Its nodes by their ids, and questions through the protocol to all brokers that may be asked now."""

    @property
    @abstractmethod
    def nodes(self) -> Mapping[int, N]:
        """All nodes by id; empty before it is started."""

    def node(self, node_id: int) -> N:
        """The node with this id. Raises `BadInput` when there is none."""
        try:
            return self.nodes[node_id]
        except KeyError:
            known = ", ".join(map(str, sorted(self.nodes))) or "none"
            raise BadInput(f"there is no node {node_id}; there are: {known}") from None

    def brokers(self) -> tuple[N, ...]:
        """The brokers by id."""
        return tuple(node for _, node in sorted(self.nodes.items()) if node.is_broker)

    def controllers(self) -> tuple[N, ...]:
        """Those that keep the metadata, by id."""
        return tuple(node for _, node in sorted(self.nodes.items()) if node.is_controller)

    @abstractmethod
    def running_links(self) -> Mapping[int, Connection]:
        """A connection to each broker that runs (not paused), for questions through `queries`."""

    def metadata_state(self, topics: Iterable[str]) -> dict[TopicPartition, PartitionState]:
        """What the metadata quorum itself holds, where it tells: it counts more than what brokers heard."""
        del topics
        return {}

    def topic_state(self, topics: Iterable[str]) -> dict[TopicPartition, PartitionState]:
        """The partitions of these topics as the running brokers see them; the newest leader epoch wins."""
        wanted = tuple(topics)
        held = self.metadata_state(wanted)
        views = []
        for link in self.running_links().values():
            with contextlib.suppress(WireError):
                views.append(queries.partitions(link, wanted))
        return merge(views) | held

    def partition_ends(self, topics: Iterable[str]) -> dict[TopicPartition, PartitionEnds]:
        """Offsets of every partition, asked at its leader; one without a leader that answers is missing."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for place, state in self.topic_state(topics).items():
            by_leader.setdefault(state.leader, []).append(place)
        links = self.running_links()
        found: dict[TopicPartition, PartitionEnds] = {}
        for leader, places in by_leader.items():
            if leader in links:
                with contextlib.suppress(WireError):
                    found |= ends_at(leader, links[leader], places)
        return found
