"""Pages about several batches: compared with the first, many over time (trend), and the claims that were checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from ackproof.rundir.document import write_atomically
from ackproof.rundir.lab import (
    ClaimJudged,
    ClaimsFile,
    ClaimShowing,
    ClaimVerdict,
    ComparedSide,
    ComparisonFile,
    TrendCase,
    TrendFile,
)
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.timeline import read_timeline
from ackproof_reports.course import Course, arrange
from ackproof_reports.expectations import DistributionChart, draw_distribution
from ackproof_reports.page import render
from ackproof_reports.series import Series, Sparkline, peak_rate, read_series, sparkline

BINS = 240
_STYLES: Final = ("base.css", "matrix.css", "case.css", "print.css")


@dataclass(frozen=True)
class _RunShown:
    """Evidence for a claim on its page, from one run or from the repeats of cases.

    `case`: name of the case. `run`: folder of the run; '' for repeats, or if the case did not run. `shown`: the claim's
    bounds that were checked on this evidence, with their results. `spark`: acks per second of that run; None without a
    run or its series. `picture`: distribution of the values over the repeats; None for a single run."""

    case: str
    run: str
    shown: tuple[ClaimShowing, ...]
    spark: Sparkline | None
    picture: DistributionChart | None


def render_claims(folder: Path) -> None:
    """Read `claims.json` in a folder, and write the page `claims.html` there. Raises `BadInput` if the file is missing
    or unreadable, OSError if the timeline of a run cannot be read or the page cannot be written."""
    file = ClaimsFile.load(folder / "claims.json")
    count = Counter(judged.verdict for judged in file.claims)
    page = render(
        "claims.html.j2",
        ("base.css", "matrix.css", "case.css", "claims.css", "print.css"),
        claims=[(judged, _runs_shown(folder, judged)) for judged in file.claims],
        again=[judged.claim for judged in file.claims if judged.before],
        tally=[(verdict, count[verdict]) for verdict in ClaimVerdict if count[verdict]],
    )
    write_atomically(folder / "claims.html", page)


def _runs_shown(folder: Path, judged: ClaimJudged) -> list[_RunShown]:
    runs = [
        (case, run, tuple(shown))
        for (case, run, _), shown in groupby(
            judged.shown, key=lambda one: (one.case, one.run, one.over and one.over.title)
        )
    ]
    seen: dict[str, tuple[Course, Series | None]] = {}
    for _, run, _ in runs:
        if run:
            files = CaseDir(folder / run)
            course = arrange(tuple(read_timeline(files.timeline)[0]))
            seen[run] = course, read_series(files.series, BINS, [])
    peak = max((peak_rate(series) for _, series in seen.values()), default=0.0)
    return [
        _RunShown(
            case,
            run,
            shown,
            sparkline(*seen[run], peak) if run in seen else None,
            draw_distribution(shown[0].over) if shown[0].over is not None else None,
        )
        for case, run, shown in runs
    ]


WIDTH: Final = 640
HEIGHT: Final = 90
_EDGE: Final = 8


@dataclass(frozen=True)
class _TrendMark:
    """One batch in the trend picture. `x`: x coordinate; batches follow each other by date, at equal distances.

    `seen`, `low`, `high`: mean over its repeats and the ends of the confidence interval, as y coordinates. `what`:
    these numbers in words. `tone`: good, bad or warn, by the worst verdict.
    """

    x: float
    low: float
    high: float
    seen: float
    tone: str
    what: str


@dataclass(frozen=True)
class _TrendLine:
    """One quantity of one case over several batches. `top`: value at the upper edge of the picture. `changes`: x
    coordinates of the batches before which settings or the Kafka version changed."""

    title: str
    top: str
    marks: tuple[_TrendMark, ...]
    changes: tuple[float, ...]


def trend_page(found: TrendFile) -> str:
    """Return the HTML page of `ackproof trend`. For each case it has two charts over the batches, oldest first: the
    longest gap between acknowledgements, and acknowledged records per second. A chart without any known value is left
    out. A table adds verdicts, losses and changes of settings."""
    cases = []
    for case in found.cases:
        recovery, throughput = (
            [getattr(point, name) for point in case.points] for name in ("recovery", "throughput")
        )
        lines = (
            _line("Longest gap between acknowledgements", "s", case, recovery),
            _line("Acknowledged records per second", "/s", case, throughput),
        )
        cases.append((case, [line for line in lines if line.marks]))
    return render("trend.html.j2", _STYLES, found=found, cases=cases, BOX=(WIDTH, HEIGHT))


def _line(title: str, unit: str, case: TrendCase, sides: Sequence[ComparedSide]) -> _TrendLine:
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
            tone = {"PASS": "good", "FAIL": "bad"}.get(point.worst, "warn")
            what = f"{point.batch}: {side.seen} ({side.interval}), {point.verdicts}"
            marks.append(_TrendMark(x_of(index), height(low), height(high), height(side.middle), tone, what))
    changes = tuple(x_of(index) for index, point in enumerate(case.points) if point.changed)
    return _TrendLine(title, f"{top:.4g} {unit}", tuple(marks), changes)


def comparison_page(found: ComparisonFile) -> str:
    """Return the HTML page of `ackproof compare`. It lists the cases whose verdicts or counts differ between the
    batches. Then it shows, for each case, every quantity in each batch and its difference from the first batch."""
    return render("compared.html.j2", _STYLES, found=found, letters=found.letters)
