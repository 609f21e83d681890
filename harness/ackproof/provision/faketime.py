"""libfaketime, by which the wall clock of a node's JVM can be set and no other's."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ackproof.errors import MissingTool

INSTALL: Final = "apt-get install libfaketime"
_NAMES: Final = (
    "lib*/*/faketime/libfaketime.so.1",
    "lib*/faketime/libfaketime.so.1",
    "lib*/libfaketime.so.1",
)
_ROOTS: Final = (Path("/usr"), Path("/usr/local"))


def find_library() -> Path:
    """The library. Raises `MissingTool`.

    Not its sister for programs of several threads: that one takes a lock, and blocks signals twice, at every look at
    the clock, the monotonic one too (5 µs of CPU instead of 0.5 µs; a cluster does not start within a minute). The lock
    keeps two threads from reading the file at once; what both would write is the same number.
    """
    for root in _ROOTS:
        for name in _NAMES:
            if found := next(iter(sorted(root.glob(name))), None):
                return found
    raise MissingTool("libfaketime", "clock_jump sets the clocks of nodes by it", INSTALL)
