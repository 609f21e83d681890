"""Experiment files → cases: reading, checking, the matrix, the seeded schedule.

`load` reads a file or says everything that is wrong with it; `cases` spreads it into cases; `timeline` shows what a
case will do. Everything here is pure but for the reading of the file.
"""

from __future__ import annotations

from ackproof.experiment.case import Case
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.problems import InvalidExperiment, Problem
from ackproof.plan.cases import cases, load
from ackproof.plan.matrix import Plan
from ackproof.plan.schedule import PlannedFault, describe, timeline

__all__ = [
    "Case",
    "ExperimentSpec",
    "InvalidExperiment",
    "Plan",
    "PlannedFault",
    "Problem",
    "cases",
    "describe",
    "load",
    "timeline",
]
