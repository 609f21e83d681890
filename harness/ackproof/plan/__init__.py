"""Reads and checks experiment files, and expands them into cases.

`load` reads a file, or raises `InvalidExperiment` with everything that is wrong with it. `cases` expands it into cases,
one for each cell and repeat, with every random choice drawn. `describe` says what a case will do. The main modules, in
the order in which a file passes through them:

* `source`: YAML → nodes; `builds`: fills in releases and paths; `reader`: nodes → `ExperimentSpec`
* `axes`, `matrix`: cells
* `checks`, `check_clients`, `check_faults`, `doubts`: problems
* `expectations`, `repeats`: the cells to which an expectation applies
* `cases`: `load` and `cases`; `soaking`: the windows of a soak; `schedule`: `describe`
"""

from __future__ import annotations

from ackproof.experiment.case import Case
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.problems import InvalidExperiment, Problem
from ackproof.plan.cases import cases, load
from ackproof.plan.matrix import Plan
from ackproof.plan.schedule import describe

__all__ = [
    "Case",
    "ExperimentSpec",
    "InvalidExperiment",
    "Plan",
    "Problem",
    "cases",
    "describe",
    "load",
]
