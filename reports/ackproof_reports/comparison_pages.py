"""Pages about several batches: two compared, many over time (trend), and the claims that were checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from markupsafe import Markup

from ackproof.rundir.documents import write_atomically
from ackproof.rundir.lab import (
    ClaimJudged,
    ClaimsFile,
    ClaimShowing,
    ClaimVerdict,
    ComparedSide,
    ComparisonFile,
    TrendCase,
    TrendFile,
    TrendPoint,
)
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.timeline import read_timeline
from ackproof_reports.course import Course, arrange
from ackproof_reports.embedding import source_hash
from ackproof_reports.expectations import DistributionChart, draw_distribution
from ackproof_reports.page import asset, environment, policy
from ackproof_reports.series import Series, Sparkline, peak_rate, read_series, sparkline

STYLES = ("base.css", "matrix.css", "case.css", "claims.css", "print.css")
BINS = 240


@dataclass(frozen=True)
class RunShown:
    """Result of a claim: of one run, or of the repeats of cases."""

    case: str
    run: str
    shown: tuple[ClaimShowing, ...]
    spark: Sparkline | None
    picture: DistributionChart | None


@dataclass(frozen=True)
class ClaimView:
    """One claim on the page."""

    judged: ClaimJudged
    runs: tuple[RunShown, ...]


def render_claims(folder: Path) -> None:
    """Write the page of `claims.json` into its folder. Raises `BadInput` where that is missing or cannot be read."""
    file = ClaimsFile.load(folder / "claims.json")
    style = asset("css", STYLES)
    page = (
        environment()
        .get_template("claims.html.j2")
        .render(
            policy=policy(style),
            style=Markup(style),
            claims=[_view(folder, one) for one in file.claims],
            again=[one.claim for one in file.claims if one.before],
            tally=[(verdict, n) for verdict in ClaimVerdict if (n := _number(file.claims, verdict))],
        )
    )
    write_atomically(folder / "claims.html", page)


def _number(claims: Sequence[ClaimJudged], verdict: ClaimVerdict) -> int:
    return sum(one.verdict is verdict for one in claims)


def _view(folder: Path, judged: ClaimJudged) -> ClaimView:
    runs = [
        (case, run, tuple(shown))
        for (case, run, _), shown in groupby(
            judged.shown, key=lambda one: (one.case, one.run, one.over and one.over.title)
        )
    ]
    seen = {run: _read(folder / run) for _, run, _ in runs if run}
    peak = max((peak_rate(series) for _, series in seen.values()), default=0.0)
    return ClaimView(
        judged,
        tuple(
            RunShown(
                case,
                run,
                shown,
                sparkline(*seen[run], peak) if run in seen else None,
                draw_distribution(shown[0].over) if shown[0].over is not None else None,
            )
            for case, run, shown in runs
        ),
    )


def _read(run: Path) -> tuple[Course, Series | None]:
    found = CaseDir(run)
    events, _ = read_timeline(found.timeline)
    return arrange(tuple(events)), read_series(found.series, BINS, [])


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

    def x_of(index: int) -> float:
        return round(_EDGE + index * step, 1)

    marks = []
    for index, (point, side) in enumerate(zip(case.points, sides, strict=True)):
        if side.middle is not None:
            low, high = (side.middle if end is None else end for end in (side.low, side.high))
            marks.append(
                Mark(
                    x_of(index),
                    height(low),
                    height(high),
                    height(side.middle),
                    _tone(point),
                    _what(point, side),
                )
            )
    changes = tuple(x_of(index) for index, point in enumerate(case.points) if point.changed)
    return Line(title, f"{top:.4g} {unit}", tuple(marks), changes)


def _tone(point: TrendPoint) -> str:
    return {"PASS": "good", "FAIL": "bad"}.get(point.worst, "warn")


def _what(point: TrendPoint, side: ComparedSide) -> str:
    return f"{point.batch}: {side.seen} ({side.interval}), {point.verdicts}"


def comparison_page(found: ComparisonFile) -> str:
    """The whole page."""
    style = asset("css", ("base.css", "matrix.css", "case.css", "print.css"))
    policy = f"default-src 'none'; style-src '{source_hash(style)}'; img-src data:; base-uri 'none'; form-action 'none'"
    letters = [chr(ord("A") + number % 26) for number in range(len(found.batches))]
    return (
        environment()
        .get_template("compared.html.j2")
        .render(found=found, letters=letters, style=Markup(style), policy=policy)
    )
