"""The counters of a client in shared memory: written by the client, read by the parent at any time.

A file of 64-bit words: `HEAD` words of state, then one counter per place, in the order of the settings' places.
Each word is stored whole, so a reader sees an old or a new value, never half of one; there is no lock.
"""

from __future__ import annotations

import mmap
from enum import IntEnum
from pathlib import Path
from typing import Final, Self

HEAD: Final = 8
_STATE: Final = 0
_SENT: Final = 1
_FAILED: Final = 2
_INDETERMINATE: Final = 3


class State(IntEnum):
    """How far a client has come."""

    STARTING = 0
    READY = 1
    STOPPING = 2
    CLOSED = 3


class SharedCounters:
    """The counters of one client: acked records per place of a producer, records read per place of a reader."""

    def __init__(self, path: Path, places: int, *, create: bool) -> None:
        size = (HEAD + places) * 8
        with path.open("w+b" if create else "r+b") as file:
            if create:
                file.truncate(size)
            self._map = mmap.mmap(file.fileno(), size)
        self.words = memoryview(self._map).cast("q")
        self.counts = self.words[HEAD:]

    @classmethod
    def create(cls, path: Path, places: int) -> Self:
        """Make the file, all zero."""
        return cls(path, places, create=True)

    @classmethod
    def open(cls, path: Path, places: int) -> Self:
        """Map a file that `create` made."""
        return cls(path, places, create=False)

    @property
    def state(self) -> State:
        """How far the client has come."""
        return State(self.words[_STATE])

    @state.setter
    def state(self, state: State) -> None:
        self.words[_STATE] = state

    @property
    def sent(self) -> int:
        """Produce calls that were accepted or refused so far (a producer)."""
        return self.words[_SENT]

    @sent.setter
    def sent(self, count: int) -> None:
        self.words[_SENT] = count

    @property
    def failed(self) -> int:
        """Attempts known to have failed (a producer)."""
        return self.words[_FAILED]

    @failed.setter
    def failed(self, count: int) -> None:
        self.words[_FAILED] = count

    @property
    def indeterminate(self) -> int:
        """Attempts whose report leaves it open (a producer); those without a report are not in it."""
        return self.words[_INDETERMINATE]

    @indeterminate.setter
    def indeterminate(self, count: int) -> None:
        self.words[_INDETERMINATE] = count

    def total(self) -> int:
        return sum(self.counts)
