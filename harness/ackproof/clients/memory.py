"""Memory that a client has freed and still holds, given back to the kernel.

Where a leader is gone for seconds, tens of thousands of records wait in librdkafka, and become one large part. Once
they are freed, glibc keeps the pages that they shared with what was allocated meanwhile, and Arrow's pool all that it
had for the part: from storm to storm a client would hold some MiB more.

And glibc takes large blocks from the kernel, to which they go back whole, only until the first one is freed: from then
on blocks up to its size come out of the arenas of its threads, where what is free lies between what is in use. In a
reader of a soak that grew from 7 to 25 MiB within 14 minutes (17 were in use all along); with a fixed limit it stays.
"""

from __future__ import annotations

import ctypes
import time
from typing import Final

_M_MMAP_THRESHOLD: Final = -3
_LARGE: Final = 64 << 10
"""Bytes. That it is set at all keeps it from rising (mallopt(3))."""
_EVERY_S: Final = 30.0
"""A client at full speed fills its parts faster, and would only ask for the same pages again."""


class FreeMemory:
    """What malloc and Arrow's pool hold free. For one thread of a client, the one that writes parts.

    From its making on large blocks are the kernel's.
    """

    def __init__(self, every_s: float = _EVERY_S) -> None:
        libc = ctypes.CDLL(None)
        self._trim = getattr(libc, "malloc_trim", None)
        if self._trim is not None:
            libc.mallopt(_M_MMAP_THRESHOLD, _LARGE)
        self._every_s = every_s
        self._due_s = time.monotonic() + every_s

    def give_back(self) -> None:
        """Give it back, unless that was done just now. It takes a millisecond (malloc_trim(3), of glibc alone)."""
        now = time.monotonic()
        if now < self._due_s:
            return
        import pyarrow as pa  # by who has written a part, and so has loaded it

        pa.default_memory_pool().release_unused()
        if self._trim is not None:
            self._trim(0)
        self._due_s = now + self._every_s
