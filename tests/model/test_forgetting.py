"""What nobody looks at again is left out of the states: fewer of them, and the same findings."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import pytest

from ackproof_reference.broker import Broker, Process
from ackproof_reference.explore.forgetting import leftovers, remembered
from ackproof_reference.explore.scope import Budget, Scope, fetch_cell, log_cell, process_cell, proposal_cell
from ackproof_reference.explore.search import Search
from ackproof_reference.log import Log
from ackproof_reference.messages import Altered, EpochEnd, Fetched
from ackproof_reference.metadata import Registration
from ackproof_reference.rules import VERSIONS, Rules, without
from exploration import Explorer
from partition import following, leading, log, metadata, partition

ONE, TWO = Rules(min_insync=1), Rules(min_insync=2)
SCOPES = {
    "a cut": Scope(TWO, settled=True, budget=Budget(cuts=1)),
    "a kill of two, with power": Scope(TWO, brokers=2, budget=Budget(kills=1, power_losses=1)),
    "moves before KRaft": Scope(
        VERSIONS["2.1"], brokers=2, records=2, settled=True, budget=Budget(hand_overs=2)
    ),
    "truncation to the high watermark": Scope(
        VERSIONS["0.10"], brokers=2, budget=Budget(kills=1, hand_overs=1)
    ),
    "a clean stop": Scope(ONE, brokers=2, settled=True, budget=Budget(clean_stops=1, shrinks=1)),
    "a reassignment": Scope(
        ONE, assigned=(1, 2), targets=((2, 3),), settled=True, acks=1, budget=Budget(reassignments=1)
    ),
    "no ELR": Scope(
        without(TWO, "eligible leader replicas"), brokers=2, budget=Budget(cuts=1, power_losses=1)
    ),
    "no broker epochs": Scope(
        without(ONE, "broker epochs"), brokers=2, settled=True, budget=Budget(cuts=1, kills=1)
    ),
    "followers not forgotten": Scope(
        without(ONE, "forgotten followers"), brokers=2, settled=True, budget=Budget(hand_overs=3)
    ),
    "epochs not noticed": Scope(
        without(ONE, "noticed epochs"), brokers=2, settled=True, budget=Budget(hand_overs=3)
    ),
}


def rows(search: Search) -> set[tuple[Hashable, ...]]:
    return {search.cells.row(state) for state in search.seen}


def forgotten(row: tuple[Hashable, ...], scope: Scope) -> tuple[Hashable, ...]:
    cells = list(row)
    for broker in scope.ids:
        held, process = cells[log_cell(broker)], cells[process_cell(broker)]
        assert isinstance(held, Log)
        assert isinstance(process, Process)
        cells[process_cell(broker)] = remembered(Broker(broker, held, process)).process
    for group in leftovers(scope):
        assert group.moves is not None
        for _, new in group.moves(*(cells[cell] for cell in group.cells)):
            for cell, value in zip(group.cells, new, strict=True):
                cells[cell] = value
    return tuple(cells)


def answers_the_dead(row: tuple[Hashable, ...], scope: Scope) -> bool:
    """Whether an answer is under way to a broker that was killed since: it may have been a late one before that."""
    return any(
        isinstance(row[process_cell(broker)], Process)
        and row[process_cell(broker)].role is None  # type: ignore[attr-defined]
        and isinstance(answer, (Fetched, EpochEnd, Altered))
        for broker in scope.ids
        for answer in (row[fetch_cell(broker)], row[proposal_cell(broker)])
    )


LARGE = ("a cut", "no broker epochs", "no ELR")
"""Left to the night; a kill of two with power, a clean stop and the moves have the same rules with every push."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly) if name in LARGE else name for name in SCOPES]
)
def test_the_states_are_those_of_the_whole_search_with_something_left_out(
    explore: Explorer, name: str
) -> None:
    scope = SCOPES[name]
    whole, fewer = explore(replace(scope, forgetting=False)), explore(scope)
    assert whole.exhausted
    assert fewer.exhausted
    left = {forgotten(row, scope) for row in rows(whole)}
    assert rows(fewer) <= left
    assert {row for row in left - rows(fewer) if not answers_the_dead(row, scope)} == set()
    assert len(fewer.seen) <= len(whole.seen)
    assert set(fewer.findings) == set(whole.findings)


def test_a_follower_keeps_of_an_image_that_it_is_registered() -> None:
    of = partition(epoch=3, version=5)
    follower = following(log(0), of)
    kept = remembered(follower)
    assert kept.process.metadata is not None
    assert kept.process.metadata.brokers == (Registration(2, 0),)
    assert kept == remembered(following(log(0), partition(epoch=3, version=6, isr=(1,))))
    assert (kept.log, kept.process.role) == (follower.log, follower.process.role)


def test_a_leader_keeps_all_of_it_and_who_has_none_has_none() -> None:
    leader = leading(log(0), {2: 1})
    assert remembered(leader) == leader
    started = Broker(2, log(0), Process(True, 4))
    assert remembered(started) == started
    moved_away = started._replace(process=started.process._replace(metadata=metadata(partition(isr=(1,)))))
    assert remembered(moved_away).process.metadata != moved_away.process.metadata
