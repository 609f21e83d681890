"""Communication of the harness with a running client: a control pipe, an events file and counters in shared memory.

The harness holds the writing end of the pipe. A byte ``s`` asks the client to close. A producer that sends on demand
sends one record for each ``1``; after ``f`` it sends at its rate. End of file means that the harness is dead. The
client then ends at once, so that no load goes on without its harness; its journal keeps what it has sent.
Rare events go as JSON lines into `events.jsonl` in the client's folder.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import threading
import time
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Final

from ackproof.clients.contract import CONTROL_FD, EXIT_ORPHAN

STOP: Final = b"s"
SEND: Final = b"1"
FREE: Final = b"f"
HEAD: Final = 8
"""Number of 64-bit words in the counters file before the counters of partitions. `SharedCounters` uses the first four:
`stage`, `sent`, `failed`, `indeterminate`."""


def listen(obey: Callable[[bytes], None] = lambda _: None) -> threading.Event:
    """Watch the control pipe (`CONTROL_FD`) in a thread. Return an event that is set when the client must stop: on the
    command `STOP`, or on SIGTERM, whose handler is replaced. Call it on the main thread.

    `obey` is called on the watching thread with every command but `STOP`, one byte each. `SEND`: an on-demand producer
    is to send one more record. `FREE`: it is to send at its rate from now on. When the harness ends, this process ends
    at once with `EXIT_ORPHAN`.
    """
    stop = threading.Event()
    control_fd = int(os.environ[CONTROL_FD])

    def watch() -> None:
        while command := os.read(control_fd, 1):
            if command == STOP:
                stop.set()
            else:
                obey(command)
        os._exit(EXIT_ORPHAN)

    threading.Thread(target=watch, name="control", daemon=True).start()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    return stop


class Events:
    """Writer of a client's events file: one JSON object a line, with `t_ns` in nanoseconds since the run's start."""

    def __init__(self, path: Path, origin_ns: int) -> None:
        self._path = path
        self._origin_ns = origin_ns

    def add(self, kind: str, *, topic: str = "", partition: int = -1, **detail: str | int | float) -> None:
        """Append one event as one line, in a single write: a killed client leaves at most one torn line.

        `kind` is one of three. `reset`: a reader's position left the log, or a producer's library failed. `unread`: a
        producer with acks=0 closed before brokers had read all its bytes. `problem`: a reader's library reported an
        error. `detail`: other fields. `topic` '' and `partition` -1: the event concerns no partition.
        """
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


class ClientState(IntEnum):
    """State of a client, in the first word of its counters file. STARTING: the client library does not run yet. READY:
    the library runs. STOPPING: the client is closing. CLOSED: all its rows are written."""

    STARTING = 0
    READY = 1
    STOPPING = 2
    CLOSED = 3


class _Word:
    """Descriptor of one of the first `HEAD` words of the counters file: an attribute of `SharedCounters`."""

    def __init__(self, index: int) -> None:
        self._index = index

    def __get__(self, counters: SharedCounters, owner: type) -> int:
        return counters.words[self._index]

    def __set__(self, counters: SharedCounters, count: int) -> None:
        counters.words[self._index] = count


class SharedCounters:
    """Counters of one client in the mapped file `path`: written by the client, read by the harness at any time.

    The file holds `HEAD` 64-bit words of state, then one counter for each of the `places` partitions, in the order of
    the settings: records acknowledged to a producer, records read by a reader. Each word is stored whole, so a reader
    of the file sees an old or a new value and needs no lock. `create`: True to create the file, with zeros.
    """

    stage = _Word(0)
    """The client's `ClientState`, as a number."""
    sent = _Word(1)
    """Number of produce calls of a producer that its library accepted or refused."""
    failed = _Word(2)
    """Number of attempts of a producer that are known to have failed."""
    indeterminate = _Word(3)
    """Number of attempts of a producer whose report leaves the outcome open. Attempts without a report do not count."""

    def __init__(self, path: Path, places: int, *, create: bool = False) -> None:
        size = (HEAD + places) * 8
        with path.open("w+b" if create else "r+b") as file:
            if create:
                file.truncate(size)
            self._map = mmap.mmap(file.fileno(), size)
        self.words = memoryview(self._map).cast("q")
        self.counts = self.words[HEAD:]

    @property
    def state(self) -> ClientState:
        return ClientState(self.stage)

    def total(self) -> int:
        return sum(self.counts)
