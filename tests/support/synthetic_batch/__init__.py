"""Synthetic batch folders for tests of the reports: the files of a real batch, with plausible numbers."""

from __future__ import annotations

from synthetic_batch.course import findings_of
from synthetic_batch.make import make_batch
from synthetic_batch.recipes import CALM, HOSTILE, STARVED, Recipe, hostile, matrix, missing

__all__ = [
    "CALM",
    "HOSTILE",
    "STARVED",
    "Recipe",
    "findings_of",
    "hostile",
    "make_batch",
    "matrix",
    "missing",
]
