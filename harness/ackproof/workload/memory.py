"""Memory that a client has freed and still holds, given back to the kernel.

Where a leader is gone for seconds, tens of thousands of records wait in librdkafka. Once they are freed, glibc keeps
the pages that they shared with what was allocated meanwhile: from storm to storm a client would hold some MiB more.
"""

from __future__ import annotations

import ctypes
import time
from typing import Final

_EVERY_S: Final = 30.0
"""A client at full speed fills its parts faster, and would only ask for the same pages again."""


class FreeMemory:
    """What glibc's malloc holds free; elsewhere nothing is done. For one thread of a client."""

    def __init__(self, every_s: float = _EVERY_S) -> None:
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        self._every_s = every_s
        self._due_s = time.monotonic() + every_s

    def give_back(self) -> None:
        """Give it back, unless that was done just now. It takes a millisecond (malloc_trim(3))."""
        now = time.monotonic()
        if self._trim is not None and now >= self._due_s:
            self._trim(0)
            self._due_s = now + self._every_s
