"""The counters of a client in shared memory: written by the client, read by the parent at any time.

A file of 64-bit words: `HEAD` words of state, then one counter per place, in the order of the settings' places.
Each word is stored whole, so a reader sees an old or a new value, never half of one; there is no lock.
"""

from __future__ import annotations

import mmap
from enum import IntEnum
from pathlib import Path
from typing import Final

HEAD: Final = 8


class State(IntEnum):
    """How far a client has come."""

    STARTING = 0
    READY = 1
    STOPPING = 2
    CLOSED = 3


class _Word:
    """A word of the head, as an attribute of the counters."""

    def __init__(self, at: int) -> None:
        self._at = at

    def __get__(self, counters: SharedCounters, owner: type) -> int:
        return counters.words[self._at]

    def __set__(self, counters: SharedCounters, count: int) -> None:
        counters.words[self._at] = count


class SharedCounters:
    """The counters of one client: acked records per place of a producer, records read per place of a reader.

    `create` makes the file, all zero; else one that is there is mapped.
    """

    stage = _Word(0)
    sent = _Word(1)
    """Produce calls that were accepted or refused so far (a producer)."""
    failed = _Word(2)
    """Attempts known to have failed (a producer)."""
    indeterminate = _Word(3)
    """Attempts whose report leaves it open (a producer); those without a report are not in it."""

    def __init__(self, path: Path, places: int, *, create: bool = False) -> None:
        size = (HEAD + places) * 8
        with path.open("w+b" if create else "r+b") as file:
            if create:
                file.truncate(size)
            self._map = mmap.mmap(file.fileno(), size)
        self.words = memoryview(self._map).cast("q")
        self.counts = self.words[HEAD:]

    @property
    def state(self) -> State:
        """How far the client has come."""
        return State(self.stage)

    def total(self) -> int:
        return sum(self.counts)
