"""Tests of series and samples: bins, merged bins, gaps, strips."""

from __future__ import annotations

import math
import random
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq

from ackproof.rundir.observed import Sample
from ackproof.rundir.schema import SERIES
from ackproof_reports.series import HOLE, Stretch, read_series, read_strips, thinned, weighted_median


def row(
    topic: str, partition: int, start: int, acked: int, p50: float, p99: float, gap: float
) -> dict[str, object]:
    return {
        "topic": topic, "partition": partition, "start_ns": start * 100_000_000, "acked": acked, "failed": 1,
        "indeterminate": 2, "read": 3, "p50_ms": p50, "p99_ms": p99, "max_ms": p99, "longest_gap_ms": gap,
    }  # fmt: skip


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows, schema=SERIES), path)
    return path


def test_bins_gaps_and_totals(tmp_path: Path) -> None:
    rows = [
        row("t", 0, 10, 5, 2.0, 9.0, 700.0),
        row("t", 0, 12, 0, math.nan, math.nan, 700.0),
        row("t", 1, 10, 1, 8.0, 20.0, -1.0),
    ]
    series = read_series(write(tmp_path / "s.parquet", rows), 100, [])
    assert series is not None
    assert (series.start_ns, series.bins) == (1_000_000_000, 3)
    assert series.total.acked == [6, 0, 0]
    assert series.total.p99 == [20.0, None, None]
    assert series.total.p50 == [2.0, None, None]
    assert series.longest_gap == (("t", 0), 700.0)


def test_long_runs_get_coarser_bins_and_lose_no_ack(tmp_path: Path) -> None:
    rows = [row("t", 0, start, 2, 1.0, float(start), 100.0) for start in range(1000)]
    series = read_series(write(tmp_path / "s.parquet", rows), 60, [])
    assert series is not None and series.bins <= 60
    assert sum(series.total.acked) == 2000
    assert max(p for p in series.total.p99 if p is not None) == 999.0


def test_missing_empty_and_broken_series(tmp_path: Path) -> None:
    absent: list[str] = []
    assert read_series(tmp_path / "none", 10, absent) is None
    empty = read_series(write(tmp_path / "e.parquet", []), 10, absent)
    assert empty is not None and empty.bins == 0 and empty.longest_gap is None
    (tmp_path / "torn.parquet").write_bytes(b"PAR1")
    assert read_series(tmp_path / "torn.parquet", 10, absent) is None
    assert [text.split(":")[1].split(",")[0].strip() for text in absent] == ["missing", "cannot be read"]


def test_weighted_median() -> None:
    assert weighted_median([]) is None
    assert weighted_median([(1.0, 1), (5.0, 10)]) == 5.0
    assert weighted_median([(1.0, 10), (5.0, 1)]) == 1.0


def sample(t: float, leader: int, isr: tuple[int, ...], end: int = 10, high: int = 4) -> Sample:
    return Sample(
        t_ns=round(t * 1e9), topic="t", partition=0, leader=leader, leader_epoch=0, replicas=(1, 2, 3), isr=isr,
        high_watermark=high, log_ends={leader: end} if leader > 0 else {},
    )  # fmt: skip


def test_strips_change_where_the_samples_change(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    seen = [
        sample(0, 1, (1, 2, 3)),
        sample(0.1, 1, (1, 2, 3)),
        sample(0.2, -1, (1,)),
        sample(5, 2, (2, 3), 10, -1),
    ]
    path.write_text("".join(s.line() + "\n" for s in seen) + '{"t_ns": 9, "topic"', encoding="utf-8")
    strip = read_strips(path, [])["t", 0]
    assert strip.replicas == 3
    assert strip.stretches == [
        Stretch(0, 200_000_000, 1, 0, (1, 2, 3)),
        Stretch(200_000_000, 200_000_000, -1, 0, (1,)),
        Stretch(5_000_000_000, 5_000_000_000, 2, 0, (2, 3)),  # nobody looked between 0.2 s and 5 s
    ]
    assert strip.tail == [(0, 6), (100_000_000, 6)]


def test_a_tail_keeps_the_ends_of_a_level_stretch_and_every_hole(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    times = [*(tenth / 10 for tenth in range(51)), *(tenth / 10 for tenth in range(70, 101))]
    path.write_text("".join(sample(t, 1, (1, 2, 3)).line() + "\n" for t in times), encoding="utf-8")
    ends = [(0, 6), (5_000_000_000, 6), (6_500_000_000, HOLE), (7_000_000_000, 6), (10_000_000_000, 6)]
    assert read_strips(path, [])["t", 0].tail == ends
    rising = [(t, t) for t in range(1_000)]
    few = thinned([*rising, (1_000, HOLE), (5_000, 3)], 100)
    assert few[-2:] == [(1_000, HOLE), (5_000, 3)] and len(few) <= 103


def test_thinning_keeps_peaks() -> None:
    points = [(t, random.Random(t).randrange(100)) for t in range(10_000)]
    points[4321] = (4321, 10_000)
    few = thinned(points, 100)
    assert len(few) <= 100 and (4321, 10_000) in few


def test_a_made_batch_has_a_tail(maker: ModuleType, tmp_path: Path) -> None:
    folder = maker.make_batch(tmp_path)
    strips = read_strips(next(folder.glob("*/observed/partitions.jsonl")), [])
    assert max(n for _, n in strips["orders", 0].tail) > 400
