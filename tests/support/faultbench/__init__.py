"""A bench on which one fault after the other is done to one cluster under a little load, and looked at from outside.

Belongs here: the bench, its load, and the table of what bit. What each fault is to do stands in the tests.
"""

from __future__ import annotations

from faultbench.bench import Bench
from faultbench.table import TABLE, Bite, Table

__all__ = ["TABLE", "Bench", "Bite", "Table"]
