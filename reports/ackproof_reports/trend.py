"""The page of `ackproof trend`: no script, no network, both themes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from ackproof.rundir.lab import ComparedSide, TrendCase, TrendFile, TrendPoint
from ackproof_reports.embedding import source_hash
from ackproof_reports.page import asset, environment

WIDTH: Final = 640
HEIGHT: Final = 90
_EDGE: Final = 8


@dataclass(frozen=True)
class Mark:
    """One batch in the picture: from where to where its interval goes, and where its mean is."""

    x: float
    low: float
    high: float
    seen: float
    tone: str
    what: str


@dataclass(frozen=True)
class Line:
    """A number of one case over time. `top`: what the upper edge stands for; `changes`: where settings or the version
    changed."""

    title: str
    top: str
    marks: tuple[Mark, ...]
    changes: tuple[float, ...]


def trend_page(found: TrendFile) -> str:
    """The whole page."""
    style = asset("css", ("base.css", "matrix.css", "case.css", "print.css"))
    policy = f"default-src 'none'; style-src '{source_hash(style)}'; img-src data:; base-uri 'none'; form-action 'none'"
    cases = [
        (case, [line for line in (_recovery(case), _throughput(case)) if line.marks]) for case in found.cases
    ]
    return (
        environment()
        .get_template("trend.html.j2")
        .render(found=found, cases=cases, style=Markup(style), policy=policy, BOX=(WIDTH, HEIGHT))
    )


def _recovery(case: TrendCase) -> Line:
    return _line("Longest gap between acknowledgements", "s", case, [point.recovery for point in case.points])


def _throughput(case: TrendCase) -> Line:
    return _line("Acknowledged records per second", "/s", case, [point.throughput for point in case.points])


def _line(title: str, unit: str, case: TrendCase, sides: Sequence[ComparedSide]) -> Line:
    top = max(
        (number for side in sides for number in (side.low, side.high, side.middle) if number is not None),
        default=0,
    )
    step = (WIDTH - 2 * _EDGE) / max(1, len(sides) - 1)

    def height(number: float) -> float:
        return round(HEIGHT - _EDGE - (HEIGHT - 2 * _EDGE) * (number / top if top > 0 else 0), 1)

    def at(index: int) -> float:
        return round(_EDGE + index * step, 1)

    marks = []
    for index, (point, side) in enumerate(zip(case.points, sides, strict=True)):
        if side.middle is not None:
            low, high = (side.middle if end is None else end for end in (side.low, side.high))
            marks.append(
                Mark(
                    at(index),
                    height(low),
                    height(high),
                    height(side.middle),
                    _tone(point),
                    _what(point, side),
                )
            )
    changes = tuple(at(index) for index, point in enumerate(case.points) if point.changed)
    return Line(title, f"{top:.4g} {unit}", tuple(marks), changes)


def _tone(point: TrendPoint) -> str:
    return {"PASS": "good", "FAIL": "bad"}.get(point.worst, "warn")


def _what(point: TrendPoint, side: ComparedSide) -> str:
    return f"{point.batch}: {side.seen} ({side.interval}), {point.verdicts}"
