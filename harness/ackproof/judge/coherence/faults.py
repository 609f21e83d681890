"""Coherence of faults: the order of their events, their targets, the steps of scripts, and the nodes that they
ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ackproof.experiment.backends import BACKENDS
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.roles import OF_PARTITION, Role, RoleKind
from ackproof.faults.command import CommandFault
from ackproof.faults.script.spec import Script
from ackproof.judge.coherence.run import WRITTEN_AT_ONCE
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, contradicts, lacks
from ackproof.observe.committed import partition_of_group
from ackproof.rundir.committed import OFFSETS_TOPIC
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import (
    DRAWN_FROM,
    Event,
    EventKind,
    FaultAsked,
    FaultConfirmed,
    FaultHealed,
    FaultRecovered,
    ScriptStep,
    fault_name,
    seconds,
)

_NEEDS: Final = {
    EventKind.FAULT_CONFIRMED: EventKind.FAULT_ASKED,
    EventKind.FAULT_HEALED: EventKind.FAULT_ASKED,
    EventKind.FAULT_RECOVERED: EventKind.FAULT_HEALED,
}
"""Event of a fault → the event that must come before it."""
_ONCE: Final = frozenset({*_NEEDS, EventKind.FAULT_ASKED})
_BEFORE_NS: Final = 10_000_000_000
"""Longest time between resolving a role to nodes and requesting the fault: a broker must answer first."""
_AFTER_NS: Final = 3_000_000_000


# -- lives ----------------------------------------------------------------------------------------------------------


def check_lives(facts: Facts) -> Iterator[Opinion]:
    """Check the events of each fault in the timeline.

    Yield a `contradicts` opinion (files disagree) for events that are repeated, out of order, before the load phase or
    after the heal phase. Yield the same opinion for a fault that the case does not have, or has with another kind.
    Yield a `lacks` opinion (evidence is missing) for a fault of the file that missed: it found nothing to break, or had
    no effect. Faults that a storm drew may miss.
    """
    specs = {fault.number: fault for fault in facts.case.faults}
    for number, events in sorted(facts.lifelines.fault_events.items()):
        own = [event for event in events if event.kind in WRITTEN_AT_ONCE]
        if not own:
            continue
        name, kinds = f"fault {fault_name(number)}", {event.kind for event in own}
        if number not in specs:
            yield contradicts(f"the timeline has {name}, which the case does not have", subject=name)
        else:
            yield from map(contradicts, _life(name, specs[number].kind, own))
            if {EventKind.FAULT_CONFIRMED, EventKind.FAULT_MISSED} <= kinds:
                yield contradicts(f"{name} was confirmed, and missed", subject=name)
        if number < DRAWN_FROM and EventKind.FAULT_MISSED in kinds:
            yield lacks(f"{name} missed, and only one that a storm drew may", subject=name)
        first, last = own[0], own[-1]
        if first.t_ns < facts.phases.get("load", first.t_ns):
            yield contradicts(f"{name} has {first.kind} at {seconds(first.t_ns)}, before the load began")
        if last.t_ns > facts.phases.get("drain", last.t_ns):
            yield contradicts(f"{name} has {last.kind} at {seconds(last.t_ns)}, after the load had ended")


def _life(name: str, kind_in_case: str, events: Sequence[Event]) -> Iterator[str]:
    """Yield a sentence for each event of a fault that contradicts the events before it, or the fault's kind in the
    case. `events`: in order."""
    before: dict[EventKind, Event] = {}
    for event in events:
        kind, what, when = event.kind, event.what, seconds(event.t_ns)
        if kind in _ONCE & before.keys():
            yield f"{name} has {kind} twice"
        if kind in _NEEDS and _NEEDS[kind] not in before:
            yield f"{name} has {kind} at {when} and no {_NEEDS[kind]} before"
        if kind is EventKind.FAULT_CONFIRMED and EventKind.FAULT_HEALED in before:
            yield f"{name} is confirmed at {when}, after it was healed"
        if isinstance(what, FaultAsked) and what.kind not in ("", kind_in_case):
            yield f"{name} is {what.kind} in the timeline and {kind_in_case} in the case"
        # A healing may begin once the fault was seen to bite, or else once it was asked for.
        latest = before.get(EventKind.FAULT_CONFIRMED, before.get(EventKind.FAULT_ASKED))
        began = what.begun_ns if isinstance(what, FaultHealed) else 0
        if began and latest is not None and not latest.t_ns <= began <= event.t_ns:
            yield (
                f"{name} has a healing that began at {seconds(began)}, and {latest.kind} at "
                f"{seconds(latest.t_ns)}, {kind} at {when}"
            )
        before[kind] = event


# -- scripts --------------------------------------------------------------------------------------------------------


def check_scripts(facts: Facts) -> Iterator[Opinion]:
    """Yield a `contradicts` opinion (files disagree) for each script whose steps in the timeline are out of order or
    differ from the case's. A script is a fault that leads brokers through steps, one at a time (`faults.script`).

    If the timeline says that the script took effect, also yield one for missing steps. Yield one, too, for each step
    whose observed state was not the expected one.
    """
    scripts = (fault for fault in facts.case.faults if isinstance(fault, Script))
    yield from (contradicts(text) for script in scripts for text in _script(facts, script))


def _script(facts: Facts, fault: Script) -> Iterator[str]:
    events = facts.lifelines.fault_events.get(fault.number, ())
    steps = [event.what for event in events if isinstance(event.what, ScriptStep)]
    name = f"fault {fault_name(fault.number)}"
    if [step.number for step in steps] != list(range(1, len(steps) + 1)):
        yield f"{name} has the steps {', '.join(str(step.number) for step in steps)}, which are not one after the other"
        return
    for step, spec in zip(steps, fault.steps, strict=False):
        if step.step != str(spec):
            yield f"{name} has the step {step.number} '{step.step}' in the timeline, and '{spec}' in the case"
    if not any(event.kind is EventKind.FAULT_CONFIRMED for event in events):
        return
    if len(steps) != len(fault.steps):
        yield f"{name} was confirmed, and the timeline has {len(steps)} of its {len(fault.steps)} steps"
    for step in steps:
        then = fault.steps[step.number - 1].then
        otherwise = step.wrong or "; ".join([] if step.seen is None else then.unmet(step.seen))
        if otherwise:
            yield f"{name} was confirmed, and at step {step.number} it was otherwise: {otherwise}"


# -- targets --------------------------------------------------------------------------------------------------------


def check_targets(facts: Facts) -> Iterator[Opinion]:
    """Yield a `contradicts` opinion (files disagree) for each event of a fault that aims at nodes which cannot have
    held the fault's roles.

    Also yield one for each `FaultAsked` event with a wrong role, or without a trigger (why the fault began then). Yield
    one, too, for such an event without nodes if the fault was confirmed. Yield one for a `FaultConfirmed` or
    `FaultRecovered` event without a witness: the check that saw the effect or the healing. Nothing is yielded for an
    attached cluster, whose nodes have ids of their own.
    """
    if BACKENDS[facts.backend].foreign:
        return  # its nodes have ids of their own
    for fault in facts.case.faults:
        yield from map(contradicts, _witnesses(facts, fault))


def _witnesses(facts: Facts, fault: FaultSpec) -> Iterator[str]:
    name = f"fault {fault_name(fault.number)} ({fault})"
    events = facts.lifelines.fault_events.get(fault.number, ())
    bit = any(isinstance(event.what, FaultConfirmed) for event in events)
    for event in events:
        what, at = event.what, seconds(event.t_ns)
        if isinstance(what, FaultAsked):
            # Older versions named a command by its words.
            if what.role != fault.target_text and not isinstance(fault, CommandFault):
                yield f"{name} was aimed at {what.role or 'nobody'}, as the timeline says"
            if not what.trigger:
                yield f"{name} was asked for at {at}, and the timeline does not say why then"
            if bit and fault.targets and not what.nodes:
                yield f"{name} is confirmed, and the timeline says that it was aimed at no node"
            elif what.nodes and what.kind == fault.kind:
                wrong = _wrong_nodes(facts, fault, what.nodes, event.t_ns, bit)
                yield from (f"{name} was aimed at {why}" for why in wrong)
        elif isinstance(what, FaultConfirmed) and not (what.did and what.witness):
            yield f"{name} is confirmed at {at}, and nobody says what was done and who saw it"
        elif isinstance(what, FaultRecovered) and not what.witness:
            yield f"{name} is confirmed as healed at {at}, and nobody says who saw it"


def _wrong_nodes(facts: Facts, fault: FaultSpec, nodes: Sequence[int], t_ns: int, bit: bool) -> Iterator[str]:
    """Yield, as the end of a sentence, why a fault was aimed at the wrong `nodes`; nothing if the holder of one of its
    roles is unknown.

    The holder is known if the case alone decides it, or if samples or the metadata log show the partition. Each of
    `nodes` must have held one of the roles. `bit`: True if the fault took effect; then `nodes` must also have a holder
    of each role. Without effect a role may have had no holder, as in a quorum without a leader.
    """
    holders: set[int] = set()
    for role in fault.targets:
        own = _holders(facts, role, fault, t_ns)
        if own is None:
            return
        if bit and not own & set(nodes):
            yield f"node {_listed(nodes)}, and {role} may have been {_listed(own)}"
            return
        if bit and (missing := _certain_holders(facts, role, own, nodes) - set(nodes)):
            yield f"node {_listed(nodes)}, and {role} is node {_listed(missing)}, too"
        holders |= own
    if strange := set(nodes) - holders:
        yield f"node {_listed(strange)}, which held none of its roles"


def _holders(facts: Facts, role: Role, fault: FaultSpec, t_ns: int) -> set[int] | None:
    """Return the nodes that may have held the role at `t_ns`; None if unknown. For a role of a partition, these are its
    holders in the samples around that time, and in every record of the metadata log. They are unknown if the partition
    was sampled, but not around that time."""
    spec = facts.case.experiment.cluster
    each: dict[Role, set[int] | None] = {}
    for part in (part for part in role.walk() if part.kind is not RoleKind.RACK):
        if _is_active_controller(part):
            each[part] = set(spec.broker_ids if spec.metadata.broker_controls else spec.controller_ids)
        elif part.kind in OF_PARTITION or part.group is not None:
            each[part] = _partition_holders(facts, part, t_ns) or None
        else:
            each[part] = set(part.resolve(spec.members, facts.case.order(fault)))
    known = {part: nodes for part, nodes in each.items() if nodes is not None}
    if len(known) < len(each):
        return None
    return set(role.find_nodes(known.__getitem__, spec.members.racks))


def _certain_holders(facts: Facts, role: Role, holders: set[int], nodes: Sequence[int]) -> set[int]:
    """Return those of `holders` that a fault aimed at `nodes` must have hit; empty if none is certain. `holders`: nodes
    that may have held the role.

    If the case alone decides who holds the role, all of `holders` are certain. For a rack of a partition's replica or
    of the active controller, those in the racks of `nodes` are: a fault hits a whole rack. For any other role none is:
    each of `holders` may have been the only one.
    """
    moves = (part.kind in OF_PARTITION or part.group is not None for part in role.walk())
    if not (any(moves) or any(map(_is_active_controller, role.walk()))):
        return holders
    racks = facts.case.experiment.cluster.members.racks
    hit = {racks.get(node) for node in nodes}
    return {node for node in holders if racks[node] in hit} if role.kind is RoleKind.RACK else set()


def _is_active_controller(role: Role) -> bool:
    return role.kind is RoleKind.CONTROLLER and role.node is None


def _partition_holders(facts: Facts, role: Role, t_ns: int) -> set[int]:
    place = TopicPartition(role.topic or "", role.partition or 0)
    if role.group is not None:
        partitions = sum(known.topic == OFFSETS_TOPIC for known in facts.decided_of)
        place = TopicPartition(OFFSETS_TOPIC, partition_of_group(role.group, max(partitions, 1)))
    # Between two looks of a busy sampler leaders come and go, and Kafka's own topics nobody samples: the metadata log
    # knows of all, if not which clock of ours it was.
    states = [(record.leader, record.replicas, record.isr) for record in facts.decided_of.get(place, ())]
    if samples := facts.samples_of.get(place):
        near = [each for each in samples if t_ns - _BEFORE_NS <= each.t_ns <= t_ns + _AFTER_NS]
        states = [*states, *((each.leader, each.replicas, each.isr) for each in near)] if near else []
    found: set[int] = set()
    for leader, replicas, isr in states:
        if role.kind in (RoleKind.LEADER, RoleKind.COORDINATOR):
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


# -- nodes that a fault ended ---------------------------------------------------------------------------------------


def check_ended_nodes(facts: Facts) -> Iterator[Opinion]:
    """Yield a `contradicts` opinion (files disagree) for each node that did not end although a confirmed fault was to
    stop or kill it. Nothing is yielded for simulated and attached clusters."""
    row = BACKENDS[facts.backend]
    if row.simulated or row.foreign or not facts.events:
        return  # the harness started no process
    for fault in facts.case.faults:
        life = facts.faults.get(fault.number)
        if life is None or life.confirmed is None or not fault.ENDS_NODES:
            continue
        recovered = facts.lifelines.fault_event(fault.number, FaultRecovered)
        until = (recovered or facts.events[-1]).t_ns
        for node in life.nodes:
            if not any(life.asked <= end.t_ns <= until for end in facts.lifelines.node(node).ends):
                yield contradicts(
                    f"fault {fault_name(fault.number)} ({fault}) is confirmed at {seconds(life.confirmed)}, and "
                    f"node {node}, at which it was aimed, did not end",
                    subject=f"fault {fault_name(fault.number)}",
                )
