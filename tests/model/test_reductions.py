"""What a reduced search takes together changes none of its answers: the same findings, and no story is longer.

Compared is with the search in which stories are told (`Scope.told`); that one with the whole search, where nothing is
taken together, by `test_forgetting.py`. Every finding's story is walked through the told model, so one that this does
not have cannot be told.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from ackproof_reference.broker import Broker, Leader
from ackproof_reference.explore import ending, fetching, forgetting, moves, ranking
from ackproof_reference.explore.scope import ALL, NOTHING, WHOLE, Budget, Scope
from ackproof_reference.log import Log
from ackproof_reference.messages import Fetched
from ackproof_reference.metadata import Metadata
from ackproof_reference.node import step
from ackproof_reference.rules import VERSIONS, Rules, without
from protections import CASES, LARGER, MASKED, PAIRS
from reduced import RELEASES, difference, scopes, searched, unseen

WITHOUT = {**{name: scope for name, (scope, _) in (*CASES.items(), *PAIRS.items())}, **MASKED}
"""Of each protection the scope in which it is what saves, where that is one of two brokers."""


KILL = Scope(Rules(min_insync=2), brokers=2, settled=True, budget=Budget(kills=1))
STATES = {
    "a kill": KILL,
    "a slow follower": replace(KILL, budget=Budget(shrinks=1)),
    "a kill, and who starts learns at once": Scope(
        VERSIONS["4.0"], brokers=2, acks=1, settled=True, idempotent=True, budget=Budget(kills=1)
    ),
    "moves in ZooKeeper mode": Scope(VERSIONS["2.1"], brokers=2, settled=True, budget=Budget(hand_overs=2)),
}


def off(scope: Scope, protection: str) -> Scope:
    return replace(scope, rules=without(scope.rules, protection))


@pytest.mark.parametrize("name", [name for name, scope in WITHOUT.items() if scope.brokers == 2])
def test_without_a_protection_the_same_is_found(name: str) -> None:
    assert difference(off(WITHOUT[name], name), 400_000) == ""


@pytest.mark.parametrize("release", RELEASES)
def test_by_the_rules_of_a_release_the_same_is_found(release: str) -> None:
    """A few of its small scopes, drawn; the night takes all of them."""
    drawn = Random(release).sample(list(scopes(release)), 12)
    found = {scope: difference(scope, 3_000) for scope in drawn}
    assert not {scope: what for scope, what in found.items() if what}
    assert sum(what == "" for what in found.values()) > 2


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(20))
@pytest.mark.parametrize("release", RELEASES)
def test_in_every_small_scope_the_same_is_found(release: str, part: int) -> None:
    found = {scope: difference(scope) for scope in list(scopes(release))[part::20]}
    assert not {scope: what for scope, what in found.items() if what}


@pytest.mark.parametrize("name", STATES)
def test_every_state_is_one_of_those_that_were_looked_at(name: str) -> None:
    """Also the requests under way, of which no finding may ever come."""
    assert unseen(STATES[name], 20_000) == 0


def keeps_none(leader: Leader, *rest: object) -> Leader:
    return leader._replace(progress=tuple(entry._replace(end=-1) for entry in leader.progress))


def knows_no_start(leader: Leader, *rest: object) -> Leader:
    return leader._replace(start=0)


def drops_what_changes_nothing_now(rules: Rules, broker: Broker, reply: Fetched) -> bool:
    return step(broker, reply, rules)[0] == broker


def is_never_late(before: object, after: object, under_way: object) -> tuple[object]:
    return (under_way if isinstance(under_way, Fetched) else after,)


def knows_no_incarnation(renaming: object, broker: int, epoch: int) -> int:
    return min(epoch, 0)


def any_other(counters: ranking.Spare, left: int) -> tuple[int, ...]:
    """What is left of kills counts for what is left of cuts."""
    return tuple(other - left for other in range(counters.mask + 1) if other != left)


def fears_no_power_loss(scope: Scope, replicas: object, budget: Budget, *cells: object) -> bool:
    return whole(scope, replicas, NOTHING, *cells)  # type: ignore[arg-type]


def are_as_long(scope: Scope, replicas: object, budget: Budget, client: object, *logs: Log) -> bool:
    return len({log.end for log in logs}) == 1


def always(scope: Scope, own: int, metadata: Metadata) -> bool:
    """Members do not start by themselves either."""
    return scope.reductions.fusing


whole = ending._whole

DUDS = {
    "incarnations": (ranking._Renaming, "_broker", knows_no_incarnation, WITHOUT["broker epochs"]),
    "budgets": (ranking.Spare, "__missing__", any_other, replace(KILL, budget=Budget(kills=1, cuts=1))),
    "power": (
        ending,
        "_whole",
        fears_no_power_loss,
        Scope(VERSIONS["4.0"], brokers=2, settled=True, budget=Budget(power_losses=2)),
    ),
    "logs": (
        ending,
        "_whole",
        are_as_long,
        Scope(VERSIONS["3.5"], brokers=2, records=2, settled=True, budget=Budget(shrinks=1, preferred=1)),
    ),
    "starting": (
        moves,
        "starts_unnoticed",
        always,
        off(
            Scope(Rules(min_insync=2), brokers=2, budget=Budget(cuts=1, power_losses=1)),
            "eligible leader replicas",
        ),
    ),
    "ends": (
        forgetting,
        "_leading",
        keeps_none,
        off(Scope(Rules(), settled=True, budget=Budget(kills=1)), "replicated by the next fetch"),
    ),
    "starts": (forgetting, "_leading", knows_no_start, LARGER["expansion from the epoch's start"][0]),
    "answers": (
        fetching,
        "without_effect",
        drops_what_changes_nothing_now,
        off(PAIRS["matched responses"][0], "matched responses"),
    ),
    "requests": (fetching, "_left", is_never_late, KILL),
}


def test_a_late_request_may_be_what_a_finding_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is not forgotten, seldom as anything comes of it."""
    scope = off(Scope(Rules(), brokers=2, settled=True, budget=Budget(power_losses=1)), "broker epochs")
    assert difference(scope) == ""
    monkeypatch.setattr(fetching, "_left", is_never_late)
    assert "invalid ISR" in (difference(scope) or "")


@pytest.mark.parametrize("dud", DUDS)
def test_a_reduction_that_takes_too_much_together_is_noticed(
    monkeypatch: pytest.MonkeyPatch, dud: str
) -> None:
    module, name, wrong, scope = DUDS[dud]
    monkeypatch.setattr(module, name, wrong)
    assert difference(scope, 400_000) or unseen(scope, 400_000)


def epochs(kind: int, *occurring: int) -> int:
    return sum(1 << kind * ranking.FIELD + epoch for epoch in occurring)


@pytest.mark.parametrize(
    ("occur", "led", "ranks"),
    [
        ((0, 5), (), {0: 0, 5: 1}),
        ((0, 5), (0,), {0: 0, 5: 2}),
        ((0, 3, 5), (0,), {0: 0, 3: 1, 5: 2}),
        ((2, 3), (2,), {2: 0, 3: 1}),
        ((0, 2), (0,), None),
        ((0, 2), (2,), {0: 0, 2: 1}),
    ],
)
def test_a_rank_keeps_whether_the_newest_epoch_is_the_next_one_of_a_leader(
    occur: tuple[int, ...], led: tuple[int, ...], ranks: dict[int, int] | None
) -> None:
    found = ranking.WorldsEpochs().ranks(epochs(ranking.LEADER, *occur) | epochs(ranking.LEADING, *led))
    assert (found and found[ranking.LEADER]) == ranks


def test_each_reduction_can_be_switched_off() -> None:
    scope = Scope(Rules(min_insync=2), brokers=2, settled=True, budget=Budget(kills=1))
    sizes = [
        len(searched(replace(scope, reductions=reductions), 400_000).seen)
        for reductions in (ALL, *(ALL._replace(**{name: False}) for name in ALL._fields), WHOLE)
    ]
    assert sizes[0] == min(sizes) < min(sizes[1:])
    assert sizes[-1] == max(sizes)
