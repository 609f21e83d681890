"""Questions to the brokers of a cluster, of ours or of somebody else."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, Generic, TypeVar

from ackproof.base.errors import BadInput
from ackproof.cluster import queries
from ackproof.cluster.protocol import Node, PartitionEnds, PartitionState
from ackproof.network.addresses import Address
from ackproof.network.wire import Connection, WireError
from ackproof.rundir.partition import TopicPartition

N = TypeVar("N", bound=Node)
ANSWERS_WITHIN_S: Final = 1.0
"""A live broker answers a metadata request within milliseconds."""


class AskedCluster(ABC, Generic[N]):
    """The nodes of a cluster, and questions to all of its brokers that run."""

    @property
    @abstractmethod
    def nodes(self) -> Mapping[int, N]:
        """All nodes by id; empty before it is started."""

    def node(self, node_id: int) -> N:
        """Return the node with this id. Raises `BadInput` if there is none."""
        try:
            return self.nodes[node_id]
        except KeyError:
            known = ", ".join(map(str, sorted(self.nodes))) or "none"
            raise BadInput(f"there is no node {node_id}; there are: {known}") from None

    def brokers(self) -> tuple[N, ...]:
        """Return the brokers by id."""
        return tuple(node for _, node in sorted(self.nodes.items()) if node.is_broker)

    def controllers(self) -> tuple[N, ...]:
        """Return the controllers, or ZooKeeper servers, by id."""
        return tuple(node for _, node in sorted(self.nodes.items()) if node.is_controller)

    def exporters(self) -> Mapping[int, Address]:
        """Return each node's address for its metrics; empty without metrics."""
        return {}

    @abstractmethod
    def running_links(self) -> Mapping[int, Connection]:
        """Return a connection to each broker that runs (not paused), for `queries`."""

    def metadata_state(self, topics: Iterable[str]) -> dict[TopicPartition, PartitionState]:
        """Return the metadata quorum's own view, if it has one: it counts more than that of brokers."""
        del topics
        return {}

    def registered(self) -> frozenset[int] | None:
        """Return the brokers registered in the metadata quorum's own view, None if it has none. Raises `WireError`."""
        return None

    def topic_state(self, topics: Iterable[str]) -> dict[TopicPartition, PartitionState]:
        """Return the partitions of these topics in the running brokers' view; the newest leader epoch wins."""
        wanted = tuple(topics)
        quorum_view = self.metadata_state(wanted)
        views = []
        for link in self.running_links().values():
            with contextlib.suppress(WireError):
                views.append(queries.partitions(link, wanted))
        return merge_views(views) | quorum_view

    def partition_ends(self, topics: Iterable[str]) -> dict[TopicPartition, PartitionEnds]:
        """Return the offsets of every partition from its leader; missing if the leader does not answer."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for place, state in self.topic_state(topics).items():
            by_leader.setdefault(state.leader, []).append(place)
        links = self.running_links()
        ends: dict[TopicPartition, PartitionEnds] = {}
        for leader, places in by_leader.items():
            if leader in links:
                with contextlib.suppress(WireError):
                    ends |= partition_ends_at(leader, links[leader], places)
        return ends


def first_answering_link(links: Mapping[int, Connection]) -> Connection | None:
    """Return the first link whose broker answers within `ANSWERS_WITHIN_S`, else the first link."""
    for link in links.values():
        with contextlib.suppress(WireError):
            queries.brokers(link, ANSWERS_WITHIN_S)
            return link
    return next(iter(links.values()), None)


def merge_views(
    views: Iterable[Mapping[TopicPartition, PartitionState]],
) -> dict[TopicPartition, PartitionState]:
    """Merge views of brokers: the newest leader epoch wins, then the state that most brokers see, then the first."""
    counts: dict[TopicPartition, Counter[PartitionState]] = {}
    for view in views:
        for place, state in view.items():
            counts.setdefault(place, Counter())[state] += 1
    merged: dict[TopicPartition, PartitionState] = {}
    for place, states in counts.items():
        newest = max(state.leader_epoch for state in states)
        # max() keeps the first of equals, and a Counter the order of arrival.
        merged[place] = max(
            (state for state in states if state.leader_epoch == newest), key=lambda state: states[state]
        )
    return merged


def partition_ends_at(
    leader: int, connection: Connection, places: Iterable[TopicPartition]
) -> dict[TopicPartition, PartitionEnds]:
    """Return offsets of these partitions from broker `leader`, in one exchange.

    Partitions that it does not lead in its own view are missing. The view comes last: offsets belong to the epoch that
    it names, or to an older one whose log ended no later. Raises `WireError`.
    """
    wanted = sorted(places)
    starts, highs, stables, log_ends, view = connection.ask_all(
        [
            queries.ask_offsets(wanted, what=queries.EARLIEST),
            queries.ask_offsets(wanted, what=queries.LATEST),
            queries.ask_offsets(wanted, what=queries.LATEST, isolation=queries.READ_COMMITTED),
            queries.ask_log_ends(wanted),
            queries.ask_partitions({place.topic for place in wanted}, connection.access),
        ]
    )
    start, high, stable, end = (queries.read_offsets(answer) for answer in (starts, highs, stables, log_ends))
    states = queries.read_pages(connection, {place.topic for place in wanted}, view)
    return {
        place: PartitionEnds(
            leader=leader,
            leader_epoch=states[place].leader_epoch,
            start=start.get(place, -1),
            high_watermark=high.get(place, -1),
            last_stable=stable.get(place, -1),
            log_end=end.get(place, -1),
        )
        for place in wanted
        if place in states and states[place].leader == leader
    }
