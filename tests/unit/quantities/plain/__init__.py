"""A plain second implementation of every quantity, written from `docs/quantities.md`: what the product is held against.

`COUNTED`: of each quantity that is a number, `LOOKED`: of each that is a state, its looks. A quantity that stands for
many metrics is here once, as the page has it.
"""

from __future__ import annotations
