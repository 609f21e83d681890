"""Tests of followers, and of starts and ends of a broker."""

from __future__ import annotations

import pytest

from ackproof_reference.broker import (
    Broker,
    Follower,
    Leader,
    Process,
    kill,
    power_off,
    start,
    stop_cleanly,
    with_checkpoint,
)
from ackproof_reference.follower import next_request
from ackproof_reference.log import Batch, EpochEntry, Log, begin_epoch
from ackproof_reference.messages import AskEpochEnd, EpochEnd, Error, Fetch, Fetched, Produce
from ackproof_reference.metadata import Registration
from ackproof_reference.node import learn, step
from ackproof_reference.rules import Rules, Truncation, without
from partition import following, leading, log, metadata, partition

RULES = Rules()
WALK_BACK = Rules(truncation=Truncation.WALK_BACK)
ASK_ONCE = Rules(truncation=Truncation.EPOCH)
TO_MARK = Rules(truncation=Truncation.HIGH_WATERMARK)


def fetched(offset: int, *epochs: int, mark: int = 0, **more: object) -> Fetched:
    batches = tuple(Batch(offset + place, epoch, 0, 10 + place) for place, epoch in enumerate(epochs))
    return Fetched(2, 1, 0, offset, batches=batches, high_watermark=mark, **more)  # type: ignore[arg-type]


def epoch_end(epoch: int, end: int, **more: object) -> EpochEnd:
    return EpochEnd(2, 1, 0, 0, Error.NONE, EpochEntry(epoch, end))._replace(**more)


# Fetching


def test_a_follower_asks_for_what_comes_after_its_log() -> None:
    assert next_request(following(log(0, 2), partition(epoch=3))) == Fetch(2, 1, 0, 3, 2, 2)
    assert next_request(following(log(), partition(leader=-1))) is None
    assert next_request(leading(log())) is None
    assert next_request(following(log(0, 2), partition(epoch=3), truncating=True)) == AskEpochEnd(2, 1, 3, 2)


def test_it_appends_and_takes_over_the_high_watermark_as_far_as_its_log_goes() -> None:
    after, messages = step(following(log(0)), fetched(1, 0, 0, mark=9), RULES)
    assert (after.log.end, after.log.high_watermark, messages) == (3, 3, ())
    after, _ = step(following(log(0)), fetched(1, 0, 0, mark=9), without(RULES, "bounded high watermark"))
    assert after.log.high_watermark == 9
    after, _ = step(following(log(0)), fetched(1, 0, 0, mark=1), RULES)
    assert after.log.high_watermark == 1


def test_its_high_watermark_may_go_back() -> None:
    assert step(following(log(0, 0, high_watermark=2)), fetched(2, mark=1), RULES)[0].log.high_watermark == 1


@pytest.mark.parametrize("wrong", [{"leader_epoch": 1}, {"leader": 3}, {"offset": 0}])
def test_an_answer_to_what_it_would_not_ask_now_is_dropped(wrong: dict[str, int]) -> None:
    before = following(log(0))
    late = fetched(1, 0, mark=1)._replace(**wrong)
    assert step(before, late, RULES) == (before, ())
    assert step(before, late, without(RULES, "matched responses"))[0] != before


def test_what_it_holds_already_is_not_appended_again() -> None:
    after, _ = step(following(log(0, 0)), fetched(1, 0, 0), without(RULES, "matched responses"))
    assert [batch.base for batch in after.log.batches] == [0, 1, 2]


def test_a_leader_and_a_refused_follower_append_nothing() -> None:
    assert step(leading(log(0)), fetched(1, 0), RULES)[0].log.end == 1
    refused = fetched(1, 0)._replace(error=Error.NOT_LEADER_OR_FOLLOWER)
    assert step(following(log(0)), refused, RULES)[0].log.end == 1
    assert step(following(log(0), truncating=True), fetched(1, 0), RULES)[0].log.end == 1


# Truncation as the answer to a fetch (KIP-595)


@pytest.mark.parametrize(
    ("held", "epoch", "end", "left"),
    [
        ((0, 0, 1), 0, 1, 1),
        ((0, 0, 1), 0, 5, 2),
        ((0, 0, 2), 1, 3, 2),
        ((1, 1), 0, 0, 0),
        ((0, 0), 1, 1, 1),
        ((0, 0), 1, 5, 2),
    ],
)
def test_it_cuts_where_the_logs_part(held: tuple[int, ...], epoch: int, end: int, left: int) -> None:
    """The leader says that its newest epoch not above the follower's last one ends at `end`. The follower's later
    epochs are truncated."""
    answer = fetched(len(held), diverging=EpochEntry(epoch, end))
    assert step(following(log(*held)), answer, RULES)[0].log.end == left


def test_an_epoch_without_records_leaves_the_cache_when_the_logs_part() -> None:
    before = following(begin_epoch(log(0), 1))
    after, _ = step(before, fetched(1, diverging=EpochEntry(0, 1)), RULES)
    assert after.log.epochs == (EpochEntry(0, 0),)


@pytest.mark.parametrize(
    ("start_", "end", "left"), [(0, 1, (0, 1)), (0, 9, (0, 3)), (5, 9, (5, 5)), (3, 9, (0, 3))]
)
def test_out_of_range_it_cuts_to_the_leaders_end_or_begins_at_its_start(
    start_: int, end: int, left: tuple[int, int]
) -> None:
    answer = fetched(3)._replace(error=Error.OFFSET_OUT_OF_RANGE, leader_start=start_, leader_end=end)
    after, _ = step(following(log(0, 0, 0)), answer, RULES)
    assert (after.log.start, after.log.end) == left


def test_out_of_range_with_the_leaders_end_it_keeps_even_an_epoch_without_records() -> None:
    """The follower truncates only if the leader's log ends before its own (fetchOffsetAndTruncate). Only a truncation
    drops an epoch without records."""
    held = begin_epoch(log(0), 4)
    answer = fetched(1)._replace(error=Error.OFFSET_OUT_OF_RANGE, leader_end=1)
    assert step(following(held), answer, RULES)[0].log == held


# Truncation before fetching


def test_before_kip_101_it_cuts_to_its_own_high_watermark_when_another_broker_leads() -> None:
    before = following(log(0, 0, high_watermark=1))
    cut, _ = learn(before, metadata(partition(leader=3, epoch=1, version=1)), TO_MARK)
    assert (cut.log.end, isinstance(cut.process.role, Follower)) == (1, True)
    kept, _ = learn(before, metadata(partition(epoch=1, version=1)), TO_MARK)
    assert kept.log.end == 2
    leaderless, _ = learn(before, metadata(partition(leader=-1, epoch=1, version=1)), TO_MARK)
    assert leaderless.log.end == 2


@pytest.mark.parametrize("rules", [WALK_BACK, ASK_ONCE])
def test_since_kip_101_it_asks_first(rules: Rules) -> None:
    of = metadata(partition(leader=3, epoch=1, version=1))
    asks, _ = learn(following(log(0, 0)), of, rules)
    assert next_request(asks) == AskEpochEnd(2, 3, 1, 0)
    empty, _ = learn(following(log()), of, rules)
    assert isinstance(next_request(empty), Fetch)
    assert isinstance(next_request(learn(following(log(0, 0)), of, RULES)[0]), Fetch)


def truncating(*epochs: int, mark: int = 0) -> Broker:
    return following(log(*epochs, high_watermark=mark), truncating=True)


def still(broker: Broker) -> bool:
    assert isinstance(broker.process.role, Follower)
    return broker.process.role.truncating


def test_asked_once_it_cuts_to_what_it_is_told() -> None:
    after, _ = step(truncating(0, 0, 1), epoch_end(1, 2), ASK_ONCE)
    assert (after.log.end, still(after)) == (2, False)


def test_walking_back_it_asks_again_while_the_epoch_is_none_of_its_own() -> None:
    after, _ = step(truncating(0, 0, 2, 2), epoch_end(1, 4), WALK_BACK)
    assert (after.log.end, still(after)) == (2, True)
    after, _ = step(after, epoch_end(0, 1), WALK_BACK)
    assert (after.log.end, still(after)) == (1, False)


def test_walking_back_to_nothing_ends() -> None:
    after, _ = step(truncating(2, 2), epoch_end(1, 4), WALK_BACK)
    assert (after.log.end, still(after)) == (0, False)


def test_a_leader_that_has_not_come_so_far_leaves_the_high_watermark() -> None:
    after, _ = step(truncating(0, 0, mark=1), epoch_end(-1, -1), ASK_ONCE)
    assert (after.log.end, still(after)) == (1, False)


def test_a_late_or_refused_answer_cuts_nothing() -> None:
    before = truncating(0, 0)
    assert step(before, epoch_end(0, 0, leader_epoch=4), WALK_BACK)[0] == before
    assert step(before, epoch_end(0, 0, leader=3), WALK_BACK)[0] == before
    assert step(before, epoch_end(0, 0, error=Error.FENCED_LEADER_EPOCH), WALK_BACK)[0] == before
    assert step(following(log(0, 0)), epoch_end(0, 0), WALK_BACK)[0].log.end == 2
    assert step(leading(log(0)), epoch_end(0, 0), WALK_BACK)[0].log.end == 1
    late = epoch_end(0, 1, leader_epoch=4)
    assert step(before, late, without(WALK_BACK, "matched responses"))[0].log.end == 1


# Learning


def test_an_older_image_changes_nothing() -> None:
    before = following(log(0), partition(epoch=3, version=5))
    assert learn(before, metadata(partition(leader=2, epoch=2, version=4)), RULES) == (before, ())


def test_an_image_of_the_same_epoch_leaves_the_role() -> None:
    before = following(log(0), partition(epoch=3, version=5), truncating=True)
    after, _ = learn(before, metadata(partition(epoch=3, version=6, isr=(1,))), RULES)
    assert after.process.role == before.process.role
    assert after.process.partition.isr == (1,)


def test_who_is_elected_leads_and_who_is_moved_away_drops_its_log() -> None:
    led, _ = learn(following(log(0)), metadata(partition(leader=2, epoch=1, version=1)), RULES)
    assert isinstance(led.process.role, Leader)
    gone, _ = learn(led, metadata(partition(replicas=(1, 3), isr=(1, 3), epoch=2, version=2)), RULES)
    assert (gone.log, gone.process.role) == (Log(), None)


def test_a_started_broker_takes_the_role_it_finds() -> None:
    started = start(kill(following(log(0))), Registration(2, 1))
    assert (started.process, started.log.end) == (Process(up=True, epoch=1), 1)
    learnt, _ = learn(started, metadata(partition()), RULES)
    assert (isinstance(learnt.process.role, Follower), learnt.process.up) == (True, True)
    elsewhere, _ = learn(started, metadata(partition(replicas=(1, 3), isr=(1,))), RULES)
    assert (elsewhere.process.role, elsewhere.process.up) == (None, True)


def test_an_image_of_the_same_version_brings_registrations() -> None:
    before = following(log(0), partition(epoch=3, version=5))
    after, _ = learn(before, metadata(partition(epoch=3, version=5), fenced=(3,)), RULES)
    assert (after.process.metadata, after.process.up) == (
        metadata(partition(epoch=3, version=5), fenced=(3,)),
        True,
    )


def test_what_is_not_said_of_a_broker() -> None:
    assert Follower(1, 0) == Follower(1, 0, False, ())
    assert Process(True, 0) == Process(True, 0, None, None, False)
    assert Registration(1, 0) == Registration(1, 0, False, False)
    assert Fetched(2, 1, 0, 0) == Fetched(2, 1, 0, 0, Error.NONE, (), 0, None, 0, 0)
    assert Produce(1, 2, -1) == Produce(1, 2, -1, 1, -1, -1, False)


# Stopping


def test_a_kill_takes_memory_and_nothing_else() -> None:
    dead = kill(following(log(0, 0)))
    assert dead.log == log(0, 0)
    assert dead.process == Process(up=False, epoch=0)


def test_a_power_loss_takes_the_page_cache_too() -> None:
    dead = power_off(following(log(0, 0, 0, flushed=1)), 2)
    assert (dead.log.end, dead.process.up) == (2, False)


def test_a_checkpoint_is_never_newer_than_what_memory_held() -> None:
    dead = kill(following(log(0, 0, high_watermark=1)))
    assert with_checkpoint(dead, 0).log == log(0, 0, high_watermark=0)
    assert with_checkpoint(dead, 2) == dead


def test_a_clean_stop_flushes_and_says_so() -> None:
    stopped = stop_cleanly(following(log(0, 0)))
    assert (stopped.log.flushed, stopped.process) == (2, Process(up=False, epoch=0, clean=True))


def test_starting_drops_epochs_in_which_nobody_wrote() -> None:
    dead = kill(following(begin_epoch(log(0), 4)))
    assert start(dead, Registration(2, 1)).log.epochs == (EpochEntry(0, 0),)
