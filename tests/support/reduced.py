"""Compares searches of small scopes with reductions to the plain search without reductions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

import pytest
from hypothesis import strategies as st

from ackproof_reference.broker import Process
from ackproof_reference.explore.invariants import LOST, VANISHED
from ackproof_reference.explore.model import Model, Row
from ackproof_reference.explore.moves import starts_unnoticed
from ackproof_reference.explore.scope import (
    CONTROLLER,
    IN_STORIES,
    NO_REDUCTIONS,
    Budget,
    Reductions,
    Scope,
    process_cell,
)
from ackproof_reference.explore.search import Search
from ackproof_reference.explore.world import Retelling, world
from ackproof_reference.metadata import Metadata
from ackproof_reference.rules import PROTECTIONS, VERSIONS, without

RELEASES = ("4.1", "4.0", "3.5", "3.3", "3.7-zk", "2.7", "2.1", "2.0", "0.11", "0.10")
ASKED = frozenset({LOST, VANISHED})
"""Classes that predictions search for; a search for these alone ends sooner (`ending.py`)."""


def at_night(names: Iterable[str], slow: Collection[str]) -> list[object]:
    """Return the names as parameters of a test; those in `slow` are marked nightly."""
    return [pytest.param(name, marks=pytest.mark.nightly) if name in slow else name for name in names]


@st.composite
def small_scopes(draw: st.DrawFn) -> Scope:
    """Draw a scope of two brokers and one or two incidents, under the rules of a release, perhaps without one
    protection."""
    rules = replace(VERSIONS[draw(st.sampled_from(RELEASES))], min_insync=draw(st.sampled_from((1, 2))))
    if name := draw(st.sampled_from(("", *PROTECTIONS))):
        rules = without(rules, name)
    one, other = draw(st.sampled_from(Budget._fields)), draw(st.sampled_from(("", *Budget._fields)))
    budget = Budget(**{one: 2 if one == other else 1, **({other: 1} if other not in ("", one) else {})})
    scope = Scope(rules, brokers=2, settled=True, budget=budget, targets=((2,),))
    if draw(st.booleans()):
        return replace(scope, acks=draw(st.sampled_from((0, 1))))
    return replace(scope, records=draw(st.sampled_from((1, 2))), idempotent=bool(budget.retries))


def searched(scope: Scope, most: int) -> Search:
    """Search a scope for all findings, up to `most` states."""
    search = Search(world(scope), frozenset({"all of it"}))
    search.run(max_states=most)
    return search


def unseen(scope: Scope, most: int) -> int:
    """Return how many states of the search for stories the reduced search neither visited nor was allowed to leave out.

    It may leave out a state if it visited the same one with as much budget, or if nothing can be broken from there on.
    States in which a broker has started and learned nothing yet do not count if the reduced search merges both
    steps."""
    told = searched(replace(scope, reductions=IN_STORIES._replace(ending=scope.reductions.ending)), most)
    fewer = searched(scope, most)
    retelling = fewer.model.retold
    assert told.exhausted and fewer.exhausted and isinstance(retelling, Retelling)
    seen: dict[Row, list[Budget]] = {}
    for state in fewer.seen:
        budget, *others = fewer.cells.row(state)
        assert isinstance(budget, Budget)
        seen.setdefault(tuple(others), []).append(budget)

    def looked_at(image: Row) -> bool:
        budget, *others = image
        assert isinstance(budget, Budget)
        enough = scope.reductions.ranking and [
            more
            for more in seen.get(tuple(others), ())
            if all(one <= another for one, another in zip(budget, more, strict=True))
        ]
        return (
            bool(enough)
            or budget in seen.get(tuple(others), ())
            or ended_for(fewer.model, image, frozenset())
        )

    rows = (told.cells.row(state) for state in told.seen)
    return sum(
        not any(map(looked_at, retelling.images(row))) for row in rows if not any(_starting(scope, row))
    )


def _starting(scope: Scope, row: Row) -> Iterator[bool]:
    """Yield, for each broker, True if it has started and learned nothing yet, and the reduced search merges both
    steps."""
    metadata = row[CONTROLLER]
    assert isinstance(metadata, Metadata)
    for one in scope.ids:
        process = row[process_cell(one)]
        assert isinstance(process, Process)
        yield process.up and process.metadata is None and starts_unnoticed(scope, one, metadata)


def broken_behind(scope: Scope, most: int) -> set[str] | None:
    """Return the classes of `ASKED` that are broken at or after states at which a search for these classes ends
    (`seated.py`). Searched on are the end states that a search for all classes has visited. None: the scope has more
    than `most` states."""
    search = searched(scope, most)
    if not search.exhausted:
        return None
    ended = [state for state in search.seen if ended_for(search.model, search.cells.row(state), ASKED)]
    behind = Search(world(scope), frozenset({"all of it"}))
    behind.cells = search.cells
    behind.restore(ended, range(len(ended)), len(ended), 0, [])
    behind.run()
    return ASKED & behind.findings.keys() if ended else set()


def ended_for(model: Model, row: Row, wanted: frozenset[str]) -> bool:
    """Return True if a search for these classes ends at a state. `wanted` empty: a search for all classes."""
    return any(
        all(one.holds(*(row[cell] for cell in one.cells)) for one in end.conditions)
        for end in model.ends
        if not end.kinds or (wanted and wanted <= end.kinds)
    )


def difference(scope: Scope, most: int, against: Reductions = NO_REDUCTIONS) -> str | None:
    """Return a difference between a search and one with other reductions, in findings or in their numbers of steps; ''
    if there is none. None: the scope has more than `most` states, and nothing was compared.

    If only the other search keeps void messages, its paths may be longer: a request that will be refused has to be
    dropped first."""
    same_length = against.void or not (scope.reductions.void or scope.reductions.fusing)
    plain = searched(replace(scope, reductions=against), most)
    if not plain.exhausted:
        return None
    fewer = searched(scope, most)
    if not fewer.exhausted:
        return f"{len(plain.seen)} states became more than {most}"
    shortest = {kind: found.depth for kind, found in plain.findings.items()}
    try:
        found = {kind: len(fewer.way_to(one.state)) for kind, one in fewer.findings.items()}
    except AssertionError as error:
        return f"{sorted(shortest)} became {sorted(fewer.findings)}, and {error}"
    counted = {kind: one.depth for kind, one in fewer.findings.items()}
    exact = found == counted or not scope.reductions.void
    if not exact or not _agree(shortest, counted, same_length=same_length):
        return f"{shortest} became {found}, counted as {counted}"
    asked = Search(world(scope), ASKED)
    asked.run(max_states=most)
    if not (asked.exhausted or asked.satisfied):
        return f"{len(plain.seen)} states became more than {most} for two classes"
    expected = {kind: depth for kind, depth in shortest.items() if kind in ASKED}
    answered = {kind: one.depth for kind, one in asked.findings.items() if kind in ASKED}
    agree = _agree(expected, answered, same_length=same_length)
    return "" if agree else f"asked for alone {expected} became {answered}"


def _agree(shortest: Mapping[str, int], found: Mapping[str, int], *, same_length: bool) -> bool:
    if same_length:
        return shortest == found
    return shortest.keys() == found.keys() and all(found[kind] <= steps for kind, steps in shortest.items())


def contradiction(scope: Scope, most: int) -> str:
    """Return a contradiction between a reduced search for lost and vanished records and the plain one, within `most`
    states each; '' if there is none. A class that one of them finds must not be impossible for the other. A class is
    impossible if a complete search does not find it."""
    reduced, plain = (Search(world(one), ASKED) for one in (scope, replace(scope, reductions=NO_REDUCTIONS)))
    reduced.run(max_states=most)
    plain.run(max_states=most)
    missed = plain.findings.keys() & ASKED - reduced.findings.keys() if reduced.exhausted else set()
    invented = reduced.findings.keys() & ASKED - plain.findings.keys() if plain.exhausted else set()
    return "; ".join([*(f"missed {kind}" for kind in missed), *(f"invented {kind}" for kind in invented)])
