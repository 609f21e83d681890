"""Tests of the ends of searches for lost and vanished records: no state after such an end breaks an invariant.

All end states of a scope are searched on together, without ends. That finds more errors than a comparison of findings.
If a planted error ends a search too soon, the same finding may be reached on another path of the same length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import ModuleType

import pytest
from hypothesis import assume, given, settings

from ackproof_reference.broker import Follower, Leader, Process, Progress
from ackproof_reference.explore import ending, seated
from ackproof_reference.explore.fetching import Late
from ackproof_reference.explore.scope import ALL, NOTHING, Budget, Client, Scope
from ackproof_reference.log import UNKNOWN, Batch, Log, append
from ackproof_reference.messages import Fetch
from ackproof_reference.metadata import Metadata, Partition, Registration
from ackproof_reference.rules import VERSIONS, without
from reduced import at_night, broken_behind, small_scopes

MOST = 30_000


def scope(release: str, brokers: int = 2, records: int = 1, acks: int = -1, **budget: int) -> Scope:
    rules = replace(VERSIONS[release], min_insync=2)
    return Scope(rules, brokers, records, acks, Budget(**budget), settled=True, targets=((2,),))


def off(scope: Scope, *protections: str) -> Scope:
    rules = scope.rules
    for protection in protections:
        rules = without(rules, protection)
    return replace(scope, rules=rules)


LARGER = {
    "two kills": scope("4.1", brokers=3, kills=2),
    "a proposal of one that died": off(
        scope("3.5", records=2, acks=1, kills=1, shrinks=1), "forgotten followers"
    ),
    "moves": scope("4.0", brokers=3, hand_overs=2),
    "a slow follower, a move": scope("4.1", records=2, acks=1, shrinks=1, hand_overs=1),
    "a stop, a cut": scope("4.2", clean_stops=1, cuts=1),
    "what is sent counts as held": off(
        scope("2.7", records=2, cuts=1, preferred=1, reassignments=1), "replicated by the next fetch"
    ),
    "a stale leader of another epoch": replace(
        off(scope("4.0", acks=1, hand_overs=2, cuts=1), "fetch fencing"), assigned=(2, 1)
    ),
    "half a stop": replace(scope("4.2", acks=1, failovers=1, clean_stops=1), settled=False),
    "requests are told apart": replace(
        off(scope("3.7", brokers=3, hand_overs=2), "truncation by epoch"),
        reductions=ALL._replace(fusing=False),
    ),
}


@cache
def broken_by_itself(scope: Scope) -> set[str] | None:
    """Return the classes that are broken after the ends of a scope, without a planted error. None: the scope is too
    large."""
    return broken_behind(scope, 100_000)


@pytest.mark.parametrize("name", at_night(LARGER, ("two kills", "requests are told apart")))
def test_nothing_is_broken_behind(name: str) -> None:
    assert broken_by_itself(LARGER[name]) == set()


@settings(max_examples=16, deadline=None, derandomize=True, database=None)
@given(small_scopes())
def test_nothing_is_broken_behind_an_end_of_a_small_scope(scope: Scope) -> None:
    broken = broken_behind(scope, 700)
    assume(broken is not None)
    assert not broken


@pytest.mark.nightly
@pytest.mark.timeout(5400)
@settings(max_examples=20_000, deadline=None, derandomize=False, database=None)
@given(small_scopes())
def test_nothing_is_broken_behind_in_many_small_scopes(scope: Scope) -> None:
    """Takes 45 minutes of one core."""
    broken = broken_behind(scope, 3_000)
    assume(broken is not None)
    assert not broken


def test_no_record_may_come_where_the_leader_counts_as_further_than_the_log_goes() -> None:
    """The leader's log was truncated after its last fetch, so a new record at that offset would count as held by the
    leader. A scope in which that happens has more than 400,000 states: three brokers, two records, three moves, without
    `forgotten followers` and `truncation by epoch`."""
    where = scope("3.7", brokers=3, records=2)
    partition = Partition((1, 2, 3), 1, 2, 4, (1, 2, 3))
    image = Metadata(partition, tuple(Registration(one, 0) for one in (1, 2, 3)))
    believes = Process(True, 0, image, Leader(2, 0, (Progress(2, 1), Progress(3))))
    leads = Process(True, 0, image, Leader(3, 0, (Progress(1), Progress(3))))

    def harmless(sent: int) -> bool:
        client = Client(sent=sent)
        return seated._cannot_harm(where, 2, 1, NOTHING, client, Log(), leads, None, Log(), believes, None)

    assert harmless(2)
    assert not harmless(1)


def test_an_answer_that_would_be_taken_late_may_cut_who_leads() -> None:
    """The case needs a scope of three brokers with three moves and without `matched responses`. A leader of an epoch in
    between, with an empty log, still has to answer a fetch."""
    where = replace(scope("4.0", brokers=3), acks=1)
    partition = Partition((1, 2, 3), 3, 3, 4, (1, 2, 3))
    image = Metadata(partition, tuple(Registration(one, 0) for one in (1, 2, 3)))
    holds = append(Log(), Batch(0, 0, 0, 0))
    believes = Process(True, 0, image, Leader(1, 0, (Progress(1), Progress(3))))
    follows = Process(True, 0, image, Follower(1, 2))
    late = Late(Fetch(3, 2, 0, 1, 1, 0))

    def harmless(where: Scope) -> bool:
        client = Client(sent=1, acked=(0,))
        cells = (client, holds, follows, late, Log(), believes, None)
        return seated._cannot_harm(where, 3, 2, NOTHING, *cells)

    assert harmless(where)
    assert not harmless(off(where, "matched responses"))


@pytest.mark.parametrize("without", ["fetch fencing", "matched responses", "truncation by epoch"])
def test_who_holds_all_may_be_cut(without: str) -> None:
    """A stale leader may answer a late request, or one that was meant for its next epoch. Then no end is used."""
    where = scope("4.0", brokers=3, hand_overs=3)
    assert list(ending.keeps(where))
    assert not list(ending.keeps(off(where, without)))


def test_a_record_that_is_sent_twice_has_two_places() -> None:
    assert not list(ending.keeps(scope("4.0", brokers=3, hand_overs=3, retries=1)))


def always(*cells: object) -> bool:
    return True


def never(*cells: object) -> bool:
    return False


def nowhere(*cells: object) -> int:
    return UNKNOWN


LAGS = scope("4.1", records=2, acks=1, shrinks=1, hand_overs=1)
MOVED = scope("3.7-zk", acks=1, clean_stops=1, hand_overs=1)
TWICE = scope("2.7", acks=1, kills=2, retries=1)
TOLD_APART = replace(scope("4.0", acks=1, kills=1, hand_overs=1), reductions=ALL._replace(fusing=False))
"""A scope without the reduction `fusing`: with it, an answer that truncates is taken at once."""
UNMATCHED = off(scope("4.2", acks=1, clean_stops=1, hand_overs=1), "matched responses")
DUDS: dict[tuple[ModuleType, str], tuple[Callable[..., object], Scope]] = {
    (seated, "_seated"): (always, LAGS),
    (seated, "_leads"): (always, LAGS),
    (seated, "_holds"): (always, LAGS),
    (seated, "_is_silent"): (always, TWICE),
    (seated, "refused"): (always, TWICE),
    (seated, "_cannot_harm"): (always, LAGS),
    (seated, "_unharmed"): (always, MOVED),
    (seated, "_next_holds"): (always, LAGS),
    (seated, "_most"): (
        nowhere,
        replace(LARGER["a stop, a cut"], rules=replace(VERSIONS["4.2"], unclean_election=True)),
    ),
    (seated, "_may_cut"): (never, scope("2.7", brokers=3, acks=1, hand_overs=1, reassignments=1)),
    (seated, "is_reassigned"): (
        never,
        off(scope("2.7", brokers=3, acks=1, shrinks=1, reassignments=1), "maximal ISR"),
    ),
    (seated, "_takes_nothing"): (always, UNMATCHED),
    (ending, "_all_is_sent"): (always, MOVED),
    (ending, "_is_whole_if_it_counts"): (always, MOVED),
    (ending, "_follows_whole"): (always, MOVED),
    (ending, "_keeps_what_it_holds"): (always, TOLD_APART),
    (ending, "brings_nothing"): (always, TOLD_APART),
    (ending, "_is_known_rightly"): (
        always,
        LARGER["a proposal of one that died"],
    ),
    (ending, "refused"): (always, scope("4.0", acks=1, clean_stops=1, hand_overs=1)),
    (ending, "equal_logs_stay"): (
        always,
        off(scope("4.2", acks=1, clean_stops=1, hand_overs=1), "truncation by epoch"),
    ),
}


SLOW = ("_most", "_is_silent", "is_reassigned")
"""Planted errors whose scopes take two seconds or more."""


@pytest.mark.parametrize(
    ("room", "planted"),
    [
        pytest.param(*key, marks=[pytest.mark.nightly] * (key[1] in SLOW), id=f"{key[0].__name__}-{key[1]}")
        for key in DUDS
    ],
)
def test_an_end_that_asks_for_less_is_noticed(
    room: ModuleType, planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault, where = DUDS[room, planted]
    assert broken_by_itself(where) == set()
    monkeypatch.setattr(room, planted, fault)
    if (
        planted == "equal_logs_stay"
    ):  # the ends for all classes ask for it, too, and would hide what is broken
        monkeypatch.setattr(ending, "_all_alike", lambda scope: ())
    assert broken_behind(where, MOST)
