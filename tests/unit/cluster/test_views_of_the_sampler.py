"""A view that is behind what was seen before is no news, until the topic must have been made anew."""

from __future__ import annotations

from ackproof.cluster.protocol import PartitionState, TopicPartition
from ackproof.observe.views import FORGET_AFTER_LOOKS, Views

PLACE = TopicPartition("t", 0)


def _state(leader: int, epoch: int) -> PartitionState:
    return PartitionState("t", 0, leader, epoch, (1, 2, 3), (1, 2, 3))


def test_an_older_epoch_is_no_news() -> None:
    views = Views()
    old, new = {PLACE: _state(1, 0)}, {PLACE: _state(2, 1)}
    assert views.merge({1: old, 2: old}) == old
    assert views.merge({1: old, 2: new}) == new
    assert views.merge({1: old}) == {}
    assert views.merge({2: new}) == new


def test_a_topic_made_anew_is_believed_in_the_end() -> None:
    views = Views()
    views.merge({1: {PLACE: _state(1, 7)}})
    anew = {PLACE: _state(3, 0)}
    looks = [views.merge({1: anew}) for _ in range(FORGET_AFTER_LOOKS + 1)]
    assert looks[0] == {}
    assert looks[-1] == anew
