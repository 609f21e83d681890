"""What the model makes of a case that ran elsewhere: `simulation.json` beside its facts, for the report.

A second or two a case, and nothing rests on it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from ackproof.experiment.case import Case
from ackproof.plan.cases import case_from_json
from ackproof.plan.on_model import lacks
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.simulation import SimulationFile
from ackproof_simulator.counts import Counts, counts_of
from ackproof_simulator.run import Simulation, setting_of
from ackproof_simulator.statistics import QUANTITIES, elected, spread
from ackproof_simulator.sweep import BATCHES, coarseness, linger_for, with_linger

RUNS: Final = 60
WITHIN_S: Final = 1.5
"""At most so many runs, and for at most so long."""


def simulate_beside(run: CaseDir) -> None:
    """Simulate the very case of a run directory, and write `simulation.json`; nothing where the model cannot."""
    case = case_from_json(CaseFile.load(run.case_json).resolved)
    if not case.experiment.ground.foreign and lacks(case.experiment) is None:
        _simulated(case).save(run.simulation_json)


def _simulated(case: Case) -> SimulationFile:
    """A few runs of a case with the same draws of its faults."""
    began = time.monotonic()
    coarse = with_linger(case, linger_for(case.experiment, BATCHES))
    setting = setting_of(coarse)
    found: list[Counts] = []
    for number in range(RUNS):
        if found and time.monotonic() - began > WITHIN_S:
            break
        simulation = Simulation(setting, replace(coarse, seed=coarse.seed + number))
        simulation.run()
        found.append(counts_of(simulation, number))
    good = [one for one in found if one.complete and one.faults_bit]
    return SimulationFile(
        case=case.id,
        settings=case.settings,
        runs=len(found),
        incomplete=len(found) - len(good),
        linger_ms=coarse.experiment.workload.producers.linger * 1000,
        coarseness=coarseness(coarse),
        seconds=time.monotonic() - began,
        spreads=tuple(spread(name, good) for name in QUANTITIES),
        elected=elected(good),
    )
