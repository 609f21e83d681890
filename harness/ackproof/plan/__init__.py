"""Experiment files → cases: reading, checking, the matrix, the seeded schedule (DESIGN §4)."""

from __future__ import annotations
