"""`timeline.jsonl`: the ordered events of a run, one JSON object a line, each with both clocks.

The file is flushed after each event, so that a killed harness leaves what had happened. The last event of a run
that went through is `end`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pydantic import Field, JsonValue, ValidationError

from ackproof.rundir.clock import RunClock
from ackproof.rundir.documents import Document

DRAWN_FROM: Final = 1000
"""The fault that storm number n drew as its k-th has the number n × 1000 + k; faults of a file are below 1000."""


def fault_name(number: int) -> str:
    """A fault's number as people read it: `2`, or `2.7` for the seventh that storm 2 drew."""
    return str(number) if number < DRAWN_FROM else f"{number // DRAWN_FROM}.{number % DRAWN_FROM}"


class EventKind(StrEnum):
    """Every kind of event."""

    PHASE = "phase"
    """A phase begins: `detail.phase`."""
    FAULT_ASKED = "fault-asked"
    """`fault`, `detail.kind`, `detail.role`, `detail.nodes` (the resolution), `detail.trigger`."""
    FAULT_CONFIRMED = "fault-confirmed"
    """`fault`, `detail.witness`."""
    FAULT_HEALED = "fault-healed"
    """Healing was asked for: `fault`."""
    FAULT_RECOVERED = "fault-recovered"
    """Healing is confirmed: `fault`, `detail.witness`."""
    FAULT_FAILED = "fault-failed"
    """The fault or its healing was not confirmed, or its trigger never fired: `fault`, `detail.reason`."""
    FAULT_MISSED = "fault-missed"
    """A fault that a storm drew found nothing to break, or did not bite: `fault`, `detail.reason`."""
    NODE_STARTED = "node-started"
    NODE_DIED = "node-died"
    """A node ended by itself: `node`, `detail.status`, `detail.log`."""
    NODE_ENDED = "node-ended"
    """A node ended because the harness asked: `node`, `detail.status`."""
    LEADER = "leader"
    """A partition has another leader or epoch: `topic`, `partition`, `detail.leader`, `detail.epoch`."""
    ISR = "isr"
    """A partition has another ISR: `topic`, `partition`, `detail.isr`."""
    CLIENT_STARTED = "client-started"
    CLIENT_ENDED = "client-ended"
    """`client`, `detail.status`."""
    CLIENT_DIED = "client-died"
    CLIENT_RESET = "client-reset"
    """A reader was reset, or a producer came back as a new one after a fatal error."""
    NOTE = "note"
    """With `detail.unread_bytes`: `detail.producer` closed (acks=0) before brokers had read all that it had sent."""
    ERROR = "error"
    """The run cannot go on: `detail.error`."""
    END = "end"


class Event(Document):
    """One line of the timeline. `t_ns` counts from the run's start, `wall_ns` from the epoch."""

    t_ns: int
    wall_ns: int
    kind: EventKind
    fault: int | None = None
    node: int | None = None
    client: str | None = None
    topic: str | None = None
    partition: int | None = None
    detail: dict[str, JsonValue] = Field(default_factory=dict)


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
        kind: EventKind,
        /,
        *,
        fault: int | None = None,
        node: int | None = None,
        client: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        t_ns: int | None = None,
        **detail: JsonValue,
    ) -> Event:
        """Append an event that happens now (or happened at `t_ns`)."""
        with self._lock:
            now = self.clock.now()
            at = now if t_ns is None else t_ns
            event = Event(
                t_ns=at,
                wall_ns=time.time_ns() - (now - at),
                kind=kind,
                fault=fault,
                node=node,
                client=client,
                topic=topic,
                partition=partition,
                detail=detail,
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
    """All whole events, and whether the file is whole (a torn or unreadable line makes it False)."""
    events: list[Event] = []
    whole = True
    if not path.exists():
        return events, False
    for line in _lines(path):
        try:
            events.append(Event.model_validate_json(line))
        except ValidationError:
            whole = False
    return events, whole


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.strip():
                yield line
