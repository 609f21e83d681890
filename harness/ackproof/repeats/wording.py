"""Intervals in words."""

from __future__ import annotations

import math
from typing import Final

from ackproof.quantities.value import Value, number_text
from ackproof.repeats.demand import Beside
from ackproof.rundir.bounds import Unit

_WHOLE: Final = 1000
"""From here on four digits would hide ones that are known."""


def value_text(value: Value, unit: Unit, how: Beside | None = None) -> str:
    """A number that may lie between two, in words."""
    return value.text(unit) if value.never else span_text(value.low, value.high, unit, how)


def span_text(low: float, high: float, unit: Unit, how: Beside | None = None) -> str:
    """Two ends in words: of a quantity of this unit, or of one case beside another."""
    if not math.isfinite(low):
        return f"at most {_end_text(high, unit, how)}" if math.isfinite(high) else "not bounded"
    if not math.isfinite(high):
        nothing = low <= 0 and how is not Beside.MINUS
        return "not bounded" if nothing else f"at least {_end_text(low, unit, how)}"
    ends = _end_text(low, unit, how), _end_text(high, unit, how)
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def _end_text(number: float, unit: Unit, how: Beside | None) -> str:
    if how is Beside.OVER or unit in (Unit.COUNT, Unit.NUMBER):
        return f"{number:.4g}" if abs(number) < _WHOLE else f"{number:.0f}"
    sign = "-" if number < 0 else ""
    return sign + number_text(abs(number), unit)
