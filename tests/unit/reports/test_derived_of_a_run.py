"""Tests of the numbers that the report derives of one run, against a plain computation. Planted mistakes must be found:
two numbers swapped, one bin or record too few."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackproof.rundir.lifelines import FaultLife
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import FINDINGS, SERIES, SERIES_BIN_NS
from ackproof.rundir.timeline import Event, EventKind
from ackproof_reports import course, expectations, findings, picture, reference, series, views, wording
from derived import QUICK, Numbers

NUMBERS = Numbers()
SECOND = 1_000_000_000
PLACES = TopicPartition("orders", 0), TopicPartition("orders", 1)


def whole(text: str) -> list[int]:
    return [int(one.replace(",", "")) for one in re.findall(r"[0-9][0-9,]*", text)]


def exchanged(rows: list[Any]) -> list[Any]:
    return [(one[0], *other[1:]) for one, other in zip(rows, rows[::-1], strict=True)]


BINS = st.lists(st.integers(0, 3), min_size=1, max_size=30)


@NUMBERS.derived(
    "lanes",
    one_bin_too_few=(picture, "_runs", lambda right: lambda bins: [(a, b - 1) for a, b in right(bins)]),
    one_stretch_too_few=(picture, "_runs", lambda right: lambda bins: list(right(bins))[1:]),
    swapped=(
        picture, "_requests",
        lambda right: lambda *words: exchanged(list(right(*words))),
    ),
)  # fmt: skip
@QUICK
@given(BINS, st.data())
def of_lanes(acked: list[int], data: st.DataObject) -> None:
    refused = data.draw(st.lists(st.integers(0, 2), min_size=len(acked), max_size=len(acked)))
    track = series.Track.empty(len(acked))
    track.acked, track.failed = acked, refused
    span = picture.ShownTime(0, len(acked) * SERIES_BIN_NS)
    rows = list(picture._requests(span, PLACES[0], track, 0, SERIES_BIN_NS))
    assert [label for label, _, _ in rows] == ["orders/0 acked", "orders/0 refused"]
    for (_, bars, said), counts in zip(rows, (acked, refused), strict=True):
        groups = [(any_, len(list(each))) for any_, each in groupby(counts, key=bool)]
        assert whole(said) == ([sum(counts), sum(any_ for any_, _ in groups)] if any(counts) else [])
        wide = 570 / len(counts)
        assert [bar.width for bar in bars] == pytest.approx(
            [max(0.8, size * wide) for any_, size in groups if any_], abs=0.11
        )
        begins = [sum(size for _, size in groups[:at]) for at, (any_, _) in enumerate(groups) if any_]
        assert [bar.x for bar in bars] == pytest.approx([150 + begin * wide for begin in begins], abs=0.06)


@NUMBERS.derived(
    "share",
    swapped=(wording, "share", lambda right: lambda part, of: right(of, part)),
    one_too_few=(wording, "share", lambda right: lambda part, of: right(part - 1, of)),
)
@QUICK
@given(st.integers(0, 3000), st.integers(1, 3000))
def share(part: int, more: int) -> None:
    of = max(part, more)
    text = wording.share(part, of)
    if text == "< 0.1 %":
        assert 0 < part / of < 0.001
    elif text == "> 99.9 %":
        assert 0.999 < part / of < 1
    else:
        assert float(text.removesuffix(" %")) / 100 == pytest.approx(part / of, abs=0.00051)
        assert (text == "0 %", text == "100 %") == (part == 0, part == of)


ROWS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 40), st.integers(0, 9), st.integers(0, 9), st.integers(0, 500)),
    unique_by=lambda row: row[:2], min_size=1, max_size=25,
)  # fmt: skip
"""Rows of a series: (partition, bin, acked, failed, greatest latency in ms)."""


def written(rows: Sequence[tuple[int, ...]], folder: str) -> Path:
    path = Path(folder) / "series.parquet"
    table = [
        dict.fromkeys(SERIES.names, 0) | {
            "topic": "orders", "partition": place, "start_ns": at * SERIES_BIN_NS, "acked": acked, "failed": failed,
            "p50_ms": late / 2 if acked else math.nan, "p99_ms": float(late) if acked else math.nan,
            "longest_gap_ms": float(100 * place + 7),
        }
        for place, at, acked, failed, late in rows
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(table, schema=SERIES), path)
    return path


def one_row_too_few(right: Any) -> Any:
    return lambda found, table: right(found, table.slice(1))


def swapped_counts(right: Any) -> Any:
    def wrong(found: series.Series, *words: Any) -> None:
        right(found, *words)
        for track in found.places.values():
            track.acked, track.failed = track.failed, track.acked

    return wrong


@NUMBERS.derived(
    "series",
    one_row_too_few=(series, "_fill", one_row_too_few),
    swapped=(series, "_fill", swapped_counts),
    shortest_gap=(
        series.Series, "longest_gap",
        lambda _: property(lambda found: min(found.gaps_ms.items(), key=lambda one: one[1])),
    ),
)  # fmt: skip
@QUICK
@given(ROWS, st.integers(1, 50))
def of_series(rows: list[tuple[int, ...]], most: int) -> None:
    with TemporaryDirectory() as folder:
        found = series.read_series(written(rows, folder), most, [])
    assert found is not None
    assert found.bins <= most
    first = min(at for _, at, *_ in rows)
    factor = found.width_ns // SERIES_BIN_NS
    for name, column in (("acked", 2), ("failed", 3)):
        plain: Counter[int] = Counter()
        for row in rows:
            plain[(row[1] - first) // factor] += row[column]
        assert getattr(found.total, name) == [plain[at] for at in range(found.bins)]
        for place in PLACES:
            mine = sum(row[column] for row in rows if row[0] == place.partition)
            assert sum(getattr(found.places[place], name)) == mine if place in found.places else mine == 0
    for at in range(found.bins):
        latencies = [row[4] for row in rows if row[2] and (row[1] - first) // factor == at]
        assert found.total.p99[at] == (max(latencies) if latencies else None)
    assert found.longest_gap is not None
    assert found.longest_gap[1] == max(100 * row[0] + 7 for row in rows)


@NUMBERS.derived(
    "median",
    without_weights=(
        series,
        "weighted_median",
        lambda right: lambda pairs: right([(one, 1) for one, _ in pairs]),
    ),
    one_too_few=(series, "weighted_median", lambda right: lambda pairs: right(list(pairs)[1:])),
)
@QUICK
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 5)), max_size=9))
def weighted(pairs: list[tuple[int, int]]) -> None:
    each = sorted(one for one, weight in pairs for _ in range(weight))
    assert series.weighted_median(pairs) == (each[(len(each) - 1) // 2] if each else None)


@NUMBERS.derived(
    "rates",
    one_bin_too_few=(
        series, "_rates",
        lambda right: lambda found: right(SimpleNamespace(bins=found.bins, width_ns=found.width_ns,
                                                          total=SimpleNamespace(acked=found.total.acked[:-1]))),
    ),
    per_bin=(series, "_rates", lambda right: lambda found: [one * found.width_ns / 1e9 for one in right(found)]),
)  # fmt: skip
@QUICK
@given(st.lists(st.integers(1, 9), min_size=1, max_size=300), st.sampled_from([1, 3]))
def rates(acked: list[int], factor: int) -> None:
    found = series.Series(0, factor * SERIES_BIN_NS, series.Track.empty(len(acked)))
    found.total.acked = acked
    rates = series._rates(found)
    step = math.ceil(len(acked) / series.POINTS)
    groups = [acked[at : at + step] for at in range(0, len(acked), step)]
    assert rates == pytest.approx([sum(each) / len(each) / (factor / 10) for each in groups])
    assert series.peak_rate(found) == max(rates)


@NUMBERS.derived(
    "stretches",
    gap_too_wide=(findings, "stretches", lambda right: lambda told, gap, most: right(told, gap + 1, most)),
    one_record_too_few=(
        findings, "stretches",
        lambda right: lambda *words: ([(a, b, n - 1) for a, b, n in right(*words)[0]], right(*words)[1]),
    ),
    last_as_end=(
        findings, "stretches",
        lambda right: lambda *words: ([(a, b + 1, n) for a, b, n in right(*words)[0]], right(*words)[1]),
    ),
    only_those_kept=(findings, "stretches", lambda right: lambda *words: (found := right(*words)[0], len(found))),
)  # fmt: skip
@QUICK
@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=30, unique=True), st.integers(1, 4), st.integers(1, 5)
)
def of_stretches(told: list[int], gap: int, most: int) -> None:
    plain: list[list[int]] = []
    for number in sorted(told):
        if plain and number - plain[-1][-1] <= gap:
            plain[-1].append(number)
        else:
            plain.append([number])
    found, total = findings.stretches(pa.array(sorted(told)), gap, most)
    assert (found, total) == ([(each[0], each[-1], len(each)) for each in plain[:most]], len(plain))


def rows_of(offsets: Sequence[int]) -> pa.Table:
    row = dict.fromkeys(FINDINGS.names, 1) | {"class": "lost", "topic": "orders", "detail": "", "other": -1}
    return pa.Table.from_pylist([row | {"offset": one} for one in offsets])


@NUMBERS.derived(
    "lines",
    one_record_too_few=(findings, "number_range", lambda right: lambda told: right(told[1:] or told)),
    one_line_too_few=(findings, "first_lines", lambda right: lambda told, most: right(told, most)[:-1]),
    across_gaps=(findings, "_follows", lambda _: lambda *rows: True),
)
@QUICK
@given(st.lists(st.integers(0, 40), min_size=1, max_size=20, unique=True))
def of_lines(offsets: list[int]) -> None:
    offsets = sorted(offsets)
    found = findings.first_lines(rows_of(offsets), 100)
    plain = [
        [number for _, number in each] for _, each in groupby(enumerate(offsets), lambda one: one[1] - one[0])
    ]
    assert [whole(line.numbers("offset")) for line in found] == [
        sorted({each[0], each[-1]}) for each in plain
    ]


def event(kind: EventKind, at: int, **detail: object) -> Event:
    place = {"topic": "orders", "partition": 0} if detail.keys() & {"isr", "leader"} else {}
    return Event(t_ns=at * SECOND // 10, wall_ns=0, kind=kind, detail=detail, **place)  # type: ignore[arg-type]


@NUMBERS.derived(
    "times",
    from_the_begin=(reference, "_times", lambda right: lambda events: right(events[1:])),
    one_event_too_late=(reference, "_times", lambda right: lambda events: right((*events[:2], *events[3:]))),
    swapped=(
        reference, "_times",
        lambda right: lambda events: reference._Times(
            (found := right(events)).shrink_ms, found.new_leader_ms, found.full_isr_ms, found.leader
        ),
    ),
)  # fmt: skip
@QUICK
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def times(asked: int, shrunk: int, led: int, full: int) -> None:
    """Check the times after a fault that is followed by a smaller ISR, a new leader and a full ISR."""
    moments = [asked, asked + shrunk, asked + shrunk + led, asked + shrunk + led + full]
    isr = EventKind.ISR
    events = (
        event(EventKind.FAULT_ASKED, moments[0]),
        event(isr, moments[1], isr=[2]),
        event(EventKind.LEADER, moments[2], leader=2, epoch=1),
        event(isr, moments[3], isr=[1, 2]),
    )
    found = reference._times((event(isr, 0, isr=[1, 2]), *events))
    assert found == reference._Times(
        100 * (shrunk + led), 100 * shrunk, 100 * (shrunk + led + full), "broker 2"
    )


@NUMBERS.derived(
    "often",
    one_fault_too_few=(course, "circumstances", lambda right: lambda faults: right(faults[1:])),
    each_once=(
        course, "_phrase", lambda right: lambda who, many, done, kind, group: right(who, many, done, kind, group[:1])
    ),
)  # fmt: skip
@QUICK
@given(st.lists(st.integers(1, 3), min_size=2, max_size=6))
def often(nodes: list[int]) -> None:
    faults = [
        FaultLife(1, "kill", (node,), done="killed", role=f"broker({node})", confirmed=1) for node in nodes
    ]
    text, different = course.circumstances(faults), len(set(nodes))
    assert text.startswith(f"{different} brokers were killed" if different > 1 else "a broker was killed")
    times = len(nodes) if len(nodes) > different else 1
    assert text.endswith({1: " killed", 2: " twice"}.get(times, f" {times} times"))


@NUMBERS.derived(
    "columns",
    one_record_too_few=(
        views,
        "_columns",
        lambda right: lambda spans, start, last: right([(a, b - 1) for a, b in spans], start, last),
    ),
    from_nothing=(views, "_columns", lambda right: lambda spans, start, last: right(spans, 0, last)),
)
@QUICK
@given(st.lists(st.integers(1, 50), min_size=2, max_size=8, unique=True), st.integers(1, 9))
def columns(ends: list[int], before: int) -> None:
    """Check the columns of spans that are far apart, in a log that begins a little before them."""
    ends = sorted(ends)[: len(ends) // 2 * 2]
    spans = [(1000 + 10 * one, 1000 + 10 * two) for one, two in zip(ends[::2], ends[1::2], strict=True)]
    start, last = 1000 - before, spans[-1][1] + 1
    found = views._columns(spans, start, last)
    plain = [(100 * (a - start) / (last - start), 100 * (b + 1 - a) / (last - start)) for a, b in spans]
    assert [x for x, _ in found] == pytest.approx([x for x, _ in plain], abs=0.002)
    assert [width for _, width in found] == pytest.approx([width for _, width in plain], abs=0.002)


@NUMBERS.derived(
    "met",
    unknown_as_met=(
        expectations.Expectation, "count_met",
        lambda _: property(lambda one: sum(each.holds is not False for each in one.results)),
    ),
    one_case_too_few=(
        expectations.Expectation, "count_met",
        lambda _: property(lambda one: sum(each.holds is True for each in one.results[1:])),
    ),
)  # fmt: skip
@QUICK
@given(st.lists(st.sampled_from([True, False, None]), max_size=9))
def met(told: list[bool | None]) -> None:
    held: Any = tuple(SimpleNamespace(holds=one) for one in told)
    assert expectations.Expectation((), "lost", "0", held).count_met == told.count(True)


@pytest.mark.parametrize("name", list(NUMBERS.checks))
def test_a_number_is_as_a_plain_count_has_it(name: str) -> None:
    NUMBERS.checks[name]()


@pytest.mark.parametrize(("name", "what"), list(NUMBERS.mistakes))
def test_a_planted_mistake_is_found(name: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert NUMBERS.is_noticed(name, what, monkeypatch)
