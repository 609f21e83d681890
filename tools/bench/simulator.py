"""Benchmark of the simulator: runs per CPU second for each cell of the main experiment, about 50 batches per run, on
one core.

    python tools/bench/simulator.py [RUNS]

The bar of issue 6 is 100 runs per second. CPU time is used because other load affects it less; the machine's load is
printed too."""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path

from ackproof.plan import load
from ackproof.plan.cases import cases, reseeded
from ackproof_simulator.counts import counts_of
from ackproof_simulator.run import Simulation, setting_of
from ackproof_simulator.sweep import with_linger

MATRIX = Path(__file__).parents[2] / "experiments" / "acks-matrix.yaml"
LINGER_S = 0.15
"""Linger of the producers in seconds, with which a run has about 50 batches of both producers together."""
ROUNDS = 5


def main(runs: int) -> None:
    """Measure every cell with `runs` runs per round, and print the median of five rounds."""
    print(f"load {os.getloadavg()[0]:.1f}, {runs} runs a round, median of {ROUNDS} rounds")
    for case in cases(load(MATRIX, backend="model")):
        coarse = with_linger(case, LINGER_S)
        setting = setting_of(coarse)
        rates, batches = [], 0
        for number in range(ROUNDS):
            began = time.process_time()
            for seed in range(number * runs, (number + 1) * runs):
                simulation = Simulation(setting, reseeded(coarse, seed))
                simulation.run()
                counts_of(simulation, seed)
            rates.append(runs / (time.process_time() - began))
            batches = sum(len(producer.batches) for producer in simulation.world.producers)
        print(f"{case.id:34} {statistics.median(rates):6.0f} runs a second of CPU, {batches} batches")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
