"""Lanes: what was so of a partition, or of a metric, from when to when, as bars in a picture that needs no script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ackproof.rundir.partition import TopicPartition
from ackproof_reports.course import Fault

if TYPE_CHECKING:
    from ackproof_reports.facts import CaseFacts
    from ackproof_reports.series import Track

WIDTH: Final = 720
LEFT: Final = 150
HEIGHT: Final = 14
MOST: Final = 12
"""So many partitions have lanes."""
_BEFORE_NS: Final = 1_000_000_000
_AFTER_NS: Final = 8_000_000_000
_LETTERS: Final = 30
"""Of a label, left of the bars."""


@dataclass(frozen=True)
class Bar:
    """Within a lane. `kind`: how it looks; `text`: drawn where the bar has room for it."""

    x: float
    width: float
    kind: str
    text: str = ""


@dataclass(frozen=True)
class Lane:
    """One line. `y`: where it begins; `said`: the same in words; `name`: as much of the label as has room."""

    label: str
    name: str
    y: int
    bars: tuple[Bar, ...]
    said: str


@dataclass(frozen=True)
class Lanes:
    """A picture of WIDTH x `height`. `bands`: x and width of each fault; `ticks`: where, and how many seconds of the
    run."""

    height: int
    lanes: tuple[Lane, ...]
    bands: tuple[tuple[float, float], ...]
    ticks: tuple[tuple[float, str], ...]
    left_out: int = 0


@dataclass(frozen=True)
class Span:
    """What part of a run is shown, in ns."""

    begin: float
    end: float

    def x(self, t_ns: float) -> float:
        """Where a moment is."""
        share = (min(max(t_ns, self.begin), self.end) - self.begin) / (self.end - self.begin)
        return round(LEFT + share * (WIDTH - LEFT), 1)

    def bar(self, begin: float, end: float, kind: str, text: str = "") -> Bar | None:
        """From when to when; None where none of it is shown."""
        if end < self.begin or begin > self.end:
            return None
        left = self.x(begin)
        return Bar(left, max(0.8, round(self.x(end) - left, 1)), kind, text=text)


def span_of(fact: CaseFacts, struck: Sequence[Fault]) -> Span:
    """From a second before the first fault until some seconds after the last was over."""
    first = min(one.asked or one.confirmed or 0 for one in struck)
    over = max(one.recovered or one.healed or one.confirmed or 0 for one in struck)
    end = min(over + _AFTER_NS, fact.course.end_ns) if fact.course.end_ns > over else over + _BEFORE_NS
    return Span(max(0, first - _BEFORE_NS), end)


def picture_of(span: Span, struck: Sequence[Fault], rows: Sequence[tuple[str, Sequence[Bar], str]]) -> Lanes:
    """Rows of bars, one below the other, with the faults and the time."""
    lanes = tuple(
        Lane(label, _shortened(label), number * HEIGHT, tuple(bars), said)
        for number, (label, bars, said) in enumerate(rows)
    )
    bands = []
    for one in struck:
        begin, end = one.asked or one.confirmed or 0, one.recovered or one.healed or span.end
        bands.append((span.x(begin), round(max(1.0, span.x(end) - span.x(begin)), 1)))
    return Lanes(len(rows) * HEIGHT, lanes, tuple(bands), tuple(_ticks(span)))


def _shortened(label: str) -> str:
    """Its end, which tells partitions of one topic apart."""
    return label if len(label) <= _LETTERS else f"…{label[1 - _LETTERS :]}"


def _ticks(span: Span) -> Iterator[tuple[float, str]]:
    seconds = (span.end - span.begin) / 1e9
    step = next((one for one in (1, 2, 5, 10, 30, 60, 300, 600) if seconds / one <= 10), 3600)
    at = -(-span.begin // (step * 1e9)) * step
    while at * 1e9 <= span.end:
        yield span.x(at * 1e9), f"{at:.0f} s"
        at += step


def lanes_of(fact: CaseFacts, struck: Sequence[Fault]) -> Lanes | None:
    """Two lanes per partition: acknowledged and refused. Who leads and is in sync is in the chart above."""
    series = fact.series
    if series is None or not series.places:
        return None
    span, places = span_of(fact, struck), sorted(series.places)
    rows = [
        row
        for place in places[:MOST]
        for row in _requests(span, place, series.places[place], series.start_ns, series.width_ns)
    ]
    made = picture_of(span, struck, rows)
    return Lanes(made.height, made.lanes, made.bands, made.ticks, max(0, len(places) - MOST))


def _requests(
    span: Span, place: TopicPartition, track: Track, start_ns: int, width_ns: int
) -> Iterator[tuple[str, Sequence[Bar], str]]:
    refused = [failed + unknown for failed, unknown in zip(track.failed, track.indeterminate, strict=True)]
    for word, counts in (("acked", track.acked), ("refused", refused)):
        runs = list(_runs(counts))
        bars = [
            bar
            for first, behind in runs
            if (bar := span.bar(start_ns + first * width_ns, start_ns + behind * width_ns, word))
        ]
        total = sum(counts)
        yield f"{place} {word}", bars, f"{total:,} records in {len(runs)} stretches" if total else "none"


def _runs(counts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Bins next to each other that have any: the first, and the one behind the last."""
    first: int | None = None
    for number, count in enumerate([*counts, 0]):
        if count and first is None:
            first = number
        elif not count and first is not None:
            yield first, number
            first = None
