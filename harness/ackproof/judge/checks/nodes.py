"""Whether a node or a client ended by itself."""

from __future__ import annotations

from collections.abc import Iterator

from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, lacks
from ackproof.rundir.timeline import EventKind


def check(facts: Facts) -> Iterator[Opinion]:
    """Deaths that nobody asked for; those of nodes only where the experiment does not allow them."""
    if not facts.case.experiment.evidence.node_deaths:
        yield from _deaths(facts, EventKind.NODE_DIED)
    yield from _deaths(facts, EventKind.CLIENT_DIED)


def _deaths(facts: Facts, kind: EventKind) -> Iterator[Opinion]:
    for event in facts.events:
        if event.kind is kind:
            who = f"node {event.node}" if kind is EventKind.NODE_DIED else f"client {event.client}"
            status = event.detail.get("status", "unknown status")
            yield lacks(f"{who} ended by itself ({status})")
