"""Arranges the timeline for a reader: phases, faults from request to recovery, and events to mark."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ackproof.rundir.lifelines import FaultLife, Lifelines
from ackproof.rundir.narrator import describe_event
from ackproof.rundir.timeline import Event, EventKind, PhaseBegan
from ackproof_reports.wording import joined, one_line, plural

_MOST_PHRASES: Final = 5
"""Greatest number of faults that one sentence lists; above it faults are counted by kind."""


@dataclass(frozen=True)
class Phase:
    """A phase of a run, in ns since the run's start. `end_ns`: start of the next phase; for the last phase, time of the
    last event."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Mark:
    """An event that the chart marks with a vertical line. `t_ns`: its time, in ns since the run's start. `kind`: its
    CSS class in the chart. `text`: the event in words."""

    t_ns: int
    kind: str
    text: str


@dataclass(frozen=True)
class Course:
    """Phases, faults (in the order of their numbers, also those never requested) and marked events of one run.
    `end_ns`: time of the last event. `load_ns`: begin of the phase `load`; None if the run has no such phase. Both are
    ns since the run's start."""

    phases: tuple[Phase, ...] = ()
    faults: tuple[FaultLife, ...] = ()
    marks: tuple[Mark, ...] = ()
    end_ns: int = 0
    load_ns: int | None = None


def arrange(events: Sequence[Event]) -> Course:
    """Return the phases, faults and marked events of a run, and the time of its last event."""
    end = max((event.t_ns for event in events), default=0)
    phases = _phases(events, end)
    faults = Lifelines.of_events(events).every_fault
    return Course(
        phases=phases,
        faults=tuple(faults[number] for number in sorted(faults)),
        marks=tuple(
            Mark(event.t_ns, _MARKED[event.kind], one_line(describe_event(event), 160))
            for event in events
            if event.kind in _MARKED
        ),
        end_ns=end,
        load_ns=next((phase.start_ns for phase in phases if phase.name == "load"), None),
    )


def _phases(events: Sequence[Event], end: int) -> tuple[Phase, ...]:
    begins = sorted(
        ((event.t_ns, event.what.phase) for event in events if isinstance(event.what, PhaseBegan)),
        key=lambda begin: begin[0],
    )
    ends = [*(start for start, _ in begins[1:]), end][: len(begins)]
    return tuple(Phase(name, start, stop) for (start, name), stop in zip(begins, ends, strict=True))


_MARKED: Final = {
    EventKind.NODE_DIED: "died",
    EventKind.CLIENT_DIED: "died",
    EventKind.ERROR: "error",
    EventKind.FAULT_FAILED: "error",
    EventKind.CLIENT_RESET: "note",
}


def struck_faults(faults: Sequence[FaultLife]) -> list[FaultLife]:
    """Return the confirmed faults without storms. A storm is a fault that only starts other faults, chosen at random;
    these have entries of their own."""
    return [fault for fault in faults if fault.confirmed is not None and fault.kind != "storm"]


def nodes_text(fault: FaultLife) -> str:
    """Return the nodes of a fault as text: `node 2`, `nodes 2 and 3`; '' if it has none."""
    if not fault.nodes:
        return ""
    return ("node " if len(fault.nodes) == 1 else "nodes ") + joined([str(node) for node in fault.nodes])


def circumstances(faults: Sequence[FaultLife]) -> str:
    """Return the confirmed faults as a clause, such as `the followers were paused and the leader was killed`; '' if
    none was confirmed. More than `_MOST_PHRASES` different faults, as in a soak, are counted by kind instead."""
    alike: dict[tuple[str, bool, str, str], list[FaultLife]] = {}
    struck = struck_faults(faults)
    for fault in struck:
        alike.setdefault((*_who(fault), fault.done, "" if fault.done else fault.kind), []).append(fault)
    phrases = [_phrase(*key, group) for key, group in alike.items()]
    if len(phrases) > _MOST_PHRASES:
        kinds = Counter(fault.kind for fault in struck).most_common()
        return f"{plural(len(struck), 'fault')} struck it ({', '.join(f'{kind} {n}' for kind, n in kinds)})"
    return joined(phrases)


def _phrase(who: str, many: bool, done: str, kind: str, group: Sequence[FaultLife]) -> str:
    struck = {name for fault in group for name in (*fault.nodes, *fault.clients)}
    if who.startswith("a ") and " of " not in who and len(struck) > 1:
        who, many = f"{len(struck)} {who.removeprefix('a ')}s", True
        times = len(group) if len(group) > len(struck) else 1
    else:
        times = len(group)
    often = {1: "", 2: " twice"}.get(times, f" {times} times")
    return f"{who} {'were' if many else 'was'} {done}{often}" if done else f"{kind} struck {who}{often}"


def _who(fault: FaultLife) -> tuple[str, bool]:
    name = fault.role.partition("(")[0].strip()
    if name == "rack" and "," not in fault.role:
        inner = re.split(r"[()]", fault.role)[1]
        return (f"the rack of {_ROLES[inner][0]}" if inner in _ROLES else f"rack {inner}", False)
    if "," in fault.role or not name:
        return (nodes_text(fault) or "the cluster", len(fault.nodes) > 1)
    return _ROLES.get(name, (name, False))


_ROLES: Final = {
    "leader": ("the leader", False),
    "preferred_leader": ("the preferred leader", False),
    "followers": ("the followers", True),
    "follower": ("a follower", False),
    "isr": ("the in-sync replicas", True),
    "controller": ("the controller", False),
    "controllers": ("the controllers", True),
    "broker": ("a broker", False),
    "brokers": ("the brokers", True),
    "producer": ("a producer", False),
    "reader": ("a live reader", False),
    "member": ("a member", False),
    "owner": ("the owner of a partition", False),
    "coordinator": ("the group coordinator", False),
    "minority": ("a minority of the brokers", False),
}
"""By role of an experiment file: the role in words, and True if it stands for several nodes."""
