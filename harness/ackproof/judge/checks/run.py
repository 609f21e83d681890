"""Checks that the run is complete evidence: its end, its faults, its nodes, and its clients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, lacks, not_judged
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import (
    ClientDied,
    ClientReset,
    Event,
    EventKind,
    FaultFailed,
    NodeDied,
    Note,
    ProxyDied,
    RunFailed,
    fault_name,
)


def check_end(facts: Facts) -> Iterator[Opinion]:
    """Yield a `lacks` opinion (evidence is missing) if the run did not reach its end, or if its timeline is missing or
    not readable."""
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


def check_faults(facts: Facts) -> Iterator[Opinion]:
    """Yield a `lacks` opinion (evidence is missing) for each fault that failed, was not injected, not confirmed or not
    confirmed as healed. A fault that missed (found nothing to break, or had no effect) yields none here:
    `coherence.faults.check_lives` judges it."""
    for fault in facts.case.faults:
        name = f"fault {fault_name(fault.number)}"
        for text in _missing_steps(facts.lifelines.fault_events.get(fault.number, ())):
            yield lacks(f"{name} ({fault}){text}", subject=name)


def _missing_steps(events: Sequence[Event]) -> Iterator[str]:
    kinds = {event.kind for event in events}
    if EventKind.FAULT_FAILED in kinds:
        for event in events:
            if isinstance(event.what, FaultFailed):
                yield f": {event.what.reason}"
    elif EventKind.FAULT_MISSED in kinds:
        return  # drawn by a storm, which says whether enough of its faults bit
    elif EventKind.FAULT_ASKED not in kinds:
        yield " was never injected"
    elif EventKind.FAULT_CONFIRMED not in kinds:
        yield " was not confirmed"
    elif EventKind.FAULT_RECOVERED not in kinds:
        yield " was not confirmed as healed"


def check_deaths(facts: Facts) -> Iterator[Opinion]:
    """Yield a `lacks` opinion (evidence is missing) for each node, client or link proxy that ended unexpectedly. Nodes
    are left out if the experiment allows their deaths (`evidence.node_deaths`)."""
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
            yield lacks(f"{who} ended by itself ({status})", subject=who)


def check_unread_bytes(facts: Facts) -> Iterator[Opinion]:
    """Yield a `lacks` opinion (evidence is missing) for each acks=0 producer that closed before brokers had read all
    that it sent. The end of its process may have lost these records. Nothing is yielded if the audit counted no lost
    record."""
    if not facts.audit.counts.get(Anomaly.LOST):
        return
    for event in facts.events:
        what = event.what
        if isinstance(what, Note) and what.unread_bytes:
            yield lacks(
                f"producer {what.producer} closed while brokers had not read {what.unread_bytes} bytes of it, so "
                "losses among its last records may be the harness's own",
                numbers={"bytes": what.unread_bytes},
            )


def check_resets(facts: Facts) -> Iterator[Opinion]:
    """Yield a `not judged` opinion for each reset at which a live reader skipped offsets, because the log
    start had moved above its position."""
    for event in facts.events:
        what = event.what
        if not isinstance(what, ClientReset) or what.position is None or what.goes_on is None:
            continue
        position = max(what.position, 0)
        missed = what.goes_on - position
        if missed > 0 and event.topic is not None:
            place = TopicPartition(event.topic, event.partition or 0)
            yield not_judged(
                f"reader {event.client} was at offset {position:,} of {place} at {event.t_ns / 1e9:.1f} s, and the log "
                f"began at {what.start or 0:,} by then: it went on at {what.goes_on:,} and never read the "
                f"{missed:,} offsets between",
                subject=str(place),
                numbers={"offsets": missed},
            )
