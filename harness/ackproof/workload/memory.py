"""Memory that a client has freed and still holds, given back to the kernel.

Where a leader is gone for seconds, tens of thousands of records wait in librdkafka, and become one large part. Once
they are freed, glibc keeps the pages that they shared with what was allocated meanwhile, and Arrow's pool all that it
had for the part: from storm to storm a client would hold some MiB more.
"""

from __future__ import annotations

import ctypes
import time
from typing import Final

_EVERY_S: Final = 30.0
"""A client at full speed fills its parts faster, and would only ask for the same pages again."""


class FreeMemory:
    """What malloc and Arrow's pool hold free. For one thread of a client, the one that writes parts."""

    def __init__(self, every_s: float = _EVERY_S) -> None:
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
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
