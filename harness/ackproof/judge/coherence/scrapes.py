"""Scrapes of the nodes' metrics beside the timeline, which says when nodes were dead, and samples, which show ISRs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, contradicts
from ackproof.judge.starved import quiet
from ackproof.quantities.scrapes import scraped
from ackproof.rundir.metrics import METRICS
from ackproof.rundir.timeline import seconds

_LATE_NS: Final = 2_000_000_000
"""So much later than a process began its start may be told, on a machine that is not starved."""
_LONG_NS: Final = 10_000_000_000
"""For so long both have looked often, whatever moves on the way from one to the other."""


def check(facts: Facts) -> Iterator[Opinion]:
    """Contradictions about metrics."""
    if not facts.scrapes:
        return
    if not facts.case.experiment.observe.metrics:
        yield contradicts("metrics were scraped, and the experiment does not ask for them")
    yield from map(contradicts, _told(facts))
    yield from map(contradicts, _dead(facts))
    yield from map(contradicts, _in_sync(facts))


def _told(facts: Facts) -> Iterator[str]:
    """An answer comes after its question, and before the next; a number of a metric is one, and not below 0."""
    for node, each in sorted(facts.scrapes.items()):
        for one, two in pairwise([*each, None]):
            assert one is not None
            wrong = next((it for it in (one.values or {}).items() if not 0 <= it[1] < math.inf), None)
            if wrong is not None:
                yield f"node {node}: {wrong[0]} is {wrong[1]:g} at {seconds(one.t_ns)}"
                return
            if not one.t_ns <= one.done_ns <= (math.inf if two is None else two.t_ns):
                yield f"node {node} was scraped at {seconds(one.t_ns)}, and that ended at {seconds(one.done_ns)}"
                return


def _dead(facts: Facts) -> Iterator[str]:
    """Who has no process does not answer."""
    for node, each in sorted(facts.scrapes.items()):
        spans = facts.lifelines.node(node).spans
        for one in each:
            if one.values is not None and not alive(spans, one.t_ns, one.done_ns):
                yield f"node {node} told its metrics at {seconds(one.t_ns)}, when it was dead"
                return


def alive(spans: Iterable[tuple[float, float]], asked_ns: int, answered_ns: int) -> bool:
    """Whether a node that lived at these times may have answered."""
    return any(begin - _LATE_NS <= answered_ns and asked_ns <= end for begin, end in spans)


def _in_sync(facts: Facts) -> Iterator[str]:
    """While no fault is at work a leader counts the ISRs that everybody sees to lack somebody."""
    found = scraped(facts, METRICS["under_replicated_partitions"], None)
    if isinstance(found, str):
        return
    for place, samples in sorted(facts.samples_of.items()):
        since: float = math.inf
        for sample in samples:
            lacks = sample.leader >= 0 and not set(sample.replicas) <= set(sample.isr)
            since = min(since, sample.t_ns) if lacks else math.inf
            if sample.t_ns - since <= _LONG_NS or not _still(facts, since, sample.t_ns):
                continue
            rounds = found.inside(since, sample.t_ns)
            if rounds and found.hole(since, sample.t_ns) is None and not any(one.number for one in rounds):
                yield (
                    f"{place}: its ISR lacks replicas from {since / 1e9:.3f} s to {seconds(sample.t_ns)}, and no "
                    "scrape shows a partition that is under-replicated"
                )
                return


def _still(facts: Facts, begin: float, end: float) -> bool:
    return any(first <= begin and end <= last for first, last in quiet(facts))
