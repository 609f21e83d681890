"""Intervals in words: with both ends, open at one of them, or at both."""

from __future__ import annotations

import math

import pytest

from ackproof.repeats.demand import Beside
from ackproof.repeats.wording import span_text
from ackproof.rundir.bounds import Unit


@pytest.mark.parametrize(
    ("low", "high", "unit", "how", "text"),
    [
        (0.5, 2, Unit.SECONDS, None, "500 ms to 2.000 s"),
        (1, 1, Unit.SECONDS, None, "1.000 s"),
        (-math.inf, 2, Unit.SECONDS, None, "at most 2.000 s"),
        (0.5, math.inf, Unit.SECONDS, None, "at least 500 ms"),
        (0, math.inf, Unit.SECONDS, None, "not bounded"),  # no time is below that
        (-math.inf, math.inf, Unit.SECONDS, None, "not bounded"),
        (-math.inf, math.inf, Unit.SECONDS, Beside.MINUS, "not bounded"),
        (0, math.inf, Unit.SECONDS, Beside.MINUS, "at least 0 ms"),
        (-1.5, math.inf, Unit.SECONDS, Beside.MINUS, "at least -1.500 s"),
        (-1.5, 0.25, Unit.SECONDS, Beside.MINUS, "-1.500 s to 250 ms"),
        (-math.inf, -1.5, Unit.SECONDS, Beside.MINUS, "at most -1.500 s"),
        (0, math.inf, Unit.SECONDS, Beside.OVER, "not bounded"),
        (0.51234, 2, Unit.SECONDS, Beside.OVER, "0.5123 to 2"),
        (0.5, 2.25, Unit.COUNT, None, "0.5 to 2.25"),
        (0.5, 2.25, Unit.NUMBER, None, "0.5 to 2.25"),
        (20, 25.5, Unit.PER_SECOND, None, "20/s to 25.5/s"),
    ],
)
def test_an_interval_in_words(low: float, high: float, unit: Unit, how: Beside | None, text: str) -> None:
    assert span_text(low, high, unit, how) == text
