"""What is doubtful in an experiment that is right: said as warnings, and only where it is certain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ackproof.base.units import duration_text
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.problems import Path
from ackproof.experiment.promises import Promises
from ackproof.experiment.roles import Role, RoleKind
from ackproof.experiment.setting_effects import unknown_setting
from ackproof.experiment.triggers import At, When
from ackproof.faults.command import CommandFault
from ackproof.faults.links.detach import Detach
from ackproof.faults.links.of_links import OfLinks
from ackproof.faults.planned.set_config import SetConfig
from ackproof.faults.processes import Kill, Pause, Stop
from ackproof.plan.diagnostics import Problems
from ackproof.plan.duration import begins, load_s, out_of_reach

_MIN_INSYNC: Final = "min.insync.replicas"


def look_for_doubts(spec: ExperimentSpec, found: Problems) -> None:
    """Warn of what its author will hardly have meant."""
    for name, topic in spec.topics.items():
        _above_the_factor(spec, name, topic.replication_factor, found)
    builds = [
        (("cluster", "kafka"), spec.cluster.kafka),
        *((("faults", one.number - 1, one.kind, "to"), build) for one in spec.faults for build in one.builds),
    ]
    for path, build in builds:
        if build.assumption:
            found.warn(path, build.assumption)
    _look_at_settings(spec, found)
    for fault in spec.faults:
        entry: Path = ("faults", fault.number - 1)
        match fault.trigger:
            case When() as trigger if why := out_of_reach(spec, trigger):
                without = (
                    ""
                    if trigger.at_latest
                    else f", and without fault {fault.number} the case is INCONCLUSIVE"
                )
                found.warn((*entry, "when"), f"{why}{without}; ask for less, or give workload.duration more")
            case When() as trigger if trigger.at_latest is None and not trigger.awaited:
                without = f"without fault {fault.number} the case is INCONCLUSIVE"
                found.warn((*entry, "when"), f"this may never come, and {without}; give it at_latest")
            case At() as trigger if trigger.at > spec.workload.duration:
                least, asked = duration_text(load_s(spec)), duration_text(spec.workload.duration)
                message = (
                    f"beyond the workload's duration of {asked}; the load goes on for it, {least} or longer"
                )
                found.warn((*entry, "at"), message)
        if isinstance(fault, CommandFault) and _adds_partitions(fault):
            found.warn(
                (*entry, fault.kind, "inject"),
                "nobody reads partitions that it adds: producers, readers and the final read know those of the file; "
                "give the topic so many from the start",
            )
        _after_which_nothing(spec, fault, (*entry, fault.kind), found)
        _without_a_quorum(spec, fault, (*entry, fault.kind), found)


def _adds_partitions(command: CommandFault) -> bool:
    words = " ".join(command.inject).replace("=", " ").split()
    return {"--alter", "--partitions"} <= set(words)  # of kafka-topics.sh


def _look_at_settings(spec: ExperimentSpec, found: Problems) -> None:
    """Warn of settings of brokers that the release does not have: they are passed over without a word."""
    if not spec.cluster.kafka.is_known or spec.ground.foreign:
        return
    cluster: Path = ("cluster",)
    places: list[tuple[Path, Mapping[str, str]]] = [((*cluster, "config"), spec.cluster.config)]
    places += [
        ((*cluster, "broker_config", str(broker)), config)
        for broker, config in spec.cluster.broker_config.items()
    ]
    places += [
        (("faults", fault.number - 1, fault.kind, "config"), fault.config)
        for fault in spec.faults
        if isinstance(fault, SetConfig) and fault.topic is None
    ]
    for path, config in places:
        for name in config:
            if why := unknown_setting(name, spec.cluster.kafka.version):
                found.warn((*path, name), why, key=True)


def _above_the_factor(spec: ExperimentSpec, name: str, factor: int, found: Problems) -> None:
    places: tuple[Path, ...] = (("topics", name, "config"), ("cluster", "config"))
    for place in places:
        node = found.node((*place, _MIN_INSYNC))
        if node is None:
            continue
        asked = (spec.topics[name] if place[0] == "topics" else spec.cluster).config[_MIN_INSYNC]
        if asked.isdecimal() and int(asked) > factor:
            message = f"{name} has {factor} replicas, fewer than {asked}; brokers take {factor} in its place"
            found.warn((*place, _MIN_INSYNC), message)
        return


def _after_which_nothing(spec: ExperimentSpec, fault: FaultSpec, path: Path, found: Problems) -> None:
    """Nodes that are gone for the rest of the run, without which no partition at all acknowledges anything."""
    gone = isinstance(fault, Kill | Stop | Pause) and fault.hold is None and not spec.ground.foreign
    if not gone or begins(spec, fault) >= spec.workload.duration:
        return
    if not all(_leaves_alone(other) for other in spec.faults if other is not fault):
        return
    left = [_left(spec, fault.targets, topic) for topic in spec.topic_names()]
    needed = [_needed(spec, topic) for topic in spec.topic_names()]
    if any(have is None or have >= need for have, need in zip(left, needed, strict=True)):
        return
    replicas = f"{left[0]} of {spec.topics[spec.topic_names()[0]].replication_factor} replicas"
    told = f"from then on nothing can be acknowledged: {replicas} are left at most, and it takes {needed[0]}"
    found.warn(path, f"{told}; give it {fault.HOLD_KEY}", key=True)


def _without_a_quorum(spec: ExperimentSpec, fault: FaultSpec, path: Path, found: Problems) -> None:
    """A rack with so many controllers that no majority is left."""
    every, members = spec.cluster.controller_ids, spec.cluster.members
    for role in (
        (role for target in fault.targets for role in target.roles)
        if fault.grip or isinstance(fault, Detach)
        else ()
    ):
        hit = [node for node in members.nodes_by_rack.get(role.rack or "", ()) if node in every]
        if 2 * len(hit) >= len(every):
            found.warn(
                path,
                f"{role} has {len(hit)} of {len(every)} controllers ({', '.join(map(str, hit))}), and no majority is "
                "left: no leader is elected until they are back; controller_racks puts them elsewhere",
            )


def _leaves_alone(fault: FaultSpec) -> bool:
    """Whether it surely starts no node, and changes neither topics nor their settings."""
    return isinstance(fault, OfLinks) or (isinstance(fault, Kill | Stop | Pause) and fault.hold is None)


def _needed(spec: ExperimentSpec, topic: str) -> int:
    """How many replicas it takes to acknowledge a record."""
    return Promises.of(spec, topic).min_insync if spec.workload.producers.acks == "all" else 1


def _left(spec: ExperimentSpec, targets: tuple[Role, ...], topic: str) -> int | None:
    """How many replicas each partition of the topic has at most, once these roles are gone; None: not known."""
    factor, brokers = spec.topics[topic].replication_factor, spec.cluster.brokers
    left = []
    for role in targets:
        nodes, hit = role.reach(spec.cluster.members)
        gone = nodes & set(spec.cluster.broker_ids)
        if hit and (hit == len(nodes) or gone == nodes):
            left.append(min(factor, brokers - min(hit, len(gone))))
        elif role.topic == topic and spec.topics[topic].partitions == 1:
            left.append(1 if role.kind is RoleKind.FOLLOWERS else factor - 1)
    return min(left, default=None)
