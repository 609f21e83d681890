"""`series.parquet` as bins over time: acks, reads, latencies, and the longest gap between acks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

from ackproof.rundir import storage
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import SERIES, SERIES_BIN_NS

_COUNTS: Final = ("acked", "failed", "indeterminate", "read")


@dataclass
class Track:
    """Bins of one partition, or of all together. Counts per bin; latencies in ms, None where nothing was acked."""

    acked: list[int]
    failed: list[int]
    indeterminate: list[int]
    read: list[int]
    p50: list[float | None]
    p99: list[float | None]

    @classmethod
    def empty(cls, bins: int) -> Track:
        """All bins at nothing."""
        return cls(*([0] * bins for _ in _COUNTS), *([None] * bins for _ in range(2)))  # type: ignore[arg-type]


@dataclass
class Series:
    """The series of one run. `width_ns` is a multiple of 100 ms, coarser for long runs."""

    start_ns: int = 0
    width_ns: int = SERIES_BIN_NS
    total: Track = field(default_factory=lambda: Track.empty(0))
    places: dict[TopicPartition, Track] = field(default_factory=dict)
    gaps_ms: dict[TopicPartition, float] = field(default_factory=dict)
    """Longest time between two acks per partition; a partition with fewer than two acks is missing."""

    @property
    def bins(self) -> int:
        """How many bins there are."""
        return len(self.total.acked)

    @property
    def longest_gap(self) -> tuple[TopicPartition, float] | None:
        """The partition that was silent longest between two acks, and how long (ms)."""
        if not self.gaps_ms:
            return None
        place = max(self.gaps_ms, key=lambda key: (self.gaps_ms[key], key))
        return place, self.gaps_ms[place]

    def acked_between(self, place: TopicPartition, start_ns: float, end_ns: float) -> int | None:
        """Acks in whole 100 ms bins inside the span; None where bins are coarser than that."""
        if self.width_ns != SERIES_BIN_NS or place not in self.places:
            return None if self.width_ns != SERIES_BIN_NS else 0
        acked = self.places[place].acked
        return sum(
            n
            for index, n in enumerate(acked)
            if n
            and self.start_ns + index * self.width_ns >= start_ns
            and self.start_ns + (index + 1) * self.width_ns <= end_ns
        )


def read_series(path: Path, max_bins: int, absent: list[str]) -> Series | None:
    """Read the series, at most `max_bins` bins. None, and a sentence in `absent`, when it cannot be read."""
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
    _fill(series, table, starts)
    _total(series)
    return series


def _fill(series: Series, table: pa.Table, starts: Sequence[int]) -> None:
    columns: dict[str, list[float]] = {name: table.column(name).to_pylist() for name in SERIES.names[3:]}
    topics: list[str] = table.column("topic").to_pylist()
    partitions: list[int] = table.column("partition").to_pylist()
    middles: dict[tuple[TopicPartition, int], list[tuple[float, float]]] = {}
    for row, start in enumerate(starts):
        place = TopicPartition(topics[row], partitions[row])
        track = series.places.get(place)
        if track is None:
            track = series.places[place] = Track.empty(series.bins)
            if columns["longest_gap_ms"][row] >= 0:
                series.gaps_ms[place] = columns["longest_gap_ms"][row]
        at = (start - series.start_ns) // series.width_ns
        for name in _COUNTS:
            getattr(track, name)[at] += int(columns[name][row])
        p99 = columns["p99_ms"][row]
        if not math.isnan(p99):
            known = track.p99[at]
            track.p99[at] = p99 if known is None else max(known, p99)
            middles.setdefault((place, at), []).append((columns["p50_ms"][row], columns["acked"][row]))
    for (place, at), pairs in middles.items():
        series.places[place].p50[at] = weighted_median(pairs)


def _total(series: Series) -> None:
    tracks = list(series.places.values())
    for name in _COUNTS:
        setattr(
            series.total, name, [sum(bins) for bins in zip(*(getattr(t, name) for t in tracks), strict=True)]
        )
    for at in range(series.bins):
        highest = [track.p99[at] for track in tracks]
        series.total.p99[at] = max((value for value in highest if value is not None), default=None)
        pairs = [(track.p50[at], track.acked[at]) for track in tracks]
        series.total.p50[at] = weighted_median((v, n) for v, n in pairs if v is not None)


def weighted_median(pairs: Iterable[tuple[float, float]]) -> float | None:
    """The value at which half of the weight is reached; None for no pairs."""
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
