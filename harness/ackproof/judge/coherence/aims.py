"""Faults as the timeline tells them, beside the case: whom each was aimed at, and who saw that it bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ackproof.experiment.backends import BACKENDS
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.roles import OF_PARTITION, Role, RoleKind
from ackproof.faults.command import CommandFault
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, contradicts
from ackproof.rundir.metadata import PartitionChanged
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import (
    Event,
    FaultAsked,
    FaultConfirmed,
    FaultRecovered,
    fault_name,
    seconds,
)

_BEFORE_NS: Final = 10_000_000_000
"""A role is resolved before its fault is asked for: so long may it take until somebody answers."""
_AFTER_NS: Final = 3_000_000_000


def check(facts: Facts) -> Iterator[Opinion]:
    """Contradictions about whom faults were aimed at."""
    if BACKENDS[facts.backend].foreign:
        return  # its nodes have what numbers they have
    for fault in facts.case.faults:
        events = [event for event in facts.events if event.fault == fault.number]
        yield from map(contradicts, _of_a_fault(facts, fault, events))


def _of_a_fault(facts: Facts, fault: FaultSpec, events: Sequence[Event]) -> Iterator[str]:
    name = f"fault {fault_name(fault.number)} ({fault})"
    bit = any(isinstance(event.what, FaultConfirmed) for event in events)
    for event in events:
        what = event.what
        if isinstance(what, FaultAsked):
            role = str(fault).removeprefix(fault.kind).strip()
            # Older versions named a command by its words.
            if what.role != role and not isinstance(fault, CommandFault):
                yield f"{name} was aimed at {what.role or 'nobody'}, as the timeline says"
            if not what.trigger:
                yield f"{name} was asked for at {seconds(event.t_ns)}, and the timeline does not say why then"
            if bit and fault.targets and not what.nodes:
                yield f"{name} is confirmed, and the timeline says that it was aimed at no node"
            elif what.nodes and what.kind == fault.kind:
                yield from (
                    f"{name} was aimed at {why}" for why in _aim(facts, fault, what.nodes, event.t_ns, bit)
                )
        elif isinstance(what, FaultConfirmed) and not (what.did and what.witness):
            yield f"{name} is confirmed at {seconds(event.t_ns)}, and nobody says what was done and who saw it"
        elif isinstance(what, FaultRecovered) and not what.witness:
            yield f"{name} is confirmed as healed at {seconds(event.t_ns)}, and nobody says who saw it"


def _aim(facts: Facts, fault: FaultSpec, nodes: Sequence[int], t_ns: int, bit: bool) -> Iterator[str]:
    """Who held a role is known where the case alone says it, and of a partition where it was watched.

    Of a fault that did not bite one of the roles may have been nobody's: a link to a quorum without a leader.
    """
    may_be: set[int] = set()
    for role in fault.targets:
        held = _may_hold(facts, role, fault, t_ns)
        if held is None:
            return
        if bit and not held & set(nodes):
            yield f"node {_listed(nodes)}, and {role} may have been {_listed(held)}"
            return
        if bit and (missing := _surely_hit(facts, role, held, nodes) - set(nodes)):
            yield f"node {_listed(nodes)}, and {role} is node {_listed(missing)}, too"
        may_be |= held
    if strange := set(nodes) - may_be:
        yield f"node {_listed(strange)}, which held none of its roles"


def _may_hold(facts: Facts, role: Role, fault: FaultSpec, t_ns: int) -> set[int] | None:
    """Nodes that held the role then, perhaps one after the other; None where nobody knows."""
    spec = facts.case.experiment.cluster
    each = {one: _may_be(facts, one, fault, t_ns) for one in role.walk() if one.kind is not RoleKind.RACK}
    known = {one: nodes for one, nodes in each.items() if nodes is not None}
    return set(role.find_nodes(known.__getitem__, spec.members.racks)) if len(known) == len(each) else None


def _surely_hit(facts: Facts, role: Role, held: set[int], nodes: Sequence[int]) -> set[int]:
    """Nodes that a fault of this role has hit, as it has hit these: all where the case says who they are, else the
    whole rack of each."""
    if not any(one.kind in OF_PARTITION or _is_active_controller(one) for one in role.walk()):
        return held
    racks = facts.case.experiment.cluster.members.racks
    hit = {racks.get(node) for node in nodes}
    return {node for node in held if racks[node] in hit} if role.kind is RoleKind.RACK else set()


def _is_active_controller(role: Role) -> bool:
    return role.kind is RoleKind.CONTROLLER and role.node is None


def _may_be(facts: Facts, role: Role, fault: FaultSpec, t_ns: int) -> set[int] | None:
    """The same of a role that is neither a rack nor a list."""
    spec = facts.case.experiment.cluster
    if _is_active_controller(role):
        return set(spec.broker_ids if spec.metadata.broker_controls else spec.controller_ids)
    if role.kind not in OF_PARTITION:
        return set(role.resolve(spec.members, facts.case.order(fault)))
    return _of_a_partition(facts, role, t_ns) or None


def _of_a_partition(facts: Facts, role: Role, t_ns: int) -> set[int]:
    place = TopicPartition(role.topic or "", role.partition or 0)
    # Between two looks of a busy sampler leaders come and go, and Kafka's own topics nobody samples: the metadata log
    # knows of all, if not which clock of ours it was.
    records = [one for one in facts.metadata if isinstance(one, PartitionChanged)]
    seen = [(one.leader, one.replicas, one.isr) for one in records if (one.topic, one.partition) == place]
    if samples := facts.samples_of.get(place):
        mine = [one for one in samples if t_ns - _BEFORE_NS <= one.t_ns <= t_ns + _AFTER_NS]
        seen = [*seen, *((one.leader, one.replicas, one.isr) for one in mine)] if mine else []
    found: set[int] = set()
    for leader, replicas, isr in seen:
        if role.kind is RoleKind.LEADER:
            found.add(leader)
        elif role.kind is RoleKind.ISR:
            found.update(isr)
        elif role.kind is RoleKind.PREFERRED_LEADER:
            found.update(replicas[:1])
        else:
            found.update(node for node in replicas if node != leader)
    return found - {-1}


def _listed(nodes: set[int] | Sequence[int]) -> str:
    return ", ".join(map(str, sorted(nodes))) or "nobody"
