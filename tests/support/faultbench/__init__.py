"""A bench: one cluster under a small load, on which faults are injected one after the other and observed from outside.

Belongs here: the bench, its load, the table of confirmed faults, and the table of duds. The tests define what each
fault must do."""

from __future__ import annotations

from faultbench.bench import Bench
from faultbench.duds import duds_on, no_bite
from faultbench.table import TABLE, Bite, Table

__all__ = ["TABLE", "Bench", "Bite", "Table", "duds_on", "no_bite"]
