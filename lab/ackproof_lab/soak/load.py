"""The load of a soak: how long it lasts, and the case that results if it ends early."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from ackproof.base.processes import RunTag
from ackproof.base.wait import first_interrupt
from ackproof.clients.contract import Rotation
from ackproof.clients.workload import Workload
from ackproof.cluster.protocol import Cluster
from ackproof.experiment.case import Case
from ackproof.faults.driver import FaultDriver
from ackproof.run.extensions import SoakLoad
from ackproof.rundir.documents import FinalReadFile
from ackproof.rundir.timeline import Note, Timeline
from ackproof_lab.soak.windows import Soaker, rotation_of

_LEAST_LEFT_S: Final = 2.0
"""Least rest of a window in seconds. If less is left, the load ends with the next window, because that
window's faults are about to begin.
"""


class Soak(SoakLoad):
    """Runs the load of a soak, while a `Soaker` closes and audits its windows."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._soaker: Soaker | None = None

    @property
    def rotation(self) -> Rotation:
        return rotation_of(self._case.experiment)

    def run(
        self,
        driver: FaultDriver,
        workload: Workload,
        cluster: Cluster,
        timeline: Timeline,
        tag: RunTag,
        hidden: Mapping[str, str],
        watch: Callable[[Callable[[], bool], float], None],
    ) -> Case:
        """Run the load to its end. Return the case with the number of windows that it really had. Faults of later
        windows are not injected.

        `hidden`: client settings that no file may hold. `watch(is_over, bound_s)` lets the load go on until `is_over`
        returns True or a node or client died, which ends the load at once. It raises `WaitTimeout` after `bound_s`
        seconds. A first Ctrl-C ends the load with the current window, or with the next one if less than 2 s of the
        current are left.
        """
        case, spec = self._case, self._case.experiment
        soaker = self._soaker = Soaker(spec, workload, cluster, timeline, tag, hidden)
        began = time.monotonic()
        soaker.start()

        def end_with(windows: int) -> None:
            nonlocal case
            shorter = shorten(case, windows)
            driver.forget(
                {fault.number for fault in case.faults} - {fault.number for fault in shorter.faults}
            )
            case, soaker.ends_s = shorter, shorter.experiment.workload.duration

        def is_over() -> bool:
            passed = time.monotonic() - began
            if asked.is_set():
                asked.clear()
                end_with(math.ceil((passed + _LEAST_LEFT_S) / soaker.window_s))
                left = soaker.ends_s - passed
                timeline.add(Note(note=f"interrupted: the soak ends with this window, in {left:.0f} s"))
            return passed >= soaker.ends_s

        with first_interrupt() as asked:
            watch(is_over, spec.workload.duration + 60.0)
        end_with(math.ceil(min(soaker.ends_s, time.monotonic() - began) / soaker.window_s))
        return case

    def stop(self) -> None:
        if self._soaker is not None:
            self._soaker.stop()

    def finish(self, final: FinalReadFile) -> None:
        if self._soaker is not None:
            self._soaker.finish(final)


def shorten(case: Case, windows: int) -> Case:
    """Return the case of a soak that ended after `windows` windows, with only their faults and their
    duration. With as many windows as planned it is unchanged.
    """
    spec, soak = case.experiment, case.experiment.soak
    planned = 0 if soak is None else round(spec.workload.duration / soak.window)
    if soak is None or windows >= planned:
        return case
    kept = spec.faults[: len(spec.faults) // planned * windows]
    workload = spec.workload.model_copy(update={"duration": windows * soak.window})
    numbers = {fault.number for fault in kept}
    return replace(
        case,
        experiment=spec.model_copy(update={"faults": kept, "workload": workload}),
        drawn={number: drawn for number, drawn in case.drawn.items() if number in numbers},
    )
