"""The ground that the case names, beside what was seen of it: backend, nodes, release, and how long there was load."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from typing import Final

from ackproof.experiment.backends import BACKENDS
from ackproof.experiment.kafka import METADATA, features_of
from ackproof.experiment.triggers import COUNT_WITHIN_S
from ackproof.faults.life import FIRST_ACKS_BOUND_S
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, contradicts
from ackproof.rundir.metadata import BrokerRegistered, FeatureChanged
from ackproof.rundir.timeline import ClientDied, EventKind, NodeDied, NodeStarted, seconds

_RELEASE: Final = re.compile(rb"Kafka version: ([0-9.]+)")
_TELLS: Final = {"cluster": "attach", "image": "docker", "model": "model"}
"""What an environment tells of that only this backend has."""
_SLACK_NS: Final = 10_000_000_000
"""How late a busy harness may end the load."""


def check(facts: Facts) -> Iterator[Opinion]:
    """Contradictions about the ground."""
    row = BACKENDS[facts.backend]
    yield from map(contradicts, _backend(facts))
    if not facts.events or facts.events[-1].kind is not EventKind.END:
        return
    yield from map(contradicts, _duration(facts))
    if not row.foreign:
        yield from map(contradicts, _nodes(facts))
        yield from map(contradicts, _release(facts))


def _backend(facts: Facts) -> Iterator[str]:
    """Who runs has processes; on somebody else's cluster these are not ours, and the model has none."""
    row, name = BACKENDS[facts.backend], f"case.json says that the backend is {facts.backend}"
    if facts.case.experiment.backend != facts.backend:
        yield f"{name}, and its resolved case {facts.case.experiment.backend}"
    pids = [
        event for event in facts.events if isinstance(event.what, NodeStarted) and event.what.pid is not None
    ]
    if pids and (row.simulated or row.foreign):
        yield f"{name}, and the timeline has a process of node {pids[0].node}"
    if facts.environment:
        here = next((backend for word, backend in _TELLS.items() if word in facts.environment), "process")
        if here != facts.backend:
            yield f"{name}, and it tells of the environment of {here}"


def _nodes(facts: Facts) -> Iterator[str]:
    cluster = facts.case.experiment.cluster
    brokers, every = set(cluster.broker_ids), {*cluster.broker_ids, *cluster.controller_ids}
    started = {event.node for event in facts.events if isinstance(event.what, NodeStarted)}
    if not BACKENDS[facts.backend].simulated and started != every:
        yield f"the case has the nodes {_listed(every)}, and the timeline starts {_listed(started)}"
    registered = {record.node for record in facts.metadata if isinstance(record, BrokerRegistered)}
    if registered and registered != brokers:
        yield f"the case has the brokers {_listed(brokers)}, and the metadata log {_listed(registered)}"
    sampled = {
        node for sample in facts.samples for node in (sample.leader, *sample.replicas, *sample.isr)
    } - {-1}
    if sampled - brokers:
        yield f"the case has the brokers {_listed(brokers)}, and {_listed(sampled - brokers)} was sampled"


def _release(facts: Facts) -> Iterator[str]:
    """The release by what the harness had, by what each node logged when it started, and by the metadata's version."""
    cluster = facts.case.experiment.cluster
    builds, own = facts.case.builds, cluster.kafka.version
    may_be = {build.version for build in builds}
    name = f"the case has Kafka {', '.join(sorted(may_be))}"
    if (had := facts.environment.get("kafka", own)) != own:
        yield f"the case has Kafka {own}, and the environment of its run {had}"
    for log in sorted(facts.run.nodes.glob("*/server.log")):
        found = {match.decode() for match in _RELEASE.findall(log.read_bytes())}
        if strange := found - may_be:
            yield f"{name}, and node {log.parent.name} logged that it is {', '.join(sorted(strange))}"
    if not all(build.is_known for build in builds):
        return  # which levels it knows is not known here
    highest = max(features_of(release)[METADATA][1] for release in may_be)
    for record in facts.metadata:
        if isinstance(record, FeatureChanged) and record.feature == METADATA and record.level > highest:
            yield f"{name}, and the metadata log has {METADATA} {record.level}, which these do not know"


def _duration(facts: Facts) -> Iterator[str]:
    """There is load for as long as the case says, unless someone dies; and no longer, unless faults need longer."""
    began, over = facts.phases.get("load"), facts.phases.get("heal")
    if (
        began is None
        or over is None
        or any(isinstance(event.what, ClientDied | NodeDied) for event in facts.events)
    ):
        return
    wanted = round(facts.case.experiment.workload.duration * 1e9)
    if over - began < wanted:
        yield f"the case has load for {seconds(wanted)}, and it lasted from {seconds(began)} to {seconds(over)}"
    if not facts.pulses:
        return
    # The harness begins to watch itself when its clients are ready.
    faults = [event.t_ns for event in facts.events if event.fault is not None and event.t_ns <= over]
    patience = (FIRST_ACKS_BOUND_S + COUNT_WITHIN_S) * 1e9 if facts.case.faults else 0
    late = sum(pulse.late_ms for pulse in facts.pulses) * 1e6
    last = max([facts.pulses[0].t_ns + wanted + patience, *faults])
    if over > last + late + _SLACK_NS:
        yield (
            f"the case has load for {seconds(wanted)}, and it lasted until {seconds(over)}; clients were ready at "
            f"{seconds(facts.pulses[0].t_ns)}, and no fault took longer"
        )


def _listed(nodes: Set[int | None]) -> str:
    return ", ".join(map(str, sorted(node for node in nodes if node is not None))) or "none"
