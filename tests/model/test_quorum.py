"""Majority quorum replication: clean to exhaustion, and what each of Raft's protections is for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackproof_reference.explore.quorums import Bounds, Quorum
from ackproof_reference.explore.search import Search
from ackproof_reference.log import Log
from ackproof_reference.quorum import QuorumRules, Server, commit, count_vote, majority, stand, vote
from partition import log

RAFT = QuorumRules()


def search(rules: QuorumRules, bounds: Bounds, *wanted: str, max_states: int = 600_000) -> Search:
    made = Search(Quorum(rules, bounds), frozenset(wanted) or frozenset({"whatever there is"}))
    made.run(max_states=max_states)
    return made


@pytest.mark.parametrize(
    "bounds", [Bounds(elections=3, entries=2), Bounds(elections=2, crashes=2, entries=2)], ids=str
)
def test_nothing_is_lost_to_exhaustion(bounds: Bounds) -> None:
    made = search(RAFT, bounds)
    assert made.exhausted
    assert made.findings == {}
    assert any(observed.committed == (2, 1) for observed in made.cells.values[1])


@pytest.mark.parametrize(
    ("off", "bounds", "kind"),
    [
        ("votes_for_newer_logs", Bounds(elections=2, entries=1), "lost"),
        ("commits_own_epoch", Bounds(elections=4, entries=2), "lost"),
        ("durable_votes", Bounds(elections=2, crashes=1), "two leaders"),
        ("durable_log", Bounds(elections=2, crashes=1), "lost"),
    ],
)
def test_each_protection_is_needed(off: str, bounds: Bounds, kind: str) -> None:
    without = search(replace(RAFT, **{off: False}), bounds, kind)
    assert kind in without.findings
    assert kind not in search(RAFT, bounds, kind, max_states=min(len(without.seen) * 2, 50_000)).findings


@pytest.mark.nightly
def test_nothing_is_lost_in_four_elections() -> None:
    made = search(RAFT, Bounds(elections=4, entries=2), max_states=20_000_000)
    assert made.exhausted
    assert made.findings == {}


def test_a_server_begins_with_nothing_and_nobody() -> None:
    assert Server() == Server(0, -1, Log(), False, (), ())


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


def test_a_majority_of_votes_makes_a_leader() -> None:
    candidate = stand(Server(), 1)
    assert not count_vote(candidate, 2, 5).leads
    assert count_vote(candidate, 2, 3).leads


def test_the_slowest_member_delays_nobody() -> None:
    """In an ISR of three it would: there the high watermark is the lowest end, here the one that two of three reach."""
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
