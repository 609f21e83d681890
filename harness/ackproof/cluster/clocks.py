"""The wall clock of a node: a preloaded library in its JVM adds an offset, which it reads from a file.

The monotonic clock stays as it is, as on a machine whose clock is set. Only clusters whose faults need it
(`Need.CLOCKS`) load the library.
"""

from __future__ import annotations

import re
import socket
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ackproof.base.wait import wait_until
from ackproof.network.addresses import Address
from ackproof.provision.tools import clock_library

_STAMPED: Final = re.compile(
    r"^\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})\] .*(?:Unexpected error from|[Cc]lose of session|Len error)",
    re.M,
)
"""Log lines of Kafka and ZooKeeper about a request of impossible size, with the node's own time."""
_IMPOSSIBLE: Final = (1 << 31).to_bytes(4, "big")
"""A request size that the servers read as negative, and refuse with a log line."""
_ANSWERS_WITHIN_S: Final = 5.0


@dataclass(frozen=True)
class ClockReading:
    """A node's clock compared with this machine's: it is between `least` and `most` seconds ahead. Both include the
    offset of the node's time zone from UTC."""

    least: float
    most: float

    def __sub__(self, other: ClockReading) -> ClockReading:
        """Return bounds of the seconds by which the clock was shifted since the reading `other`."""
        return ClockReading(self.least - other.most, self.most - other.least)

    def near(self, seconds: float, width: float) -> bool:
        """Return True if `seconds` lies between the bounds, and these are at most `width` seconds apart."""
        return self.least <= seconds <= self.most and self.is_sharp(width)

    def is_sharp(self, seconds: float) -> bool:
        """Return True if the bounds are at most `seconds` apart."""
        return self.most - self.least <= seconds

    def __str__(self) -> str:
        return f"{(self.least + self.most) / 2:+.1f} s"


@dataclass(frozen=True)
class NodeClock:
    """Sets and reads one node's wall clock. `file`: holds the offset that its JVM adds to the time.

    `log`: the node's log file. `address`: the node's listener.
    """

    file: Path
    log: Path
    address: Address

    def shift(self, seconds: float) -> None:
        """Set the node's clock `seconds` ahead of this machine's (negative: behind). The running JVM follows at
        once."""
        with self.file.open("r+b" if self.file.exists() else "wb", buffering=0) as opened:
            opened.write(round(seconds * 1e9).to_bytes(8, sys.byteorder, signed=True))

    def read(self) -> ClockReading:
        """Return the difference between the node's clock and this machine's, from a log line that an invalid request
        provokes. Raises OSError if the node accepts no connection, `WaitTimeout` if it logs nothing."""
        before = self.log.stat().st_size
        with socket.create_connection((self.address.host, self.address.port), _ANSWERS_WITHIN_S) as line:
            sent = time.time()
            line.sendall(_IMPOSSIBLE)
            stamp = wait_until(
                lambda: _STAMPED.search(self._since(before)),
                what=f"{self.log} to report a broken request",
                timeout_s=_ANSWERS_WITHIN_S,
                interval_s=0.002,
            )
        seen = time.time()
        node_time = datetime.fromisoformat(stamp[1]).replace(tzinfo=UTC).timestamp()
        return ClockReading(node_time - seen, node_time - sent + 0.001)

    def _since(self, size: int) -> str:
        with self.log.open("rb") as opened:
            opened.seek(size)
            return opened.read().decode("utf-8", "replace")


def preload(file: Path, library: Path | None = None) -> dict[str, str]:
    """Return environment variables that make a JVM add the offset in `file` to its clock.

    `library`: path of the clock library as that JVM sees it; None: the library on this machine, which is compiled if
    needed. Then raises `MissingTool` without a C compiler, `ProvisionFailed` if the compilation fails.
    """
    return {"LD_PRELOAD": str(library or clock_library()), "ACKPROOF_CLOCK": str(file)}
