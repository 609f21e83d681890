"""The wall clock of a node: a small library is loaded into its JVM, and adds to the time what stands in a file.

What a JVM measures by the monotonic clock goes on as it was, as on a machine whose clock is set. Only clusters whose
faults need it (`Need.CLOCKS`) are started so.
"""

from __future__ import annotations

import re
import socket
import sys
import time
from collections.abc import Set
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ackproof.base.wait import wait_until
from ackproof.experiment.backends import Need
from ackproof.network.addresses import Address
from ackproof.provision.tools import clock_library

_STAMPED: Final = re.compile(
    r"^\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})\] .*(?:Unexpected error from|[Cc]lose of session|Len error)",
    re.M,
)
"""What Kafka and ZooKeeper log of a request of an impossible size, by the node's own clock."""
_IMPOSSIBLE: Final = (1 << 31).to_bytes(4, "big")
"""A request of so many bytes: below zero as the servers read it."""
_ANSWERS_WITHIN_S: Final = 5.0


@dataclass(frozen=True)
class Reading:
    """How far a node's clock was ahead of this machine's: between these seconds (the node's time zone included)."""

    least: float
    most: float

    def __sub__(self, other: Reading) -> Reading:
        """How far it moved since `other`."""
        return Reading(self.least - other.most, self.most - other.least)

    def near(self, seconds: float, within: float) -> bool:
        """Whether it may be `seconds`, and lies nowhere farther from it than `within`."""
        return self.least <= seconds <= self.most and self.within(within)

    def within(self, seconds: float) -> bool:
        """Whether it is as sharp as that."""
        return self.most - self.least <= seconds

    def __str__(self) -> str:
        return f"{(self.least + self.most) / 2:+.1f} s"


@dataclass(frozen=True)
class NodeClock:
    """One node's clock. `file`: how far it is off; `log`: what the node logs; `address`: where it takes requests."""

    file: Path
    log: Path
    address: Address

    @classmethod
    def right(cls, file: Path, log: Path, address: Address) -> NodeClock:
        """One that is not off."""
        clock = cls(file, log, address)
        clock.shift(0.0)
        return clock

    def shift(self, seconds: float) -> None:
        """Let it be so far ahead of this machine's (below zero: behind), at once. The file stays the same one."""
        with self.file.open("r+b" if self.file.exists() else "wb", buffering=0) as opened:
            opened.write(round(seconds * 1e9).to_bytes(8, sys.byteorder, signed=True))

    def read(self) -> Reading:
        """What the node itself takes the time for: it is made to log a line, which carries its time.

        Raises OSError when it takes no connection, `WaitTimeout` when it logs nothing.
        """
        before = self.log.stat().st_size
        with socket.create_connection((self.address.host, self.address.port), _ANSWERS_WITHIN_S) as line:
            sent = time.time()
            line.sendall(_IMPOSSIBLE)
            stamp = wait_until(
                lambda: _STAMPED.search(self._since(before)),
                what=f"{self.log} to tell of a broken request",
                timeout_s=_ANSWERS_WITHIN_S,
                interval_s=0.002,
            )
        seen = time.time()
        told = datetime.fromisoformat(stamp[1]).replace(tzinfo=UTC).timestamp()
        return Reading(told - seen, told - sent + 0.001)

    def _since(self, size: int) -> str:
        with self.log.open("rb") as opened:
            opened.seek(size)
            return opened.read().decode("utf-8", "replace")


def require(needs: Set[Need]) -> None:
    """Make what these needs take, before anything is started. Raises `MissingTool`, `ProvisionFailed`."""
    if Need.CLOCKS in needs:
        clock_library()


def preload(file: Path, at: Path | None = None) -> dict[str, str]:
    """Variables by which a JVM takes its clock from `file`. `at`: where the JVM finds the library, if not here."""
    return {"LD_PRELOAD": str(at or clock_library()), "ACKPROOF_CLOCK": str(file)}
