"""Which broker's view of a partition is the newest.

A broker's metadata only moves forward, but some lag behind: those that were paused, or are cut off. The newer
leader epoch is the newer view. Within one epoch the view that *changed* last is: who lags behind has not changed.
"""

from __future__ import annotations

from collections.abc import Mapping

from ackproof.cluster.protocol import PartitionState, TopicPartition


class Views:
    """The views of all brokers, and the newest of each partition among those that answered."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, TopicPartition], tuple[int, PartitionState]] = {}
        self._look = 0

    def merge(
        self, answered: Mapping[int, Mapping[TopicPartition, PartitionState]]
    ) -> dict[TopicPartition, PartitionState]:
        """The newest view of each partition, from what the brokers (by id) answered at one look."""
        self._look += 1
        best: dict[TopicPartition, tuple[int, int, PartitionState]] = {}
        for broker, view in answered.items():
            for place, state in view.items():
                changed, before = self._seen.get((broker, place), (self._look, state))
                if before != state:
                    changed = self._look
                self._seen[broker, place] = (changed, state)
                held = best.get(place)
                if held is None or (state.leader_epoch, changed) > held[:2]:
                    best[place] = (state.leader_epoch, changed, state)
        return {place: state for place, (_, _, state) in best.items()}
