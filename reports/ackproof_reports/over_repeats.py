"""What was expected over repeats: a picture of what each repeat came to, the interval, and the verdict beside it.

The picture is the empirical distribution: how large a share of the repeats came to at most so much. A number that is
cut, or lies between two, is somewhere between its two lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ackproof.quantities.value import number_text
from ackproof.rundir.bounds import Unit
from ackproof.rundir.documents import OverRepeats, RepeatValue
from ackproof_reports.loading import BatchView, State
from ackproof_reports.wording import ABSENT, plural

WIDTH: Final = 320
HEIGHT: Final = 120
_LEFT, _TOP, _BOTTOM = 4, 6, 18


@dataclass(frozen=True)
class Curve:
    """One case. `low`, `high`: lines of the least and of the most that its repeats may have come to."""

    cell: str
    low: str
    high: str


@dataclass(frozen=True)
class Picture:
    """Paths in a box of WIDTH × HEIGHT. `interval`: from where to where it goes, where it is on the same axis."""

    curves: tuple[Curve, ...]
    interval: tuple[float, float] | None
    least: str
    most: str


@dataclass(frozen=True)
class Row:
    """One case in the table: how many of its repeats have a number, and what these came to."""

    cell: str
    known: str
    least: str
    median: str
    most: str


@dataclass(frozen=True)
class Shown:
    """One expectation over repeats."""

    title: str
    state: State | None
    """None: nothing is expected."""
    seen: str
    interval: str
    repeats: str
    timing: str
    why: str
    rows: tuple[Row, ...]
    picture: Picture | None


def over_repeats(batch: BatchView) -> list[Shown]:
    """Each, in the order of the file; what is measured for claims behind what is expected."""
    return [
        Shown(
            title=f"{one.claim}: {one.title}" if one.claim else one.title,
            state=None if one.claim else state_of(one),
            seen=one.seen or ABSENT,
            interval=f"{one.interval} ({one.confidence * 100:.4g} %)" if one.interval else ABSENT,
            repeats=plural(one.repeats, "repeat"),
            timing=one.timing,
            why=one.why,
            rows=tuple(_rows(one)),
            picture=picture(one),
        )
        for one in (*batch.file.over_repeats, *batch.file.claimed)
    ]


def state_of(one: OverRepeats) -> State:
    """Its verdict, or that there is none."""
    return State.NOT_JUDGED if one.verdict is None else State(one.verdict.value)


def _rows(one: OverRepeats) -> Iterator[Row]:
    unit = Unit(one.unit)
    for cell, values in zip(one.cells, one.values, strict=False):
        ordered = sorted((value for value in values if value.low is not None), key=_ends)
        middle = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
        yield Row(
            cell,
            f"{len(ordered)} of {len(values)}",
            _told(ordered[:1], unit),
            _told(middle[:1] if len(set(middle)) == 1 else middle, unit),
            _told(ordered[-1:], unit),
        )


def _ends(value: RepeatValue) -> tuple[float, float]:
    return value.low or 0.0, math.inf if value.high is None else value.high


def _told(values: Sequence[RepeatValue], unit: Unit) -> str:
    """One value, or between two."""
    if not values:
        return ABSENT
    low, high = min(_ends(one)[0] for one in values), max(_ends(one)[1] for one in values)
    if high == math.inf:
        return f"at least {number_text(low, unit)}"
    return number_text(low, unit) if low == high else f"{number_text(low, unit)} to {number_text(high, unit)}"


# -- the picture ----------------------------------------------------------------------------------------------------


def picture(one: OverRepeats) -> Picture | None:
    """The distribution of what its repeats came to, with the interval; None where no number is known."""
    numbers = [
        end for group in one.values for value in group if value.low is not None for end in _ends(value)
    ]
    beside = len(one.cells) > 1  # then the interval is of a ratio or a difference, on no axis of this picture
    span = [end for end in (one.low, one.high) if end is not None and not beside]
    finite = [end for end in (*numbers, *span) if math.isfinite(end)]
    if not numbers or not finite:
        return None
    least, most = min(finite), max(finite)

    def across(number: float) -> float:
        share = 0.5 if most == least else (min(max(number, least), most) - least) / (most - least)
        return round(_LEFT + share * (WIDTH - 2 * _LEFT), 1)

    interval = None
    if one.interval and not beside:
        left = across(least if one.low is None else one.low)
        right = WIDTH - _LEFT if one.high is None else across(one.high)
        interval = (left, round(max(1.0, right - left), 1))
    curves = []
    for cell, group in zip(one.cells, one.values, strict=False):
        ends = [_ends(value) for value in group if value.low is not None]
        low, high = (_steps([each[side] for each in ends], len(group), across) for side in (0, 1))
        curves.append(Curve(cell, low, high))
    unit = Unit(one.unit)
    return Picture(tuple(curves), interval, number_text(least, unit), number_text(most, unit))


def _steps(numbers: Sequence[float], count: int, across: Callable[[float], float]) -> str:
    """A line that goes up by one repeat at each number, as far as numbers are not open."""
    path = [f"M{_LEFT} {HEIGHT - _BOTTOM}"]
    for done, number in enumerate(sorted(one for one in numbers if math.isfinite(one)), start=1):
        height = round(HEIGHT - _BOTTOM - (HEIGHT - _BOTTOM - _TOP) * done / count, 1)
        path.append(f"H{across(number)}V{height}")
    return "".join([*path, f"H{WIDTH - _LEFT}"])
