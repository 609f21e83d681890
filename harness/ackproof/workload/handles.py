"""One client process, as its parent holds it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ackproof.base.processes import Child, RunTag, spawn
from ackproof.rundir.documents import Client
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.partition import TopicPartition
from ackproof.workload.control import STOP
from ackproof.workload.counters import SharedCounters
from ackproof.workload.inbox import Inbox
from ackproof.workload.settings import HIDDEN_FD, hide

_TAIL: Final = 2000


@dataclass
class Handle:
    """One client process, from the parent's side."""

    client: Client
    child: Child
    counters: SharedCounters
    folder: Path
    inbox: Inbox
    control: int
    places: tuple[TopicPartition, ...]
    expected: bool = False
    """It was asked to stop: a good end is expected."""
    killed: bool = False
    """The parent killed it: any end is expected."""
    succeeded: bool = False
    """Another producer has its transactional id: once it is fenced nobody else comes in its place."""
    fenced: str = ""
    """With which words it said that it was fenced."""
    status: int | None = None

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

    def release(self) -> None:
        """Close the pipe, once the process is gone."""
        if self.control >= 0:
            os.close(self.control)
            self.control = -1


@dataclass
class Shared:
    """What the watching thread and the callers share, under one lock."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    handles: dict[str, Handle] = field(default_factory=dict)
    failure: str = ""
    next_producer: int = 0
    next_reader: int = 0
    slots: dict[str, int] = field(default_factory=dict)
    """The place of each producer: a transactional id belongs to the place."""
    successors: dict[str, str] = field(default_factory=dict)
    """Who took the place of a client that is gone, or that was fenced."""
    resets: int = 0
    stopping: bool = False


class Launcher:
    """Starts client processes of one run."""

    def __init__(self, run: CaseDir, tag: RunTag, hidden: Mapping[str, str] | None = None) -> None:
        """`hidden`: settings of librdkafka that clients get and no file does."""
        self.run = run
        self.tag = tag
        self._hidden = dict(hidden or {})

    def start(
        self,
        client: Client,
        module: str,
        places: tuple[TopicPartition, ...],
        write_settings: Callable[[Path, int], None],
    ) -> Handle:
        """Start a client; `write_settings(path, control_fd)` leaves its settings file."""
        folder = self.run.clients / client.id
        folder.mkdir(parents=True, exist_ok=True)
        counters = SharedCounters.create(folder / "counters", len(places))
        reading, writing = os.pipe()
        secret = hide(self._hidden) if self._hidden else None
        try:
            write_settings(folder / "settings.json", reading)
            child = spawn(
                [sys.executable, "-P", "-m", module, str(folder / "settings.json")],
                run=self.tag,
                role=client.id,
                cwd=folder,
                stdout=folder / "output.log",
                env={} if secret is None else {HIDDEN_FD: str(secret)},
                pass_fds=(reading,) if secret is None else (reading, secret),
            )
        except BaseException:
            os.close(writing)
            raise
        finally:
            os.close(reading)
            if secret is not None:
                os.close(secret)
        return Handle(client, child, counters, folder, Inbox(folder / "events.jsonl"), writing, places)
