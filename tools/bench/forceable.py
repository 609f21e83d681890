"""Counts how many of the explorer's counterexamples can be forced on brokers, and which steps prevent the others.

    python tools/bench/forceable.py

For each protection that is switched off, and for none: the shortest counterexample of each class in small models with
every pair of incidents. Prints a Markdown table by the first step that no script can carry out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations_with_replacement

from ackproof_model.force.story import Story
from ackproof_model.force.translate import NotForceable, translated
from ackproof_reference.explore.scope import Budget, Scope
from ackproof_reference.explore.search import Search
from ackproof_reference.explore.world import world
from ackproof_reference.rules import PROTECTIONS, Rules, without

MOST = 3_000
"""Limit of distinct states for the search of one model."""
INCIDENTS = [name for name in Budget._fields if name not in ("clean_stops", "failovers")]


def scopes() -> Iterator[Scope]:
    """Yield the scopes of every pair of incidents, with each protection switched off and with none, for acks=1 and for
    acks=all. Scopes have two brokers, of which a reassignment can remove one."""
    for taken in ((), *((name,) for name in PROTECTIONS)):
        for acks, insync in ((1, 1), (-1, 2)):
            rules = without(replace(Rules(), min_insync=insync), *taken)
            for pair in combinations_with_replacement(INCIDENTS, 2):
                budget = Budget(**Counter(pair))
                targets = ((1,), (2,)) if budget.reassignments else ()
                scope = Scope(
                    rules,
                    brokers=2,
                    acks=acks,
                    budget=budget,
                    targets=targets,
                    idempotent=bool(budget.retries),
                    settled=True,
                )
                yield scope


def main() -> None:
    seen: set[tuple[object, ...]] = set()
    hindered: Counter[str] = Counter()
    forced = 0
    for scope in scopes():
        search = Search(world(scope.in_stories), frozenset({"every class"}))
        search.run(max_states=MOST)
        for kind, found in search.findings.items():
            way = tuple(search.way_to(found.state))
            story = Story(kind, found.text, scope, way)
            key = (kind, scope.acks, tuple((line.action.actor, line.action.text) for line in way))
            if key in seen:
                continue
            seen.add(key)
            try:
                translated(story)
                forced += 1
            except NotForceable as error:
                hindered[str(way[error.number - 1].action.kind.value)] += 1
    print(f"{len(seen)} stories, {forced} forceable\n")
    print("| first step that no script does | stories |\n|---|---|")
    for why, count in hindered.most_common():
        print(f"| {why} | {count} |")


if __name__ == "__main__":
    main()
