"""What the charts of one case draw, as one JSON document. Times in seconds since the run's start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from ackproof.rundir.outcome import Verdict
from ackproof.rundir.partition import TopicPartition
from ackproof_reports.course import Course, Fault
from ackproof_reports.loading import CaseView
from ackproof_reports.observed import Strip
from ackproof_reports.series import Series, Track
from ackproof_reports.wording import visible

MAX_PLACES: Final = 24
"""Partitions drawn one by one; the total always counts all."""
MAX_MARKS: Final = 400
MARGIN_S: Final = 0.5


@dataclass(frozen=True)
class Picture:
    """The document, and what it leaves out in words."""

    data: dict[str, JsonValue]
    left_out: tuple[str, ...]


def picture_of(
    case: CaseView,
    course: Course,
    series: Series | None,
    strips: Mapping[TopicPartition, Strip],
    lost: Mapping[TopicPartition, int],
) -> Picture | None:
    """All that can be drawn of a case; None when there is nothing over time at all."""
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
        "home": _home(course, series, strips, end),
        "start": _s(series.start_ns) if series else 0,
        "width": _s(series.width_ns) if series else 0.1,
        "total": _track(series.total) if series and series.bins else None,
        "places": [_place(place, series, strips, lost.get(place, 0)) for place in shown],
        "faults": [_fault(fault) for fault in course.faults],
        "phases": [[_s(p.start_ns), _s(p.end_ns), visible(p.name)] for p in course.phases],
        "marks": [[_s(mark.t_ns), mark.kind, visible(mark.text)] for mark in course.marks[:MAX_MARKS]],
        "verdict": Verdict(case.verdict).value if case.verdict else None,
    }
    return Picture(data, tuple(left_out))


def _s(t_ns: int) -> float:
    return round(t_ns / 1e9, 3)


def _end(course: Course, series: Series | None, strips: Mapping[TopicPartition, Strip]) -> int:
    ends = [course.end_ns, *(strip.stretches[-1].end_ns for strip in strips.values() if strip.stretches)]
    if series and series.bins:
        ends.append(series.start_ns + series.bins * series.width_ns)
    return max(ends)


def _home(
    course: Course, series: Series | None, strips: Mapping[TopicPartition, Strip], end: int
) -> list[JsonValue]:
    """The span in which something happens: the load and the faults, without start-up and the final read."""
    starts, ends = [], []
    if series and series.bins:
        starts.append(series.start_ns)
        acked = [index for index, count in enumerate(series.total.acked) if count]
        ends.append(series.start_ns + ((acked[-1] if acked else 0) + 1) * series.width_ns)
    for fault in course.faults:
        times = [t for t in (fault.asked, fault.confirmed, fault.healed, fault.recovered, fault.failed) if t]
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


def _fault(fault: Fault) -> dict[str, JsonValue]:
    def at(t_ns: int | None) -> float | None:
        return None if t_ns is None else _s(t_ns)

    return {
        "n": fault.number,
        "name": fault.name,
        "title": visible(fault.title),
        "nodes": visible(fault.on_nodes),
        "asked": at(fault.asked),
        "confirmed": at(fault.confirmed),
        "healed": at(fault.healed),
        "recovered": at(fault.recovered),
        "failed": at(fault.failed if fault.failed is not None else fault.missed),
        "missed": fault.failed is None and fault.missed is not None,
        "reason": visible(fault.reason[:300]),
    }
