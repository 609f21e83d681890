"""`claims.html`: each sentence about Kafka with its verdict, what was looked at, a small picture, and its runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from markupsafe import Markup

from ackproof.rundir.documents import write_atomically
from ackproof.rundir.lab import ClaimJudged, ClaimsFile, ClaimShowing, ClaimVerdict
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.timeline import read_timeline
from ackproof_reports.course import Course, arrange
from ackproof_reports.over_repeats import Picture, picture_of
from ackproof_reports.page import asset, environment, policy
from ackproof_reports.series import Series, read_series
from ackproof_reports.sparkline import Sparkline, peak_rate, sparkline

STYLES = ("base.css", "matrix.css", "case.css", "claims.css", "print.css")
BINS = 240


@dataclass(frozen=True)
class RunShown:
    """What one run showed of a claim, or the repeats of cases."""

    case: str
    run: str
    shown: tuple[ClaimShowing, ...]
    spark: Sparkline | None
    picture: Picture | None


@dataclass(frozen=True)
class ClaimView:
    """One claim on the page."""

    judged: ClaimJudged
    runs: tuple[RunShown, ...]


def render_claims(folder: Path) -> None:
    """Write the page of `claims.json` beside it. Raises `BadInput` where that is missing or cannot be read."""
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
                picture_of(shown[0].over) if shown[0].over is not None else None,
            )
            for case, run, shown in runs
        ),
    )


def _read(run: Path) -> tuple[Course, Series | None]:
    found = CaseDir(run)
    events, _ = read_timeline(found.timeline)
    return arrange(tuple(events)), read_series(found.series, BINS, [])
