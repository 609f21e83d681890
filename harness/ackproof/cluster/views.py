"""Several brokers are asked about the same partitions, and one answer is made of theirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from ackproof.cluster.protocol import PartitionEnds, PartitionState
from ackproof.cluster.queries import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    ask_log_ends,
    ask_offsets,
    ask_partitions,
    read_offsets,
    read_partitions,
)
from ackproof.cluster.wire import Connection
from ackproof.rundir.partition import TopicPartition

View = Mapping[TopicPartition, PartitionState]


def merge(views: Iterable[View]) -> dict[TopicPartition, PartitionState]:
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
            ask_offsets(wanted, what=EARLIEST),
            ask_offsets(wanted, what=LATEST),
            ask_offsets(wanted, what=LATEST, isolation=READ_COMMITTED),
            ask_log_ends(wanted),
            ask_partitions({place.topic for place in wanted}, connection.access),
        ]
    )
    start, high, stable, end = (read_offsets(answer) for answer in (starts, highs, stables, log_ends))
    states = read_partitions(view)
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
