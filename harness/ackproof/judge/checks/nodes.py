"""Whether a node, a client or a proxy of links ended by itself."""

from __future__ import annotations

from collections.abc import Iterator

from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, lacks
from ackproof.rundir.timeline import ClientDied, NodeDied, ProxyDied


def check(facts: Facts) -> Iterator[Opinion]:
    """Deaths that nobody asked for; those of nodes only where the experiment does not allow them."""
    if not facts.case.experiment.evidence.node_deaths:
        yield from _deaths(facts, NodeDied)
    yield from _deaths(facts, ClientDied)
    for event in facts.events:
        if isinstance(event.what, ProxyDied):
            yield lacks(f"{event.what.why}; every connection through it ended with it")


def _deaths(facts: Facts, kind: type[NodeDied | ClientDied]) -> Iterator[Opinion]:
    for event in facts.events:
        if isinstance(event.what, kind):
            who = f"node {event.node}" if kind is NodeDied else f"client {event.client}"
            status = "unknown status" if event.what.status is None else event.what.status
            yield lacks(f"{who} ended by itself ({status})")
