"""Synthetic batch folders for tests of the reports: the files of a real batch, with plausible numbers."""

from __future__ import annotations

from synthetic_batch.course import write_findings
from synthetic_batch.make import make_batch
from synthetic_batch.recipes import CALM, HOSTILE, STARVED, Recipe, hostile, matrix, missing

__all__ = [
    "CALM",
    "HOSTILE",
    "STARVED",
    "Recipe",
    "hostile",
    "make_batch",
    "matrix",
    "missing",
    "write_findings",
]
