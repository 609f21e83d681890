"""Times of a run: nanoseconds since its start on CLOCK_MONOTONIC, which all processes of a machine share."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class RunClock:
    """The zero point of a run's times. `origin_ns` is `time.monotonic_ns()` at the start of the run, `wall_ns` is
    `time.time_ns()` at the same moment."""

    origin_ns: int
    wall_ns: int

    @classmethod
    def start(cls) -> RunClock:
        return cls(time.monotonic_ns(), time.time_ns())

    def now(self) -> int:
        return time.monotonic_ns() - self.origin_ns
