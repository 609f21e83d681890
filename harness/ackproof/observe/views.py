"""Which broker's view of a partition is the newest.

A broker's metadata only moves forward, but some lag behind: those that were paused, or are cut off. The newer
leader epoch is the newer view. Within one epoch the view that *changed* last is: who lags behind has not changed.
A view whose epoch goes back is of the next life of its topic, which was deleted and made anew: newer than all of those
before. When only brokers answer that are behind what was seen before, nothing is known of the present.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ackproof.cluster.protocol import PartitionState
from ackproof.rundir.partition import TopicPartition

FORGET_AFTER_LOOKS: Final = 50
"""Who was not there to see a topic go does not know of its lives: after so many looks what is older is believed."""
Age = tuple[int, int]
"""Of a view: in which life of its topic, as far as that broker saw them, and the leader epoch."""


@dataclass(frozen=True)
class _View:
    state: PartitionState
    changed: int
    """At which look."""
    life: int

    @property
    def age(self) -> Age:
        return self.life, self.state.leader_epoch


class Views:
    """The views of all brokers, and the newest of each partition among those that answered."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, TopicPartition], _View] = {}
        self._newest: dict[TopicPartition, tuple[Age, int]] = {}
        """The newest that was seen of a partition, and at which look for the last time."""
        self._look = 0

    def merge(
        self, answered: Mapping[int, Mapping[TopicPartition, PartitionState]]
    ) -> dict[TopicPartition, PartitionState]:
        """The newest view of each partition, from what the brokers (by id) answered at one look."""
        self._look += 1
        best: dict[TopicPartition, _View] = {}
        for broker, told in answered.items():
            for place, state in told.items():
                view = self._seen[broker, place] = self._since(self._seen.get((broker, place)), state)
                held = best.get(place)
                if held is None or (view.age, view.changed) > (held.age, held.changed):
                    best[place] = view
        return {place: view.state for place, view in best.items() if self._is_news(place, view.age)}

    def _since(self, before: _View | None, state: PartitionState) -> _View:
        if before is None:
            return _View(state, self._look, 0)
        if before.state == state:
            return before
        return _View(state, self._look, before.life + (state.leader_epoch < before.state.leader_epoch))

    def _is_news(self, place: TopicPartition, age: Age) -> bool:
        newest, seen = self._newest.get(place, (age, self._look))
        if age < newest and self._look - seen < FORGET_AFTER_LOOKS:
            return False
        self._newest[place] = age, self._look
        return True
