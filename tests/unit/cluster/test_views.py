"""Tests of which view counts as the newest when brokers disagree about a partition."""

from __future__ import annotations

from ackproof.cluster.queries import PartitionState, merge_views
from ackproof.observe.sampler import FORGET_AFTER_LOOKS, MergedViews
from ackproof.rundir.partition import TopicPartition

PLACE = TopicPartition("t", 0)


def state(epoch: int = 0, *isr: int, leader: int = 1) -> PartitionState:
    return PartitionState("t", 0, leader, epoch, (1, 2, 3), isr or (1, 2, 3))


def test_at_one_look_the_newest_epoch_wins_then_the_majority() -> None:
    old, new = {PLACE: state(4)}, {PLACE: state(5, leader=2)}
    assert merge_views([old, old, new])[PLACE] == new[PLACE]
    assert merge_views([{PLACE: state(5)}, {PLACE: state(5, 1, 2)}, {PLACE: state(5, 1, 2)}])[PLACE].isr == (
        1,
        2,
    )
    assert merge_views([{}, {}]) == {}


def test_over_time_who_has_not_changed_lags_behind() -> None:
    views = MergedViews()
    full, shrunk = {PLACE: state()}, {PLACE: state(0, 1, 2)}
    assert views.merge({1: full, 2: full, 3: full})[PLACE].isr == (1, 2, 3)
    # Brokers 2 and 3 are cut off from the controller: the majority is wrong.
    assert views.merge({1: shrunk, 2: full, 3: full})[PLACE].isr == (1, 2)
    assert views.merge({1: shrunk, 2: full, 3: full})[PLACE].isr == (1, 2)
    assert views.merge({1: full, 2: full, 3: full})[PLACE].isr == (1, 2, 3)


def test_a_broker_that_comes_back_with_its_old_view_changes_nothing() -> None:
    views = MergedViews()
    full, shrunk = {PLACE: state()}, {PLACE: state(0, 1, 2)}
    views.merge({1: full, 2: full, 3: full})
    views.merge({1: shrunk, 2: shrunk})
    assert views.merge({1: shrunk, 2: shrunk, 3: full})[PLACE].isr == (1, 2)
    assert views.merge({3: full})[PLACE].isr == (1, 2, 3), "when nobody else answers its word is all there is"


def test_a_newer_epoch_beats_a_later_change() -> None:
    views = MergedViews()
    views.merge({1: {PLACE: state(7)}, 2: {PLACE: state(5)}})
    assert views.merge({1: {PLACE: state(7)}, 2: {PLACE: state(6)}})[PLACE].leader_epoch == 7


def test_an_older_epoch_is_no_news() -> None:
    views = MergedViews()
    old, new = {PLACE: state(0, leader=1)}, {PLACE: state(1, leader=2)}
    assert views.merge({1: old, 2: old}) == old
    assert views.merge({1: old, 2: new}) == new
    assert views.merge({1: old}) == {}
    assert views.merge({2: new}) == new


def test_a_topic_made_anew_is_seen_by_the_first_view_that_goes_back() -> None:
    views = MergedViews()
    old, anew = {PLACE: state(7, leader=1)}, {PLACE: state(0, leader=3)}
    assert views.merge({1: old, 2: old}) == old
    assert views.merge({1: anew, 2: old}) == anew
    assert views.merge({2: old}) == {}, "it lags behind"
    assert views.merge({1: anew, 2: anew}) == anew
    later = {PLACE: state(1, leader=2)}
    assert views.merge({1: anew, 2: later}) == later
    assert views.merge({1: anew}) == {}


def test_of_who_did_not_see_a_topic_go_it_is_believed_in_the_end() -> None:
    views = MergedViews()
    views.merge({1: {PLACE: state(7, leader=1)}})
    anew = {PLACE: state(0, leader=3)}
    looks = [views.merge({2: anew}) for _ in range(FORGET_AFTER_LOOKS + 1)]
    assert looks[0] == {}
    assert looks[-1] == anew
