"""The wall clock of a node: libfaketime is loaded into its JVM and reads from a file how far its clock is off.

What a JVM measures by the monotonic clock goes on as it was, as on a machine whose clock is set. Only clusters whose
faults need it (`Need.CLOCKS`) are started so: each look at a clock costs 0.5 µs more.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Set
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ackproof.cluster.addresses import Address
from ackproof.plan.ground import Need
from ackproof.provision.faketime import find_library
from ackproof.wait import wait_until

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
        return self.least <= seconds <= self.most and self.most - self.least <= within

    def __str__(self) -> str:
        return f"{(self.least + self.most) / 2:+.1f} s"


@dataclass(frozen=True)
class NodeClock:
    """One node's clock. `file`: how far it is off; `log`: what the node logs; `address`: where it takes requests."""

    file: Path
    log: Path
    address: Address

    def shift(self, seconds: float) -> None:
        """Let it be so far ahead of this machine's (below zero: behind). The JVM sees it within two seconds."""
        new = self.file.with_suffix(".new")
        new.write_text(f"{seconds:+.6f}\n", encoding="ascii")
        new.replace(self.file)

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
    """Raises `MissingTool` where clocks must be set and cannot."""
    if Need.CLOCKS in needs:
        find_library()


def preload(file: Path, library: str = "") -> dict[str, str]:
    """Variables by which a JVM takes its clock from `file`. `library`: this machine's own if empty."""
    return {
        "LD_PRELOAD": library or str(find_library()),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        # without it the file is read at every look at the clock: a hundred times slower
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        # times of files stay true: a class-data archive is valid for jars of their true age
        "NO_FAKE_STAT": "1",
    }
