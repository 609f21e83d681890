"""Searches small scopes of the reference implementation, for tests."""

from __future__ import annotations

from ackproof_reference.explore.scope import Scope
from ackproof_reference.explore.search import Search
from ackproof_reference.explore.world import world


class Explorer:
    """Searches a scope until the wanted classes are found, until all its states are visited, or until `max_states` are.
    Without a wanted class only the last two end the search."""

    def __call__(self, scope: Scope, *wanted: str, max_states: int = 400_000) -> Search:
        search = Search(world(scope), frozenset(wanted) or frozenset({"whatever there is"}))
        search.run(max_states=max_states)
        return search

    def finds_nothing(self, scope: Scope, *kinds: str, max_states: int = 1_500_000) -> int:
        """Visit all states of a scope, and return their number. Assert that `max_states` states suffice, and that none
        of the classes `kinds` is found; without `kinds`, no class at all."""
        search = self(scope, max_states=max_states)
        assert search.exhausted, f"{len(search.seen)} states were not all"
        found = {
            kind: finding.text for kind, finding in search.findings.items() if not kinds or kind in kinds
        }
        assert found == {}, "\n".join(self.story(search, next(iter(found))))
        return len(search.seen)

    def finds(self, scope: Scope, kind: str) -> list[str]:
        """Assert that a class is found in the scope; return its shortest counterexample as lines."""
        search = self(scope, kind)
        assert kind in search.findings, (
            f"no {kind!r} among {len(search.seen)} states; found {search.findings}"
        )
        return self.story(search, kind)

    @staticmethod
    def story(search: Search, kind: str) -> list[str]:
        told = search.way_to(search.findings[kind].state)
        return [f"{line.action.actor}: {line.action.text}" for line in told]
