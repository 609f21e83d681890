"""Tests of majority quorum replication: no finding with all of Raft's protections, and a finding without each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackproof_reference.explore.protocol_worlds import QuorumBounds, quorum
from ackproof_reference.explore.search import Search
from ackproof_reference.log import Batch, EpochEntry, Log, begin_epoch
from ackproof_reference.quorum import (
    QuorumRules,
    Server,
    commit,
    count_vote,
    crash,
    fetch,
    majority,
    stand,
    vote,
    write,
)
from partition import log

RAFT = QuorumRules()


def search(rules: QuorumRules, bounds: QuorumBounds, *wanted: str, max_states: int = 600_000) -> Search:
    made = Search(quorum(rules, bounds), frozenset(wanted) or frozenset({"whatever there is"}))
    made.run(max_states=max_states)
    return made


@pytest.mark.parametrize(
    "bounds", [QuorumBounds(elections=3, entries=2), QuorumBounds(elections=2, crashes=2, entries=2)], ids=str
)
def test_nothing_is_lost_to_exhaustion(bounds: QuorumBounds) -> None:
    made = search(RAFT, bounds)
    assert made.exhausted
    assert made.findings == {}
    assert any(observed.committed == (2, 1) for observed in made.cells.values[1])


@pytest.mark.parametrize(
    ("off", "bounds", "kind"),
    [
        ("votes_for_newer_logs", QuorumBounds(elections=2, entries=1), "lost"),
        ("commits_own_epoch", QuorumBounds(elections=4, entries=2), "lost"),
        ("durable_votes", QuorumBounds(elections=2, crashes=1), "two leaders"),
        ("durable_log", QuorumBounds(elections=2, crashes=1), "lost"),
    ],
)
def test_each_protection_is_needed(off: str, bounds: QuorumBounds, kind: str) -> None:
    without = search(replace(RAFT, **{off: False}), bounds, kind)
    assert kind in without.findings
    assert kind not in search(RAFT, bounds, kind, max_states=min(len(without.seen) * 2, 50_000)).findings


@pytest.mark.nightly
def test_nothing_is_lost_in_four_elections() -> None:
    made = search(RAFT, QuorumBounds(elections=4, entries=2), max_states=20_000_000)
    assert made.exhausted
    assert made.findings == {}


def test_a_server_begins_with_nothing_and_nobody() -> None:
    assert Server() == Server(0, -1, Log(), False, (), ())
    assert QuorumRules() == QuorumRules(True, True, True, True)


def test_a_majority_is_more_than_half() -> None:
    assert [majority(n) for n in (1, 2, 3, 4, 5)] == [1, 2, 2, 3, 3]


def test_one_vote_for_each_epoch_and_only_for_newer_logs() -> None:
    candidate = stand(Server(log=log(0)), 1)
    voter, granted = vote(Server(), candidate, 1, RAFT)
    assert (granted, voter.voted, voter.epoch) == (True, 1, 1)
    assert vote(voter, candidate, 2, RAFT)[1] is False
    assert vote(voter, candidate, 1, RAFT)[1] is True
    assert vote(Server(log=log(0, 0)), candidate, 1, RAFT)[1] is False
    assert vote(Server(log=log(1)), candidate, 1, RAFT)[1] is False
    assert vote(Server(epoch=5), candidate, 1, RAFT) == (Server(epoch=5), False)


def test_who_stands_begins_an_epoch_and_votes_for_itself() -> None:
    before = Server(4, 2, log(0), leads=True, votes=(2,), ends=((2, 1),))
    assert stand(before, 1) == Server(5, 1, log(0), votes=(1,))


def test_a_newer_epoch_makes_a_follower_of_who_leads_whether_it_votes_or_not() -> None:
    leader = Server(1, 0, log(1), leads=True, ends=((2, 1),))
    assert vote(leader, Server(2, 1, log(1)), 1, RAFT) == (Server(2, 1, log(1)), True)
    assert vote(leader, Server(2, 1, log()), 1, RAFT) == (Server(2, -1, log(1)), False)


def test_a_vote_given_in_an_epoch_is_for_nobody_else_in_it() -> None:
    voted = Server(2, 2, log())
    assert vote(voted, Server(2, 1, log(0)), 1, RAFT) == (voted, False)
    assert vote(voted, Server(2, 1, log(0)), 1, replace(RAFT, votes_for_newer_logs=False)) == (voted, False)


def test_without_asking_for_newer_logs_any_candidate_gets_a_vote() -> None:
    careless = replace(RAFT, votes_for_newer_logs=False)
    assert vote(Server(log=log(0)), Server(1, 1), 1, careless) == (Server(1, 1, log(0)), True)


def test_a_majority_of_votes_makes_a_leader() -> None:
    candidate = stand(Server(), 1)
    assert not count_vote(candidate, 2, 5).leads
    assert count_vote(candidate, 2, 5).votes == (1, 2)
    assert count_vote(candidate, 1, 3).votes == (1,)
    assert count_vote(candidate, 0, 5).votes == (0, 1)
    assert count_vote(candidate, 2, 3) == Server(1, 1, begin_epoch(Log(), 1), leads=True)


def test_the_slowest_member_delays_nobody() -> None:
    """The high watermark is the offset that two of three servers have. With an ISR of three it would be the lowest log
    end."""
    leader = Server(1, 1, log(1, 1)._replace(epochs=log(1).epochs), leads=True, ends=((2, 2), (3, 0)))
    assert commit(leader, 3, RAFT).log.high_watermark == 2
    assert commit(leader._replace(ends=((2, 1), (3, 0))), 3, RAFT).log.high_watermark == 1
    assert commit(leader._replace(ends=()), 3, RAFT).log.high_watermark == 0


def test_an_older_epochs_entry_commits_only_along_with_an_own_one() -> None:
    leader = count_vote(stand(Server(log=log(0)), 1), 2, 3)._replace(ends=((2, 1),))
    assert commit(leader, 3, RAFT).log.high_watermark == 0
    assert commit(leader, 3, replace(RAFT, commits_own_epoch=False)).log.high_watermark == 1
    assert leader.log.epochs[-1] == (1, 1)
    assert Log().epochs == ()


# Writing and fetching


def elected(*held: int) -> Server:
    """Return server 0 of three as leader in epoch 1. `held`: entries of earlier epochs in its log."""
    return count_vote(stand(Server(log=log(*held)), 0), 1, 3)


def test_a_leader_stamps_its_epoch_and_flushes() -> None:
    written = write(elected(0), 7, RAFT).log
    assert (written.batches[-1], written.flushed) == (Batch(1, 1, 0, 7), 2)
    assert write(elected(0), 7, replace(RAFT, durable_log=False)).log.flushed == 0


def test_who_leads_steps_down_when_it_hears_of_a_newer_epoch() -> None:
    follower = Server(3, 2, log(0))
    stepped = Server(3, -1, elected(0).log)
    assert fetch(follower, elected(0), 1, 3, RAFT) == (follower, stepped)


def test_a_follower_takes_over_a_newer_epoch_and_has_not_voted_in_it() -> None:
    candidate = Server(0, 2, log(0), votes=(1, 2))
    assert fetch(candidate, elected(0), 1, 3, RAFT)[0] == Server(1, -1, log(0))
    assert fetch(Server(1, 0, log(0)), elected(0), 1, 3, RAFT)[0].voted == 0


def test_a_fetch_proves_what_the_follower_holds_and_brings_one_entry() -> None:
    leader = write(write(elected(0), 1, RAFT), 2, RAFT)
    follower, leader = fetch(Server(1, 0, log(0)), leader, 1, 3, RAFT)
    assert (follower.log.end, follower.log.flushed, follower.log.high_watermark) == (2, 2, 0)
    assert (leader.ends, leader.log.high_watermark) == (((1, 1),), 0)
    follower, leader = fetch(follower, leader, 1, 3, RAFT)
    assert (follower.log.end, follower.log.high_watermark) == (3, 2)
    assert (leader.ends, leader.log.high_watermark) == (((1, 2),), 2)
    assert leader.leads


def test_what_is_known_of_others_stays_in_their_order() -> None:
    leader = write(elected(), 1, RAFT)._replace(ends=((2, 1),))
    assert fetch(Server(1, 0), leader, 1, 3, RAFT)[1].ends == ((1, 0), (2, 1))


def test_without_flushing_an_entry_is_in_the_page_cache_only() -> None:
    careless = replace(RAFT, durable_log=False)
    follower, _ = fetch(Server(1, 0), write(elected(), 1, careless), 1, 3, careless)
    assert (follower.log.end, follower.log.flushed) == (1, 0)


def test_a_followers_high_watermark_never_passes_its_log_nor_goes_back() -> None:
    leader = elected(0, 0, 0)
    leader = leader._replace(log=leader.log._replace(high_watermark=3))
    follower, _ = fetch(Server(1, 0), leader, 1, 3, RAFT)
    assert (follower.log.end, follower.log.high_watermark) == (1, 1)
    ahead = Server(1, 0, log(0, 0, high_watermark=2))
    assert fetch(ahead, elected(0, 0), 1, 3, RAFT)[0].log.high_watermark == 2


@pytest.mark.parametrize(
    ("own", "leaders", "kept"),
    [
        ((0, 0, 0), (0, 2), (0,)),
        ((0, 1), (0, 0, 2), (0,)),
        ((5,), (0,), ()),
        ((1,), (0, 2), ()),
        ((0, 0, 1), (0, 0, 0, 2), (0, 0)),
    ],
    ids=["longer", "an epoch of its own", "newer than the leader's", "nothing in common", "one too many"],
)
def test_a_follower_cuts_where_the_logs_part(
    own: tuple[int, ...], leaders: tuple[int, ...], kept: tuple[int, ...]
) -> None:
    """A fetch that truncates does not count as a copy: the leader stays unchanged."""
    leader = Server(5, 0, log(*leaders), leads=True)
    assert fetch(Server(5, 0, log(*own)), leader, 1, 3, RAFT) == (Server(5, 0, log(*kept)), leader)


def test_what_comes_back_from_a_crash_is_what_was_on_its_disk() -> None:
    leader = Server(3, 1, log(0, 3, flushed=1), leads=True, votes=(1, 2), ends=((2, 1),))
    assert crash(leader, RAFT) == Server(3, 1, leader.log)
    assert crash(leader, replace(RAFT, durable_log=False)) == Server(3, 1, log(0, flushed=1))
    idle = begin_epoch(log(0), 3)
    assert crash(Server(3, 1, idle), RAFT).log.epochs == (EpochEntry(0, 0),)


def test_without_durable_votes_a_server_knows_the_epochs_of_its_log_only() -> None:
    forgetful = replace(RAFT, durable_votes=False)
    assert crash(Server(3, 1, log(0, 2, flushed=2)), forgetful) == Server(2, -1, log(0, 2, flushed=2))
    assert crash(Server(3, 1), forgetful) == Server(0, -1)


def test_too_few_known_ends_commit_nothing() -> None:
    leader = write(elected(), 1, RAFT)
    assert commit(leader._replace(ends=((1, 1),)), 5, RAFT).log.high_watermark == 0
    assert commit(leader._replace(ends=((1, 1), (2, 1))), 5, RAFT).log.high_watermark == 1
    assert commit(leader._replace(ends=((1, 1),)), 3, RAFT).log.high_watermark == 1


def test_a_commit_never_goes_back() -> None:
    leader = write(elected(), 1, RAFT)
    leader = leader._replace(log=leader.log._replace(high_watermark=1), ends=((1, 0), (2, 0)))
    assert commit(leader, 3, replace(RAFT, commits_own_epoch=False)).log.high_watermark == 1
