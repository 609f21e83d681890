"""Events of a timeline in English: for the console, the report, and the story of a record."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from ackproof.rundir.anomalies import gravity
from ackproof.rundir.timeline import (
    ClientDied,
    Event,
    EventKind,
    FaultAsked,
    FaultConfirmed,
    FaultFailed,
    FaultHealed,
    FaultRecovered,
    IsrChanged,
    LeaderChanged,
    NodeDied,
    PhaseBegan,
    ProxyDied,
    RunFailed,
    ScriptStep,
    WindowAudited,
    fault_name,
)

PHASES: Final[Mapping[str, str]] = {
    "start": "starting the cluster",
    "load": "the load begins",
    "heal": "healing what is still broken",
    "drain": "closing the clients",
    "read": "reading everything back",
    "end": "ending the cluster",
}
FOREIGN_PHASES: Final = {**PHASES, "start": "creating topics on the cluster", "end": "leaving the cluster"}
"""Names of the phases on a cluster that ackproof does not own."""
_ROLE: Final = re.compile(r"(leader|preferred_leader|followers?|isr)\(([^()]+)\)\Z")
_RACK: Final = re.compile(r"rack\((.+)\)\Z")
_ROLES: Final = {"preferred_leader": "preferred leader", "isr": "in-sync replicas"}
_NODES: Final = re.compile(r"\[?(?:(?:broker|controller|zookeeper)\(\d+\)(?:, )?)+\]?\Z")
_WITNESS_WIDTH: Final = 72
_BURST_NS: Final = 1_000_000_000
_MOST_LEADERS: Final = 24
"""Greatest number of new leaders that the console shows for one second: when a broker ends, hundreds of
partitions may get a new leader.
"""
_SELF_EVIDENT: Final = frozenset({"witness", "did", "reason", "error", "text", "note", "what", "why"})
"""Fields of an event's detail that are shown without their name."""


def name_subject(event: Event) -> str:
    """Return the subject of an event: `fault 1`, `orders/0`, the topic `orders`, `node 2` or `client p0`; '' for the
    run as a whole."""
    if event.fault is not None:
        return f"fault {fault_name(event.fault)}"
    if event.topic is not None:
        return event.topic if event.partition is None else f"{event.topic}/{event.partition}"
    if event.node is not None:
        return f"node {event.node}"
    return f"client {event.client}" if event.client is not None else ""


def describe_event(event: Event) -> str:
    """Return an event in words, without its time; '' if it has nothing to say beyond its kind, such as `end`.

    The text does not name the event's subject (`name_subject`), with two exceptions. It names a node or client that
    ended by itself, and the number of an audited window of a soak.
    """
    match event.what:
        case PhaseBegan(phase=phase):
            return phase
        case FaultAsked(kind=kind, role=role, nodes=nodes, trigger=trigger):
            on = f" on {_list_nodes(nodes)}" if nodes else ""
            return f"{kind} {role}{on}{f' ({trigger})' if trigger else ''}".strip()
        case FaultHealed(did=did):
            return did
        case LeaderChanged(leader=leader, epoch=epoch):
            who = "no leader" if leader < 0 else f"node {leader} leads"
            return who if epoch is None else f"{who} in epoch {epoch}"
        case IsrChanged(isr=isr):
            return f"in-sync replicas are {', '.join(map(str, isr)) or 'none'}"
        case ScriptStep(number=number, step=step, did=did, wrong=wrong, seen=seen):
            parts = [f"step {number}: {step}" + (f": {did}" if did else "")]
            parts += [f"wrong: {wrong}"] if wrong else []
            return "; ".join([*parts, *([f"seen: {seen}"] if seen is not None else [])])
        case NodeDied(status=status, log=log):
            return _describe_end(event, status) + (f"; {log}" if log else "")
        case ClientDied(status=status):
            return _describe_end(event, status)
        case WindowAudited() as window:
            return _describe_window(window)
    details = {name: _to_text(value) for name, value in event.detail.items()}
    return "; ".join(
        value if name in _SELF_EVIDENT else f"{name} {value}" for name, value in details.items() if value
    )


def tell_event(event: Event) -> str:
    """Return an event as a sentence with its subject, without its time. The event must have a subject."""
    if event.kind in (EventKind.NODE_DIED, EventKind.CLIENT_DIED):
        return describe_event(event)
    if event.kind is EventKind.NODE_STARTED:
        return f"{name_subject(event)} started"
    step = {
        EventKind.FAULT_CONFIRMED: " bit",
        EventKind.FAULT_HEALED: " healing asked for",
        EventKind.FAULT_RECOVERED: " healed",
    }.get(event.kind, "")
    return f"{name_subject(event)}{step}: {describe_event(event).strip('; ') or event.kind.value}"


class Narrator:
    """Describes the events of a running case, one line each. It remembers the targets of each fault. `phases`: text for
    the start of each phase, by the phase's name."""

    def __init__(self, phases: Mapping[str, str] = PHASES) -> None:
        self._phases = phases
        self._asked: dict[int, FaultAsked] = {}
        self._burst_ns = -_BURST_NS
        self._leaders = 0

    def tell(self, event: Event) -> str | None:
        """Return the event as a line with its time; None for an event that is not shown to the user."""
        said = self._describe(event)
        return said and f"{event.t_ns / 1e9:7.2f} s  {said}"

    def _describe(self, event: Event) -> str | None:
        match event.what:
            case FaultAsked() as asked:
                self._asked[event.fault or 0] = asked
            case FaultConfirmed(witness=witness):
                return f"{self._name_hit(event)} (confirmed: {_shorten(witness)})"
            case FaultRecovered(witness=witness):
                return f"{self._name_fault(event)} has healed (confirmed: {_shorten(witness)})"
            case FaultFailed(reason=reason):
                return f"{self._name_fault(event)}: {first_line(reason)}"
            case ScriptStep(number=number, step=step, wrong=wrong):
                return f"step {number}: {_shorten(step)}" + (f": {first_line(wrong)}" if wrong else "")
            case PhaseBegan(phase=phase):
                return self._phases.get(phase, phase)
            case LeaderChanged():
                return self._describe_leader(event)
            case NodeDied(status=status) | ClientDied(status=status):
                return _describe_end(event, status)
            case ProxyDied(why=why):
                return first_line(why)
            case WindowAudited() as window:
                return _describe_window(window)
            case RunFailed(error=error):
                return f"the run failed: {first_line(error)}"
        return None

    def _describe_leader(self, event: Event) -> str | None:
        if event.t_ns - self._burst_ns >= _BURST_NS:
            self._burst_ns, self._leaders = event.t_ns, 0
        self._leaders += 1
        if self._leaders <= _MOST_LEADERS:
            return f"{event.topic}/{event.partition}: {describe_event(event)}"
        return "more partitions have new leaders" if self._leaders == _MOST_LEADERS + 1 else None

    def _name_fault(self, event: Event) -> str:
        """Return the fault with its kind: `fault 1 (kill)`; `fault 1` if its request was not seen."""
        asked = self._asked.get(event.fault or 0, FaultAsked())
        name = f"fault {fault_name(event.fault or 0)}"
        return f"{name} ({asked.kind})" if asked.kind else name

    def _name_hit(self, event: Event) -> str:
        """Return the fault with its effect: `fault 1: killed node 2, the leader of orders/0`. If the request stated no
        effect or no nodes, return kind and role: `fault 1: partition leader(orders/0)`."""
        asked = self._asked.get(event.fault or 0, FaultAsked())
        name = f"fault {fault_name(event.fault or 0)}"
        nodes, role = _list_nodes(asked.nodes), asked.role
        if not asked.done or not asked.nodes:
            return f"{name}: {asked.kind} {role}".rstrip() + (f", {nodes}" if asked.nodes else "")
        if inner := _RACK.match(role):
            role = f"the rack of {_name_role(inner[1])}" if "(" in inner[1] else f"rack {inner[1]}"
        role = _name_role(role)
        whom = nodes if _NODES.match(role) else f"{nodes}, {role}"
        return f"{name}: {whom}: {asked.done}" if " " in asked.done else f"{name}: {asked.done} {whom}"


def first_line(value: object) -> str:
    """Return the first line of `str(value)`; '' if it is empty."""
    return str(value).partition("\n")[0]


def _describe_end(event: Event, status: int | str | None) -> str:
    who = f"node {event.node}" if event.client is None else f"client {event.client}"
    return f"{who} ended by itself" + ("" if status in (None, "") else f": {status}")


def _describe_window(window: WindowAudited) -> str:
    if not window.audited:
        return (
            f"window {window.number} could not be audited, the next includes it: {'; '.join(window.reasons)}"
        )
    found = ", ".join(f"{window.counts[name]:,} {name}" for name in sorted(window.counts, key=gravity))
    parts = [f"{window.acked:,} acked", found or "no findings", *window.reasons]
    return f"window {window.number}: {'; '.join(parts)}"


def _list_nodes(nodes: tuple[int, ...]) -> str:
    return ("node " if len(nodes) == 1 else "nodes ") + ", ".join(map(str, nodes))


def _name_role(role: str) -> str:
    found = _ROLE.match(role)
    return f"the {_ROLES.get(found[1], found[1])} of {found[2]}" if found else role


def _shorten(witness: str) -> str:
    first = first_line(witness).partition(";")[0]
    return first if len(first) <= _WITNESS_WIDTH else f"{first[: _WITNESS_WIDTH - 1]}…"


def _to_text(value: JsonValue) -> str:
    """Return a value of a detail as text: lists joined by commas, '' for null."""
    match value:
        case None:
            return ""
        case list():
            return ", ".join(map(_to_text, value))
        case bool():
            return "true" if value else "false"
        case dict():
            return ", ".join(f"{name} {_to_text(item)}" for name, item in value.items())
    return str(value)
