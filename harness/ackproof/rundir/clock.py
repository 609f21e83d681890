"""Times of a run: nanoseconds since its start on CLOCK_MONOTONIC, which all processes of a machine share."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from ackproof.rundir.timeline import Event

STEP_NS: Final = 100_000_000
"""Limit in ns: a smaller deviation of the wall clock from the monotonic clock does not mean that the wall clock was
set. The two clocks are read one after the other, and the reader may have had to wait in between. NTP slews both clocks;
ntpd sets the wall clock from 128 ms on."""


@dataclass(frozen=True)
class RunClock:
    """The zero point of a run's times. `origin_ns` is `time.monotonic_ns()` at the start of the run, `wall_ns` is
    `time.time_ns()` at the same moment."""

    origin_ns: int
    wall_ns: int

    @classmethod
    def start(cls) -> RunClock:
        return cls(time.monotonic_ns(), time.time_ns())

    @property
    def offset_ns(self) -> int:
        """Nanoseconds to add to a CLOCK_MONOTONIC time to get wall-clock time (since the Unix epoch), if the wall clock
        was not set since the start."""
        return self.wall_ns - self.origin_ns

    def now(self) -> int:
        return time.monotonic_ns() - self.origin_ns


@dataclass(frozen=True)
class WallClock:
    """The wall clock, by which Kafka stamps records and logs, compared with the run's clock.

    `began_ns`: wall time when the run began, ns since the Unix epoch. `moved_ns`: greatest later deviation from the
    run's clock, because the wall clock was set or the machine slept; infinite if unknown.
    """

    began_ns: int
    moved_ns: float

    @classmethod
    def of_events(cls, events: Iterable[Event], began_ns: int) -> Self:
        """Return the wall clock of a run, compared with the run's clock at each event of its timeline.

        `began_ns`: wall time at the start of the run, in ns since the Unix epoch; 0: unknown.
        """
        moved = max((abs(event.wall_ns - event.t_ns - began_ns) for event in events), default=0)
        return cls(began_ns, moved if began_ns else math.inf)

    def written_within(self, timestamp_ms: int) -> tuple[float, float]:
        """Return the earliest and the latest time at which a broker can have written a record, in ns since the run
        began.

        `timestamp_ms`: the time that the broker put into the record, in ms since the Unix epoch, rounded down. Returns
        -inf and inf if the wall clock's deviation is unknown.
        """
        written = timestamp_ms * 1_000_000 - self.began_ns
        return written - self.moved_ns, written + 1_000_000 + self.moved_ns
