"""Tests of a leader's ISR: joins, removals, and the high watermark while a proposal is open."""

from __future__ import annotations

import pytest

from ackproof_reference.broker import Broker, Leader, with_role
from ackproof_reference.leader import (
    advance_high_watermark,
    isr_answered,
    may_shrink,
    propose_shrink,
    waited_for,
)
from ackproof_reference.messages import (
    Altered,
    AlterPartition,
    Error,
)
from ackproof_reference.node import learn, step
from ackproof_reference.rules import Rules, without
from partition import fetch, following, leading, log, metadata, partition

RULES = Rules()
TWO = Rules(min_insync=2)


def role(broker: Broker) -> Leader:
    assert isinstance(broker.process.role, Leader)
    return broker.process.role


def expansion(before: Broker, offset: int, rules: Rules = RULES, **more: int) -> AlterPartition | None:
    _, messages = step(before, fetch(offset, follower=3, **more), rules)
    return next((m for m in messages if isinstance(m, AlterPartition)), None)


def test_who_has_reached_the_high_watermark_and_the_epochs_start_joins() -> None:
    before = leading(log(0, 0, high_watermark=1), {2: 2}, partition(isr=(1, 2), version=4), start=1)
    assert expansion(before, 0) is None
    asked = expansion(before, 1)
    assert asked == AlterPartition(1, 0, 0, 4, (1, 2, 3), (0, 0, 0))


def test_who_has_not_reached_the_high_watermark_does_not() -> None:
    before = leading(log(0, 0, high_watermark=1), {2: 2}, partition(isr=(1, 2)))
    assert expansion(before, 0) is None
    assert expansion(before, 1) is not None


def test_only_who_has_caught_up_joins() -> None:
    asked = expansion(leading(log(0), {}, partition(isr=(1,))), 1)
    assert asked is not None
    assert asked.isr == (1, 3)


def test_where_leaders_are_taken_in_the_isrs_order_who_joins_comes_last() -> None:
    before = leading(log(0), {2: 1}, partition(isr=(1, 2), replicas=(3, 1, 2)))
    for rules, isr in ((RULES, (3, 1, 2)), (without(RULES, "assignment order"), (1, 2, 3))):
        asked = expansion(before, 1, rules)
        assert asked is not None
        assert asked.isr == isr


def test_who_has_not_reached_the_epochs_start_does_not() -> None:
    before = leading(log(0, 0), {2: 2}, partition(isr=(1, 2)), start=2)
    assert expansion(before, 1) is None
    assert expansion(before, 1, without(RULES, "expansion from the epoch's start")) is not None
    assert expansion(before, 2) is not None


@pytest.mark.parametrize("state", ["fenced", "stopping"])
def test_who_is_fenced_or_stopping_does_not(state: str) -> None:
    of = partition(isr=(1, 2))
    before = leading(log(0), {2: 1}, of, known=metadata(of, **{state: (3,)}))
    assert expansion(before, 1) is None
    assert expansion(before, 1, Rules(fencing=False)) is not None


def test_who_fetches_as_another_incarnation_than_the_metadata_names_does_not() -> None:
    before = leading(log(0), {2: 1}, partition(isr=(1, 2)))
    assert expansion(before, 1, broker_epoch=1) is None
    asked = expansion(before, 1, without(RULES, "broker epochs"), broker_epoch=1)
    assert asked is not None
    assert asked.isr_epochs == (0, 0, 1)


def test_one_proposal_at_a_time() -> None:
    before = leading(log(0), {2: 1}, partition(isr=(1, 2)))
    pending = with_role(before, role(before)._replace(pending=(1,)))
    assert expansion(pending, 1) is None
    assert may_shrink(pending) == ()
    slow = leading(log(0, 0), {2: 1})
    assert may_shrink(with_role(slow, role(slow)._replace(pending=(1, 2)))) == ()


def test_who_is_in_the_isr_already_or_no_replica_does_not_join() -> None:
    assert expansion(leading(log(0), {2: 1, 3: 1}), 1) is None
    moved = leading(log(0), {2: 1, 3: 1}, partition(isr=(1, 2)))
    fewer = moved._replace(
        process=moved.process._replace(metadata=metadata(partition(isr=(1, 2), replicas=(1, 2))))
    )
    assert expansion(fewer, 1) is None


def test_a_proposal_names_the_leaders_own_incarnation() -> None:
    before = leading(log(0), {2: 1}, partition(isr=(1, 2)))
    before = before._replace(process=before.process._replace(epoch=7))
    asked = expansion(before, 1)
    assert asked is not None
    assert asked.broker_epoch == 7


def test_slow_followers_may_be_dropped_and_idle_ones_not() -> None:
    assert may_shrink(leading(log(0, 0), {2: 2, 3: 1})) == (3,)
    assert may_shrink(leading(log(0, 0), {2: 2, 3: 2})) == ()
    assert may_shrink(leading(log(), {2: 0})) == (3,)
    assert may_shrink(leading(log(0), {3: 0}, partition(isr=(1, 2)))) == (2,)
    assert may_shrink(following(log(0))) == ()


def test_a_shrink_is_pending_until_it_is_answered() -> None:
    after, (asked,) = propose_shrink(leading(log(0), {2: 1, 3: 0}), (3,))
    assert asked == AlterPartition(1, 0, 0, 0, (1, 2), (0, 0))
    assert role(after).pending == (1, 2)
    assert advance_high_watermark(after, RULES)[0].log.high_watermark == 0
    assert advance_high_watermark(after, without(RULES, "maximal ISR"))[0].log.high_watermark == 1


def test_the_maximal_isr_is_the_larger_of_both() -> None:
    of = partition(isr=(1, 2))
    assert waited_for(of, None, RULES) == (1, 2)
    assert waited_for(of, (1, 2, 3), RULES) == (1, 2, 3)
    assert waited_for(of, (1,), RULES) == (1, 2)
    off = without(RULES, "maximal ISR")
    assert waited_for(of, (1, 2, 3), off) == (1, 2)
    assert waited_for(of, (1,), off) == (1,)


def shrinking() -> Broker:
    return propose_shrink(leading(log(0), {2: 1, 3: 0}), (3,))[0]


def test_an_accepted_proposal_is_the_isr_and_may_commit() -> None:
    answer = Altered(1, 0, Error.NONE, partition(isr=(1, 2), version=1))
    after, _ = isr_answered(shrinking(), answer, RULES)
    assert role(after).pending is None
    assert after.process.partition.isr == (1, 2)
    assert after.log.high_watermark == 1


def test_an_ineligible_member_ends_the_proposal() -> None:
    after, _ = isr_answered(shrinking(), Altered(1, 0, Error.INELIGIBLE_REPLICA), RULES)
    assert role(after).pending is None
    assert after.process.partition.isr == (1, 2, 3)


@pytest.mark.parametrize("error", [Error.INVALID_UPDATE_VERSION, Error.FENCED_LEADER_EPOCH])
def test_other_refusals_leave_it_pending_until_newer_metadata_comes(error: Error) -> None:
    waits, _ = isr_answered(shrinking(), Altered(1, 0, error), RULES)
    assert role(waits).pending == (1, 2)
    same, _ = learn(waits, metadata(partition(), fenced=(3,)), RULES)
    assert role(same).pending == (1, 2)
    newer, _ = learn(waits, metadata(partition(isr=(1, 2), version=1)), RULES)
    assert role(newer).pending is None
    assert newer.process.up
    assert newer.log.high_watermark == 1


def test_answers_of_another_epoch_or_older_ones_are_dropped() -> None:
    before = shrinking()
    accepted = Altered(1, 5, Error.NONE, partition(isr=(1, 2), version=1))
    assert isr_answered(before, accepted, RULES) == (before, ())
    old = Altered(1, 0, Error.NONE, partition(isr=(1, 2), version=0))
    assert isr_answered(before, old, RULES) == (before, ())
    nothing_asked = leading(log(0), {2: 1})
    assert isr_answered(nothing_asked, accepted._replace(leader_epoch=0), RULES) == (nothing_asked, ())
    follower = following(log(0))
    assert isr_answered(follower, accepted._replace(leader_epoch=0), RULES) == (follower, ())
