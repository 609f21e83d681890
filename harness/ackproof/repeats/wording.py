"""Intervals in words."""

from __future__ import annotations

import math

from ackproof.quantities.value import number_text
from ackproof.repeats.demand import Beside
from ackproof.rundir.bounds import Unit


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
        return f"{number:.4g}"
    sign = "-" if number < 0 else ""
    return sign + number_text(abs(number), unit)
