"""Tests of a leader's steps: appends, answers to producers, fetches, the high watermark, new epochs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackproof_reference.broker import Broker, Follower, Leader, Progress, Waiting, with_role
from ackproof_reference.leader import (
    advance_high_watermark,
    become_leader,
    produce,
    resign,
    time_out,
)
from ackproof_reference.log import EpochEntry
from ackproof_reference.messages import (
    AskEpochEnd,
    EpochEnd,
    Error,
    Fetched,
    Produce,
    Produced,
)
from ackproof_reference.metadata import Registration
from ackproof_reference.node import learn, step
from ackproof_reference.rules import Rules, Truncation, without
from partition import fetch, following, leading, log, metadata, partition

RULES = Rules()
TWO = Rules(min_insync=2)


def role(broker: Broker) -> Leader:
    assert isinstance(broker.process.role, Leader)
    return broker.process.role


def answered(messages: tuple[object, ...]) -> list[tuple[int, str, int]]:
    return [(m.sequence, m.error.name, m.offset) for m in messages if isinstance(m, Produced)]


# Producing


@pytest.mark.parametrize("acks", [0, 1])
def test_acks_0_and_1_are_answered_after_the_leaders_own_append(acks: int) -> None:
    after, messages = produce(leading(log(0), {2: 1, 3: 1}), Produce(0, 1, acks), RULES)
    assert after.log.end == 2
    assert answered(messages) == [(1, "NONE", 1)]
    assert after.log.high_watermark == 1


def test_acks_all_waits_in_the_purgatory() -> None:
    after, messages = produce(leading(log(0), {2: 1, 3: 1}), Produce(0, 1, -1), RULES)
    assert messages == ()
    assert role(after).waiting == (Waiting(0, 1, 1, 2),)
    assert after.log.batches[-1].epoch == 0


def test_acks_all_is_refused_while_the_isr_is_below_its_minimum() -> None:
    few = leading(log(0), {2: 1}, partition(isr=(1,)))
    after, messages = produce(few, Produce(0, 1, -1), TWO)
    assert answered(messages) == [(1, "NOT_ENOUGH_REPLICAS", -1)]
    assert after.log == few.log
    assert answered(produce(few, Produce(0, 1, 1), TWO)[1]) == [(1, "NONE", 1)]
    enough = leading(log(0), {2: 1}, partition(isr=(1, 2)))
    assert produce(enough, Produce(0, 1, -1), TWO)[0].log.end == 2


def test_the_minimum_is_never_more_than_there_are_replicas() -> None:
    alone = leading(log(0), {}, partition(isr=(1,), replicas=(1,)))
    assert answered(produce(alone, Produce(0, 1, -1), TWO)[1]) == [(1, "NONE", 1)]


def test_who_does_not_lead_refuses() -> None:
    after, messages = produce(following(log(0)), Produce(0, 1, 1), RULES)
    assert answered(messages) == [(1, "NOT_LEADER_OR_FOLLOWER", -1)]
    assert after.log.end == 1


def test_an_append_alone_in_the_isr_commits_at_once() -> None:
    after, messages = produce(leading(log(0), {2: 0}, partition(isr=(1,))), Produce(0, 1, -1), RULES)
    assert answered(messages) == [(1, "NONE", 1)]
    assert after.log.high_watermark == 2


def test_a_batch_of_several_records_is_acknowledged_with_its_first_offset() -> None:
    after, messages = produce(leading(log(0), {}, partition(isr=(1,))), Produce(0, 1, -1, length=4), RULES)
    assert (after.log.end, answered(messages)) == (5, [(1, "NONE", 1)])


# Serving fetches, and the high watermark


def test_the_next_fetch_is_the_proof_of_replication() -> None:
    before = leading(log(0, 0), {2: 0, 3: 2})
    after, (reply, *_) = step(before, fetch(1), RULES)
    assert isinstance(reply, Fetched)
    assert [batch.base for batch in reply.batches] == [1]
    assert reply.high_watermark == 0
    assert after.log.high_watermark == 1
    assert role(after).progress[0] == Progress(2, 1, 0)


def test_without_it_what_was_sent_counts_as_replicated() -> None:
    rules = without(RULES, "replicated by the next fetch")
    after, _ = step(leading(log(0, 0), {2: 0, 3: 2}), fetch(1), rules)
    assert after.log.high_watermark == 2
    assert step(after, fetch(2), rules)[0].log.high_watermark == 2
    both = replace(rules, max_fetch_batches=2)
    assert step(leading(log(0, 0), {3: 2}), fetch(0), both)[0].log.high_watermark == 2


def test_the_acknowledgement_goes_out_when_the_high_watermark_passes() -> None:
    waiting, _ = produce(leading(log(), {2: 0, 3: 0}), Produce(0, 0, -1), RULES)
    one, messages = step(waiting, fetch(1), RULES)
    assert answered(messages) == []
    _, messages = step(one, fetch(1, follower=3), RULES)
    assert answered(messages) == [(0, "NONE", 0)]


def test_only_what_the_high_watermark_has_passed_is_acknowledged() -> None:
    waiting, _ = produce(leading(log(0), {2: 0, 3: 2}), Produce(0, 1, -1), RULES)
    after, messages = step(waiting, fetch(1), RULES)
    assert (after.log.high_watermark, answered(messages)) == (1, [])
    assert len(role(after).waiting) == 1
    more, _ = produce(waiting, Produce(0, 2, -1), RULES)
    more = with_role(more, role(more)._replace(progress=(Progress(2), Progress(3, 3, 0))))
    after, messages = step(more, fetch(2), RULES)
    assert (after.log.high_watermark, answered(messages)) == (2, [(1, "NONE", 1)])
    assert [waits.sequence for waits in role(after).waiting] == [2]


def test_who_is_not_in_the_isr_is_not_waited_for() -> None:
    before = leading(log(0, 0), {2: 2, 3: 0}, partition(isr=(1, 2)))
    assert advance_high_watermark(before, RULES)[0].log.high_watermark == 2


def test_the_high_watermark_stands_while_the_isr_is_too_small() -> None:
    few = leading(log(0), {2: 0}, partition(isr=(1,)))
    assert advance_high_watermark(few, TWO)[0].log.high_watermark == 0
    assert advance_high_watermark(few, without(TWO, "strict minimum ISR"))[0].log.high_watermark == 1
    assert advance_high_watermark(few, RULES)[0].log.high_watermark == 1


def test_it_never_goes_back() -> None:
    before = leading(log(0, 0, high_watermark=2), {2: 1, 3: 2})
    assert advance_high_watermark(before, RULES)[0].log.high_watermark == 2


def test_an_isr_that_shrank_after_the_append_answers_after_append() -> None:
    """The error NOT_ENOUGH_REPLICAS_AFTER_APPEND occurs only without the strict rule, or if the minimum is raised after
    the append."""
    few = leading(log(0, 0), {2: 0}, partition(isr=(1,)))
    few = with_role(few, role(few)._replace(waiting=(Waiting(0, 1, 1, 2),)))
    _, messages = advance_high_watermark(few, without(TWO, "strict minimum ISR"))
    assert answered(messages) == [(1, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", -1)]


def test_a_fetch_of_another_epoch_is_fenced() -> None:
    before = leading(log(0), {2: 0}, partition(epoch=3))
    for epoch, error in ((2, "FENCED_LEADER_EPOCH"), (4, "UNKNOWN_LEADER_EPOCH")):
        after, (reply,) = step(before, fetch(1, epoch=epoch), RULES)
        assert (reply.error.name, after) == (error, before)
        assert step(before, fetch(1, epoch=epoch), without(RULES, "fetch fencing"))[1][0].error is Error.NONE
    assert step(following(log(0)), fetch(1), RULES)[1][0].error is Error.NOT_LEADER_OR_FOLLOWER


def test_a_fetch_that_diverges_is_told_where_and_proves_nothing() -> None:
    before = leading(log(0, 0, 2), {2: 0}, partition(epoch=2), start=2)
    after, (reply,) = step(before, fetch(3, last_epoch=1, epoch=2), RULES)
    assert (reply.diverging, reply.batches, after) == (EpochEntry(0, 2), (), before)
    _, (reply,) = step(before, fetch(3, last_epoch=0, epoch=2), RULES)
    assert reply.diverging == EpochEntry(0, 2)
    _, (reply,) = step(before, fetch(2, last_epoch=1, epoch=2), RULES)
    assert reply.diverging == EpochEntry(0, 2)
    _, (reply, *_) = step(before, fetch(2, last_epoch=0, epoch=2), RULES)
    assert reply.diverging is None


def test_an_empty_log_has_no_epoch_to_compare() -> None:
    _, (reply, *_) = step(leading(log(0, 0), {}), fetch(0, last_epoch=-1), RULES)
    assert [batch.base for batch in reply.batches] == [0]


def test_a_fetch_with_an_epoch_that_the_leader_does_not_know_is_out_of_range() -> None:
    _, (reply,) = step(leading(log(0), {}), fetch(1, last_epoch=5), RULES)
    assert (reply.error, reply.leader_start, reply.leader_end) == (Error.OFFSET_OUT_OF_RANGE, 0, 1)


@pytest.mark.parametrize(("offset", "error"), [(0, "NONE"), (2, "NONE"), (3, "OFFSET_OUT_OF_RANGE")])
def test_a_fetch_beyond_the_log_is_out_of_range(offset: int, error: str) -> None:
    early = Rules(truncation=Truncation.WALK_BACK)
    assert step(leading(log(0, 0), {}), fetch(offset, last_epoch=0), early)[1][0].error.name == error


def test_a_fetch_below_the_log_start_is_out_of_range() -> None:
    held = log(0, 0)._replace(start=1)
    assert step(leading(held, {}), fetch(0, last_epoch=-1), RULES)[1][0].error is Error.OFFSET_OUT_OF_RANGE


def test_where_an_epoch_ends_is_answered_with_the_epoch_found_since_kip_279() -> None:
    before = leading(log(0, 0, 2), {}, partition(epoch=2))
    asked = AskEpochEnd(2, 1, 2, 1)
    for way, epoch in ((Truncation.WALK_BACK, 0), (Truncation.EPOCH, 1)):
        reply = step(before, asked, Rules(truncation=way))[1][0]
        assert reply == EpochEnd(2, 1, 2, 1, Error.NONE, EpochEntry(epoch, 2))
    unknown = step(before, asked._replace(epoch=9), Rules(truncation=Truncation.EPOCH))[1][0]
    assert unknown.end == EpochEntry(-1, -1)
    assert step(before, asked._replace(leader_epoch=1), RULES)[1][0].error is Error.FENCED_LEADER_EPOCH


# Epochs


def test_a_new_leader_knows_nothing_of_its_followers() -> None:
    after, _ = become_leader(following(log(0, 0)), metadata(partition(leader=2, epoch=1, isr=(2, 3))), RULES)
    assert role(after) == Leader(1, 2, (Progress(1), Progress(3)))
    assert after.process.up
    assert [tuple(entry) for entry in after.log.epochs] == [(0, 0), (1, 2)]
    assert after.log.high_watermark == 0


def test_a_new_leader_alone_in_the_isr_commits_what_it_has() -> None:
    after, _ = become_leader(following(log(0, 0)), metadata(partition(leader=2, epoch=1, isr=(2,))), RULES)
    assert after.log.high_watermark == 2


def test_who_leads_on_keeps_what_it_knows_unless_an_epoch_lies_between() -> None:
    before = produce(leading(log(0), {2: 1, 3: 0}), Produce(0, 1, -1), RULES)[0]
    on, _ = learn(before, metadata(partition(epoch=1, version=1)), RULES)
    assert role(on).progress[0] == Progress(2, 1, 0)
    assert role(on).waiting == role(before).waiting
    back, messages = learn(before, metadata(partition(epoch=2, version=2)), RULES)
    assert (answered(messages), role(back).waiting) == ([(1, "NOT_LEADER_OR_FOLLOWER", -1)], ())
    assert role(back).progress[0] == Progress(2)
    careless, _ = learn(before, metadata(partition(epoch=2, version=2)), without(RULES, "noticed epochs"))
    assert role(careless).progress[0] == Progress(2, 1, 0)


def test_what_a_former_leader_knew_is_forgotten_with_its_role() -> None:
    for rules, known in ((RULES, Progress(2)), (without(RULES, "forgotten followers"), Progress(2, 1, 0))):
        deposed, _ = learn(
            leading(log(0), {2: 1, 3: 0}), metadata(partition(leader=3, epoch=1, version=1)), rules
        )
        assert isinstance(deposed.process.role, Follower)
        again, _ = learn(deposed, metadata(partition(leader=2, epoch=2, version=2)), rules)
        again, _ = learn(again, metadata(partition(leader=1, epoch=3, version=3)), rules)
        assert role(again).progress[0] == known


def test_who_loses_the_leadership_answers_all_who_wait() -> None:
    waiting, _ = produce(leading(log(0), {2: 1, 3: 1}), Produce(0, 1, -1), RULES)
    after, messages = learn(waiting, metadata(partition(leader=2, epoch=1, version=1)), RULES)
    assert answered(messages) == [(1, "NOT_LEADER_OR_FOLLOWER", -1)]
    assert after.log.end == 2
    assert resign(following(log(0))) == ()


def test_a_time_out_is_answered_and_leaves_the_record() -> None:
    waiting, _ = produce(leading(log(0), {2: 1, 3: 1}), Produce(0, 1, -1), RULES)
    waiting, _ = produce(waiting, Produce(0, 2, -1), RULES)
    after, messages = time_out(waiting, Waiting(0, 1, 1, 2))
    assert answered(messages) == [(1, "REQUEST_TIMED_OUT", -1)]
    assert [w.sequence for w in role(after).waiting] == [2]
    assert after.log.end == 3


def test_new_replicas_are_unknown_to_a_leader_that_leads_on() -> None:
    before = leading(log(0), {2: 1}, partition(replicas=(1, 2), isr=(1, 2)))
    known = metadata(partition(version=1, isr=(1, 2)))
    after, _ = learn(before, known._replace(brokers=(*known.brokers, Registration(4, 0))), RULES)
    assert role(after).progress == (Progress(2, 1, 0), Progress(3))
