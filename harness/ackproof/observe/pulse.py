"""Records the load of the machine and the harness, so that effects of a busy machine are not blamed on Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from ackproof.observe.watcher import Watcher
from ackproof.rundir.clock import RunClock
from ackproof.rundir.observed import PULSE_EVERY_S, Pulse
from ackproof.rundir.timeline import Timeline

_STOLEN, _IDLE, _WAITING, _GUESTS = 7, 3, 4, 8
"""Columns of /proc/stat. Guest time is included in user time."""
_RESOURCES: Final = ("cpu", "io", "memory")


class Counts(NamedTuple):
    """Totals since the run's start: rounds of the sampler, records sent, records acknowledged."""

    looks: int
    sent: int
    acked: int


class _Machine(NamedTuple):
    """The kernel's counters at one moment.

    `at`: monotonic time in seconds. `ticks`: ticks of all processors in /proc/stat: total, busy, stolen; zeros if it
    cannot be read. `waited_us`: microseconds since the machine's start in which some task waited for processor, disk
    and memory; -1 if the kernel does not count them.
    """

    at: float
    ticks: tuple[int, int, int]
    waited_us: tuple[int, ...]


class PulseRecorder(Watcher):
    """Appends to `path`, once per second, a line of JSON with the load of the machine and of the harness (`Pulse`). The
    judge reads from it whether the machine was too busy for times and rates to say anything. `counts` returns the
    totals so far."""

    NAME = "pulse"
    DOES = "watching the machine"

    def __init__(self, path: Path, timeline: Timeline, counts: Callable[[], Counts]) -> None:
        super().__init__(timeline)
        self._path = path
        self._counts = counts

    def _watch(self) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            looks, machine = 0, _look()
            due = machine.at
            while True:
                counts, now = self._counts(), _look()
                pulse = _pulse(self._timeline.clock, counts, looks, machine, now, max(0.0, now.at - due))
                file.write(pulse.model_dump_json() + "\n")
                file.flush()
                if self._stop.is_set():
                    return
                looks, machine = counts.looks, now
                due = now.at + PULSE_EVERY_S
                self._stop.wait(PULSE_EVERY_S)


def _pulse(
    clock: RunClock, counts: Counts, looks: int, before: _Machine, now: _Machine, late_s: float
) -> Pulse:
    every, busy, stolen = (after - then for then, after in zip(before.ticks, now.ticks, strict=True))
    took_us = (now.at - before.at) * 1e6
    waited = {
        f"{name}_pressure": -1.0 if after < 0 else min(1.0, (after - then) / took_us)
        for name, then, after in zip(_RESOURCES, before.waited_us, now.waited_us, strict=True)
        if took_us > 0
    }
    return Pulse(
        t_ns=clock.now(),
        late_ms=late_s * 1e3,
        looks=counts.looks - looks,
        sent=counts.sent,
        acked=counts.acked,
        busy=busy / every if every > 0 else -1,
        stolen=stolen / every if every > 0 else -1,
        **waited,
    )


def _look() -> _Machine:
    return _Machine(time.monotonic(), _ticks(), tuple(map(_waited_us, _RESOURCES)))


def _ticks() -> tuple[int, int, int]:
    try:
        line = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    except OSError:
        return 0, 0, 0
    ticks = [int(word) for word in line.split()[1:]]
    every = sum(ticks[:_GUESTS])
    return every, every - ticks[_IDLE] - ticks[_WAITING] - ticks[_STOLEN], ticks[_STOLEN]


def _waited_us(resource: str) -> int:
    """Return the microseconds so far in which some task waited for the resource; -1 if the kernel does not count
    them."""
    try:
        line = Path(f"/proc/pressure/{resource}").read_text(encoding="ascii").partition("\n")[0]
        return int(line.rpartition("total=")[2])
    except (OSError, ValueError):
        return -1
