"""Lifelines: when the phases, faults, nodes and clients of a run began and ended, according to its timeline."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self, TypeAlias

from ackproof.rundir.timeline import (
    ClientDied,
    ClientEnded,
    ClientReset,
    ClientStarted,
    Event,
    EventDetail,
    FaultAsked,
    FaultConfirmed,
    FaultFailed,
    FaultHealed,
    FaultMissed,
    FaultRecovered,
    NodeDied,
    NodeEnded,
    NodeStarted,
    PhaseBegan,
    fault_name,
)

Spans: TypeAlias = tuple[tuple[float, float], ...]
"""Intervals (begin, end) in ns since the run's start, ascending; the end is excluded."""
_NEVER: Final = -(1 << 62)
"""Time that stands for an event that did not happen. It is far below every time of a run, and below the negative times
in tests."""
ALWAYS: Final[Spans] = ((-math.inf, math.inf),)


@dataclass(frozen=True)
class FaultLife:
    """Times of one fault from request to recovery, in ns since the run's start. None: the event did not occur; for a
    missing request see `asked_ns`.

    `confirmed`: confirmation; the fault took effect at an unknown moment between `asked` and this one. `healed`: its
    healing began. `recovered`: its healing was confirmed. `failed`: the fault or its healing failed. `missed`: a storm,
    which draws faults at random, drew the fault, and it did not begin or had no effect. A missed fault alone does not
    make the evidence incomplete. `over`: the last of `recovered`, `failed` and `missed` that occurred. `role`:
    the fault's target, in words. `witness`, `healing_witness`: the observations that confirmed the fault and its
    healing, in words.
    """

    asked: int = _NEVER
    """Time of the request for the fault; below every time of a run if it was never requested (`asked_ns` None)."""
    kind: str = "fault"
    nodes: tuple[int, ...] = ()
    clients: tuple[str, ...] = ()
    """Ids of the clients that it hit."""
    number: int = 0
    done: str = ""
    """Effect on a node, as a participle: `killed`."""
    role: str = ""
    confirmed: int | None = None
    witness: str = ""
    healed: int | None = None
    recovered: int | None = None
    healing_witness: str = ""
    failed: int | None = None
    missed: int | None = None
    reason: str = ""
    """Reason for a failure or a miss; the first reason if there are several."""
    over: int | None = None

    @property
    def asked_ns(self) -> int | None:
        """Time of the request for the fault, as in `asked`; None if it was never requested."""
        return None if self.asked == _NEVER else self.asked

    @property
    def gone_ns(self) -> int | None:
        """Time from which the fault had no effect, because it had recovered or missed; None: it may have had one to the
        end of the run."""
        return max((at for at in (self.recovered, self.missed) if at is not None), default=None)

    @property
    def name(self) -> str:
        """The fault's number as text: `2`, or `2.7` for the seventh fault that storm 2 drew."""
        return fault_name(self.number)

    @property
    def title(self) -> str:
        """Kind and role of the fault: `kill leader(orders/0)`."""
        return f"{self.kind} {self.role}".strip()


@dataclass
class ProcessLife:
    """Starts, ends and resets of the process of one node or client, in the order of the timeline. Only clients have
    resets: a reader's position was reset, or a producer ended by a fatal error."""

    events: list[Event] = field(default_factory=list)
    """All events of a client; of a node its starts and ends."""
    starts: list[Event] = field(default_factory=list)
    ends: list[Event] = field(default_factory=list)
    """Events that report an end, by itself or on request of the harness."""
    resets: list[Event] = field(default_factory=list)
    spans: Spans = ALWAYS
    """Intervals in which a node's process lived; `ALWAYS` for clients, and for a node without a start or end in the
    timeline."""

    def add(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event.what, NodeStarted | ClientStarted):
            self.starts.append(event)
        elif isinstance(event.what, NodeEnded | NodeDied | ClientEnded | ClientDied):
            self.ends.append(event)
        elif isinstance(event.what, ClientReset):
            self.resets.append(event)

    @property
    def statuses(self) -> set[int | str | None]:
        """Exit statuses with which a client's process ended, as in `timeline.ClientEnded`; empty for a node."""
        return {event.what.status for event in self.ends if isinstance(event.what, ClientEnded | ClientDied)}

    @property
    def pids(self) -> list[int | None]:
        return [event.what.pid for event in self.starts if isinstance(event.what, ClientStarted)]

    @property
    def killed_ns(self) -> list[int]:
        """Times at which a node's process ended by itself or by SIGKILL, in ns since the run's start; [] for a
        client."""
        return [
            event.t_ns
            for event in self.ends
            if isinstance(event.what, NodeDied)
            or (isinstance(event.what, NodeEnded) and event.what.status in KILLED)
        ]


KILLED: Final = frozenset({-9, "SIGKILL", 137})
"""Exit statuses of a process that was ended by SIGKILL."""


@dataclass(frozen=True)
class Lifelines:
    """Timeline of a run, sorted by fault, node and client in one pass over its events.

    `faults`: faults that were requested, by number. `every_fault`: also faults that have events but were never
    requested. Their trigger never fired, or a storm drew them and they did not begin.
    """

    phases: Mapping[str, int]
    """Begin of each phase in ns since the run's start, in the order of the timeline. If a phase begins twice,
    the later time counts.
    """
    faults: Mapping[int, FaultLife]
    every_fault: Mapping[int, FaultLife]
    fault_events: Mapping[int, Sequence[Event]]
    """Number of a fault → all its events, in the order of the timeline."""
    nodes: Mapping[int, ProcessLife]
    clients: Mapping[str, ProcessLife]

    @classmethod
    def of_events(cls, events: Sequence[Event]) -> Self:
        phases: dict[str, int] = {}
        every_fault: dict[int, FaultLife] = {}
        fault_events: dict[int, list[Event]] = defaultdict(list)
        nodes: dict[int, ProcessLife] = defaultdict(ProcessLife)
        clients: dict[str, ProcessLife] = defaultdict(ProcessLife)
        for event in events:
            what = event.what
            if isinstance(what, PhaseBegan):
                phases[what.phase] = event.t_ns
            if event.fault is not None:
                fault_events[event.fault].append(event)
                life = every_fault.get(event.fault, FaultLife(number=event.fault))
                every_fault[event.fault] = _next_fault_life(life, event)
            if event.node is not None and isinstance(what, NodeStarted | NodeEnded | NodeDied):
                nodes[event.node].add(event)
            if event.client is not None:
                clients[event.client].add(event)
        for node_life in nodes.values():
            node_life.spans = _process_spans(node_life)
        faults = {number: life for number, life in every_fault.items() if life.asked_ns is not None}
        return cls(phases, faults, every_fault, fault_events, nodes, clients)

    def fault_event(self, number: int, kind: type[EventDetail]) -> Event | None:
        """Return a fault's last event whose detail has the class `kind`; None if there is none."""
        events = self.fault_events.get(number, ())
        return next((event for event in reversed(events) if isinstance(event.what, kind)), None)

    def node(self, node: int) -> ProcessLife:
        """Return the starts and ends of a node; without events if the timeline does not name the node."""
        return self.nodes.get(node, ProcessLife())

    def client(self, client: str) -> ProcessLife:
        """Return the starts, ends and resets of a client; without events if the timeline does not name the
        client.
        """
        return self.clients.get(client, ProcessLife())


def _next_fault_life(life: FaultLife, event: Event) -> FaultLife:
    what, at = event.what, event.t_ns
    if isinstance(what, FaultAsked):
        return FaultLife(at, what.kind, what.nodes, number=life.number, done=what.done, role=what.role)
    match what:
        case FaultConfirmed(witness=witness, clients=clients):
            return replace(life, confirmed=at, witness=witness, clients=clients or ())
        case FaultHealed(begun_ns=begun_ns):
            return replace(life, healed=begun_ns or at)
        case FaultRecovered(witness=witness):
            return replace(life, recovered=at, healing_witness=witness, over=at)
        case FaultFailed(reason=reason):
            return replace(life, failed=at, reason=life.reason or reason, over=at)
        case FaultMissed(reason=reason):
            return replace(life, missed=at, reason=life.reason or reason, over=at)
    return life


def _process_spans(life: ProcessLife) -> Spans:
    found: list[tuple[float, float]] = []
    began: float | None = None
    for event in life.events:
        if isinstance(event.what, NodeStarted):
            began = event.t_ns
        else:
            if began is not None or not found:
                found.append((-math.inf if began is None else began, event.t_ns))
            began = None
    if began is not None or not found:
        found.append((-math.inf if began is None else began, math.inf))
    return tuple(found)
