"""Draws pictures without scripts (lanes of bars), and prepares the data of the charts as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pydantic import JsonValue

from ackproof.rundir.lifelines import FaultLife
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.partition import TopicPartition
from ackproof_reports.course import Course, nodes_text
from ackproof_reports.loading import CaseView
from ackproof_reports.series import Series, Strip, Track
from ackproof_reports.wording import visible

if TYPE_CHECKING:
    from ackproof_reports.facts import CaseFacts


LANES_WIDTH: Final = 720
LEFT: Final = 150
HEIGHT: Final = 14
MOST: Final = 12
"""Greatest number of partitions that get lanes."""
_BEFORE_NS: Final = 1_000_000_000
_AFTER_NS: Final = 8_000_000_000
_LETTERS: Final = 30
"""Greatest number of characters of a lane's label."""


@dataclass(frozen=True)
class Bar:
    """A bar in a lane. `x`, `width`: in units of the picture. `kind`: its CSS class. `text`: its label, shown if the
    bar has room for the text."""

    x: float
    width: float
    kind: str
    text: str = ""


@dataclass(frozen=True)
class Lane:
    """A row of bars. `y`: its upper edge. `label`: its name in full; `name`: the label, shortened to fit. `said`: its
    events in words, for screen readers."""

    label: str
    name: str
    y: int
    bars: tuple[Bar, ...]
    said: str


@dataclass(frozen=True)
class Lanes:
    """A picture of lanes, LANES_WIDTH × `height`. `bands`: (x, width) of each fault. `ticks`: (x, seconds
    since the run's start). `left_out`: number of partitions without lanes.
    """

    height: int
    lanes: tuple[Lane, ...]
    bands: tuple[tuple[float, float], ...]
    ticks: tuple[tuple[float, str], ...]
    left_out: int = 0


@dataclass(frozen=True)
class ShownTime:
    """The part of a run that a picture shows, in ns since the run's start."""

    begin: float
    end: float

    def x(self, t_ns: float) -> float:
        share = (min(max(t_ns, self.begin), self.end) - self.begin) / (self.end - self.begin)
        return round(LEFT + share * (LANES_WIDTH - LEFT), 1)

    def bar(self, begin: float, end: float, kind: str, text: str = "") -> Bar | None:
        """Return the bar from `begin` to `end` (ns), cut to the shown time; None if no part of it is shown."""
        if end < self.begin or begin > self.end:
            return None
        left = self.x(begin)
        return Bar(left, max(0.8, round(self.x(end) - left, 1)), kind, text=text)


def find_shown_time(fact: CaseFacts, struck: Sequence[FaultLife]) -> ShownTime:
    """Return the span from 1 s before the first of these faults until 8 s after the last recovery. It is cut at the end
    of the run. A fault that did not recover counts with its healing, else with its confirmation. If the run has no
    event after that last recovery, the span ends 1 s after it. `struck` must not be empty."""
    first = min(one.asked_ns or one.confirmed or 0 for one in struck)
    over = max(one.recovered or one.healed or one.confirmed or 0 for one in struck)
    end = min(over + _AFTER_NS, fact.course.end_ns) if fact.course.end_ns > over else over + _BEFORE_NS
    return ShownTime(max(0, first - _BEFORE_NS), end)


def draw_lanes(
    span: ShownTime, struck: Sequence[FaultLife], rows: Sequence[tuple[str, Sequence[Bar], str]]
) -> Lanes:
    """Return a picture of rows one below the other, with a band for each fault of `struck` and ticks for seconds.
    `rows`: (label, bars, description for screen readers) of each. `span`: the shown time, for which the bars must have
    been made (`ShownTime.bar`)."""
    lanes = tuple(
        # The end of a label tells partitions of one topic apart.
        Lane(
            label,
            label if len(label) <= _LETTERS else f"…{label[1 - _LETTERS :]}",
            number * HEIGHT,
            tuple(bars),
            said,
        )
        for number, (label, bars, said) in enumerate(rows)
    )
    bands = []
    for one in struck:
        begin, end = one.asked_ns or one.confirmed or 0, one.recovered or one.healed or span.end
        bands.append((span.x(begin), round(max(1.0, span.x(end) - span.x(begin)), 1)))
    return Lanes(len(rows) * HEIGHT, lanes, tuple(bands), tuple(_ticks(span)))


def _ticks(span: ShownTime) -> Iterator[tuple[float, str]]:
    seconds = (span.end - span.begin) / 1e9
    step = next((one for one in (1, 2, 5, 10, 30, 60, 300, 600) if seconds / one <= 10), 3600)
    at = -(-span.begin // (step * 1e9)) * step
    while at * 1e9 <= span.end:
        yield span.x(at * 1e9), f"{at:.0f} s"
        at += step


def draw_request_lanes(fact: CaseFacts, struck: Sequence[FaultLife]) -> Lanes | None:
    """Draw two lanes over time for each of at most `MOST` partitions: acknowledged records, and records that failed or
    are indeterminate. None without a series, or if it has no partition. `struck`: faults to mark, at least one.

    Leaders and ISRs are left out, because the chart of the case shows them (`chart_data`).
    """
    series = fact.series
    if series is None or not series.places:
        return None
    span, places = find_shown_time(fact, struck), sorted(series.places)
    rows = [
        row
        for place in places[:MOST]
        for row in _requests(span, place, series.places[place], series.start_ns, series.width_ns)
    ]
    return replace(draw_lanes(span, struck, rows), left_out=max(0, len(places) - MOST))


def _requests(
    span: ShownTime, place: TopicPartition, track: Track, start_ns: int, width_ns: int
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
    """Yield each run of adjacent bins whose count is above 0, as (first index, index after the last)."""
    first: int | None = None
    for number, count in enumerate([*counts, 0]):
        if count and first is None:
            first = number
        elif not count and first is not None:
            yield first, number
            first = None


MAX_PLACES: Final = 24
"""Greatest number of partitions with a curve of their own; the total includes all partitions."""
MAX_MARKS: Final = 400
MARGIN_S: Final = 0.5


@dataclass(frozen=True)
class ChartData:
    """JSON data of a case's chart. `left_out`: a sentence for each kind of data that the chart does not show fully."""

    data: dict[str, JsonValue]
    left_out: tuple[str, ...]


def chart_data(
    case: CaseView,
    course: Course,
    series: Series | None,
    strips: Mapping[TopicPartition, Strip],
    lost: Mapping[TopicPartition, int],
    until_ns: int = 0,
) -> ChartData | None:
    """Return the chart data of a case; None if it has neither a series, samples nor events.

    `strips`: leader and ISR over time. `lost`: number of lost records by partition. At most `MAX_PLACES` partitions are
    drawn, those with most lost records. `until_ns`: time, in ns since the run's start, up to which the chart at first
    must show the run; 0: no such time."""
    if (series is None or not series.bins) and not strips and not course.end_ns:
        return None
    seen = set(strips) | (set(series.places) if series else set())
    places = sorted(seen, key=lambda place: (-lost.get(place, 0), place))
    shown = sorted(places[:MAX_PLACES])
    left_out = []
    if len(places) > len(shown):
        left_out.append(
            f"{len(shown)} of {len(places)} partitions are drawn one by one (those that lost most, then by name); "
            "the total counts all"
        )
    if series and series.width_ns > 100_000_000:
        left_out.append(
            f"acks and latencies are shown per {series.width_ns / 1e9:g} s; series.parquet has them per 0.1 s"
        )
    if len(course.marks) > MAX_MARKS:
        left_out.append(f"{MAX_MARKS} of {len(course.marks)} marks are drawn")
    end = _end(course, series, strips)
    data: dict[str, JsonValue] = {
        "full": [0, _s(end)],
        "home": _home(course, series, end, until_ns),
        "start": _s(series.start_ns) if series else 0,
        "width": _s(series.width_ns) if series else 0.1,
        "total": _track(series.total) if series and series.bins else None,
        "places": [_place(place, series, strips, lost.get(place, 0)) for place in shown],
        "faults": [_fault(fault) for fault in course.faults],
        "phases": [[_s(p.start_ns), _s(p.end_ns), visible(p.name)] for p in course.phases],
        "marks": [[_s(mark.t_ns), mark.kind, visible(mark.text)] for mark in course.marks[:MAX_MARKS]],
        "verdict": Verdict(case.verdict).value if case.verdict else None,
    }
    return ChartData(data, tuple(left_out))


def _s(t_ns: int) -> float:
    return round(t_ns / 1e9, 3)


def _end(course: Course, series: Series | None, strips: Mapping[TopicPartition, Strip]) -> int:
    ends = [course.end_ns, *(strip.stretches[-1].end_ns for strip in strips.values() if strip.stretches)]
    if series and series.bins:
        ends.append(series.start_ns + series.bins * series.width_ns)
    return max(ends)


def _home(course: Course, series: Series | None, end: int, until_ns: int) -> list[JsonValue]:
    """Return the part of the run that the chart shows at first, as [begin, end] in seconds: load and faults, without
    start-up and final read; the whole run if it has neither load nor faults."""
    starts, ends = [], [until_ns] if until_ns else []
    if series and series.bins:
        starts.append(series.start_ns)
        acked = [index for index, count in enumerate(series.total.acked) if count]
        ends.append(series.start_ns + ((acked[-1] if acked else 0) + 1) * series.width_ns)
    for fault in course.faults:
        times = [
            t for t in (fault.asked_ns, fault.confirmed, fault.healed, fault.recovered, fault.failed) if t
        ]
        starts += times
        ends += times
    if course.load_ns is not None:
        starts.append(course.load_ns)
    if not starts or not ends or max(ends) <= min(starts):
        return [0, _s(end)]
    return [max(0.0, _s(min(starts)) - MARGIN_S), min(_s(end), _s(max(ends)) + MARGIN_S)]


def _track(track: Track) -> dict[str, JsonValue]:
    return {
        "acked": [*track.acked],
        "open": [failed + lacking for failed, lacking in zip(track.failed, track.indeterminate, strict=True)],
        "read": [*track.read],
        "p50": _rounded(track.p50),
        "p99": _rounded(track.p99),
    }


def _rounded(values: Sequence[float | None]) -> list[JsonValue]:
    return [None if value is None else float(f"{value:.4g}") for value in values]


def _place(
    place: TopicPartition, series: Series | None, strips: Mapping[TopicPartition, Strip], lost: int
) -> dict[str, JsonValue]:
    strip = strips.get(place)
    track = series.places.get(place) if series else None
    return {
        "name": visible(f"{place[0]}/{place[1]}"),
        "lost": lost,
        "replicas": strip.replicas if strip else 0,
        "track": _track(track) if track else None,
        "tail": [[_s(t), n] for t, n in strip.tail] if strip else [],
        "seen": [
            [_s(s.start_ns), _s(s.end_ns), s.leader, s.epoch, list[JsonValue](s.isr)]
            for s in (strip.stretches if strip else ())
        ],
    }


def _fault(fault: FaultLife) -> dict[str, JsonValue]:
    times = {
        "asked": fault.asked_ns,
        "confirmed": fault.confirmed,
        "healed": fault.healed,
        "recovered": fault.recovered,
        "failed": fault.failed if fault.failed is not None else fault.missed,
    }
    return {
        "n": fault.number,
        "name": fault.name,
        "title": visible(fault.title),
        "nodes": visible(nodes_text(fault)),
        **{name: None if t_ns is None else _s(t_ns) for name, t_ns in times.items()},
        "missed": fault.failed is None and fault.missed is not None,
        "reason": visible(fault.reason[:300]),
    }
