"""Whether the harness brought the run through, and whether its timeline is whole."""

from __future__ import annotations

from collections.abc import Iterator

from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, lacks
from ackproof.rundir.timeline import EventKind, RunFailed


def check(facts: Facts) -> Iterator[Opinion]:
    """Lacks of the run as a whole."""
    if not facts.events:
        yield lacks("the run left no timeline")
        return
    for event in facts.events:
        if isinstance(event.what, RunFailed):
            yield lacks(f"the run did not go through: {event.what.error or 'no reason recorded'}")
    if facts.events[-1].kind is not EventKind.END:
        yield lacks("the run has no end: the harness stopped before it was through")
    if not facts.timeline_whole:
        yield lacks("the timeline has lines that cannot be read")
