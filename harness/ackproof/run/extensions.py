"""Extensions of the core that a run may need, a simulator and soaks, which are found by their entry points."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from ackproof.base.errors import MissingTool
from ackproof.base.extensions import SIMULATOR, SOAK, load_extension
from ackproof.base.processes import RunTag
from ackproof.clients.contract import Rotation
from ackproof.clients.workload import Workload
from ackproof.cluster.protocol import Cluster
from ackproof.experiment.case import Case
from ackproof.faults.driver import FaultDriver
from ackproof.rundir.documents import FinalReadFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.timeline import Event, Timeline


class Simulator(Protocol):
    """A cluster in virtual time, for `backend: model` and `--simulate`."""

    def run_case(self, case: Case, run: CaseDir, replay: str, tell: Callable[[Event], None]) -> object:
        """Simulate the case. Write the same run directory as a run on brokers. Callers ignore the return value.

        `replay`: command that repeats the case. `tell` is called with each event of the timeline.
        """

    def simulate_beside(self, run: CaseDir) -> None:
        """Simulate the case of a finished run several times, and write `simulation.json` for the report. Write nothing
        for a case that cannot be simulated."""


class SoakLoad(Protocol):
    """The load of a soak (`--soak`), audited window by window while it goes on."""

    @property
    def rotation(self) -> Rotation:
        """Sizes of ledger parts for the clients, so small that each window of the soak has several parts of each."""

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
        """Run the load to its end. Return the case with the faults and the duration that it actually had. `driver`,
        `workload` and `cluster` are running already.

        `hidden`: client settings that no file may hold. `watch(done, bound_s)` lets the load go on until `done` returns
        True or a process died (`CaseRun._watch`), and raises `WaitTimeout` after `bound_s` seconds.
        """

    def stop(self) -> None:
        """Stop cutting the load into windows. May be called twice, and before `run`."""

    def finish(self, final: FinalReadFile) -> None:
        """Audit the last window, which ends at the end of the final read. Call it after `stop`. A failed audit is an
        event of the timeline; it raises nothing."""


def find_simulator() -> Simulator:
    """Return the installed simulator. Raises `MissingTool` if none is installed."""
    make: Callable[[], Simulator] | None = load_extension(SIMULATOR)
    if make is None:
        raise MissingTool(
            "the simulator", "backend: model and --simulate run on it", "the package ackproof_simulator"
        )
    return make()


def find_soak(case: Case) -> SoakLoad | None:
    """Return the load of a case that is a soak, else None. Raises `MissingTool` if no installed package can run
    soaks."""
    if case.experiment.soak is None:
        return None
    make: Callable[[Case], SoakLoad] | None = load_extension(SOAK)
    if make is None:
        raise MissingTool("the audit of soaks", "--soak needs it", "the package ackproof_lab")
    return make(case)


def require_extensions(cases: Iterable[Case], *, simulate: bool) -> None:
    """Raise `MissingTool` if these cases need a package that is not installed.

    `simulate`: True if they are also to be simulated. Call it before anything is started.
    """
    for case in cases:
        find_soak(case)
        simulate |= case.experiment.ground.simulated
    if simulate:
        find_simulator()
