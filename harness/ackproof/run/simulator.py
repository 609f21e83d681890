"""The simulator behind `backend: model` and `--simulate`: a package beside the core ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ackproof.base.errors import MissingTool
from ackproof.base.extensions import SIMULATOR, load_extension
from ackproof.experiment.case import Case
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.timeline import Event


class Simulator(Protocol):
    """What runs a case in virtual time."""

    def run_case(self, case: Case, run: CaseDir, replay: str, tell: Callable[[Event], None]) -> object:
        """Leave the run directory that a run on brokers would leave. `replay`: the command that repeats the case."""

    def simulate_beside(self, run: CaseDir) -> None:
        """Simulate the case of a run a few times, and write `simulation.json` for the report."""


def find_simulator() -> Simulator:
    """Return the simulator that is installed. Raises `MissingTool` without one."""
    make: Callable[[], Simulator] | None = load_extension(SIMULATOR)
    if make is None:
        raise MissingTool(
            "the simulator", "backend: model and --simulate run on it", "the package ackproof_simulator"
        )
    return make()
