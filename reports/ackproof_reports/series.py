"""Data over time for the report: acknowledgements and latencies (series.parquet), leaders and ISRs (samples),
sparklines."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final

import pyarrow as pa

from ackproof.rundir import storage
from ackproof.rundir.arrow import rows_of
from ackproof.rundir.observed import Sample, read_samples, samples_by_partition
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import SERIES, SERIES_BIN_NS
from ackproof_reports.course import Course

WIDTH: Final = 180
HEIGHT: Final = 34
POINTS: Final = 120


@dataclass(frozen=True)
class Sparkline:
    """SVG paths of acks per second, in a box of WIDTH × HEIGHT: the curve (`line`), and the area below it."""

    area: str
    line: str
    bands: tuple[tuple[float, float], ...]
    """(x, width) of each fault that was requested or confirmed, in units of the box."""


def sparkline(course: Course, series: Series | None, peak: float) -> Sparkline | None:
    """Draw the acks per second of a run on a square-root scale up to `peak`; None without data, or if `peak` is 0.

    `peak` is the highest rate of all cases, so that cases can be compared. The square root keeps low rates visible next
    to a backlog that is acknowledged at once."""
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
        start = fault.confirmed if fault.confirmed is not None else fault.asked_ns
        if start is None:
            continue
        end = fault.recovered or fault.healed or course.end_ns
        left = min(max(0.0, (start - series.start_ns) / span), 1.0) * WIDTH
        right = min(max(0.0, (end - series.start_ns) / span), 1.0) * WIDTH
        bands.append((round(left, 1), round(max(1.0, right - left), 1)))
    return Sparkline(area, line, tuple(bands))


def peak_rate(series: Series | None) -> float:
    """Return the highest rate of acks per second of a run, over the same groups of bins that a sparkline
    draws; 0 without data."""
    return max(_rates(series)) if series is not None and series.bins else 0.0


def _rates(series: Series) -> list[float]:
    step = -(-series.bins // POINTS)
    groups = [series.total.acked[at : at + step] for at in range(0, series.bins, step)]
    return [sum(group) / (len(group) * series.width_ns / 1e9) for group in groups]


SILENCE_NS: Final = 1_500_000_000
"""If no sample arrives for this long (ns), the strip shows a hole."""
MAX_TAIL_POINTS: Final = 1500
HOLE: Final = -1
"""Value in a tail that means: unknown until the next point."""


@dataclass
class Stretch:
    """A time span (ns since the run's start) in which leader, leader epoch and ISR of a partition did not change.
    `leader`: -1 if the partition had none."""

    start_ns: int
    end_ns: int
    leader: int
    epoch: int
    isr: tuple[int, ...]


@dataclass
class Strip:
    """Leader, ISR and unreplicated tail of one partition over time, from samples. The tail is the part of the leader's
    log above the high watermark. `replicas`: the greatest number of replicas that a sample shows."""

    replicas: int = 0
    stretches: list[Stretch] = field(default_factory=list)
    tail: list[tuple[int, int]] = field(default_factory=list)
    """Points (ns since the run's start, the leader's log end offset − high watermark) from samples that have both. Of
    equal values in a row only the first and the last are kept. A long run keeps about `MAX_TAIL_POINTS` points. If the
    next sample comes later than `SILENCE_NS`, a `HOLE` is between."""


def read_strips(path: Path, absent: list[str]) -> dict[TopicPartition, Strip]:
    """Return leader, ISR and unreplicated tail of each partition over time, from the samples in the file `path`.

    If it is missing, the result is empty and `absent` gets a sentence. Raises OSError if it cannot be read. The
    result grows with the number of changes, not of samples."""
    strips: dict[TopicPartition, Strip] = {}
    if not path.exists():
        absent.append(
            "observed/partitions.jsonl: missing, so leader, ISR and unreplicated tail cannot be shown"
        )
        return strips
    for place, samples in samples_by_partition(read_samples(path)).items():
        sets = {nodes for sample in samples for nodes in (sample.replicas, sample.isr)}
        strip = strips[place] = Strip(max(map(len, sets)))
        tail = strip.tail
        for sample in samples:
            _extend(strip, sample)
            end = sample.log_ends.get(sample.leader, -1)
            if end >= 0 and sample.high_watermark >= 0:
                point = (sample.t_ns, max(0, end - sample.high_watermark))
                if tail and point[0] - tail[-1][0] > SILENCE_NS:
                    tail.append((tail[-1][0] + SILENCE_NS, HOLE))
                if len(tail) > 1 and tail[-1][1] == tail[-2][1] == point[1]:
                    tail[-1] = point  # only the ends of a level stretch: they draw the same line
                else:
                    tail.append(point)
        strip.tail = thinned(tail)
    return strips


def _extend(strip: Strip, sample: Sample) -> None:
    now = (sample.leader, sample.leader_epoch, sample.isr)
    if strip.stretches:
        last = strip.stretches[-1]
        if sample.t_ns - last.end_ns <= SILENCE_NS:
            # What held at the last look is taken to hold until this one: the change lies in between.
            last.end_ns = sample.t_ns
            if now == (last.leader, last.epoch, last.isr):
                return
    strip.stretches.append(Stretch(sample.t_ns, sample.t_ns, *now))


def thinned(points: list[tuple[int, int]], limit: int = MAX_TAIL_POINTS) -> list[tuple[int, int]]:
    """Return about `limit` of the points (ns, number of unreplicated records), and each `HOLE`. Of each group of
    neighbours the highest point is kept, so that no peak is lost."""
    if len(points) <= limit:
        return points
    step = -(-len(points) // limit)
    found: list[tuple[int, int]] = []
    for is_hole, stretch in groupby(points, lambda point: point[1] == HOLE):
        known = list(stretch)
        groups = (known[at : at + step] for at in range(0, len(known), step))
        found += known if is_hole else (max(group, key=lambda point: point[1]) for group in groups)
    return found


_COUNTS: Final = ("acked", "failed", "indeterminate", "read")


@dataclass
class Track:
    """Counts of records and produce latencies, of one partition or of all together: one list item per time bin.
    `acked`, `failed`, `indeterminate`: records by outcome. `read`: records that readers got. `p50`, `p99`: in ms; None
    if the bin has no ack. Where bins or partitions are merged, `p50` is a weighted median and `p99` the greatest
    one."""

    acked: list[int]
    failed: list[int]
    indeterminate: list[int]
    read: list[int]
    p50: list[float | None]
    p99: list[float | None]

    @classmethod
    def empty(cls, bins: int) -> Track:
        return cls(*([0] * bins for _ in _COUNTS), *([None] * bins for _ in range(2)))  # type: ignore[arg-type]


@dataclass
class Series:
    """Acks, reads and latencies of one run over time. `start_ns`: begin of the first bin, in ns since the run's start.
    `width_ns`: width of a bin, a multiple of 100 ms that grows with the run. `total`: all partitions together;
    `places`: each partition."""

    start_ns: int = 0
    width_ns: int = SERIES_BIN_NS
    total: Track = field(default_factory=lambda: Track.empty(0))
    places: dict[TopicPartition, Track] = field(default_factory=dict)
    gaps_ms: dict[TopicPartition, float] = field(default_factory=dict)
    """Longest time between two acks per partition; a partition with fewer than two acks is missing."""

    @property
    def bins(self) -> int:
        return len(self.total.acked)

    @property
    def longest_gap(self) -> tuple[TopicPartition, float] | None:
        """Return the partition with the longest time between two acks, and that time in ms; None if no
        partition has two acks.
        """
        if not self.gaps_ms:
            return None
        place = max(self.gaps_ms, key=lambda key: (self.gaps_ms[key], key))
        return place, self.gaps_ms[place]


def read_series(path: Path, max_bins: int, absent: list[str]) -> Series | None:
    """Read the series, with bins merged so that there are at most `max_bins`. A file without rows gives a series
    without bins. If the file is missing or cannot be read, return None and add a sentence to `absent`."""
    if not path.exists():
        absent.append("series.parquet: missing, so neither acks nor latencies over time can be shown")
        return None
    try:
        table = storage.read_table(path, columns=SERIES.names)
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        absent.append(
            f"series.parquet: cannot be read: {str(error).splitlines()[0][:200] or type(error).__name__}"
        )
        return None
    if table.num_rows == 0:
        return Series()
    starts: list[int] = table.column("start_ns").to_pylist()
    first = min(starts) // SERIES_BIN_NS
    span = max(starts) // SERIES_BIN_NS - first + 1
    factor = max(1, math.ceil(span / max_bins))
    series = Series(first * SERIES_BIN_NS, factor * SERIES_BIN_NS, Track.empty(math.ceil(span / factor)))
    _fill(series, table)
    tracks = list(series.places.values())
    for name in _COUNTS:
        counts = zip(*(getattr(track, name) for track in tracks), strict=True)
        setattr(series.total, name, [sum(bins) for bins in counts])
    for at in range(series.bins):
        highest = [value for track in tracks if (value := track.p99[at]) is not None]
        series.total.p99[at] = max(highest, default=None)
        pairs = [(track.p50[at], track.acked[at]) for track in tracks]
        series.total.p50[at] = weighted_median((v, n) for v, n in pairs if v is not None)
    return series


def _fill(series: Series, table: pa.Table) -> None:
    middles: dict[tuple[TopicPartition, int], list[tuple[float, float]]] = {}
    for topic, partition, start, *counts, p50, p99, _, gap_ms in rows_of(table, *SERIES.names):
        acked, failed, indeterminate, read = counts
        place = TopicPartition(topic, partition)
        track = series.places.get(place)
        if track is None:
            track = series.places[place] = Track.empty(series.bins)
            if gap_ms >= 0:
                series.gaps_ms[place] = gap_ms
        at = (start - series.start_ns) // series.width_ns
        track.acked[at] += acked
        track.failed[at] += failed
        track.indeterminate[at] += indeterminate
        track.read[at] += read
        if not math.isnan(p99):
            known = track.p99[at]
            track.p99[at] = p99 if known is None else max(known, p99)
            middles.setdefault((place, at), []).append((p50, acked))
    for (place, at), pairs in middles.items():
        series.places[place].p50[at] = weighted_median(pairs)


def weighted_median(pairs: Iterable[tuple[float, float]]) -> float | None:
    """Return the weighted median of (value, weight) pairs; None without pairs."""
    ordered = sorted(pairs)
    if not ordered:
        return None
    half = sum(weight for _, weight in ordered) / 2
    reached = 0.0
    for value, weight in ordered:
        reached += weight
        if reached >= half:
            return value
    return ordered[-1][0]
