"""Experiment files → cases: reading, checking, the matrix, the seeded schedule.

`load` reads a file or reports everything that is wrong with it; `cases` spreads it into cases; `describe` shows what a
case will do. Nothing here asks the machine.
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
