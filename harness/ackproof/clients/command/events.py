"""The JSON lines that a program prints on its standard output, and whether they keep to the contract (docs/clients.md).

Standard output is a file: it takes lines at any speed and outlives the program. `ProgramLines` reads it while the
program runs, and checks each line by itself and against those before it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from ackproof.clients.command.fields import (
    Fields,
    Position,
    WrongField,
    excerpt,
    read_identity,
    read_number,
    read_origin,
    read_place,
    read_places,
    read_positions,
    read_text,
)
from ackproof.rundir.partition import TopicPartition

LINES: Final = "lines.jsonl"
"""Name of the file in a client's folder that a program's standard output goes to."""
STOP_LINE: Final = b"stop\n"
"""Line on a program's standard input that asks the program to close cleanly. End of file there: the harness is gone."""
_AHEAD_NS: Final = 1_000_000_000
"""Tolerance in ns for times before the program's start, or after the moment of reading."""


class EventName(StrEnum):
    """Events that a program prints (docs/clients.md). The harness ignores every other event."""

    STARTED = "started"
    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"
    POSITION = "position"
    RESET = "reset"
    DELIVERED = "delivered"
    PROCESSED = "processed"
    ATTEMPT = "attempt"
    RESULT = "result"
    COMMIT = "commit"
    COMMITTED = "committed"
    BEGIN = "begin"
    ENDED = "ended"
    STOPPING = "stopping"
    CLOSED = "closed"


NEEDED: Final = {
    1: (EventName.DELIVERED, EventName.PROCESSED),
    2: (EventName.ASSIGNED, EventName.COMMIT, EventName.COMMITTED),
    3: (EventName.ATTEMPT, EventName.RESULT),
}
"""Events that a level of a service adds to those of the levels below it."""


def needed_at(level: int) -> tuple[EventName, ...]:
    """Return the events that a service of this level must print (docs/clients.md); none at level 0."""
    return tuple(name for one in range(1, level + 1) for name in NEEDED[one])


def level_of(names: Container[EventName]) -> int:
    """Return the highest level for which `names` has all events, also those of all lower levels; 0 for none."""
    return max((one for one in NEEDED if all(name in names for name in needed_at(one))), default=0)


class BreachKind(StrEnum):
    """Ways in which a program breaks the contract of docs/clients.md. `Breach.text` says what is wrong in the single
    case."""

    TEXT = "text"
    """The line is no JSON object with a text `e`."""
    TORN = "torn"
    """The output ends in half a line."""
    FIELD = "field"
    """A field is missing, has another type, or a value that the experiment does not have."""
    CLOCK = "clock"
    """The time of the event is before the program's start or in the future."""
    BACKWARDS = "backwards"
    """The event has an earlier time than the previous event."""
    NUMBER = "number"
    """The number of an attempt or a commit is not the next one."""
    ANSWER = "answer"
    """A second result of one attempt or commit, a result without an attempt or commit, or an acknowledged offset
    without a record."""
    UNDELIVERED = "undelivered"
    """A record was reported as processed without a report of its delivery before, or a member reported it as processed
    twice."""
    ORDER = "order"
    """An event before `started` or after `closed`, or an end without `closed`."""
    UNFLUSHED = "unflushed"
    """Records were sent before their attempts were printed."""
    UNTOLD = "untold"
    """A reader did not report a record of its topic as delivered, or a service did not report a record below its
    committed offset."""
    COMMIT = "commit"
    """The group has other committed offsets than those that were printed."""
    STOP = "stop"
    """The program did not end cleanly when it was asked to."""


class Breach(NamedTuple):
    """One breach of the contract. `line`: line number from 1; 0 if the breach concerns no single line. `text`: what is
    wrong."""

    kind: BreachKind
    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


@dataclass(frozen=True, slots=True)
class ProgramEvent:
    """One event of a program, from line number `line`. Fields that an event does not have keep their defaults.

    `t_ns`: time of the event on CLOCK_MONOTONIC. `number`: number of an attempt, commit or transaction, also in the
    event with its outcome. `place`, `offset`: partition and offset of a record; offset -1: unknown. `places`:
    partitions that were assigned, revoked or lost. `positions`: (partition, offset) to commit, or committed. `origin`:
    (partition, offset) of the input record from which a service made the record of an attempt. `error`: name of the
    library's error, also the reason of a reset; '' for none. `value`: value of a delivered record, in base64.
    `timestamp_ms`: the record's own. `identity`: (producer, seq) of a record delivered to a member; -1: unknown.
    `epoch`: leader epoch of the record, -1: unknown. `member`, `generation`: member id and generation in the consumer
    group. `batch`: number of the poll that returned the record. `origin_offset`, `offset`: of a reset, the position
    before it (-1: nothing was committed) and after it. `client`, `acks`: id and acks setting that the program prints
    when it starts.
    """

    line: int
    name: EventName
    t_ns: int
    number: int = -1
    place: TopicPartition | None = None
    offset: int = -1
    places: tuple[TopicPartition, ...] = ()
    positions: tuple[Position, ...] = ()
    origin: Position | None = None
    error: str = ""
    value: str = ""
    timestamp_ms: int = -1
    identity: tuple[int, int] = (-1, -1)
    batch: int = -1
    origin_offset: int = -1
    epoch: int = -1
    member: str = ""
    generation: int = -1
    client: str = ""
    acks: str = ""


_Readers: TypeAlias = Mapping[str, Callable[[Fields], Any]]
"""Functions that read the fields of an event, by the name of the `ProgramEvent` field that gets the value."""


def _number(name: str, default: int | None = None) -> Callable[[Fields], int]:
    return partial(read_number, name=name, default=default)


def _text(name: str, default: str | None = None) -> Callable[[Fields], str]:
    return partial(read_text, name=name, default=default)


def _result_offset(data: Fields) -> int:
    """Return the field `o` (offset) of a result; -1 if it is missing and the result has an error. Raises
    `WrongField` if it is missing without an error, or is no number."""
    return read_number(data, "o", -1 if read_text(data, "x", "") else None)


_MEMBER: Final[_Readers] = {"member": _text("m", ""), "generation": _number("g", -1)}
_RECORD: Final[_Readers] = {"place": read_place, "offset": _number("o")}
_ASSIGNMENT: Final[_Readers] = {"places": read_places, **_MEMBER}
_ANSWER: Final[_Readers] = {"error": _text("x", ""), "number": _number("n"), **_MEMBER}
_FIELDS: Final[Mapping[EventName, _Readers]] = {
    EventName.STARTED: {"client": _text("client"), "acks": _text("acks", "")},
    EventName.ASSIGNED: _ASSIGNMENT,
    EventName.REVOKED: _ASSIGNMENT,
    EventName.LOST: _ASSIGNMENT,
    EventName.POSITION: {"positions": read_positions, **_MEMBER},
    EventName.RESET: {
        "error": _text("why", ""),
        "offset": _number("to"),
        "place": read_place,
        "origin_offset": _number("from"),
        **_MEMBER,
    },
    EventName.DELIVERED: {
        **_RECORD,
        "value": _text("v", ""),
        "timestamp_ms": _number("ts", -1),
        "epoch": _number("epoch", -1),
        "generation": _number("g", -1),
        "batch": _number("batch", -1),
        "identity": read_identity,
    },
    EventName.PROCESSED: _RECORD,
    EventName.ATTEMPT: {"origin": read_origin, "number": _number("n"), "place": read_place},
    EventName.RESULT: {"error": _text("x", ""), "offset": _result_offset, "number": _number("n")},
    EventName.COMMIT: {"positions": read_positions, "number": _number("n"), **_MEMBER},
    EventName.COMMITTED: _ANSWER,
    EventName.BEGIN: _ANSWER,
    EventName.ENDED: _ANSWER,
    EventName.STOPPING: {},
    EventName.CLOSED: {},
}


def _parse_event(line: int, raw: bytes) -> ProgramEvent | None:
    """Return the event of one line; None for an event that the contract does not have.

    Raises ValueError for a line that is no JSON object with a text `e`. Raises `WrongField`, which is a ValueError, if
    `t` or a field of the event is missing or has another type.
    """
    try:
        data = json.loads(raw)
    except ValueError as error:
        raise ValueError(f"no JSON: {excerpt(raw)}") from error
    if not isinstance(data, dict) or not isinstance(data.get("e"), str):
        raise ValueError(f"no JSON object with an event e: {excerpt(raw)}")
    t_ns = read_number(data, "t")
    if data["e"] not in _FIELDS:
        return None
    name = EventName(data["e"])
    return ProgramEvent(line, name, t_ns, **{field: read(data) for field, read in _FIELDS[name].items()})


@dataclass
class _Numbers:
    """Checks the numbers of attempts or of commits: they count 0, 1, 2, …, and each number has at most one outcome.
    `asked`: the event that begins a number. `next`: the next number. `open`: numbers without an outcome."""

    asked: EventName
    next: int = 0
    open: set[int] = field(default_factory=set)

    def ask(self, event: ProgramEvent) -> Iterator[Breach]:
        if event.number < self.next:
            yield Breach(
                BreachKind.NUMBER, event.line, f"a second {self.asked} has the number {event.number}"
            )
            return
        if event.number > self.next:
            text = (
                f"{self.asked} {event.number} follows {self.asked} {self.next - 1}: numbers count 0, 1, 2, …"
            )
            yield Breach(BreachKind.NUMBER, event.line, text)
        self.next = event.number + 1
        self.open.add(event.number)

    def answer(self, event: ProgramEvent) -> Iterator[Breach]:
        if event.number in self.open:
            self.open.discard(event.number)
            return
        before = "is answered twice" if event.number < self.next else "was never told"
        yield Breach(BreachKind.ANSWER, event.line, f"{event.name}: {self.asked} {event.number} {before}")


class ProgramLines:
    """Reader and checker of the standard output of a program, in the file `path`.

    `breaches`: breaches of the contract so far. `since_ns`: start of the program on CLOCK_MONOTONIC. `live`: False for
    lines of an earlier run, whose times cannot be compared with the present.
    """

    def __init__(self, path: Path, since_ns: int, *, live: bool = True) -> None:
        self._path = path
        self._live = live
        self._since_ns = since_ns
        self._read = 0
        self._line = 0
        self._last_ns = 0
        self._started = self._closed = False
        self._attempts = _Numbers(EventName.ATTEMPT)
        self._commits = _Numbers(EventName.COMMIT)
        self._transaction = -1
        """Number of the open transaction, -1 for none."""
        self.breaches: list[Breach] = []

    @property
    def closed(self) -> bool:
        """True once `take` has read the event `closed`."""
        return self._closed

    def take(self) -> list[ProgramEvent]:
        """Return the events in the complete lines since the last call; [] if there is no output yet.

        A line that breaks the contract is left out and added to `breaches`. Events that the contract does not have are
        left out. Raises OSError if the output cannot be read.
        """
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._read)
            raw = file.read()
        raw = raw[: raw.rfind(b"\n") + 1]
        self._read += len(raw)
        now_ns = time.monotonic_ns() if self._live else 1 << 63
        events = []
        for line in raw.splitlines():
            self._line += 1
            try:
                event = _parse_event(self._line, line)
            except WrongField as error:
                self._breach(BreachKind.FIELD, f"{excerpt(line)}: {error}")
                continue
            except ValueError as error:
                self._breach(BreachKind.TEXT, str(error))
                continue
            if event is not None and self._keeps(event, now_ns):
                events.append(event)
        return events

    def end(self, status: int) -> None:
        """Check what must hold once the program has ended by itself, and add to `breaches`: no half line at the end
        and, with exit status 0, the event `closed`. `status`: its exit status."""
        left = self._path.stat().st_size - self._read if self._path.exists() else 0
        if left:
            self._line += 1
            with self._path.open("rb") as file:
                file.seek(-left, os.SEEK_END)
                self._breach(BreachKind.TORN, f"half a line at the end: {excerpt(file.read())}")
        if status == 0 and not self._closed:
            self._breach(BreachKind.ORDER, "the program ended and never said closed", line=0)

    def _breach(self, kind: BreachKind, text: str, line: int | None = None) -> None:
        self.breaches.append(Breach(kind, self._line if line is None else line, text))

    def _keeps(self, event: ProgramEvent, now_ns: int) -> bool:
        """Check an event against the events before it, and add what is wrong to `breaches`. Return False if the event
        must not be used. `now_ns`: latest time that the event may have."""
        before = len(self.breaches)
        if not self._since_ns - _AHEAD_NS <= event.t_ns <= now_ns + _AHEAD_NS:
            text = (
                f"{event.name}: t is {event.t_ns}, and CLOCK_MONOTONIC was {self._since_ns} ns at the start"
            )
            self._breach(BreachKind.CLOCK, text)
        elif event.t_ns < self._last_ns:
            self._breach(
                BreachKind.BACKWARDS, f"{event.name}: t goes back by {self._last_ns - event.t_ns} ns"
            )
        else:
            self._last_ns = event.t_ns
        if self._closed:
            self._breach(BreachKind.ORDER, f"{event.name} comes after closed")
        elif not self._started and event.name is not EventName.STARTED:
            self._breach(BreachKind.ORDER, f"{event.name} comes before started")
        self._started = True
        match event.name:
            case EventName.ATTEMPT:
                self.breaches += self._attempts.ask(event)
            case EventName.RESULT:
                self.breaches += self._attempts.answer(event)
            case EventName.BEGIN:
                self.breaches += self._commits.ask(event)
                self._transaction = event.number
            case EventName.COMMIT:
                if event.number != self._transaction:
                    self.breaches += self._commits.ask(event)
            case EventName.COMMITTED | EventName.ENDED:
                self.breaches += self._commits.answer(event)
                self._transaction = -1
            case EventName.CLOSED:
                self._closed = True
            case _:
                pass
        return len(self.breaches) == before
