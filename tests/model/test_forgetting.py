"""What nobody looks at again is left out of the states: fewer of them, and the same findings."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import pytest

from ackproof_reference.broker import Broker, Leader, Process
from ackproof_reference.explore.forgetting import leftovers, remembered
from ackproof_reference.explore.scope import (
    TOLD,
    WHOLE,
    Budget,
    Scope,
    log_cell,
    process_cell,
)
from ackproof_reference.explore.search import Search
from ackproof_reference.log import UNKNOWN, Log
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
        _, cells[log_cell(broker)], cells[process_cell(broker)] = remembered(
            Broker(broker, held, process), scope
        )
    for group in leftovers(scope):
        assert group.moves is not None
        for _, new in group.moves(*(cells[cell] for cell in group.cells)):
            for cell, value in zip(group.cells, new, strict=True):
                cells[cell] = value
    return tuple(cells)


FORGETTING = TOLD._replace(memory=True)
WITH_POWER = Scope(ONE, budget=Budget(power_losses=1))

LARGE = ("a cut", "no broker epochs", "no ELR")
"""Left to the night; a kill of two with power, a clean stop and the moves have the same rules with every push."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly) if name in LARGE else name for name in SCOPES]
)
def test_the_states_are_those_of_the_whole_search_with_something_left_out(
    explore: Explorer, name: str
) -> None:
    scope = replace(SCOPES[name], reductions=FORGETTING)
    whole, fewer = explore(replace(scope, reductions=WHOLE)), explore(scope)
    assert whole.exhausted
    assert fewer.exhausted
    left = {forgotten(row, scope) for row in rows(whole)}
    assert rows(fewer) == left
    assert len(fewer.seen) <= len(whole.seen)
    assert set(fewer.findings) == set(whole.findings)


def test_a_follower_keeps_of_an_image_that_it_is_registered() -> None:
    of = partition(epoch=3, version=5)
    follower = following(log(0), of)
    kept = remembered(follower, WITH_POWER)
    assert kept.process.metadata is not None
    assert kept.process.metadata.brokers == (Registration(2, 0),)
    assert kept == remembered(following(log(0), partition(epoch=3, version=6, isr=(1,))), WITH_POWER)
    assert (kept.log, kept.process.role) == (follower.log, follower.process.role)
    started = Broker(2, log(0), Process(True, 4))
    assert remembered(started, WITH_POWER) == started
    moved_away = started._replace(process=started.process._replace(metadata=metadata(partition(isr=(1,)))))
    assert remembered(moved_away, WITH_POWER).process.metadata != moved_away.process.metadata


def ends(leader: Broker, scope: Scope) -> list[int]:
    role = remembered(leader, scope).process.role
    assert isinstance(role, Leader)
    return [entry.end for entry in role.progress]


def test_of_progress_a_leader_keeps_what_the_high_watermark_waits_for() -> None:
    """Of a log of two of which one is committed: the ends 2 and 1, of members and of another."""
    two = leading(log(0, 0, high_watermark=1), {2: 2, 3: 1})
    assert ends(two, WITH_POWER) == [2, UNKNOWN]
    assert ends(leading(log(0, 0, high_watermark=1), {2: 2, 3: 1}, partition(isr=(1, 3))), WITH_POWER) == [
        UNKNOWN,
        UNKNOWN,
    ]
    full = leading(log(0, 0, high_watermark=2), {2: 2, 3: 1})
    assert ends(full, WITH_POWER) == [UNKNOWN, UNKNOWN]
    assert ends(full, replace(WITH_POWER, budget=Budget(shrinks=1))) == [2, UNKNOWN]


@pytest.mark.parametrize("rule", ["partition epoch compare and set", "forgotten followers", "noticed epochs"])
def test_without_what_it_rests_on_a_leader_keeps_all_progress(rule: str) -> None:
    assert ends(
        leading(log(0, 0, high_watermark=1), {2: 2, 3: 1}), replace(WITH_POWER, rules=without(ONE, rule))
    ) == [
        2,
        1,
    ]


def test_what_was_flushed_counts_where_power_is_lost() -> None:
    flushed = Broker(2, log(0)._replace(flushed=1), Process(True, 4))
    assert remembered(flushed, WITH_POWER) == flushed
    assert remembered(flushed, Scope(ONE)).log.flushed == 0
    assert remembered(flushed, replace(WITH_POWER, victims=(1,))).log.flushed == 0
