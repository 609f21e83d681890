"""A bench on which one fault after the other is done to one cluster under a little load, and looked at from outside.

Belongs here: the bench, its load, the table of what bit, and the table of duds. What each fault is to do stands in the
tests.
"""

from __future__ import annotations

from faultbench.bench import Bench
from faultbench.duds import duds_on, no_bite
from faultbench.table import TABLE, Bite, Table

__all__ = ["TABLE", "Bench", "Bite", "Table", "duds_on", "no_bite"]
