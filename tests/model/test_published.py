"""Tests against published results: what each release lost, and that the next fix loses nothing in the same scope.

Sources: KIP-101, KIP-279, KIP-320, KIP-966 and the TLA+ models of them by J. Gustafson and J. Vanlightly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackproof_reference.explore.scope import ALL, CLIENT, Budget, Scope
from ackproof_reference.rules import VERSIONS, Rules, Truncation, rules_of
from exploration import Explorer


def scope_of(rules: Rules, **more: object) -> Scope:
    return Scope(replace(rules, unclean_election=False), settled=True, **more)  # type: ignore[arg-type]


def test_truncation_to_the_high_watermark_loses_what_was_acknowledged(explore: Explorer) -> None:
    """KIP-101, first scenario: a follower truncates records above its own, late high watermark, and then leads."""
    moves = {"brokers": 2, "budget": Budget(hand_overs=3)}
    story = explore.finds(scope_of(rules_of("0.10"), **moves), "lost")
    assert any("cuts its log from 1 to 0" in line for line in story)
    repaired = replace(rules_of("2.1"), truncation=Truncation.WALK_BACK)
    explore.finds_nothing(scope_of(repaired, **moves))


def test_truncation_by_epoch_diverges_after_two_quick_elections(explore: Explorer) -> None:
    """KIP-279: a leader that missed an epoch answers with an end offset that truncates too little."""
    moves = {"brokers": 2, "records": 2, "budget": Budget(hand_overs=2)}
    explore.finds(scope_of(rules_of("0.11"), **moves), "diverged")
    search = explore(scope_of(rules_of("2.0"), **moves))
    assert search.exhausted
    assert "diverged" not in search.findings


def test_walking_back_still_loses_by_early_expansion(explore: Explorer) -> None:
    """KIP-320: a new leader's high watermark is below the true one. A follower joins the ISR even if its log reaches
    only that lower one."""
    moves = {"started_isr": (1, 2), "budget": Budget(hand_overs=2)}
    story = explore.finds(scope_of(rules_of("2.0"), **moves), "lost")
    assert any("proposes {1, 2, 3} as the ISR" in line for line in story)


@pytest.mark.nightly
def test_the_start_of_the_epoch_repairs_the_early_expansion(explore: Explorer) -> None:
    """KIP-320, fourth rule: all states of the same scope of three brokers are visited."""
    scope = scope_of(rules_of("2.1"), started_isr=(1, 2), budget=Budget(hand_overs=2))
    assert explore.finds_nothing(scope, max_states=3_000_000) > 10_000


def test_walking_back_still_counts_followers_of_another_epoch(explore: Explorer) -> None:
    """KIP-320: without the epoch in a fetch, a deposed leader commits records that its follower is about to
    truncate."""
    moves = {"brokers": 2, "records": 2, "budget": Budget(hand_overs=3)}
    explore.finds(scope_of(replace(rules_of("2.0"), expand_from_epoch_start=True), **moves), "lost")
    explore.finds_nothing(scope_of(rules_of("2.1"), **moves))


def test_the_last_replica_standing_comes_back_empty_and_leads(explore: Explorer) -> None:
    """KIP-966: without eligible leader replicas the last member of the ISR is elected, even if it lost its records."""
    budget = Budget(cuts=1, power_losses=1)
    for version, elr in (("3.9", False), ("4.0", False), ("4.1", False)):
        rules = replace(rules_of(version, elr=elr), min_insync=2)
        story = explore.finds(Scope(rules, brokers=2, budget=budget), "lost")
        assert any("loses power" in line for line in story)
    repaired = replace(rules_of("4.1"), min_insync=2)
    explore.finds_nothing(Scope(repaired, brokers=2, budget=budget))


def test_two_unclean_stops_are_more_than_two_copies_can_bear(explore: Explorer) -> None:
    """KIP-966 covers min.insync.replicas - 1 unclean stops. A kill counts as one, because the machine may have lost
    records."""
    budget = Budget(kills=1, power_losses=1)
    explore.finds(Scope(replace(rules_of("4.1"), min_insync=2), brokers=2, budget=budget), "lost")


def test_an_acknowledgement_of_the_leader_alone_promises_nothing(explore: Explorer) -> None:
    moves = Budget(hand_overs=1)
    explore.finds(Scope(rules_of("4.1"), brokers=2, acks=1, settled=True, budget=moves), "lost")
    explore.finds_nothing(Scope(rules_of("4.1"), brokers=2, acks=-1, settled=True, budget=moves))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_release_commits_and_loses_nothing_when_nothing_goes_wrong(
    explore: Explorer, version: str
) -> None:
    scope = Scope(VERSIONS[version], brokers=3, records=2)
    explore.finds_nothing(scope)
    on = replace(scope, reductions=ALL._replace(ending=False))
    assert any(client.acked == (0, 1) for client in explore(on).cells.values[CLIENT])


def test_a_stop_in_good_order_loses_nothing_that_all_acknowledged(explore: Explorer) -> None:
    """With acks=1 the tail that only the leader has is lost when the leadership moves (KAFKA-20554)."""
    stops = Budget(clean_stops=1)
    explore.finds_nothing(Scope(rules_of("4.1"), brokers=2, budget=stops))
    explore.finds(Scope(rules_of("4.1"), brokers=2, acks=1, budget=stops), "lost")
