"""What every cluster says when its brokers are asked, whoever runs it."""

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
"""A broker that lives says within milliseconds which brokers there are."""


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

    def exporters(self) -> Mapping[int, Address]:
        """Where each node tells its own metrics; empty where none does."""
        return {}

    @abstractmethod
    def running_links(self) -> Mapping[int, Connection]:
        """A connection to each broker that runs (not paused), for questions through `queries`."""

    def metadata_state(self, topics: Iterable[str]) -> dict[TopicPartition, PartitionState]:
        """What the metadata quorum itself holds, where it tells: it counts more than what brokers heard."""
        del topics
        return {}

    def registered(self) -> frozenset[int] | None:
        """Brokers that are registered with who keeps the metadata, where that tells. Raises `WireError`."""
        return None

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


def answering(links: Mapping[int, Connection]) -> Connection | None:
    """The first link whose broker answers within `ANSWERS_WITHIN_S`; where none does, the first."""
    for link in links.values():
        with contextlib.suppress(WireError):
            queries.brokers(link, ANSWERS_WITHIN_S)
            return link
    return next(iter(links.values()), None)


def merge(views: Iterable[Mapping[TopicPartition, PartitionState]]) -> dict[TopicPartition, PartitionState]:
    """The newest leader epoch wins; within one epoch what most brokers say, and among these the first."""
    said: dict[TopicPartition, Counter[PartitionState]] = {}
    for view in views:
        for place, state in view.items():
            said.setdefault(place, Counter())[state] += 1
    merged: dict[TopicPartition, PartitionState] = {}
    for place, states in said.items():
        newest = max(state.leader_epoch for state in states)
        # max() keeps the first of equals, and a Counter the order of arrival.
        merged[place] = max(
            (state for state in states if state.leader_epoch == newest), key=lambda state: states[state]
        )
    return merged


def ends_at(
    leader: int, connection: Connection, places: Iterable[TopicPartition]
) -> dict[TopicPartition, PartitionEnds]:
    """Offsets of these partitions, asked of broker `leader` in one exchange.

    Partitions that it does not lead by its own view are missing. The view is asked last: what was seen belongs to
    the epoch that it names, or to an older one whose log ended no later. Raises `WireError`.
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
