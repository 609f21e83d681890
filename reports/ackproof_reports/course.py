"""The timeline as a reader follows it: phases, faults as spans, marks, and each event as a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import JsonValue

from ackproof.rundir.timeline import Event, EventKind, fault_name
from ackproof_reports.wording import joined, one_line


@dataclass(frozen=True)
class Phase:
    """A phase of a run; `end_ns` is the next one's begin, or the last event."""

    name: str
    start_ns: int
    end_ns: int


@dataclass
class Fault:
    """One fault as it went: when it was asked for, seen to bite, asked to heal, seen healed. ns, None = never."""

    number: int
    kind: str = "fault"
    role: str = ""
    nodes: tuple[int, ...] = ()
    trigger: str = ""
    asked: int | None = None
    confirmed: int | None = None
    healed: int | None = None
    recovered: int | None = None
    failed: int | None = None
    missed: int | None = None
    """It was drawn by a storm and found nothing to break: no lack of evidence by itself."""
    reason: str = ""
    witness: str = ""
    healing_witness: str = ""

    @property
    def name(self) -> str:
        """`2`, or `2.7` for the seventh that storm 2 drew."""
        return fault_name(self.number)

    @property
    def title(self) -> str:
        """`kill leader(orders/0)`."""
        return f"{self.kind} {self.role}".strip()

    @property
    def on_nodes(self) -> str:
        """`node 2`, `nodes 2 and 3`, or nothing."""
        if not self.nodes:
            return ""
        return ("node " if len(self.nodes) == 1 else "nodes ") + joined([str(node) for node in self.nodes])


@dataclass(frozen=True)
class Mark:
    """A thing that happened at one moment and is worth a line in the picture."""

    t_ns: int
    kind: str
    text: str


@dataclass(frozen=True)
class Course:
    """The timeline of one run, arranged."""

    phases: tuple[Phase, ...] = ()
    faults: tuple[Fault, ...] = ()
    marks: tuple[Mark, ...] = ()
    end_ns: int = 0
    load_ns: int | None = field(default=None)
    """Begin of the first phase called `load`, None where there is none."""


_WHEN: Final = {
    "kill": "killed",
    "stop": "stopped",
    "pause": "paused",
    "restart": "restarted",
}


def arrange(events: Sequence[Event]) -> Course:
    """Phases, faults and marks of a run's events, which come in any order that a torn file leaves them."""
    end = max((event.t_ns for event in events), default=0)
    phases = _phases(events, end)
    load = next((phase.start_ns for phase in phases if phase.name == "load"), None)
    return Course(phases, _faults(events), tuple(_marks(events)), end, load)


def _phases(events: Sequence[Event], end: int) -> tuple[Phase, ...]:
    begins = sorted(
        ((event.t_ns, text(event.detail.get("phase"))) for event in events if event.kind is EventKind.PHASE),
        key=lambda begin: begin[0],
    )
    ends = [*(start for start, _ in begins[1:]), end][: len(begins)]
    return tuple(Phase(name, start, stop) for (start, name), stop in zip(begins, ends, strict=True))


def _faults(events: Sequence[Event]) -> tuple[Fault, ...]:
    faults: dict[int, Fault] = {}
    for event in events:
        if event.fault is None:
            continue
        fault = faults.setdefault(event.fault, Fault(event.fault))
        detail = event.detail
        if event.kind is EventKind.FAULT_ASKED:
            fault.asked = event.t_ns
            fault.kind = text(detail.get("kind")) or "fault"
            fault.role = text(detail.get("role"))
            fault.nodes = _numbers(detail.get("nodes"))
            fault.trigger = text(detail.get("trigger"))
        elif event.kind is EventKind.FAULT_CONFIRMED:
            fault.confirmed, fault.witness = event.t_ns, text(detail.get("witness"))
        elif event.kind is EventKind.FAULT_HEALED:
            fault.healed = event.t_ns
        elif event.kind is EventKind.FAULT_RECOVERED:
            fault.recovered, fault.healing_witness = event.t_ns, text(detail.get("witness"))
        elif event.kind is EventKind.FAULT_FAILED:
            fault.failed, fault.reason = event.t_ns, fault.reason or text(detail.get("reason"))
        elif event.kind is EventKind.FAULT_MISSED:
            fault.missed, fault.reason = event.t_ns, fault.reason or text(detail.get("reason"))
    return tuple(faults[number] for number in sorted(faults))


def _marks(events: Sequence[Event]) -> Iterator[Mark]:
    for event in events:
        if event.kind in _MARKED:
            yield Mark(event.t_ns, _MARKED[event.kind], one_line(sentence(event), 160))


_MARKED: Final = {
    EventKind.NODE_DIED: "died",
    EventKind.CLIENT_DIED: "died",
    EventKind.ERROR: "error",
    EventKind.FAULT_FAILED: "error",
    EventKind.CLIENT_RESET: "note",
}


def text(value: JsonValue) -> str:
    """A detail as text: lists joined, nothing for null."""
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(text(item) for item in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return ", ".join(f"{name} {text(item)}" for name, item in value.items())
    return str(value)


def _numbers(value: JsonValue) -> tuple[int, ...]:
    items = value if isinstance(value, list) else []
    return tuple(item for item in items if isinstance(item, int) and not isinstance(item, bool))


def subject(event: Event) -> str:
    """Whom an event is about."""
    if event.fault is not None:
        return f"fault {fault_name(event.fault)}"
    if event.topic is not None:
        return event.topic if event.partition is None else f"{event.topic}/{event.partition}"
    if event.node is not None:
        return f"node {event.node}"
    return f"client {event.client}" if event.client is not None else ""


def sentence(event: Event) -> str:
    """What an event says, without its time."""
    detail = event.detail
    get = {name: text(value) for name, value in detail.items()}
    if event.kind is EventKind.PHASE:
        return get.get("phase", "")
    if event.kind is EventKind.FAULT_ASKED:
        on = f" on node {get['nodes']}" if get.get("nodes") else ""
        why = f" ({get['trigger']})" if get.get("trigger") else ""
        return f"{get.get('kind', '')} {get.get('role', '')}{on}{why}".strip()
    if event.kind is EventKind.LEADER:
        leader = get.get("leader", "")
        who = "no leader" if leader in {"-1", ""} else f"leader is {leader}"
        return f"{who}, epoch {get['epoch']}" if "epoch" in get else who
    if event.kind is EventKind.ISR:
        return f"in-sync replicas are {get.get('isr') or 'none'}"
    if event.kind in {EventKind.NODE_DIED, EventKind.CLIENT_DIED}:
        status = f", status {get['status']}" if get.get("status") else ""
        log = f": {get['log']}" if get.get("log") else ""
        return f"{subject(event)} ended by itself{status}{log}"
    return "; ".join(value if name in _PLAIN else f"{name} {value}" for name, value in get.items() if value)


_PLAIN: Final = frozenset({"witness", "did", "reason", "error", "text", "note", "what"})


def circumstances(faults: Sequence[Fault]) -> str:
    """`the followers were paused and the leader was killed`, from faults that were confirmed; '' for none."""
    phrases: list[str] = []
    for fault in faults:
        if fault.confirmed is None or fault.kind == "storm":
            continue
        who, many = _who(fault)
        verb = _WHEN.get(fault.kind)
        phrase = f"{who} {'were' if many else 'was'} {verb}" if verb else f"{fault.kind} struck {who}"
        if phrase not in phrases:
            phrases.append(phrase)
    return joined(phrases)


def _who(fault: Fault) -> tuple[str, bool]:
    name = fault.role.partition("(")[0].strip()
    if "," in fault.role or not name:
        return (fault.on_nodes or "the cluster", len(fault.nodes) > 1)
    return {
        "leader": ("the leader", False),
        "preferred_leader": ("the preferred leader", False),
        "followers": ("the followers", True),
        "follower": ("a follower", False),
        "isr": ("the in-sync replicas", True),
        "controller": ("the controller", False),
        "controllers": ("the controllers", True),
        "broker": ("a broker", False),
        "brokers": ("the brokers", True),
        "minority": ("a minority of the brokers", False),
    }.get(name, (name, False))
