"""One client process: how it is started, what its parent reads of it, how it is asked to stop."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ackproof.base.processes import Child, RunTag, spawn
from ackproof.clients.control import FREE, SEND, STOP
from ackproof.clients.counters import SharedCounters
from ackproof.clients.settings import (
    CONTROL_FD,
    HIDDEN_FD,
    SETTINGS,
    ProducerSettings,
    ReaderSettings,
    hide,
)
from ackproof.rundir.documents import Client
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.timeline import ClientReset, Note, Timeline

_TAIL: Final = 2000


@dataclass(frozen=True)
class Line:
    """One event of a client. `topic` '' and `partition` -1: of no particular partition."""

    t_ns: int
    topic: str
    partition: int
    what: ClientReset | Note


class Inbox:
    """The events file of a client, read as it grows: whole lines, each once.

    A line that is torn (its client was killed over it) is passed over.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def read(self) -> list[Line]:
        """What has come since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._at)
            raw = file.read()
        whole = raw[: raw.rfind(b"\n") + 1]
        self._at += len(whole)
        lines: list[Line] = []
        for text in whole.splitlines():
            try:
                raw = json.loads(text)
                what = (ClientReset if raw["kind"] == "reset" else Note).model_validate(raw["detail"])
                lines.append(Line(int(raw["t_ns"]), str(raw["topic"]), int(raw["partition"]), what))
            except (ValueError, KeyError, TypeError):
                continue
        return lines


@dataclass
class Handle:
    """One client process, from the parent's side. `control` is the writing end of its pipe, -1 once it is closed."""

    client: Client
    settings: ProducerSettings | ReaderSettings
    child: Child
    counters: SharedCounters
    folder: Path
    inbox: Inbox
    control: int
    expected: bool = False
    """It was asked to stop: a good end is expected."""
    killed: bool = False
    """The parent killed it: any end is expected."""
    succeeded: bool = False
    """Another producer has its transactional id: once it is fenced nobody else comes in its place."""
    fenced: str = ""
    """With which words it said that it was fenced."""
    status: int | None = None

    def count(self, topic: str | None, partition: int | None) -> int:
        """Records acknowledged or read so far: in all, of a topic, or of a partition."""
        if topic is None:
            return self.counters.total()
        counted = zip(self.settings.places, self.counters.counts, strict=True)
        return sum(
            count for place, count in counted if place.topic == topic and partition in (None, place.partition)
        )

    def tell(self, timeline: Timeline) -> None:
        """Merge what it wrote down into the timeline."""
        for line in self.inbox.read():
            if isinstance(line.what, ClientReset) and self.succeeded:
                self.fenced = line.what.reason
            timeline.add(
                line.what,
                client=self.client.id,
                topic=line.topic or None,
                partition=None if line.partition < 0 else line.partition,
                t_ns=line.t_ns,
            )

    def tail(self) -> str:
        """The last of what it wrote."""
        output = self.folder / "output.log"
        return output.read_text(errors="replace")[-_TAIL:].strip() if output.exists() else ""

    def ask_to_stop(self) -> None:
        """Ask it to stop in good order; it may have ended meanwhile."""
        self.expected = True
        try:
            os.write(self.control, STOP)
        except BrokenPipeError:
            return

    def ask_to_send(self) -> None:
        """Ask a producer that sends on demand for a record more. Raises OSError where it has ended."""
        os.write(self.control, SEND)

    def free(self) -> None:
        """Let it send without being asked; it may have ended meanwhile."""
        with suppress(OSError):
            os.write(self.control, FREE)

    def release(self) -> None:
        """Close the pipe, once the process is gone."""
        if self.control >= 0:
            os.close(self.control)
            self.control = -1


def client_of(settings: ProducerSettings | ReaderSettings) -> Client:
    """The client as `case.json` lists it."""
    topics = tuple(dict.fromkeys(place.topic for place in settings.places))
    if isinstance(settings, ProducerSettings):
        return Client(
            id=settings.client,
            kind="producer",
            producer=settings.producer,
            topics=topics,
            keys=settings.keys,
            tombstone_every=settings.tombstone_every,
        )
    return Client(
        id=settings.client,
        kind="reader" if settings.ends is None else "final",
        reader=settings.reader,
        topics=topics,
        isolation=settings.isolation,
    )


@dataclass(frozen=True)
class Launcher:
    """Starts client processes of one run. `hidden`: settings of librdkafka that clients get and no file does."""

    tag: RunTag
    hidden: Mapping[str, str] = field(default_factory=dict, repr=False)

    def start(self, settings: ProducerSettings | ReaderSettings) -> Handle:
        """Start a client; its settings file, counters and output are in its folder."""
        name = settings.process if isinstance(settings, ReaderSettings) else settings.client
        folder = CaseDir(self.tag.case_dir).clients / name
        folder.mkdir(parents=True, exist_ok=True)
        settings.write(folder / SETTINGS)
        counters = SharedCounters(folder / "counters", len(settings.places), create=True)
        reading, writing = os.pipe()
        inherited = {CONTROL_FD: reading}
        try:
            if self.hidden:
                inherited[HIDDEN_FD] = hide(self.hidden)
            child = spawn(
                [sys.executable, "-P", "-m", settings.MODULE, str(folder / SETTINGS)],
                run=self.tag,
                role=name,
                cwd=folder,
                stdout=folder / "output.log",
                env={variable: str(descriptor) for variable, descriptor in inherited.items()},
                pass_fds=tuple(inherited.values()),
            )
        except BaseException:
            os.close(writing)
            raise
        finally:
            for descriptor in inherited.values():
                os.close(descriptor)
        inbox = Inbox(folder / "events.jsonl")
        return Handle(client_of(settings), settings, child, counters, folder, inbox, writing)
