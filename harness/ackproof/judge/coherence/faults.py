"""Coherence of faults: their lives in order, their targets, the steps of scripts, and the nodes that they ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ackproof.experiment.backends import BACKENDS
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.roles import OF_PARTITION, Role, RoleKind
from ackproof.faults.command import CommandFault
from ackproof.faults.script.spec import Script
from ackproof.judge.coherence.run import WRITTEN_AT_ONCE
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, Rule, apply_rules, contradicts, lacks
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
"""A role is resolved before its fault is asked for: so long may it take until somebody answers."""
_AFTER_NS: Final = 3_000_000_000


# -- lives ----------------------------------------------------------------------------------------------------------


class _Moment(NamedTuple):
    """An event of a fault, with the events before it."""

    name: str
    kind_in_case: str
    event: Event
    before: dict[EventKind, Event]
    phases: dict[str, int]

    @property
    def kind(self) -> EventKind:
        return self.event.kind

    @property
    def when(self) -> str:
        return seconds(self.event.t_ns)

    @property
    def needed(self) -> EventKind:
        return _NEEDS.get(self.kind, self.kind)

    @property
    def other_kind(self) -> str:
        """The kind that the timeline names, if the case has another one."""
        what = self.event.what
        return what.kind if isinstance(what, FaultAsked) and what.kind != self.kind_in_case else ""

    @property
    def healing_began(self) -> int:
        return self.event.what.begun_ns if isinstance(self.event.what, FaultHealed) else 0

    @property
    def healing(self) -> str:
        return seconds(self.healing_began)

    @property
    def latest(self) -> Event:
        """The event after which a healing may begin: it was seen to bite, or else asked for."""
        asked = self.before.get(EventKind.FAULT_ASKED, self.event)
        return self.before.get(EventKind.FAULT_CONFIRMED, asked)

    @property
    def heals_too_early(self) -> bool:
        known = self.latest is not self.event
        return (
            bool(self.healing_began)
            and known
            and not self.latest.t_ns <= self.healing_began <= self.event.t_ns
        )

    @property
    def latest_at(self) -> str:
        return seconds(self.latest.t_ns)


_LIFE: Final[Sequence[Rule[_Moment]]] = (
    Rule(lambda it: it.kind in _ONCE & it.before.keys(), "{it.name} has {it.kind} twice"),
    Rule(
        lambda it: it.kind in _NEEDS and it.needed not in it.before,
        "{it.name} has {it.kind} at {it.when} and no {it.needed} before",
    ),
    Rule(
        lambda it: it.kind is EventKind.FAULT_CONFIRMED and EventKind.FAULT_HEALED in it.before,
        "{it.name} is confirmed at {it.when}, after it was healed",
    ),
    Rule(
        lambda it: it.other_kind,
        "{it.name} is {it.other_kind} in the timeline and {it.kind_in_case} in the case",
    ),
    Rule(
        lambda it: it.heals_too_early,
        "{it.name} has a healing that began at {it.healing}, and {it.latest.kind} at {it.latest_at}, "
        "{it.kind} at {it.when}",
    ),
)
_AMONG_PHASES: Final[Sequence[Rule[tuple[_Moment, _Moment]]]] = (
    Rule(
        lambda it: it[0].event.t_ns < it[0].phases.get("load", it[0].event.t_ns),
        "{it[0].name} has {it[0].kind} at {it[0].when}, before the load began",
    ),
    Rule(
        lambda it: it[1].event.t_ns > it[1].phases.get("drain", it[1].event.t_ns),
        "{it[1].name} has {it[1].kind} at {it[1].when}, after the load had ended",
    ),
)


def check_lives(facts: Facts) -> Iterator[Opinion]:
    """Check the order of each fault's events, and that it lives while there is load."""
    specs = {fault.number: fault for fault in facts.case.faults}
    for number, events in sorted(facts.lifelines.fault_events.items()):
        own = [event for event in events if event.kind in WRITTEN_AT_ONCE]
        if not own:
            continue
        name = f"fault {fault_name(number)}"
        kind = specs[number].kind if number in specs else ""
        moments = []
        before: dict[EventKind, Event] = {}
        for event in own:
            moments.append(_Moment(name, kind, event, dict(before), dict(facts.phases)))
            before[event.kind] = event
        if number not in specs:
            yield contradicts(f"the timeline has {name}, which the case does not have", subject=name)
        else:
            yield from map(contradicts, apply_rules(_LIFE, moments))
            if {EventKind.FAULT_CONFIRMED, EventKind.FAULT_MISSED} <= before.keys():
                yield contradicts(f"{name} was confirmed, and missed", subject=name)
        if number < DRAWN_FROM and EventKind.FAULT_MISSED in before:
            yield lacks(f"{name} missed, and only one that a storm drew may", subject=name)
        yield from map(contradicts, apply_rules(_AMONG_PHASES, [(moments[0], moments[-1])]))


# -- scripts --------------------------------------------------------------------------------------------------------


def check_scripts(facts: Facts) -> Iterator[Opinion]:
    """Check that a confirmed script has all its steps, in order, each with the outcome that it waits for."""
    for fault in facts.case.faults:
        if isinstance(fault, Script):
            yield from map(contradicts, _script(facts, fault))


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
    """Check that each fault hit nodes that may have held its roles, and that a witness is named."""
    if BACKENDS[facts.backend].foreign:
        return  # its nodes have ids of their own
    for fault in facts.case.faults:
        events = facts.lifelines.fault_events.get(fault.number, ())
        yield from map(contradicts, _witnesses(facts, fault, events))


def _witnesses(facts: Facts, fault: FaultSpec, events: Sequence[Event]) -> Iterator[str]:
    name = f"fault {fault_name(fault.number)} ({fault})"
    bit = any(isinstance(event.what, FaultConfirmed) for event in events)
    for event in events:
        what, at = event.what, seconds(event.t_ns)
        if isinstance(what, FaultAsked):
            role = str(fault).removeprefix(fault.kind).strip()
            # Older versions named a command by its words.
            if what.role != role and not isinstance(fault, CommandFault):
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
    """The holder of a role is known where the case alone decides it, and of a partition where it was watched.

    A role of a fault that did not bite may have had no holder: a link to a quorum without a leader.
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
    """Nodes that held the role then, perhaps one after the other; None where nobody knows."""
    each = {
        part: _part_holders(facts, part, fault, t_ns)
        for part in role.walk()
        if part.kind is not RoleKind.RACK
    }
    known = {part: nodes for part, nodes in each.items() if nodes is not None}
    racks = facts.case.experiment.cluster.members.racks
    return set(role.find_nodes(known.__getitem__, racks)) if len(known) == len(each) else None


def _certain_holders(facts: Facts, role: Role, holders: set[int], nodes: Sequence[int]) -> set[int]:
    """Nodes that a fault of this role has hit with these: all that the case names, else the whole rack of each."""
    if not any(part.kind in OF_PARTITION or _is_active_controller(part) for part in role.walk()):
        return holders
    racks = facts.case.experiment.cluster.members.racks
    hit = {racks.get(node) for node in nodes}
    return {node for node in holders if racks[node] in hit} if role.kind is RoleKind.RACK else set()


def _is_active_controller(role: Role) -> bool:
    return role.kind is RoleKind.CONTROLLER and role.node is None


def _part_holders(facts: Facts, role: Role, fault: FaultSpec, t_ns: int) -> set[int] | None:
    """Holders of a role that is neither a rack nor a list."""
    spec = facts.case.experiment.cluster
    if _is_active_controller(role):
        return set(spec.broker_ids if spec.metadata.broker_controls else spec.controller_ids)
    if role.kind not in OF_PARTITION:
        return set(role.resolve(spec.members, facts.case.order(fault)))
    return _partition_holders(facts, role, t_ns) or None


def _partition_holders(facts: Facts, role: Role, t_ns: int) -> set[int]:
    place = TopicPartition(role.topic or "", role.partition or 0)
    # Between two looks of a busy sampler leaders come and go, and Kafka's own topics nobody samples: the metadata log
    # knows of all, if not which clock of ours it was.
    states = [(record.leader, record.replicas, record.isr) for record in facts.decided_of.get(place, ())]
    if samples := facts.samples_of.get(place):
        near = [each for each in samples if t_ns - _BEFORE_NS <= each.t_ns <= t_ns + _AFTER_NS]
        states = [*states, *((each.leader, each.replicas, each.isr) for each in near)] if near else []
    found: set[int] = set()
    for leader, replicas, isr in states:
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


# -- nodes that a fault ended ---------------------------------------------------------------------------------------


def check_ended_nodes(facts: Facts) -> Iterator[Opinion]:
    """Check that a confirmed fault that ends nodes has ended each node at which it was aimed."""
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
