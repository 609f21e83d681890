"""What may happen in a scope: each class of finding impossible, possible with its shortest story, or unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ackproof_reference.chance import Chance
from ackproof_reference.explore.scope import Scope
from ackproof_reference.explore.search import Finding, Progress, Search, Told
from ackproof_reference.explore.world import World


@dataclass(frozen=True)
class Outlook:
    """The answer for one class, with the shortest way to it if it is possible."""

    kind: str
    chance: Chance
    finding: Finding | None = None
    way: tuple[Told, ...] = ()


def outlook(
    scope: Scope,
    kinds: Iterable[str],
    *,
    max_states: int | None = None,
    max_bytes: int | None = None,
    max_seconds: float | None = None,
    watch: Callable[[Progress], None] | None = None,
) -> dict[str, Outlook]:
    """Search a scope until all classes are found or all states seen; what a limit leaves open is unknown."""
    wanted = frozenset(kinds)
    search = Search(World(scope), wanted)
    search.run(max_states=max_states, max_bytes=max_bytes, max_seconds=max_seconds, watch=watch)
    otherwise = Chance.IMPOSSIBLE if search.exhausted else Chance.UNKNOWN
    answers = {}
    for kind in sorted(wanted):
        finding = search.findings.get(kind)
        if finding is None:
            answers[kind] = Outlook(kind, otherwise)
        else:
            answers[kind] = Outlook(kind, Chance.POSSIBLE, finding, tuple(search.way_to(finding.state)))
    return answers
