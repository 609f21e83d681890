"""Tests of the cache of the explorer's answers: it never changes an answer, and several scopes are searched in
parallel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ackproof.rundir.anomaly_terms import Chance
from ackproof_model.predict import answers as place
from ackproof_model.predict.answers import Answers, answers, ask_ahead, cached, remembered, smaller
from ackproof_reference.explore.scope import Budget, Scope
from ackproof_reference.rules import rules_of

ONE_KILL = Scope(rules_of("4.3"), brokers=2, records=1, acks=1, budget=Budget(kills=1), settled=True)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACKPROOF_CACHE", str(tmp_path))
    monkeypatch.setattr(place, "_known", {})


def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate another process: only the cache folder is left, and a new search fails the test."""
    monkeypatch.setattr(place, "_known", {})

    def refuse(*_: object) -> Answers:
        raise AssertionError("worked out anew")

    monkeypatch.setattr(place, "_worked_out", refuse)


def test_an_answer_that_leaves_nothing_open_is_the_answer_at_any_higher_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = answers(ONE_KILL, max_states=20_000)
    assert first.settled
    assert {kind: one.chance for kind, one in first.classes.items()} == {
        "lost": Chance.POSSIBLE,
        "vanished": Chance.IMPOSSIBLE,
    }
    _forget(monkeypatch)
    assert answers(ONE_KILL, max_states=200_000) == first
    assert remembered(ONE_KILL, 19_999) is None


def test_what_is_unknown_at_one_bound_is_asked_anew_at_another(monkeypatch: pytest.MonkeyPatch) -> None:
    few = answers(ONE_KILL, max_states=10)
    assert Chance.UNKNOWN in {one.chance for one in few.classes.values()}
    assert remembered(ONE_KILL, 20_000) is None
    assert answers(ONE_KILL, max_states=20_000).settled
    _forget(monkeypatch)
    assert answers(ONE_KILL, max_states=10) == few


def test_a_complete_search_answers_for_its_own_bound_and_higher_ones() -> None:
    asked = []

    def search(bound: int) -> Answers:
        asked.append(bound)
        return Answers(classes={}, states=500, exhausted=bound > 500, bound=bound)

    found = [
        cached("a question", bound, lambda bound=bound: search(bound)).exhausted
        for bound in (600, 900, 501, 400, 600)
    ]
    assert found == [True, True, True, False, True]
    assert asked == [600, 501, 400]


def test_several_are_worked_out_at_once_and_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "cores", lambda: 2)
    scopes = [ONE_KILL, replace(ONE_KILL, acks=-1), ONE_KILL]
    seen = list(ask_ahead(scopes, max_states=20_000))
    assert seen == [(1, 2), (2, 2)]
    _forget(monkeypatch)
    assert answers(ONE_KILL, max_states=20_000).classes["lost"].chance is Chance.POSSIBLE
    assert list(ask_ahead(scopes, max_states=20_000)) == []


def test_a_folder_that_cannot_be_written_costs_time_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ACKPROOF_CACHE", str(tmp_path / "file" / "below"))
    assert answers(ONE_KILL, max_states=20_000).settled


def test_a_way_of_two_ends_is_found_though_much_else_may_happen() -> None:
    """With the storm's whole budget the counterexample takes 18 steps and a million states; a smaller scope finds it
    sooner."""
    storm = Budget(kills=3, power_losses=1, cuts=2, shrinks=1, hand_overs=1)
    scope = Scope(
        replace(rules_of("4.3"), min_insync=2),
        records=1,
        acks=-1,
        budget=storm,
        idempotent=True,
        settled=True,
    )
    found = answers(scope, max_states=120_000).classes["lost"]
    assert found.chance is Chance.POSSIBLE
    assert found.scope == "brokers=2,records=1,acks=all,kills=1,power_losses=1"


@pytest.mark.parametrize(
    ("brokers", "budget", "worlds"),
    [
        (3, Budget(kills=2), [(Budget(kills=1), "is down")]),
        (3, Budget(cuts=1), [(Budget(), "was fenced")]),
        (3, Budget(shrinks=3), [(Budget(shrinks=2), "was dropped as slow")]),
        (3, Budget(hand_overs=1, unclean=1), []),
        (2, Budget(kills=2), []),
        (3, Budget(power_losses=3), [(Budget(power_losses=2), "is down")]),
        (
            3,
            Budget(cuts=1, kills=2, power_losses=1),
            [
                (Budget(kills=1, power_losses=1), "was fenced"),
                (Budget(kills=2, power_losses=1), "was fenced"),
                (Budget(cuts=1, kills=1, power_losses=1), "is down"),
                (Budget(cuts=1, kills=2), "is down"),
            ],
        ),
    ],
    ids=["killed", "fenced", "slow", "nobody away", "two already", "only the ends", "all of it"],
)
def test_smaller_worlds_have_a_broker_and_its_incident_less(
    brokers: int, budget: Budget, worlds: list[tuple[Budget, str]]
) -> None:
    found = list(smaller(replace(ONE_KILL, brokers=brokers, budget=budget)))
    assert [(one.budget, why) for one, why in found] == [
        (left, f"broker 3 {away} before, and stays away") for left, away in worlds
    ]
    assert {one.brokers for one, _ in found} <= {2}
