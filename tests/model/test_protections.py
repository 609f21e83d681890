"""Each protection taken away alone loses data in a small scope; with all of them nothing is lost, to exhaustion.

The rules of `KRAFT` are those of Kafka 4.1. `CASES` names for each protection a scope in which it is what saves.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackproof_reference.explore.scope import Budget, Scope
from ackproof_reference.rules import Rules, without
from exploration import Explorer

ONE = Rules(min_insync=1)
TWO = Rules(min_insync=2)

CASES = {
    "eligible leader replicas": (Scope(TWO, brokers=2, budget=Budget(cuts=1, power_losses=1)), "lost"),
    "unclean shutdown leaves the ELR": (Scope(TWO, brokers=2, budget=Budget(cuts=1, power_losses=1)), "lost"),
    "clean elections only": (Scope(ONE, brokers=2, budget=Budget(kills=2)), "lost"),
    "replicated by the next fetch": (Scope(TWO, brokers=2, budget=Budget(kills=1)), "lost"),
    "strict minimum ISR": (Scope(TWO, brokers=2, budget=Budget(kills=1, shrinks=1)), "vanished"),
    "bounded high watermark": (Scope(ONE, brokers=2, records=2, budget=Budget(kills=1)), "diverged"),
    "maximal ISR": (Scope(ONE, brokers=2, budget=Budget(kills=1, shrinks=1)), "lost"),
}


@pytest.mark.parametrize("protection", CASES)
def test_without_it_data_is_lost(explore: Explorer, protection: str) -> None:
    scope, kind = CASES[protection]
    story = explore.finds(replace(scope, rules=without(scope.rules, protection)), kind)
    assert len(story) <= 20, "\n".join(story)


@pytest.mark.parametrize("protection", CASES)
def test_with_all_of_them_nothing_is(explore: Explorer, protection: str) -> None:
    scope, _ = CASES[protection]
    assert explore.finds_nothing(scope) > 1000
