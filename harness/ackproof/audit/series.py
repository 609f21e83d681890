"""`series.parquet`: counts and latencies per partition and 100 ms. A bucket that is cut by time is cut between two of
these bins.

Percentiles are interpolated between the two nearest latencies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from ackproof.ledgers.rows import Array, Bools, Ints, Rows, distinct_values
from ackproof.rundir.arrow import repeat_text, to_arrow
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import SERIES, SERIES_BIN_NS

_LATENCY_BITS = 40
"""Low bits of a sort key that hold the latency in ns; the bits above hold the number of the bin. If a latency has more
bits (2^40 ns are 18 minutes), or there are too many bins, two columns are sorted instead."""

_IN_RUNS: Final = "stable"
"""numpy's merge sort. Each producer's times already ascend, so it takes a third of the time of a quicksort or less."""

_MS = 1e6


_Bins: TypeAlias = tuple[Ints, dict[str, Array]]
"""Start of each distinct bin, ascending, and the columns with the values of each bin."""


class AckStretch(NamedTuple):
    """First and last acknowledgement within some time range, and the longest gap between two, in ns."""

    first: int
    last: int
    longest: int
    """Longest time between two successive acknowledgements; -1: there is only one."""


def longest_ms(stretches: Iterable[AckStretch]) -> float:
    """Return the longest time between two successive acknowledgements in ms, also across the borders of ranges; -1 with
    fewer than two acknowledgements. `stretches`: of time ranges that do not overlap, in any order."""
    longest, before = -1, None
    for acks in sorted(stretches):
        longest = max(longest, acks.longest, -1 if before is None else acks.first - before)
        before = acks.last
    return -1.0 if longest < 0 else longest / _MS


def build_series(
    place: TopicPartition, produced: Rows, live: Sequence[Rows]
) -> tuple[pa.Table, AckStretch | None]:
    """Return the series of one bucket (all rows of one partition), or of a time range of it. It has a row of counts and
    latencies for each 100 ms with an attempt or a read (`rundir.schema.SERIES`).

    Also return the first and last acknowledgement and the longest gap, from which `longest_ms` finds the longest gap
    over several time ranges. None: there are no acknowledgements. `produced`: the produced rows; `live`: the rows of
    live readers, in one or more parts.
    """
    acked = produced["latency_ns"] >= 0
    times = np.sort(produced.ints("at_ns")[acked], kind=_IN_RUNS)
    acks = None
    if len(times):
        longest = int(np.diff(times).max()) if len(times) > 1 else -1
        acks = AckStretch(int(times[0]), int(times[-1]), longest)
    bins = [_bins(produced, acked)] if len(produced) else []
    longest_gap = longest_ms([] if acks is None else [acks])
    return _table(place, [*bins, _reads(live)], longest_gap), acks


def _rank(bins: Ints) -> tuple[Ints, Ints]:
    """Return distinct bins in ascending order, and for each of `bins` its index in them.

    The distinct bins may include empty ones: if `bins` lie close together, all numbers from the least to the greatest
    are returned, which needs no sorting. `bins` must not be empty.
    """
    least, greatest = int(bins.min()), int(bins.max())
    if greatest - least < 4 * len(bins) + 1024:
        return np.arange(least, greatest + 1, dtype=np.int64), bins - least
    number = distinct_values(bins)
    return number, np.searchsorted(number, bins)


def _bins(rows: Rows, acked: Bools) -> _Bins:
    number, rank = _rank(rows.ints("at_ns") // SERIES_BIN_NS)
    outcome = rows["outcome"]
    columns: dict[str, Array] = {
        name: np.bincount(rank[outcome == value], minlength=len(number))
        for name, value in (
            ("acked", Outcome.ACKED),
            ("failed", Outcome.FAILED),
            ("indeterminate", Outcome.INDETERMINATE),
        )
    }
    filled = columns["acked"] + columns["failed"] + columns["indeterminate"] > 0
    columns.update(_latencies(rank[acked], rows.ints("latency_ns")[acked], len(number)))
    return number[filled], {name: column[filled] for name, column in columns.items()}


def _latencies(rank: Ints, latency: Ints, count: int) -> dict[str, Array]:
    in_bin = np.bincount(rank, minlength=count)
    if len(latency) and (int(latency.max()) >> _LATENCY_BITS or count >> (62 - _LATENCY_BITS)):
        ordered = latency[np.lexsort((latency, rank))]
    else:
        ordered = np.sort((rank << _LATENCY_BITS) | latency, kind=_IN_RUNS) & ((1 << _LATENCY_BITS) - 1)
    ends = np.cumsum(in_bin)
    some = in_bin > 0
    start, last = (ends - in_bin)[some], in_bin[some] - 1
    columns: dict[str, Array] = {}
    for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99), ("max_ms", 1.0)):
        at = last * share
        low = np.floor(at).astype(np.int64)
        below = ordered[start + low].astype(np.float64)
        above = ordered[start + np.minimum(low + 1, last)].astype(np.float64)
        value = np.full(count, np.nan)
        value[some] = (below + (above - below) * (at - low)) / _MS
        columns[name] = value
    return columns


def _reads(live: Sequence[Rows]) -> _Bins:
    bins = np.concatenate([rows.ints("read_ns") // SERIES_BIN_NS for rows in live])
    if not len(bins):
        return bins, {"read": bins}
    number, rank = _rank(bins)
    count = np.bincount(rank, minlength=len(number))
    return number[count > 0], {"read": count[count > 0]}


def _table(place: TopicPartition, parts: Sequence[_Bins], longest_gap_ms: float) -> pa.Table:
    number = distinct_values(np.concatenate([bins for bins, _ in parts]))
    counts = ("acked", "failed", "indeterminate", "read")
    columns: dict[str, Array] = {
        "start_ns": number * SERIES_BIN_NS,
        "longest_gap_ms": np.full(len(number), longest_gap_ms),
        **{name: np.zeros(len(number), dtype=np.int64) for name in counts},
        **{name: np.full(len(number), np.nan) for name in ("p50_ms", "p99_ms", "max_ms")},
    }
    for bins, values in parts:
        at = np.searchsorted(number, bins)
        for name, column in values.items():
            columns[name][at] = column
    arrays = [
        repeat_text(place.topic, len(number)),
        to_arrow(np.broadcast_to(place.partition, len(number)), pa.int32()),
        *(to_arrow(columns[field.name], field.type) for field in list(SERIES)[2:]),
    ]
    return pa.Table.from_arrays(arrays, schema=SERIES)
