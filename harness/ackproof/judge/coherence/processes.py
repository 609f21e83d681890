"""Nodes: what faults and the metadata log say of them, beside the processes that were seen to start and to end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from ackproof.experiment.backends import BACKENDS
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, contradicts
from ackproof.rundir.metadata import BrokerRegistered
from ackproof.rundir.timeline import (
    EventKind,
    FaultAsked,
    NodeDied,
    NodeEnded,
    NodeStarted,
    fault_name,
    seconds,
)

Gone = NodeEnded | NodeDied


def check(facts: Facts) -> Iterator[Opinion]:
    """Contradictions about nodes."""
    if BACKENDS[facts.backend].simulated or BACKENDS[facts.backend].foreign or not facts.events:
        return  # nobody has processes that this house started
    yield from map(contradicts, _nodes_in_turns(facts))
    yield from map(contradicts, _struck(facts))
    yield from map(contradicts, _registered(facts))
    yield from map(contradicts, _dethroned(facts))


def _nodes_in_turns(facts: Facts) -> Iterator[str]:
    """A node starts, ends, starts again."""
    runs: dict[int, bool] = {}
    for event in sorted(facts.events, key=lambda event: event.t_ns):
        if event.node is None:
            continue
        if isinstance(event.what, NodeStarted):
            if runs.get(event.node):
                yield f"node {event.node} is started at {seconds(event.t_ns)}, and did not end before"
            runs[event.node] = True
        elif isinstance(event.what, Gone):
            if not runs.get(event.node):
                yield f"node {event.node} ends at {seconds(event.t_ns)}, and did not run"
            runs[event.node] = False


def _struck(facts: Facts) -> Iterator[str]:
    """A fault that ends nodes, and that was seen to bite, has ended them."""
    ends = defaultdict(list)
    for event in facts.events:
        if isinstance(event.what, Gone) and event.node is not None:
            ends[event.node].append(event.t_ns)
    for fault in facts.case.faults:
        mine = {event.kind: event for event in facts.events if event.fault == fault.number}
        asked, confirmed = mine.get(EventKind.FAULT_ASKED), mine.get(EventKind.FAULT_CONFIRMED)
        if asked is None or confirmed is None or not isinstance(asked.what, FaultAsked):
            continue
        if not fault.ENDS_NODES:
            continue
        until = mine.get(EventKind.FAULT_RECOVERED, facts.events[-1]).t_ns
        for node in asked.what.nodes:
            if not any(asked.t_ns <= end <= until for end in ends[node]):
                yield (
                    f"fault {fault_name(fault.number)} ({fault}) is confirmed at {seconds(confirmed.t_ns)}, and "
                    f"node {node}, at which it was aimed, did not end"
                )


def _dethroned(facts: Facts) -> Iterator[str]:
    """A leader that ended and registered again leads anew, in a later leader epoch, or follows.

    A second life is registered when the first one's session is over, and with that end its leaderships
    (org.apache.kafka.controller.ClusterControlManager.registerBroker). A ZooKeeper controller that comes up after its
    brokers finds them all alive.
    """
    if not facts.case.experiment.cluster.metadata.registers_once:
        return
    ends = [(event.node, event.t_ns) for event in facts.events if isinstance(event.what, Gone)]
    asked = {event.fault: event.what.nodes for event in facts.events if isinstance(event.what, FaultAsked)}
    back = [(event.fault, event.t_ns) for event in facts.events if event.kind is EventKind.FAULT_RECOVERED]
    for place, samples in sorted(facts.samples_of.items()):
        for node, ended in ends if samples and place.topic not in facts.removed else ():
            before = next((one for one in reversed(samples) if one.t_ns <= ended), None)
            again = [
                at for fault, at in back if node in asked.get(fault, ()) and ended < at < samples[-1].t_ns
            ]
            if before is None or before.leader != node or not again:
                continue
            if (samples[-1].leader, samples[-1].leader_epoch) == (node, before.leader_epoch):
                yield (
                    f"node {node} led {place} in leader epoch {before.leader_epoch} when it ended at {seconds(ended)}, "
                    f"was registered again at {seconds(again[0])}, and leads in that epoch still"
                )


def _registered(facts: Facts) -> Iterator[str]:
    """No broker registers more often than it was started, where a process registers once."""
    if not facts.case.experiment.cluster.metadata.registers_once:
        return
    starts = Counter(event.node for event in facts.events if isinstance(event.what, NodeStarted))
    registered: dict[int, set[str]] = defaultdict(set)
    for record in facts.metadata:
        if isinstance(record, BrokerRegistered):
            registered[record.node].add(record.incarnation)
    for node, incarnations in sorted(registered.items()):
        if len(incarnations) > starts[node]:
            yield (
                f"the metadata log has {len(incarnations)} registrations of broker {node}, and the timeline "
                f"{starts[node]} starts of it"
            )
