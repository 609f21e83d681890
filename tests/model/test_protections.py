"""Each protection taken away alone loses data in a small scope; with all of them nothing is lost, to exhaustion.

`CASES` names for each protection a scope in which it is what saves, and the class of what is found without it.
Scopes have at most three brokers and two records. What the others mask is in `MASKED`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackproof_reference.explore.scope import Budget, Scope
from ackproof_reference.rules import PROTECTIONS, VERSIONS, Rules, without
from exploration import Explorer

ONE = Rules(min_insync=1)
TWO = Rules(min_insync=2)
EARLY = VERSIONS["2.1"]

MOVES_2 = Budget(hand_overs=2)
MOVES_3 = Budget(hand_overs=3)
CUT_AND_POWER = Budget(cuts=1, power_losses=1)

CASES = {
    "eligible leader replicas": (Scope(TWO, brokers=2, budget=CUT_AND_POWER), "lost"),
    "unclean shutdown leaves the ELR": (Scope(TWO, brokers=2, budget=CUT_AND_POWER), "lost"),
    "clean elections only": (Scope(ONE, brokers=2, budget=Budget(kills=2)), "lost"),
    "replicated by the next fetch": (Scope(TWO, brokers=2, budget=Budget(kills=1)), "lost"),
    "strict minimum ISR": (Scope(TWO, brokers=2, budget=Budget(kills=1, shrinks=1)), "vanished"),
    "bounded high watermark": (Scope(ONE, brokers=2, records=2, budget=Budget(kills=1)), "diverged"),
    "maximal ISR": (Scope(ONE, brokers=2, budget=Budget(kills=1, shrinks=1)), "lost"),
    "broker epochs": (
        Scope(
            ONE,
            brokers=2,
            assigned=(2, 1),
            started_isr=(1,),
            victims=(2,),
            budget=Budget(preferred=1, power_losses=1),
        ),
        "lost",
    ),
    "truncation by epoch": (Scope(EARLY, brokers=2, settled=True, budget=MOVES_3), "lost"),
    "walking back": (Scope(EARLY, brokers=2, records=2, settled=True, budget=MOVES_2), "diverged"),
    "fetch fencing": (Scope(EARLY, brokers=2, records=2, settled=True, budget=MOVES_3), "lost"),
    "sequence numbers": (
        Scope(ONE, brokers=2, settled=True, idempotent=True, budget=Budget(kills=1, retries=1)),
        "duplicate",
    ),
}
"""In two brokers; exhausted in a second or two each."""

LARGER = {
    "noticed epochs": (Scope(ONE, settled=True, budget=MOVES_2), "invalid ISR"),
    "forgotten followers": (Scope(ONE, settled=True, budget=MOVES_2), "invalid ISR"),
    "expansion from the epoch's start": (
        Scope(ONE, started_isr=(1, 2), settled=True, budget=MOVES_2),
        "lost",
    ),
    "partition epoch compare and set": (
        Scope(ONE, started_isr=(1, 3), settled=True, victims=(3,), budget=Budget(cuts=1, hand_overs=1)),
        "lost",
    ),
}
"""In three brokers; to exhaust them takes longer. An invalid ISR is a loss one election later."""

MASKED = {
    "assignment order": Scope(ONE, brokers=2, budget=Budget(kills=1, cuts=1)),
    "unfenced last known leader": Scope(TWO, brokers=2, budget=CUT_AND_POWER),
    "matched responses": Scope(ONE, brokers=2, budget=Budget(kills=1, cuts=1)),
}
"""No loss without these either: any member of the ISR will do; who is elected while fenced leads nobody; an answer
that comes late is found out by the next fetch (KIP-595)."""


@pytest.mark.parametrize("protection", [*CASES, *LARGER])
def test_without_it_data_is_lost(explore: Explorer, protection: str) -> None:
    scope, kind = {**CASES, **LARGER}[protection]
    story = explore.finds(replace(scope, rules=without(scope.rules, protection)), kind)
    assert len(story) <= 25, "\n".join(story)


@pytest.mark.parametrize("protection", CASES)
def test_with_all_of_them_nothing_is(explore: Explorer, protection: str) -> None:
    scope, _ = CASES[protection]
    assert explore.finds_nothing(scope) > 1000


@pytest.mark.nightly
@pytest.mark.parametrize("protection", LARGER)
def test_with_all_of_them_nothing_is_in_three_brokers(explore: Explorer, protection: str) -> None:
    scope, _ = LARGER[protection]
    assert explore.finds_nothing(scope, max_states=10_000_000) > 100_000


@pytest.mark.parametrize("protection", MASKED)
def test_the_others_stand_in_for_it(explore: Explorer, protection: str) -> None:
    scope = MASKED[protection]
    assert explore.finds_nothing(replace(scope, rules=without(scope.rules, protection))) > 1000
    assert explore.finds_nothing(scope) > 1000


def test_no_protection_is_left_out() -> None:
    assert {*CASES, *LARGER, *MASKED} == set(PROTECTIONS)


def test_late_answers_need_matching_before_truncation_on_fetch(explore: Explorer) -> None:
    """Before KIP-595 nothing but the matching kept an old leader's batch out of a new leader's log."""
    scope = Scope(EARLY, brokers=2, records=2, settled=True, budget=MOVES_3)
    story = explore.finds(replace(scope, rules=without(EARLY, "matched responses")), "invalid ISR")
    assert "takes the answer" in "\n".join(story)
