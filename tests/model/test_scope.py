"""Tests of incidents other than deaths: reassignments, time-outs, checkpoints older than memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackproof_reference.explore.model import Row
from ackproof_reference.explore.scope import ALL, BUDGET, CLIENT, CONTROLLER, Budget, Client, Scope, log_cell
from ackproof_reference.log import Log
from ackproof_reference.metadata import Metadata
from ackproof_reference.rules import Rules, rules_of
from exploration import Explorer

ONE = Rules(min_insync=1)
MOVED = Scope(
    ONE, brokers=3, assigned=(1, 2), targets=((2, 3),), settled=True, budget=Budget(reassignments=1)
)


def test_a_partition_is_moved_and_acks_all_loses_nothing(explore: Explorer) -> None:
    assert explore.finds_nothing(MOVED) > 100
    images = [value for value in explore(MOVED).cells.values[CONTROLLER] if isinstance(value, Metadata)]
    assert {image.partition.replicas for image in images} == {(1, 2), (2, 3, 1), (2, 3)}


def test_a_move_takes_the_tail_that_only_the_leader_acknowledged(explore: Explorer) -> None:
    """With acks=1 a reassignment alone loses records (KAFKA-20554)."""
    story = explore.finds(replace(MOVED, acks=1), "lost")
    assert any("is asked to move the partition to {2, 3}" in line for line in story)
    assert not any("killed" in line for line in story)


def test_a_replica_that_was_moved_away_and_back_joins_anew(explore: Explorer) -> None:
    there_and_back = replace(MOVED, targets=((1, 3), (1, 2)), budget=Budget(reassignments=2))
    explore.finds_nothing(there_and_back)


def test_who_waits_too_long_is_told_so_and_the_record_may_commit_all_the_same(explore: Explorer) -> None:
    scope = Scope(Rules(min_insync=2), brokers=2, settled=True, budget=Budget(time_outs=1))
    explore.finds_nothing(scope)
    search = explore(replace(scope, reductions=ALL._replace(ending=False)))
    rows = [search.cells.row(state) for state in search.seen]
    given_up = {
        (client.acked, held.high_watermark)
        for budget, client, held in ((row[BUDGET], row[CLIENT], row[log_cell(1)]) for row in rows)
        if isinstance(budget, Budget) and isinstance(client, Client) and isinstance(held, Log)
        if not budget.time_outs
    }
    assert given_up == {((), 0), ((), 1)}


def test_an_older_checkpoint_loses_nothing_since_logs_are_cut_by_epochs(explore: Explorer) -> None:
    at_once = Scope(rules_of("4.1"), brokers=2, settled=True, budget=Budget(kills=2))
    late = replace(at_once, rules=replace(at_once.rules, checkpointed_at_once=False))
    assert explore.finds_nothing(late) > explore.finds_nothing(at_once)


@pytest.mark.parametrize(
    ("budget", "story"),
    [
        (Budget(kills=1, failovers=1), "fails while it fences broker 1"),
        (Budget(cuts=1, failovers=1), "fails while it fences broker 1"),
        (Budget(clean_stops=1, failovers=1), "fails while broker 1 stops"),
    ],
    ids=["fences a dead one", "fences a live one", "one stops"],
)
def test_a_controller_fails_half_way_and_nothing_is_lost(
    explore: Explorer, budget: Budget, story: str
) -> None:
    scope = Scope(Rules(min_insync=2), brokers=2, settled=True, budget=budget)
    assert explore.finds_nothing(scope) > explore.finds_nothing(
        replace(scope, budget=budget._replace(failovers=0))
    )
    search = explore(scope)
    first = next(row for row in map(search.cells.row, search.seen) if not budget_of(row).failovers)
    half = first[CONTROLLER]
    assert isinstance(half, Metadata) and not half.registration(1).fenced
    assert half.registration(1).stopping == bool(budget.clean_stops)
    assert (1 in half.partition.isr) == bool(budget.clean_stops)
    told = [step.action.text for step in search.way_to(search.cells.pack(first))]
    assert told[-1].startswith(story)


def test_in_zookeeper_mode_no_controller_fails_half_way(explore: Explorer) -> None:
    scope = Scope(rules_of("3.9-zk"), brokers=2, settled=True, budget=Budget(kills=1))
    more = replace(scope, budget=Budget(kills=1, failovers=1))
    assert explore.finds_nothing(more) == explore.finds_nothing(scope)


def budget_of(row: Row) -> Budget:
    budget = row[BUDGET]
    assert isinstance(budget, Budget)
    return budget
