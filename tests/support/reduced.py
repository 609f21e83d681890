"""Small scopes in which a reduced search is compared with the one in which stories are told.

Two brokers at most, every pair of what may go wrong, rules of releases with KRaft and with ZooKeeper, each protection
taken away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from ackproof_reference.broker import Process
from ackproof_reference.explore.fetching import starts_unnoticed
from ackproof_reference.explore.invariants import LOST, VANISHED
from ackproof_reference.explore.model import Model, Row
from ackproof_reference.explore.scope import CONTROLLER, TOLD, Budget, Scope, process_cell
from ackproof_reference.explore.search import Search
from ackproof_reference.explore.world import Retelling, world
from ackproof_reference.metadata import Metadata
from ackproof_reference.rules import PROTECTIONS, VERSIONS, without

RELEASES = ("4.1", "4.0", "3.5", "3.3", "3.7-zk", "2.8-zk", "2.1", "2.0", "0.11", "0.10")
ASKED = frozenset({LOST, VANISHED})
"""What predictions ask for: a search for these alone ends sooner (`ending.py`)."""
MOST = 60_000
"""States of the told search; larger scopes are left out."""


def budgets() -> Iterator[Budget]:
    """One thing, the same twice, and every two."""
    for name in Budget._fields:
        yield Budget(**{name: 1})
        yield Budget(**{name: 2})
    for one, other in combinations(Budget._fields, 2):
        yield Budget(**{one: 1, other: 1})


def scopes(release: str) -> Iterator[Scope]:
    """All of a release."""
    for least in (1, 2):
        whole = replace(VERSIONS[release], min_insync=least)
        for rules in dict.fromkeys((whole, *(without(whole, name) for name in PROTECTIONS))):
            for budget in budgets():
                made = Scope(rules, brokers=2, settled=True, budget=budget, targets=((2,),))
                yield made
                yield replace(made, acks=1)
                yield replace(made, records=2, idempotent=bool(budget.retries))


def searched(scope: Scope, most: int) -> Search:
    """A search for all findings, to its end if it has not more states."""
    search = Search(world(scope), frozenset({"all of it"}))
    search.run(max_states=most)
    return search


def unseen(scope: Scope, most: int) -> int:
    """How many states of the told search are none of those that the reduced one has looked at, or had no need to: one
    like it with as much left was looked at, or nothing can be broken from there on. Left out are those in which a
    broker has started and not learned yet, where it does both in one step."""
    told = searched(replace(scope, reductions=TOLD._replace(ending=scope.reductions.ending)), most)
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
    """Which brokers have started and learned nothing yet, where the reduced search has them learn in the same step."""
    metadata = row[CONTROLLER]
    assert isinstance(metadata, Metadata)
    for one in scope.ids:
        process = row[process_cell(one)]
        assert isinstance(process, Process)
        yield process.up and process.metadata is None and starts_unnoticed(scope, one, metadata)


def broken_behind(scope: Scope, most: int) -> set[str] | None:
    """Which classes of those that predictions ask for are broken at, or behind, states at which a search for these does
    not go on (`seated.py`), and that a search for all of them has looked at. None: there are more states."""
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
    """Whether a search for these classes does not go on from a state; for all of them where there are none."""
    return any(
        all(one.holds(*(row[cell] for cell in one.cells)) for one in end.conditions)
        for end in model.ends
        if not end.kinds or (wanted and wanted <= end.kinds)
    )


def difference(scope: Scope, most: int = MOST) -> str | None:
    """In what the reduced search and the told one disagree: findings, and how many steps each takes; "" for nothing.

    None: there are more than `most` states, and nothing was compared.
    """
    told = searched(scope.told, most)
    if not told.exhausted:
        return None
    fewer = searched(scope, most)
    if not fewer.exhausted:
        return f"{len(told.seen)} states became more than {most}"
    shortest = {kind: found.depth for kind, found in told.findings.items()}
    try:
        found = {kind: len(fewer.way_to(one.state)) for kind, one in fewer.findings.items()}
    except AssertionError as error:
        return f"{sorted(shortest)} became {sorted(fewer.findings)}, and {error}"
    counted = {kind: one.depth for kind, one in fewer.findings.items()}
    if not shortest == found == counted:
        return f"{shortest} became {found}, counted as {counted}"
    asked = Search(world(scope), ASKED)
    asked.run(max_states=most)
    if not (asked.exhausted or asked.satisfied):
        return f"{len(told.seen)} states became more than {most} for two classes"
    expected = {kind: depth for kind, depth in shortest.items() if kind in ASKED}
    answered = {kind: one.depth for kind, one in asked.findings.items() if kind in ASKED}
    return "" if expected == answered else f"asked for alone {expected} became {answered}"
