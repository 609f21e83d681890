"""A plain second implementation of every quantity, written from `docs/quantities.md`. Tests compare both.

`COUNTED` in each module: functions that measure a quantity, by its name. `LOOKED`: functions that return the
observations of a state. A quantity that exists for many metrics is here once, under the name in the page.
"""

from __future__ import annotations
