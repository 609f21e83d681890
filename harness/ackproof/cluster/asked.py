"""What every cluster says when its brokers are asked, whoever runs it."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from ackproof.cluster import queries
from ackproof.cluster.protocol import PartitionEnds, PartitionState
from ackproof.cluster.views import ends_at, merge
from ackproof.cluster.wire import Connection, WireError
from ackproof.rundir.partition import TopicPartition


class AskedCluster(ABC):
    """Questions through the protocol to all brokers that may be asked now."""

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
