"""Intervals as text: with two finite ends, with one, or with none."""

from __future__ import annotations

import math

import pytest

from ackproof.quantities.quantity import Value
from ackproof.repeats.demand import Contrast, Statistic, span_text, value_text
from ackproof.repeats.intervals import estimate
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
        (-math.inf, math.inf, Unit.SECONDS, Contrast.MINUS, "not bounded"),
        (0, math.inf, Unit.SECONDS, Contrast.MINUS, "at least 0 ms"),
        (-1.5, math.inf, Unit.SECONDS, Contrast.MINUS, "at least -1.500 s"),
        (-1.5, 0.25, Unit.SECONDS, Contrast.MINUS, "-1.500 s to 250 ms"),
        (-math.inf, -1.5, Unit.SECONDS, Contrast.MINUS, "at most -1.500 s"),
        (0, math.inf, Unit.SECONDS, Contrast.OVER, "not bounded"),
        (0.51234, 2, Unit.SECONDS, Contrast.OVER, "0.5123 to 2"),
        (0.5, 2.25, Unit.COUNT, None, "0.5 to 2.25"),
        (0.5, 2.25, Unit.NUMBER, None, "0.5 to 2.25"),
        (20, 25.5, Unit.PER_SECOND, None, "20/s to 25.5/s"),
    ],
)
def test_an_interval_in_words(low: float, high: float, unit: Unit, how: Contrast | None, text: str) -> None:
    assert span_text(low, high, unit, how) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (Value(18.2, math.inf, never=True), Unit.SECONDS, "never in 18.200 s"),
        (Value(18.2, math.inf), Unit.SECONDS, "at least 18.200 s"),
        (Value(1, 2), Unit.SECONDS, "1.000 s to 2.000 s"),
        (Value.exactly(2.5), Unit.COUNT, "2.5"),
        (Value.exactly(123456), Unit.COUNT, "123456"),
        (Value(12345.6, 12346.4), Unit.PER_SECOND, "12346/s"),
    ],
)
def test_a_number_in_words(value: Value, unit: Unit, text: str) -> None:
    assert value_text(value, unit) == text


def test_a_quantile_never_came_where_both_its_neighbours_did_not() -> None:
    median = Statistic("median", 0.5)
    never, came = Value(9, math.inf, never=True), Value.exactly(1)
    assert estimate([never, never, came], median).seen.never
    assert not estimate([never, came], median).seen.never, "between 1 s and never lies no number"
    assert not estimate([never, never, Value(3, math.inf, "cut")], median).seen.never
