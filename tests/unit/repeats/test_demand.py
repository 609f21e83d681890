"""Expectations over repeats (`Demand`): parsing, text, and comparison of an interval with the demanded range."""

from __future__ import annotations

import math

import pytest

from ackproof.repeats.demand import Contrast, Demand, Range
from ackproof.rundir.bounds import Span, Unit, Window


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("p95 < 6s", Unit.SECONDS),
        ("p99.9 <= 200ms", Unit.SECONDS),
        ("median in 1s..3s", Unit.SECONDS),
        ("mean > 1000/s during faults", Unit.PER_SECOND),
        ("max == 0", Unit.COUNT),
        ("mean < 0.5", Unit.COUNT),
        ("mean of acks=all over acks=1 in 1.1..3", Unit.SECONDS),
        ("p95 of acks=all,linger=5ms minus acks=1,linger=5ms < 2s outside faults", Unit.SECONDS),
        ("median of safe minus plain in -1s..1s", Unit.SECONDS),
    ],
)
def test_it_is_written_as_it_is_read(text: str, unit: Unit) -> None:
    assert str(Demand.parse(text, unit)) == text
    assert Demand.parse(str(Demand.parse(text, unit)), unit) == Demand.parse(text, unit)


def test_its_parts() -> None:
    found = Demand.parse(" mean  of acks=all , x over acks=1 >= 1.5 during fault 2", Unit.SECONDS)
    assert (found.of, found.how, found.baseline) == (("acks=all", "x"), Contrast.OVER, ("acks=1",))
    assert found.range == Range(low=1.5)
    assert found.window == Window(Span.DURING, 2)


@pytest.mark.parametrize(
    ("text", "unit", "said"),
    [
        ("p95 6s", Unit.SECONDS, "expected a statistic and its bound"),
        ("p95 < 6", Unit.SECONDS, "with its unit"),
        ("p95 < 6s", Unit.COUNT, "a count has no unit"),
        ("mean of a over b < 6s", Unit.SECONDS, "a ratio is a plain number"),
        ("p100 < 6s", Unit.SECONDS, "unknown statistic 'p100'"),
        ("mean in 3s..1s", Unit.SECONDS, "from the smaller"),
        ("max of a over b < 2", Unit.SECONDS, "max is of the repeats that ran"),
        ("mean < 6s by 3s", Unit.SECONDS, "expected a statistic"),
        ("mean > full", Unit.PER_SECOND, "no number"),
        ("mean < -1s", Unit.SECONDS, "with its unit"),
    ],
)
def test_what_is_refused(text: str, unit: Unit, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Demand.parse(text, unit)


@pytest.mark.parametrize(
    ("low", "high", "within"),
    [(0, 5.9, True), (0, 6, None), (6, 7, False), (5, math.inf, None), (7, math.inf, False), (6, 6, False)],
)
def test_wholly_inside_wholly_outside_or_neither(low: float, high: float, within: bool | None) -> None:
    assert Demand.parse("p95 < 6s", Unit.SECONDS).range.covers(low, high) is within


@pytest.mark.parametrize(
    ("text", "each"),
    [
        ("mean == 2", {(2, 2): True, (1, 2): None, (2, 3): None, (0, 1): False, (3, 4): False}),
        ("mean <= 2", {(1, 2): True, (1, 3): None, (2, 3): None, (3, 4): False}),
        ("mean > 2", {(3, math.inf): True, (2, 3): None, (1, 2): False, (0, math.inf): None}),
        ("mean >= 2", {(2, math.inf): True, (1, 2): None, (0, 1): False}),
        ("mean", {(-math.inf, math.inf): True}),
    ],
)
def test_each_comparison_has_its_range(text: str, each: dict[tuple[float, float], bool | None]) -> None:
    found = Demand.parse(text, Unit.COUNT).range
    assert {ends: found.covers(*ends) for ends in each} == each


def test_ends_that_belong_to_it() -> None:
    both = Demand.parse("mean in 1s..3s", Unit.SECONDS).range
    assert [both.covers(1, 3), both.covers(0, 1), both.covers(0, 0.9), both.covers(3.1, 4)] == [
        True,
        None,
        False,
        False,
    ]
