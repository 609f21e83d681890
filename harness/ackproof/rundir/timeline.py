"""`timeline.jsonl`: the events of a run in the order of writing, one JSON object a line, each with both clocks.

The file is flushed after each event, so that the events survive a killed harness. An event may have an earlier time
than the one before it. A run that finished ends with the event `end`.
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
from ackproof.rundir.document import Document
from ackproof.rundir.script_state import ScriptState

DRAWN_FROM: Final = 1000
"""Fault k of storm n has the number n × 1000 + k. Faults of an experiment file have numbers below 1000."""


def fault_name(number: int) -> str:
    """Return a fault's number as text: 2 as `2`, and 2007, the seventh fault of storm 2, as `2.7`."""
    return str(number) if number < DRAWN_FROM else f"{number // DRAWN_FROM}.{number % DRAWN_FROM}"


def seconds(t_ns: int) -> str:
    """Return a time since the run's start as text, in seconds: `12.345 s`."""
    return f"{t_ns / 1e9:.3f} s"


class EventKind(StrEnum):
    """All kinds of events. For each kind, the class below with that `KIND` holds the details."""

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
    OFFSETS_RESET = "offsets-reset"
    WINDOW = "window"
    NOTE = "note"
    ERROR = "error"
    END = "end"


class EventDetail(Document):
    """Typed `detail` of one kind of event. The event itself names the fault, node, client or partition."""

    KIND: ClassVar[EventKind]

    def detail(self) -> dict[str, JsonValue]:
        """Return the fields that were set, as `timeline.jsonl` has them."""
        return self.model_dump(mode="json", exclude_unset=True)


class PhaseBegan(EventDetail):
    """A phase of the run begins, such as `load`."""

    KIND = EventKind.PHASE
    phase: str = ""


class FaultAsked(EventDetail):
    """A fault is requested. `trigger`: the condition that began it, in words. `role`: its target, in words; `nodes`:
    the nodes that had this role then. `done`: the effect on its targets, as a participle. `left_out`: kinds of faults
    that a storm leaves out (`swarm`)."""

    KIND = EventKind.FAULT_ASKED
    kind: str = ""
    done: str = ""
    role: str = ""
    nodes: tuple[int, ...] = ()
    trigger: str = ""
    left_out: tuple[str, ...] = ()


class FaultConfirmed(EventDetail):
    """The effect of a fault was confirmed by a witness: an observation that does not depend on the injection. `did`:
    what was done; `witness`: what was observed, both in words.

    `killed`: client → id of its killed process. `clients`: ids of the clients that it hit. None: no client was killed
    or hit, or it is not stated, as in runs of older versions.
    """

    KIND = EventKind.FAULT_CONFIRMED
    did: str = ""
    witness: str = ""
    killed: dict[str, int] | None = None
    clients: tuple[str, ...] | None = None


class FaultHealed(EventDetail):
    """The harness has undone a fault; no witness has confirmed that yet. `did`: what was done, in words. `begun_ns`:
    time at which the healing began, ns since the run's start; 0: at the time of this event."""

    KIND = EventKind.FAULT_HEALED
    did: str = ""
    begun_ns: int = 0


class FaultRecovered(EventDetail):
    """The healing of a fault was confirmed. `witness`: the observation, in words."""

    KIND = EventKind.FAULT_RECOVERED
    witness: str = ""


class FaultFailed(EventDetail):
    """The fault did not begin, its effect or healing was not confirmed, or its effect did not last."""

    KIND = EventKind.FAULT_FAILED
    reason: str = ""


class FaultMissed(EventDetail):
    """A fault that a storm had chosen at random did not begin, found nothing to break, or had no effect."""

    KIND = EventKind.FAULT_MISSED
    reason: str = ""


class ScriptStep(EventDetail):
    """A step of a script, a fault that leads brokers through given steps. The event is written also if the step failed.

    `number` counts from 1. `step`, `did`, `waited_for`: the step, the action taken, and the state that was awaited, in
    words. `seen`: state after the step; None if none was observed. `wrong`: why the step failed, '' if it did not.
    `unexpected`: changes that the step does not account for; `wrong` names them too.
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
    """A node's process has started. In simulated runs `pid` is None."""

    KIND = EventKind.NODE_STARTED
    pid: int | None = None


class NodeDied(EventDetail):
    """A node ended by itself: neither the harness nor a fault ended it. `status`: as in `NodeEnded`. `log`: last
    lines of its log and of its output."""

    KIND = EventKind.NODE_DIED
    pid: int | None = None
    status: int | str | None = None
    log: str = ""


class ProxyDied(EventDetail):
    """The request proxy of the links ended by itself and was replaced, or could not be started again (`why`)."""

    KIND = EventKind.PROXY_DIED
    why: str = ""


class NodeEnded(EventDetail):
    """A node ended on request of the harness or by a fault. `status`: text, `exit status 143` or the name of the signal
    that ended it; None: unknown, as in simulated runs. Or a number: the exit status, minus the signal's number."""

    KIND = EventKind.NODE_ENDED
    pid: int | None = None
    status: int | str | None = None


class LeaderChanged(EventDetail):
    """A partition has a new leader or leader epoch according to the brokers' metadata, or is observed for the first
    time. `leader` -1: it has no leader."""

    KIND = EventKind.LEADER
    leader: int = -1
    epoch: int | None = None


class IsrChanged(EventDetail):
    """A partition has a new ISR according to the brokers' metadata, or is observed for the first time."""

    KIND = EventKind.ISR
    isr: tuple[int, ...] = ()


class ClientStarted(EventDetail):
    """A client's process has started, also one that replaces a client which ended."""

    KIND = EventKind.CLIENT_STARTED
    pid: int | None = None


class ClientEnded(EventDetail):
    """A client ended on request or by a fault, or is a producer that had a fatal error and may be replaced. `status`:
    exit status, or minus the signal's number. A text, the signal's name, and None, unknown, are accepted too."""

    KIND = EventKind.CLIENT_ENDED
    status: int | str | None = None


class ClientDied(EventDetail):
    """A client ended by itself, failed after a request to end, or broke the contract of clients. `status`: as in
    `ClientEnded`. `output`: the end of its output, or the breach."""

    KIND = EventKind.CLIENT_DIED
    status: int | str | None = None
    output: str = ""


class ClientReset(EventDetail):
    """A reader's position was reset, or a producer ended by a fatal error and may be replaced. `reason`: the library's
    message.

    The other fields are set only for a reader. Its `position` was outside the log (offsets `start` to `end`), and it
    continues at offset `goes_on`. `assignment`: number of its assignment then.
    """

    KIND = EventKind.CLIENT_RESET
    assignment: int | None = None
    position: int | None = None
    start: int | None = None
    end: int | None = None
    goes_on: int | None = None
    reason: str = ""


class OffsetsReset(EventDetail):
    """An operator (fault `reset_offsets`) committed offsets of a group without members.

    `offsets`: (topic, partition, offset before, -1: none; offset after). The commit took place between `begun_ns` (ns
    since the run's start) and the event.
    """

    KIND = EventKind.OFFSETS_RESET
    group: str = ""
    begun_ns: int = 0
    offsets: tuple[tuple[str, int, int, int], ...] = ()


class Note(EventDetail):
    """A remark. `unread_bytes`: bytes that `producer` (acks=0) had sent and that no broker had read when it closed.
    Both are None in other notes."""

    KIND = EventKind.NOTE
    note: str = ""
    producer: int | None = None
    unread_bytes: int | None = None


class WindowAudited(EventDetail):
    """A window of a soak was audited; `audited` False: it could not be, and the next window includes it. `acked`:
    number of acknowledged records. `followed`: number of records read back. `counts`: findings by class. `reasons`: why
    the audit is incomplete."""

    KIND = EventKind.WINDOW
    number: int = -1
    audited: bool = True
    acked: int = 0
    followed: int = 0
    counts: dict[str, int] = Field(default_factory=dict)
    reasons: tuple[str, ...] = ()


class RunFailed(EventDetail):
    """The harness failed, and the run cannot go on."""

    KIND = EventKind.ERROR
    error: str = ""
    traceback: str = ""


class RunEnded(EventDetail):
    """The run finished. This is its last event."""

    KIND = EventKind.END


_DETAILS: Final = {kind.KIND: kind for kind in EventDetail.__subclasses__()}


class Event(Document):
    """One line of the timeline. `t_ns`: ns since the run's start; `wall_ns`: ns since the Unix epoch. A subject
    (`fault`, `node`, `client`, `topic`, `partition`) is None if the event does not concern one."""

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
        """The detail as an instance of its class; unknown fields are ignored. Raises ValidationError if a field has
        another type."""
        return _DETAILS[self.kind].model_validate(self.detail)


class Timeline:
    """Appends a run's events to the file `path`, safe to use from several threads. `clock` gives their times.
    `on_event` is called with each written event, on the thread that added it."""

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
        """Append an event to the timeline and return it. A subject is None if the event does not concern one. `t_ns`:
        ns since the run's start; None: now."""
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
        """Close the file. Later calls of `add` raise ValueError."""
        with self._lock:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_timeline(path: Path) -> tuple[list[Event], bool]:
    """Return the readable events, and True if every line is readable; none and False without a file. Raises OSError if
    it cannot be read."""
    events: list[Event] = []
    whole = True
    if not path.exists():
        return events, False
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in filter(str.strip, file):
            try:
                event = Event.model_validate_json(line)
                # A detail of an unexpected shape makes the line unreadable here, not in a caller.
                _ = event.what
            except ValidationError:
                whole = False
            else:
                events.append(event)
    return events, whole
