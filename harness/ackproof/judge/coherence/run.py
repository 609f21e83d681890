"""Coherence of the run as a whole: phases, duration, backend, nodes, release, topics and the metadata log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from typing import Final

from ackproof.experiment.backends import BACKENDS
from ackproof.experiment.kafka import METADATA, features_of
from ackproof.experiment.triggers import COUNT_WITHIN_S
from ackproof.faults.life import FIRST_ACKS_BOUND_S
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, contradicts, lacks
from ackproof.quantities.metadata_log import epochs_left_out, out_of_order
from ackproof.rundir.metadata import (
    BrokerRegistered,
    ConfigChanged,
    FeatureChanged,
    LogEnded,
    PartitionChanged,
)
from ackproof.rundir.timeline import ClientDied, Event, EventKind, NodeDied, NodeStarted, PhaseBegan, seconds

PHASES: Final = ("start", "load", "heal", "drain", "read", "end")
WRITTEN_AT_ONCE: Final = frozenset(
    {
        EventKind.PHASE,
        EventKind.FAULT_ASKED,
        EventKind.FAULT_CONFIRMED,
        EventKind.FAULT_HEALED,
        EventKind.FAULT_RECOVERED,
        EventKind.FAULT_MISSED,
        EventKind.FAULT_FAILED,
        EventKind.END,
    }
)
"""Events that the harness writes when they happen. It learns of other events, of clients and nodes, later."""
_RELEASE: Final = re.compile(rb"Kafka version: ([0-9.]+)")
_ENVIRONMENTS: Final = {"cluster": "attach", "image": "docker", "model": "model"}
"""Key in `environment` that only one backend writes → that backend."""
_LATE_END_NS: Final = 10_000_000_000
"""Greatest delay with which a busy harness ends the load."""
_PROMISING: Final = ("min.insync.replicas", "unclean.leader.election.enable")
_TOPIC: Final = 2
"""Type of a topic (org.apache.kafka.common.config.ConfigResource.Type) in a ConfigRecord."""


def check_course(facts: Facts) -> Iterator[Opinion]:
    """Yield a `contradicts` opinion (files disagree) if phases are missing or out of order. Yield one, too, if the
    timeline goes on after its end or back in time. Only times of events that are written at once are compared
    (`WRITTEN_AT_ONCE`)."""
    if not facts.events:
        return  # the check of the run's end says so
    yield from map(contradicts, _phases(facts))
    yield from map(contradicts, _time_goes_back(facts.events))


def _phases(facts: Facts) -> Iterator[str]:
    every = [event.what.phase for event in facts.events if isinstance(event.what, PhaseBegan)]
    known = tuple(facts.phases)
    if tuple(every) != PHASES[: len(every)]:
        yield f"the timeline has the phases {', '.join(every)}, and a run has {', '.join(PHASES)}"
    elif facts.events[-1].kind is EventKind.END and known != PHASES:
        yield f"the timeline has the end of the run, and no phase {', '.join(PHASES[len(known) :])}"
    if any(event.kind is EventKind.END for event in facts.events[:-1]):
        yield "the timeline goes on after the end of the run"


def _time_goes_back(events: Sequence[Event]) -> Iterator[str]:
    last: Event | None = None
    for event in events:
        if event.kind not in WRITTEN_AT_ONCE:
            continue
        if last is not None and event.t_ns < last.t_ns:
            before, after = (f"{each.kind} at {seconds(each.t_ns)}" for each in (last, event))
            yield f"the timeline goes back from {before} to {after}"
            return
        last = event


def check_settings(facts: Facts) -> Iterator[Opinion]:
    """Yield a `contradicts` opinion (files disagree) for each topic whose min.insync.replicas,
    unclean.leader.election.enable or replication factor differs between the case and the metadata log: a verdict rests
    on the settings in force. A value that a fault may set is no difference."""
    yield from map(contradicts, dict.fromkeys((*_topic_configs(facts), *_replication_factors(facts))))


def _topic_configs(facts: Facts) -> Iterator[str]:
    spec = facts.case.experiment
    for record in facts.metadata:
        if (
            not isinstance(record, ConfigChanged)
            or record.resource != _TOPIC
            or record.name not in spec.topics
            or record.key not in _PROMISING
            or record.value is None
        ):
            continue
        by_faults = [dict(fault.may_set(spec, record.name)) for fault in (*spec.faults, *facts.case.faults)]
        settings = [spec.topics[record.name].config, *by_faults]
        meant = {str(config[record.key]).lower() for config in settings if record.key in config}
        if record.value.lower() not in meant:
            yield (
                f"the metadata log has {record.key}={record.value} for topic {record.name}, and the case "
                f"{' or '.join(sorted(meant)) or 'does not set it'}"
            )


def _replication_factors(facts: Facts) -> Iterator[str]:
    topics = facts.case.experiment.topics
    for record in facts.metadata:
        if not isinstance(record, PartitionChanged) or record.partition_epoch or record.topic not in topics:
            continue
        wanted = topics[record.topic].replication_factor
        if len(record.replicas) != wanted:
            yield (
                f"{record.topic}/{record.partition} was created with {len(record.replicas)} replicas, and the case "
                f"has {wanted}"
            )


def check_metadata_log(facts: Facts) -> Iterator[Opinion]:
    """Yield a `lacks` opinion (evidence is missing) if the metadata log is missing, or its end (except in simulated
    runs). Yield `contradicts` (files disagree) if records are missing or out of order. Yield it, too, if a partition
    change skips an epoch; in ZooKeeper mode a skipped epoch is `lacks`. Nothing is yielded for an attached cluster, nor
    for a missing log if there was no final read."""
    backend = BACKENDS[facts.backend]
    if backend.foreign:
        return
    *records, last = facts.metadata or (None,)
    if last is None:
        if facts.final_read is not None:
            yield lacks("there is no metadata log: what the controllers decided is not known")
        return
    if isinstance(last, LogEnded):
        if last.records != len(records):
            yield contradicts(f"the metadata log has {len(records)} records, and {last.records} were written")
    else:
        records.append(last)
        if not backend.simulated:
            yield lacks("the metadata log has no end: nobody knows whether all of it is there")
    known = [record for record in records if record is not None]
    gapless = backend.simulated or facts.case.experiment.cluster.mode == "kraft"
    ends_at = last.offset if isinstance(last, LogEnded) else None
    yield from map(contradicts, out_of_order(known, ends_at, gapless=gapless))
    # ZooKeeper's servers may have been sent a snapshot instead of the changes of which it was made.
    yield from map(contradicts if gapless else lacks, epochs_left_out(known))


def check_ground(facts: Facts) -> Iterator[Opinion]:
    """Yield a `contradicts` opinion (files disagree) if backend, nodes, Kafka release or duration of the case differ
    from what was observed. If the run did not reach its end, only the backend is compared; on an attached cluster, only
    backend and duration."""
    yield from map(contradicts, _backend(facts))
    if not facts.events or facts.events[-1].kind is not EventKind.END:
        return
    yield from map(contradicts, _duration(facts))
    if not BACKENDS[facts.backend].foreign:
        yield from map(contradicts, _nodes(facts))
        yield from map(contradicts, _release(facts))


def _backend(facts: Facts) -> Iterator[str]:
    """Yield a sentence for each disagreement about the backend between case.json, the case, the timeline and the
    environment. The timeline disagrees if it has a node's process id, and the harness starts no nodes on this
    backend."""
    backend, name = BACKENDS[facts.backend], f"case.json says that the backend is {facts.backend}"
    if facts.case.experiment.backend != facts.backend:
        yield f"{name}, and its resolved case {facts.case.experiment.backend}"
    pids = [
        event for event in facts.events if isinstance(event.what, NodeStarted) and event.what.pid is not None
    ]
    if pids and (backend.simulated or backend.foreign):
        yield f"{name}, and the timeline has a process of node {pids[0].node}"
    if facts.environment:
        found = (own for key, own in _ENVIRONMENTS.items() if key in facts.environment)
        if (here := next(found, "process")) != facts.backend:
            yield f"{name}, and its environment is that of {here}"


def _nodes(facts: Facts) -> Iterator[str]:
    cluster = facts.case.experiment.cluster
    brokers, every = set(cluster.broker_ids), {*cluster.broker_ids, *cluster.controller_ids}
    started = {node for node, life in facts.lifelines.nodes.items() if life.starts}
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


def _listed(nodes: Set[int]) -> str:
    return ", ".join(map(str, sorted(nodes))) or "none"


def _release(facts: Facts) -> Iterator[str]:
    """Yield a sentence for each disagreement about the Kafka release between the case, its environment, the nodes' logs
    and metadata.version."""
    builds, own = facts.case.builds, facts.case.experiment.cluster.kafka.version
    releases = {build.version for build in builds}
    name = f"the case has Kafka {', '.join(sorted(releases))}"
    if (had := facts.environment.get("kafka", own)) != own:
        yield f"the case has Kafka {own}, and the environment of its run {had}"
    for log in sorted(facts.run.nodes.glob("*/server.log")):
        found = {match.decode() for match in _RELEASE.findall(log.read_bytes())}
        if strange := found - releases:
            yield f"{name}, and node {log.parent.name} logged that it is {', '.join(sorted(strange))}"
    if not all(build.is_known for build in builds):
        return  # the levels of an unknown build are not known either
    highest = max(features_of(release)[METADATA][1] for release in releases)
    for record in facts.metadata:
        if isinstance(record, FeatureChanged) and record.feature == METADATA and record.level > highest:
            yield f"{name}, and the metadata log has {METADATA} {record.level}, which these do not know"


def _duration(facts: Facts) -> Iterator[str]:
    """Yield a sentence if the load did not last as long as the case says. It may last longer if faults take
    longer. Yield nothing if a node or client died, because the load may be shorter then."""
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
    if over > last + late + _LATE_END_NS:
        yield (
            f"the case has load for {seconds(wanted)}, and it lasted until {seconds(over)}; clients were ready at "
            f"{seconds(facts.pulses[0].t_ns)}, and no fault took longer"
        )
