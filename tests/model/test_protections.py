"""Tests of the protections: without each one data is lost in a small scope; with all of them nothing is, in all states.

The scopes are in `tests/support/protections.py`: at most three brokers and two records. Protections that others make
redundant are in `MASKED`, and in `PAIRS` with the protection that must be switched off, too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackproof_reference.rules import PROTECTIONS, without
from exploration import Explorer
from protections import CASES, LARGER, LATER, MASKED, PAIRS


@pytest.mark.parametrize("protection", [*CASES, *LARGER])
def test_without_it_data_is_lost(explore: Explorer, protection: str) -> None:
    scope, kind = {**CASES, **LARGER}[protection]
    story = explore.finds(replace(scope, rules=without(scope.rules, protection)), kind)
    assert len(story) <= 25, "\n".join(story)


@pytest.mark.parametrize("protection", CASES)
def test_with_all_of_them_nothing_is(explore: Explorer, protection: str) -> None:
    scope, _ = CASES[protection]
    assert explore.finds_nothing(scope) > 100


@pytest.mark.parametrize("protection", LARGER)
def test_with_all_of_them_nothing_is_in_three_brokers(explore: Explorer, protection: str) -> None:
    scope, _ = LARGER[protection]
    assert explore.finds_nothing(scope) > 1_000


@pytest.mark.parametrize("protection", MASKED)
def test_the_others_stand_in_for_it(explore: Explorer, protection: str) -> None:
    scope = MASKED[protection]
    off = replace(scope, rules=without(scope.rules, protection))
    assert explore.finds_nothing(off) > 200
    assert explore.finds_nothing(scope) > 100
    reached = [{*map(frozenset, explore(each).cells.values)} for each in (scope, off)]
    assert reached[0] != reached[1], "the scope never comes to where the rule acts"


@pytest.mark.nightly
@pytest.mark.parametrize("protection", LATER)
def test_an_invalid_isr_is_a_loss_one_election_later(explore: Explorer, protection: str) -> None:
    scope, kind = LATER[protection]
    search = explore(replace(scope, rules=without(scope.rules, protection)), kind, max_states=4_000_000)
    assert kind in search.findings


def test_no_protection_is_left_out() -> None:
    assert {*CASES, *LARGER, *MASKED} == set(PROTECTIONS)


@pytest.mark.parametrize("protection", PAIRS)
def test_without_what_stands_in_for_it_too_data_is_lost(explore: Explorer, protection: str) -> None:
    scope, kind = PAIRS[protection]
    explore.finds_nothing(scope, kind)
    explore.finds(replace(scope, rules=without(scope.rules, protection)), kind)
