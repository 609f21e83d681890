"""`timeline.jsonl`: the ordered events of a run, one JSON object a line, each with both clocks.

The file is flushed after each event, so that a killed harness leaves what had happened. The last event of a run
that went through is `end`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

from pydantic import Field, JsonValue, ValidationError

from ackproof.rundir.clock import RunClock
from ackproof.rundir.documents import Document

DRAWN_FROM: Final = 1000
"""Fault k of storm n has the number n × 1000 + k; faults of a file are below 1000."""


def fault_name(number: int) -> str:
    """Return a fault's number for people: `2`, or `2.7` for the seventh fault of storm 2."""
    return str(number) if number < DRAWN_FROM else f"{number // DRAWN_FROM}.{number % DRAWN_FROM}"


def seconds(t_ns: int) -> str:
    """Return a time of a run in words."""
    return f"{t_ns / 1e9:.3f} s"


class EventKind(StrEnum):
    """Every kind of event. The class below with that `KIND` has its details."""

    PHASE = "phase"
    FAULT_ASKED = "fault-asked"
    FAULT_CONFIRMED = "fault-confirmed"
    FAULT_HEALED = "fault-healed"
    FAULT_RECOVERED = "fault-recovered"
    FAULT_FAILED = "fault-failed"
    FAULT_MISSED = "fault-missed"
    SCRIPT_STEP = "script-step"
    NODE_STARTED = "node-started"
    NODE_DIED = "node-died"
    PROXY_DIED = "proxy-died"
    NODE_ENDED = "node-ended"
    LEADER = "leader"
    ISR = "isr"
    CLIENT_STARTED = "client-started"
    CLIENT_ENDED = "client-ended"
    CLIENT_DIED = "client-died"
    CLIENT_RESET = "client-reset"
    WINDOW = "window"
    NOTE = "note"
    ERROR = "error"
    END = "end"


class EventDetail(Document):
    """Typed `detail` of an event of one kind. The event itself names the fault, node, client or partition."""

    KIND: ClassVar[EventKind]

    def detail(self) -> dict[str, JsonValue]:
        """Return the fields that were set, as they are written to the file."""
        return self.model_dump(mode="json", exclude_unset=True)


class PhaseBegan(EventDetail):
    """A phase begins."""

    KIND = EventKind.PHASE
    phase: str = ""


class FaultAsked(EventDetail):
    """A fault is asked for. `nodes`: the nodes that its role resolved to; `left_out`: kinds that a storm does
    not draw; `done`: the effect on its targets, as a participle."""

    KIND = EventKind.FAULT_ASKED
    kind: str = ""
    done: str = ""
    role: str = ""
    nodes: tuple[int, ...] = ()
    trigger: str = ""
    left_out: tuple[str, ...] = ()


class FaultConfirmed(EventDetail):
    """A witness confirmed the effect of a fault."""

    KIND = EventKind.FAULT_CONFIRMED
    did: str = ""
    witness: str = ""
    killed: dict[str, int] | None = None
    """Client → process id that the fault killed; None: not stated, as in runs of older versions."""


class FaultHealed(EventDetail):
    """Healing was asked for. `begun_ns`: when it began; 0: at this moment."""

    KIND = EventKind.FAULT_HEALED
    did: str = ""
    begun_ns: int = 0


class FaultRecovered(EventDetail):
    """Healing is confirmed."""

    KIND = EventKind.FAULT_RECOVERED
    witness: str = ""


class FaultFailed(EventDetail):
    """The fault or its healing was not confirmed, or its trigger never fired."""

    KIND = EventKind.FAULT_FAILED
    reason: str = ""


class FaultMissed(EventDetail):
    """A fault that a storm drew found nothing to break, or did not bite."""

    KIND = EventKind.FAULT_MISSED
    reason: str = ""


class ScriptState(Document):
    """A partition and its replicas at one moment of a script. Epochs, offsets and acks count from the
    beginning of the script; dicts are by broker. A missing value is unknown."""

    leader: int = -1
    epoch: int = 0
    partition_epoch: int = 0
    isr: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    fenced: tuple[int, ...] = ()
    down: tuple[int, ...] = ()
    believed: dict[int, int] = Field(default_factory=dict)
    """Leader epoch of each broker's own replica."""
    ends: dict[int, int] = Field(default_factory=dict)
    high_watermarks: dict[int, int] = Field(default_factory=dict)
    acked: int = 0

    def __str__(self) -> str:
        def by_broker(values: dict[int, int]) -> str:
            return ", ".join(f"{broker}: {value}" for broker, value in sorted(values.items())) or "none"

        leader = f"broker {self.leader}" if self.leader >= 0 else "no broker"
        parts = [f"{leader} leads in epoch {self.epoch}", f"ISR {list(self.isr)}"]
        parts += [f"ELR {list(self.elr)}"] if self.elr else []
        parts += [f"fenced {list(self.fenced)}"] if self.fenced else []
        parts += [f"down {list(self.down)}"] if self.down else []
        return "; ".join(
            [
                *parts,
                f"epochs of replicas {by_broker(self.believed)}",
                f"log ends {by_broker(self.ends)}",
                f"high watermarks {by_broker(self.high_watermarks)}",
                f"{self.acked} acked",
            ]
        )


class ScriptStep(EventDetail):
    """A step of a script that was observed, or was not.

    `number` counts from 1; `step` and `waited_for` in words; `wrong`: how the observation differs, '' if it
    does not. `unexpected`: of that, changes that the step did not cause.
    """

    KIND = EventKind.SCRIPT_STEP
    number: int = 0
    step: str = ""
    did: str = ""
    waited_for: str = ""
    wrong: str = ""
    unexpected: tuple[str, ...] = ()
    seen: ScriptState | None = None


class NodeStarted(EventDetail):
    """A node's process runs. A run of the model has no processes."""

    KIND = EventKind.NODE_STARTED
    pid: int | None = None


class NodeDied(EventDetail):
    """A node ended by itself. `log`: the end of its output."""

    KIND = EventKind.NODE_DIED
    pid: int | None = None
    status: int | str | None = None
    log: str = ""


class ProxyDied(EventDetail):
    """A link proxy ended by itself, with all its connections, and was replaced. `why`: name, status, last output."""

    KIND = EventKind.PROXY_DIED
    why: str = ""


class NodeEnded(EventDetail):
    """A node ended on request of the harness."""

    KIND = EventKind.NODE_ENDED
    pid: int | None = None
    status: int | str | None = None


class LeaderChanged(EventDetail):
    """A partition has another leader or epoch. `leader` -1: none."""

    KIND = EventKind.LEADER
    leader: int = -1
    epoch: int | None = None


class IsrChanged(EventDetail):
    """A partition has another ISR."""

    KIND = EventKind.ISR
    isr: tuple[int, ...] = ()


class ClientStarted(EventDetail):
    """A client's process runs."""

    KIND = EventKind.CLIENT_STARTED
    pid: int | None = None


class ClientEnded(EventDetail):
    """A client ended on request."""

    KIND = EventKind.CLIENT_ENDED
    status: int | str | None = None


class ClientDied(EventDetail):
    """A client ended by itself. `output`: the end of its output."""

    KIND = EventKind.CLIENT_DIED
    status: int | str | None = None
    output: str = ""


class ClientReset(EventDetail):
    """A reader was reset, or a producer was replaced after a fatal error.

    For a reader: its `position` was outside the log, `start` to `end`; it continues under that `assignment`.
    """

    KIND = EventKind.CLIENT_RESET
    assignment: int | None = None
    position: int | None = None
    start: int | None = None
    end: int | None = None
    goes_on: int | None = None
    reason: str = ""


class Note(EventDetail):
    """A remark. With `unread_bytes`: `producer` closed (acks=0) before brokers had read all that it sent."""

    KIND = EventKind.NOTE
    note: str = ""
    producer: int | None = None
    unread_bytes: int | None = None


class WindowAudited(EventDetail):
    """A window of a soak was audited, or could not be: its findings by class. `reasons`: why not all of it was."""

    KIND = EventKind.WINDOW
    number: int = -1
    audited: bool = True
    acked: int = 0
    followed: int = 0
    counts: dict[str, int] = Field(default_factory=dict)
    reasons: tuple[str, ...] = ()


class RunFailed(EventDetail):
    """The run cannot go on."""

    KIND = EventKind.ERROR
    error: str = ""
    traceback: str = ""


class RunEnded(EventDetail):
    """The run went through: the last event."""

    KIND = EventKind.END


_DETAILS: Final = {kind.KIND: kind for kind in EventDetail.__subclasses__()}


class Event(Document):
    """One line of the timeline. `t_ns` counts from the run's start, `wall_ns` from the Unix epoch."""

    t_ns: int
    wall_ns: int
    kind: EventKind
    fault: int | None = None
    node: int | None = None
    client: str | None = None
    topic: str | None = None
    partition: int | None = None
    detail: dict[str, JsonValue] = Field(default_factory=dict)

    @cached_property
    def what(self) -> EventDetail:
        """Return the typed detail; unknown fields are ignored. Raises ValidationError."""
        return _DETAILS[self.kind].model_validate(self.detail)


class Timeline:
    """Writer of the events of one run; safe to use from several threads."""

    def __init__(self, path: Path, clock: RunClock, on_event: Callable[[Event], None] | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._on_event = on_event
        self._file = path.open("a", encoding="utf-8")
        self._lock = threading.Lock()
        self.clock = clock

    def add(
        self,
        what: EventDetail,
        *,
        fault: int | None = None,
        node: int | None = None,
        client: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        t_ns: int | None = None,
    ) -> Event:
        """Append an event that happens now (or happened at `t_ns`)."""
        with self._lock:
            now = self.clock.now()
            at = now if t_ns is None else t_ns
            event = Event(
                t_ns=at,
                wall_ns=time.time_ns() - (now - at),
                kind=what.KIND,
                fault=fault,
                node=node,
                client=client,
                topic=topic,
                partition=partition,
                detail=what.detail(),
            )
            self._file.write(event.model_dump_json(exclude_defaults=True) + "\n")
            self._file.flush()
        if self._on_event is not None:
            self._on_event(event)
        return event

    def close(self) -> None:
        """Close the file. Further events raise ValueError."""
        with self._lock:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_timeline(path: Path) -> tuple[list[Event], bool]:
    """Return all whole events, and whether the file is whole (a torn or unreadable line makes it False)."""
    events: list[Event] = []
    whole = True
    if not path.exists():
        return events, False
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in filter(str.strip, file):
            try:
                event = Event.model_validate_json(line)
                # So that a detail of another shape makes the line unreadable, not its reader fail.
                _ = event.what
            except ValidationError:
                whole = False
            else:
                events.append(event)
    return events, whole
