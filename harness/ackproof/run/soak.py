"""A soak: how long its load goes on, and the case that it was when it ended."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

from ackproof.base.interrupts import first_interrupt
from ackproof.experiment.case import Case
from ackproof.faults.driver import FaultDriver
from ackproof.plan.soaking import shortened
from ackproof.run.windows import Soaker
from ackproof.rundir.timeline import Note, Timeline

_LEAST_LEFT_S: Final = 2.0
"""A window of which less is left is not the last: the faults of the next are about to begin."""


def soak(
    case: Case,
    driver: FaultDriver,
    soaker: Soaker,
    timeline: Timeline,
    watch: Callable[[Callable[[], bool], float], None],
) -> Case:
    """Let the load of a soak go on; the case as it was when it ended.

    A first Ctrl-C lets it end with the present window. So does what ends any load: `watch` returns then.
    """
    spec, window_s = case.experiment, soaker.window_s
    began = time.monotonic()
    soaker.start()

    def ends_with(windows: int) -> None:
        nonlocal case
        shorter = shortened(case, windows)
        driver.forget({fault.number for fault in case.faults} - {fault.number for fault in shorter.faults})
        case, soaker.ends_s = shorter, shorter.experiment.workload.duration

    def over() -> bool:
        passed = time.monotonic() - began
        if asked.is_set():
            asked.clear()
            ends_with(math.ceil((passed + _LEAST_LEFT_S) / window_s))
            left = soaker.ends_s - passed
            timeline.add(Note(note=f"interrupted: the soak ends with this window, in {left:.0f} s"))
        return passed >= soaker.ends_s

    with first_interrupt() as asked:
        watch(over, spec.workload.duration + 60.0)
    ends_with(math.ceil(min(soaker.ends_s, time.monotonic() - began) / window_s))
    return case
