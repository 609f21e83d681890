"""Which broker's view of a partition is the newest.

A broker's metadata only moves forward, but some lag behind: those that were paused, or are cut off. The newer
leader epoch is the newer view. Within one epoch the view that *changed* last is: who lags behind has not changed.
When only brokers answer that are behind what was seen before, nothing is known of the present.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ackproof.cluster.protocol import PartitionState
from ackproof.rundir.partition import TopicPartition

FORGET_AFTER_LOOKS: Final = 50
"""A topic that was deleted and made again begins anew at epoch 0: after so many looks the older epoch is believed."""


class Views:
    """The views of all brokers, and the newest of each partition among those that answered."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, TopicPartition], tuple[int, PartitionState]] = {}
        self._epochs: dict[TopicPartition, tuple[int, int]] = {}
        """The highest leader epoch that was seen of a partition, and at which look for the last time."""
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
        return {
            place: state for place, (_, _, state) in best.items() if self._is_news(place, state.leader_epoch)
        }

    def _is_news(self, place: TopicPartition, epoch: int) -> bool:
        highest, seen = self._epochs.get(place, (epoch, self._look))
        if epoch < highest and self._look - seen < FORGET_AFTER_LOOKS:
            return False
        self._epochs[place] = (epoch, self._look)
        return True
