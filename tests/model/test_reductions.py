"""Tests that reductions of the search change no answer: each subset finds what the plain search finds, in as few steps.

The counterexample of each finding is followed in the plain model, so no finding is invented. Planted errors show that
the comparison notices a reduction that merges too much."""

from __future__ import annotations

import datetime
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ackproof.run.options import BatchOptions, plan_cases
from ackproof_model.predict.answers import smaller
from ackproof_model.predict.prediction import scopes_of
from ackproof_reference.broker import Broker, Leader, Process
from ackproof_reference.explore import ending, fetching, forgetting, moves, ranking
from ackproof_reference.explore.scope import (
    ALL,
    IN_STORIES,
    NO_REDUCTIONS,
    NOTHING,
    Budget,
    Reductions,
    Scope,
    log_cell,
    process_cell,
)
from ackproof_reference.explore.search import Search
from ackproof_reference.log import UNKNOWN, Log
from ackproof_reference.messages import Fetched
from ackproof_reference.metadata import Metadata, Registration
from ackproof_reference.node import step
from ackproof_reference.rules import VERSIONS, Rules, without
from partition import following, leading, log, metadata, partition
from protections import CASES, LARGER, MASKED, PAIRS
from reduced import at_night, contradiction, difference, searched, small_scopes, unseen

WITHOUT = {**{name: scope for name, (scope, _) in (*CASES.items(), *PAIRS.items())}, **MASKED}
"""By name of a protection: a scope of two brokers in which this protection prevents a finding."""

TWO = Rules(min_insync=2)
KILL = Scope(TWO, brokers=2, settled=True, budget=Budget(kills=1))
STATES = {
    "a kill": KILL,
    "a slow follower": replace(KILL, budget=Budget(shrinks=1)),
    "a kill, and who starts learns at once": Scope(
        VERSIONS["4.0"], brokers=2, acks=1, settled=True, idempotent=True, budget=Budget(kills=1)
    ),
    "moves in ZooKeeper mode": Scope(VERSIONS["2.1"], brokers=2, settled=True, budget=Budget(hand_overs=2)),
}
PUSH = settings(max_examples=20, deadline=None, derandomize=True, database=None)
NIGHT = settings(max_examples=8_000, deadline=None, derandomize=False, database=None)
CATALOGUE = Path(__file__).parents[2] / "experiments"
NIGHTS = 20
"""Number of nights in which each scope of the catalogue is searched without reductions, a share each night."""


SLOW = (
    "matched responses",
    "fetch fencing",
    "unfenced last known leader",
    "unclean shutdown leaves the ELR",
    "clean elections only",
)
"""Protections whose scopes take a second or more; the others are compared with every push."""


def off(scope: Scope, protection: str) -> Scope:
    return replace(scope, rules=without(scope.rules, protection))


def subsets() -> st.SearchStrategy[Reductions]:
    return st.builds(Reductions, *(st.booleans() for _ in Reductions._fields))


@PUSH
@given(small_scopes(), subsets())
def test_each_subset_of_reductions_finds_what_the_plain_search_finds(
    scope: Scope, reductions: Reductions
) -> None:
    found = difference(replace(scope, reductions=reductions), 3_000)
    assume(found is not None)
    assert found == ""


@pytest.mark.nightly
@pytest.mark.timeout(5400)
@NIGHT
@given(small_scopes(), subsets())
def test_each_subset_finds_the_same_in_many_scopes(scope: Scope, reductions: Reductions) -> None:
    found = difference(replace(scope, reductions=reductions), 60_000)
    assume(found is not None)
    assert found == ""


@pytest.mark.parametrize("name", at_night((name for name in WITHOUT if WITHOUT[name].brokers == 2), SLOW))
def test_without_a_protection_the_same_is_found(name: str) -> None:
    assert difference(off(WITHOUT[name], name), 400_000, IN_STORIES) == ""


@pytest.mark.nightly
@pytest.mark.timeout(5400)
def test_the_catalogues_predictions_stand_without_reductions() -> None:
    """Each night checks a share of the catalogue's scopes, with the smaller scopes that they contain."""
    files = sorted(CATALOGUE.rglob("*.yaml"))
    worlds = list(
        dict.fromkeys(scopes_of(case for file in files for _, case in plan_cases(BatchOptions((file,)))))
    )
    share = worlds[datetime.datetime.now(datetime.UTC).toordinal() % NIGHTS :: NIGHTS]
    every = dict.fromkeys(one for world in share for one in (*(small for small, _ in smaller(world)), world))
    wrong = {scope: contradiction(scope, 200_000) for scope in every}
    assert share and not {scope: text for scope, text in wrong.items() if text}


def rows(search: Search) -> set[tuple[Hashable, ...]]:
    return {search.cells.row(state) for state in search.seen}


def forget(row: tuple[Hashable, ...], scope: Scope) -> tuple[Hashable, ...]:
    """Return a plain state without the parts that the reductions `void` and `memory` drop."""
    cells = list(row)
    for broker in scope.ids:
        held, process = cells[log_cell(broker)], cells[process_cell(broker)]
        assert isinstance(held, Log) and isinstance(process, Process)
        one = forgetting.remembered(Broker(broker, held, process), scope)
        cells[log_cell(broker)], cells[process_cell(broker)] = one.log, one.process
    for group in forgetting.leftovers(scope):
        assert group.moves is not None
        for _, new in group.moves(*(cells[cell] for cell in group.cells)):
            for cell, value in zip(group.cells, new, strict=True):
                cells[cell] = value
    return tuple(cells)


@pytest.mark.nightly  # the scopes below forget with every push
@PUSH
@given(small_scopes())
def test_forgetting_leaves_the_plain_states_with_something_left_out(scope: Scope) -> None:
    """The states must be equal, not only the findings. Scopes with lost answers are left out: there the plain search
    can lose a void response."""
    assume(not scope.budget.lost)
    scope = replace(scope, reductions=IN_STORIES._replace(memory=True))
    plain, fewer = searched(replace(scope, reductions=NO_REDUCTIONS), 2_000), searched(scope, 2_000)
    assume(plain.exhausted)
    assert rows(fewer) == {forget(row, scope) for row in rows(plain)}


FORGETTING = {
    "a cut": Scope(TWO, settled=True, budget=Budget(cuts=1)),
    "a kill of two, with power": Scope(TWO, brokers=2, budget=Budget(kills=1, power_losses=1)),
    "moves before KRaft": Scope(
        VERSIONS["2.1"], brokers=2, records=2, settled=True, budget=Budget(hand_overs=2)
    ),
    "truncation to the high watermark": Scope(
        VERSIONS["0.10"], brokers=2, budget=Budget(kills=1, hand_overs=1)
    ),
    "a clean stop": Scope(Rules(), brokers=2, settled=True, budget=Budget(clean_stops=1, shrinks=1)),
    "a reassignment": Scope(
        Rules(), assigned=(1, 2), targets=((2, 3),), settled=True, acks=1, budget=Budget(reassignments=1)
    ),
    "no ELR": off(Scope(TWO, brokers=2, budget=Budget(cuts=1, power_losses=1)), "eligible leader replicas"),
    "no broker epochs": off(
        Scope(Rules(), brokers=2, settled=True, budget=Budget(cuts=1, kills=1)), "broker epochs"
    ),
    "followers not forgotten": off(
        Scope(Rules(), brokers=2, settled=True, budget=Budget(hand_overs=3)), "forgotten followers"
    ),
    "epochs not noticed": off(
        Scope(Rules(), brokers=2, settled=True, budget=Budget(hand_overs=3)), "noticed epochs"
    ),
}
"""Scopes that are not drawn at random: with three brokers, brokers that do not know the partition yet, or many
states."""
LARGE = (
    "a cut",
    "no broker epochs",
    "no ELR",
    "a kill of two, with power",
    "truncation to the high watermark",
    "a clean stop",
)
"""Scopes that run at night only; others with the same rules run with every push."""


@pytest.mark.parametrize("name", at_night(FORGETTING, LARGE))
def test_forgetting_leaves_the_plain_states_of_larger_scopes_too(name: str) -> None:
    scope = replace(FORGETTING[name], reductions=IN_STORIES._replace(memory=True))
    plain, fewer = searched(replace(scope, reductions=NO_REDUCTIONS), 400_000), searched(scope, 400_000)
    assert plain.exhausted and fewer.exhausted
    assert rows(fewer) == {forget(row, scope) for row in rows(plain)}
    assert fewer.findings.keys() == plain.findings.keys()


@pytest.mark.parametrize("name", STATES)
def test_every_state_is_one_of_those_that_were_looked_at(name: str) -> None:
    """Requests in flight are compared, too, although no finding depends on them."""
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
    """Planted error: a state with fewer kills left counts as covered by one with fewer cuts left."""
    return tuple(other - left for other in range(counters.mask + 1) if other != left)


def fears_no_power_loss(scope: Scope, replicas: object, budget: Budget, *cells: object) -> bool:
    return whole(scope, replicas, NOTHING, *cells)  # type: ignore[arg-type]


def are_as_long(scope: Scope, replicas: object, budget: Budget, client: object, *logs: Log) -> bool:
    return len({log.end for log in logs}) == 1


def always(scope: Scope, own: int, metadata: Metadata) -> bool:
    """Planted error: replaces `starts_unnoticed`, and lets members of the ISR start unnoticed, too."""
    return scope.reductions.fusing


whole = ending._are_equal

DUDS = {
    "incarnations": (ranking._Renaming, "_broker", knows_no_incarnation, WITHOUT["broker epochs"]),
    "budgets": (ranking.Spare, "__missing__", any_other, replace(KILL, budget=Budget(kills=1, cuts=1))),
    "power": (
        ending,
        "_are_equal",
        fears_no_power_loss,
        Scope(VERSIONS["4.0"], brokers=2, settled=True, budget=Budget(power_losses=2)),
    ),
    "logs": (
        ending,
        "_are_equal",
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
    "requests": (fetching, "_requests_after", is_never_late, KILL),
}


def test_a_late_request_may_be_what_a_finding_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without late requests (`Late`) the search misses an invalid ISR."""
    scope = off(Scope(Rules(), brokers=2, settled=True, budget=Budget(power_losses=1)), "broker epochs")
    assert difference(scope, 60_000, IN_STORIES) == ""
    monkeypatch.setattr(fetching, "_requests_after", is_never_late)
    assert "invalid ISR" in (difference(scope, 60_000, IN_STORIES) or "")


@pytest.mark.parametrize("dud", at_night(DUDS, ("starting", "budgets", "starts")))
def test_a_reduction_that_takes_too_much_together_is_noticed(
    monkeypatch: pytest.MonkeyPatch, dud: str
) -> None:
    module, name, wrong, scope = DUDS[dud]
    monkeypatch.setattr(module, name, wrong)
    assert difference(scope, 400_000, IN_STORIES) or unseen(scope, 400_000)


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
    found = ranking.rank_epochs(epochs(ranking.LEADER, *occur) | epochs(ranking.LEADING, *led))
    assert (found and found[ranking.LEADER]) == ranks


def test_each_reduction_can_be_switched_off() -> None:
    scope = Scope(Rules(min_insync=2), brokers=2, settled=True, budget=Budget(kills=1))
    sizes = [
        len(searched(replace(scope, reductions=reductions), 400_000).seen)
        for reductions in (ALL, *(ALL._replace(**{name: False}) for name in ALL._fields), NO_REDUCTIONS)
    ]
    assert sizes[0] == min(sizes) < min(sizes[1:])
    assert sizes[-1] == max(sizes)


def test_a_contradiction_to_the_plain_search_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    lossy = replace(KILL, acks=1, rules=Rules(min_insync=1))
    assert contradiction(lossy, 60_000) == contradiction(KILL, 60_000) == ""
    monkeypatch.setattr(ending, "_are_equal", lambda *cells: True)
    assert contradiction(lossy, 60_000)


# -- memory of a broker ------------------------------------------------------------------------------------

WITH_POWER = Scope(Rules(), budget=Budget(power_losses=1))


def test_a_follower_keeps_of_an_image_that_it_is_registered() -> None:
    of = partition(epoch=3, version=5)
    follower = following(log(0), of)
    kept = forgetting.remembered(follower, WITH_POWER)
    assert kept.process.metadata is not None
    assert kept.process.metadata.brokers == (Registration(2, 0),)
    assert kept == forgetting.remembered(
        following(log(0), partition(epoch=3, version=6, isr=(1,))), WITH_POWER
    )
    assert (kept.log, kept.process.role) == (follower.log, follower.process.role)
    started = Broker(2, log(0), Process(True, 4))
    assert forgetting.remembered(started, WITH_POWER) == started
    moved_away = started._replace(process=started.process._replace(metadata=metadata(partition(isr=(1,)))))
    assert forgetting.remembered(moved_away, WITH_POWER).process.metadata != moved_away.process.metadata


def ends(leader: Broker, scope: Scope) -> list[int]:
    role = forgetting.remembered(leader, scope).process.role
    assert isinstance(role, Leader)
    return [entry.end for entry in role.progress]


def test_of_progress_a_leader_keeps_what_the_high_watermark_waits_for() -> None:
    """The log has two records, one of them committed. The followers' log ends are 2 (a member of the ISR) and 1."""
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
        leading(log(0, 0, high_watermark=1), {2: 2, 3: 1}), replace(WITH_POWER, rules=without(Rules(), rule))
    ) == [
        2,
        1,
    ]


def test_what_was_flushed_counts_where_power_is_lost() -> None:
    flushed = Broker(2, log(0)._replace(flushed=1), Process(True, 4))
    assert forgetting.remembered(flushed, WITH_POWER) == flushed
    assert forgetting.remembered(flushed, Scope(Rules())).log.flushed == 0
    assert forgetting.remembered(flushed, replace(WITH_POWER, victims=(1,))).log.flushed == 0
