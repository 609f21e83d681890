"""How the parent speaks to a client: a pipe that carries one byte, and whose end means that the parent is gone.

The parent holds the writing end. The byte ``s`` asks the client to stop in good order; a producer that sends on demand
sends a record more for each ``1``, and from ``f`` on as it would without that. End of file comes when the
parent has died, however it died: then the client ends at once, so that no load goes on without its harness; the
journal keeps what it had sent. What a client has to tell goes line by line into `events.jsonl` in its folder.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from ackproof.clients.settings import CONTROL_FD, EXIT_ORPHAN

STOP: Final = b"s"
SEND: Final = b"1"
FREE: Final = b"f"


@dataclass
class Demand:
    """What a producer that sends on demand was asked for so far."""

    records: int = 0
    free: bool = False
    """It is to send as it would without being asked."""


def listen(demand: Demand | None = None) -> threading.Event:
    """Watch the pipe in a thread; the event is set once the client is to stop (SIGTERM asks the same)."""
    stop = threading.Event()
    control_fd = int(os.environ[CONTROL_FD])

    def watch() -> None:
        while said := os.read(control_fd, 1):
            if said == STOP:
                stop.set()
            elif demand is not None:
                demand.records += said == SEND
                demand.free = demand.free or said == FREE
        os._exit(EXIT_ORPHAN)

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    threading.Thread(target=watch, name="control", daemon=True).start()
    signal.signal(signal.SIGTERM, on_signal)
    return stop


class Events:
    """The events file of a client; each line is one JSON object with `t_ns`, nanoseconds since the run's start."""

    def __init__(self, path: Path, origin_ns: int) -> None:
        self._path = path
        self._origin_ns = origin_ns

    def add(self, kind: str, *, topic: str = "", partition: int = -1, **detail: str | int | float) -> None:
        """Append one event, in one write."""
        line = json.dumps(
            {
                "t_ns": time.monotonic_ns() - self._origin_ns,
                "kind": kind,
                "topic": topic,
                "partition": partition,
                "detail": detail,
            }
        )
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
