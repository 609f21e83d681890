"""The small picture beside each case: acks over time, faults as bands. Drawn here, so that it needs no script."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from ackproof_reports.course import Course
from ackproof_reports.series import Series

WIDTH: Final = 180
HEIGHT: Final = 34
POINTS: Final = 120


@dataclass(frozen=True)
class Sparkline:
    """Paths in a box of WIDTH × HEIGHT."""

    area: str
    line: str
    bands: tuple[tuple[float, float], ...]
    """(x, width) of each fault."""


def sparkline(course: Course, series: Series | None, peak: float) -> Sparkline | None:
    """Acks per second against `peak` (of all cases, so that cases compare), by their roots; None without a series.

    A backlog that is acknowledged at once is a spike beside which everything else would be flat.
    """
    if series is None or not series.bins or peak <= 0:
        return None
    rates = _rates(series)
    span = series.bins * series.width_ns
    across = WIDTH / len(rates)
    points = [
        (
            round((index + 0.5) * across, 1),
            round(HEIGHT - 1 - (HEIGHT - 4) * math.sqrt(min(1.0, rate / peak)), 1),
        )
        for index, rate in enumerate(rates)
    ]
    line = "M" + "L".join(f"{x} {y}" for x, y in points)
    area = f"{line}L{points[-1][0]} {HEIGHT}L{points[0][0]} {HEIGHT}Z"
    bands = []
    for fault in course.faults:
        start = fault.confirmed if fault.confirmed is not None else fault.asked
        if start is None:
            continue
        end = fault.recovered or fault.healed or course.end_ns
        left = min(max(0.0, (start - series.start_ns) / span), 1.0) * WIDTH
        right = min(max(0.0, (end - series.start_ns) / span), 1.0) * WIDTH
        bands.append((round(left, 1), round(max(1.0, right - left), 1)))
    return Sparkline(area, line, tuple(bands))


def peak_rate(series: Series | None) -> float:
    """The highest acks per second of a run, over the same groups of bins that a sparkline draws."""
    return max(_rates(series)) if series is not None and series.bins else 0.0


def _rates(series: Series) -> list[float]:
    """Acks per second of each group of bins, at most `POINTS` of them."""
    step = -(-series.bins // POINTS)
    groups = [series.total.acked[at : at + step] for at in range(0, series.bins, step)]
    return [sum(group) / (len(group) * series.width_ns / 1e9) for group in groups]
