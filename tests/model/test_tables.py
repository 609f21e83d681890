"""Tests that the search's optimizations change no answer: rows of groups, single counters, narrow cells."""

from __future__ import annotations

import tracemalloc
from collections.abc import Hashable, Iterator
from dataclasses import replace
from functools import cache
from operator import le

import pytest

from ackproof_reference.explore.model import Action, Group, Model, Move
from ackproof_reference.explore.scope import ALL, BUDGET, CLIENT, NO_REDUCTIONS, Budget, Scope
from ackproof_reference.explore.search import Search
from ackproof_reference.explore.tables import Cells, TooNarrowError
from ackproof_reference.explore.transactional import Bounds, transactions
from ackproof_reference.explore.world import world
from ackproof_reference.rules import VERSIONS, Rules, rules_of, without

TWO = Rules(min_insync=2)
BUDGETS = (
    Budget(kills=1, power_losses=1),
    Budget(cuts=1, clean_stops=1),
    Budget(shrinks=1, time_outs=1, lost=1),
    Budget(lost=1, retries=1),
    Budget(hand_overs=2, preferred=1),
    Budget(cuts=1, unclean=1, reassignments=1, failovers=1),
)
SCOPES: dict[str, Scope] = {
    **{
        " ".join(name for name, left in budget._asdict().items() if left): Scope(
            TWO, brokers=2, settled=True, targets=((2,),), budget=budget
        )
        for budget in BUDGETS
    },
    "no ELR": Scope(
        without(TWO, "eligible leader replicas"), brokers=2, budget=Budget(cuts=1, power_losses=1)
    ),
    "before KRaft": Scope(VERSIONS["2.1"], brokers=2, records=2, settled=True, budget=Budget(hand_overs=2)),
    "three brokers": Scope(TWO, settled=True, budget=Budget(cuts=1)),
    "the whole search": Scope(
        TWO, brokers=2, settled=True, reductions=NO_REDUCTIONS, budget=Budget(kills=1, shrinks=1)
    ),
}
MODELS: dict[str, Model] = {
    **{name: world(scope) for name, scope in SCOPES.items()},
    "transactions": transactions(rules_of("3.9"), clients=2),
    "late markers": transactions(rules_of("4.1"), 1, 2, Bounds(repeats=1)),
}


def bare(model: Model) -> Model:
    """Return a model without optimizations: each group is looked up alone, and reads whole cells."""
    groups = [group._replace(row="", counts=()) for group in model.groups]
    return replace(model, groups=groups, counters=(), widths=(), frugal=False)


def narrow(scope: Scope) -> Model:
    """Return the model of a scope with cells of one bit, so that they must be widened again and again."""
    made = world(scope)
    return replace(made, widths=[1] * len(made.names))


def blind(scope: Scope) -> Model:
    """Return a model with a planted error: the groups `life` read a counter that they do not name."""
    made = world(scope)
    groups = [group._replace(counts=("kills",)) if group.name == "life" else group for group in made.groups]
    return replace(made, groups=groups)


def searched(model: Model) -> Search:
    search = Search(model, frozenset({"all of it"}))
    search.run(max_states=400_000)
    assert search.exhausted
    return search


@cache
def searched_plainly(name: str) -> Search:
    return searched(bare(MODELS[name]))


def rows(search: Search) -> set[tuple[Hashable, ...]]:
    return {search.cells.row(state) for state in search.seen}


def depths(search: Search) -> dict[str, int]:
    return {kind: finding.depth for kind, finding in search.findings.items()}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_which_nothing_is_known_has_the_same_states_and_findings(name: str) -> None:
    quick, plain = searched(replace(MODELS[name], frugal=False)), searched_plainly(name)
    assert rows(quick) == rows(plain)
    assert depths(quick) == depths(plain)
    assert quick.progress.depth == plain.progress.depth
    for kind, finding in quick.findings.items():
        assert len(quick.way_to(finding.state)) == len(plain.way_to(plain.findings[kind].state)), kind


@pytest.mark.parametrize("name", SCOPES)
def test_of_states_that_differ_in_counters_those_are_left_out_that_can_do_less(name: str) -> None:
    frugal, plain = searched(MODELS[name]), searched_plainly(name)
    assert depths(frugal) == depths(plain)
    kept, every = rows(frugal), rows(plain)
    assert kept <= every
    more: dict[tuple[Hashable, ...], list[Budget]] = {}
    for budget, *others in kept:
        assert isinstance(budget, Budget)
        more.setdefault(tuple(others), []).append(budget)
    for budget, *others in every - kept:
        assert isinstance(budget, Budget)
        assert any(all(map(le, budget, enough)) for enough in more[tuple(others)])


def test_the_models_above_find_something_and_count_everything() -> None:
    assert depths(searched(MODELS["no ELR"])).keys() >= {"lost", "vanished"}
    budgets = [scope.budget for scope in SCOPES.values()]
    assert all(any(left) for left in zip(*budgets, strict=True))


def test_a_counter_that_a_group_did_not_name_is_missed() -> None:
    scope = Scope(TWO, brokers=2, settled=True, budget=Budget(power_losses=1))
    assert rows(searched(blind(scope))) < rows(searched(bare(blind(scope))))


def test_numbers_that_run_out_on_the_way_change_nothing() -> None:
    few, wide = searched(narrow(SCOPES["no ELR"])), searched(MODELS["no ELR"])
    assert sum(few.cells.widths) < sum(wide.cells.widths)
    assert rows(few) == rows(wide)
    assert depths(few) == depths(wide)


def test_a_finding_from_before_all_is_packed_anew_has_its_way_after_it() -> None:
    all_the_way = ALL._replace(ending=False)
    scope = Scope(TWO, brokers=2, acks=1, settled=True, budget=Budget(hand_overs=2), reductions=all_the_way)
    search = Search(narrow(scope), frozenset({"lost"}))
    search.run()
    widths, lost = tuple(search.cells.widths), search.findings["lost"]
    search.wanted = frozenset({"all of it"})
    search.run()
    assert sum(search.cells.widths) > sum(widths)
    assert [told.action for told in search.way_to(search.findings["lost"].state)] == [
        told.action for told in searched(world(scope)).way_to(searched(world(scope)).findings["lost"].state)
    ]
    assert search.findings["lost"].depth == lost.depth


def test_packing_anew_does_not_hold_all_states_twice() -> None:
    """At most the packed states and one string of bytes per state are in memory, not two tables of integers."""
    search = Search(MODELS["clean_stops cuts"], frozenset({"all of it"}))
    search.run(max_states=30_000)
    tracemalloc.start()
    try:
        search._widen(CLIENT)  # What follows is traced from its first integer on.
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        search._widen(CLIENT)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (peak - before) / len(search.seen) < 60


def tidied(together: bool) -> Model:
    """Return a model of two counters that rise to 3, and a note whether they are equal, which a group with `at_once`
    keeps. `together`: True to put all groups into one row."""

    def climb(value: int) -> Iterator[Move]:
        if value < 3:
            yield Action("counter", "climbs"), (value + 1,)

    def second(value: int, alike: bool) -> Iterator[Move]:
        if value < 3:
            yield Action("counter", "climbs"), (value + 1, alike)

    def tidy(first: int, second: int, alike: bool) -> Iterator[Move]:
        if alike != (first == second):
            yield Action("note", "is kept"), (first, second, first == second)

    row = "all" if together else ""
    groups = (
        Group("first", (0,), climb, row=row),
        Group("second", (1, 2), second, row=row),
        Group("tidy", (0, 1, 2), tidy, at_once=lambda value: (value,)),
    )
    return Model(("first", "second", "alike"), (0, 1, False), groups)


@pytest.mark.parametrize("together", [True, False])
def test_what_is_done_at_once_is_done_in_the_row_or_at_each_state(together: bool) -> None:
    search = searched(tidied(together))
    assert rows(search) == {(one, two, one == two) for one in range(4) for two in range(1, 4)}
    found = [steps for row in search._tables.rows for steps in row.memo.values() if steps]
    assert any(steps[1] for steps in found) is not together


def test_rows_are_far_fewer_look_ups_than_groups() -> None:
    search = Search(world(Scope(TWO)))
    assert len(search.model.groups) > 45
    assert len(search._tables.rows) == 14


def test_equal_steps_are_kept_once() -> None:
    search = searched(MODELS["before KRaft"])
    found = [steps for row in search._tables.rows for steps in row.memo.values() if steps]
    alone = [steps for steps in found if not steps[1] and not steps[2]]
    assert len({id(steps) for steps in alone}) == len(set(alone)) < len(alone) / 2
    ints = [difference for steps in found for difference in steps[0] if abs(difference) > 256]
    assert len({id(difference) for difference in ints}) == len(set(ints))
    tuples = [differences for steps in found for _, differences in steps[1]]
    assert len({id(differences) for differences in tuples}) == len(set(tuples)) < len(tuples)


def test_counters_lie_side_by_side() -> None:
    cells = Cells(world(Scope(TWO, budget=Budget(kills=2, cuts=1, retries=4))))
    assert cells.widths[BUDGET] == 2 + 1 + 3
    for left in (Budget(), Budget(2, 0, 0, 1, 0, 0, 0, 0, 0, 4), Budget(kills=1, retries=3)):
        assert cells.value_at(cells.number(BUDGET, left), BUDGET) == left
    seen = cells.number(BUDGET, Budget(kills=2, cuts=1, retries=4)) & cells.mask((BUDGET,), ("cuts", "kills"))
    assert cells.value_at(seen, BUDGET) == Budget(kills=2, cuts=1)
    assert cells.mask((BUDGET, CLIENT)) == cells.mask((BUDGET,)) | cells.mask((CLIENT,), ("kills",))


@pytest.mark.parametrize("wrong", [Budget(kills=4), Budget(kills=-1), Budget(lost=1)])
def test_a_counter_only_counts_down(wrong: Budget) -> None:
    cells = Cells(world(Scope(TWO, budget=Budget(kills=2))))
    with pytest.raises(ValueError, match="does not count down"):
        cells.number(BUDGET, wrong)


def test_a_cell_that_is_full_says_so() -> None:
    cells = Cells(narrow(Scope(replace(TWO))))
    for number in range(2):
        assert cells.number(CLIENT, number) == number
    with pytest.raises(TooNarrowError) as full:
        cells.number(CLIENT, 2)
    assert full.value.cell == CLIENT
