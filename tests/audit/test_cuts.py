"""Where a hot bucket is cut: each task gets the same work, as far as the footers tell."""

from __future__ import annotations

from ackproof.audit.planning import (
    GREATEST,
    IDENTITY,
    LEAST,
    OFFSET,
    TIME,
    CutAxis,
    RowSource,
    count_ranges,
    cut_ranges,
)
from ackproof.ledgers.load import Spilled, Stream


def source(stream: Stream, low: int, high: int, rows: int) -> RowSource:
    spans = dict.fromkeys(("at_ns", "read_ns", "seq", "offset", "read_seq"), (low, high))
    return RowSource((stream, Spilled("", 0, rows, (), spans)))


def borders(sources: list[RowSource], axis: CutAxis, count: int) -> list[int]:
    cuts = cut_ranges(sources, axis, count)
    assert (cuts[0].low, cuts[-1].last) == (LEAST, GREATEST)
    assert [one.last + 1 for one in cuts[:-1]] == [one.low for one in cuts[1:]], (
        "no value is in two, or in none"
    )
    return [one.low for one in cuts[1:]]


def test_what_is_produced_costs_three_times_what_is_read_live() -> None:
    # 900 attempts cost 900, then 900 reads cost 300: of 1200 each half is 600.
    both = [source("produced", 0, 899, 900), source("live", 900, 1799, 900)]
    assert borders(both, TIME, 2) == [600]
    assert borders(both, TIME, 4) == [300, 600, 900]
    assert borders(both, TIME, 8) == [150, 300, 450, 600, 750, 900, 1350], (
        "of reads no more than three times as many"
    )
    assert (count_ranges(both, TIME, 400), count_ranges(both, TIME, 401)) == (3, 3)
    assert borders([source("produced", 0, 999, 1000)], TIME, 4) == [250, 500, 750]


def test_streams_that_an_axis_does_not_cut_are_in_no_range() -> None:
    live = [source("live", 0, 9, 100)]
    assert (count_ranges(live, IDENTITY, 10), count_ranges(live, TIME, 10)) == (0, 4)
    (one,) = cut_ranges(live, IDENTITY, 3)
    assert (one.low, one.last, one.sources, one.rows) == (LEAST, GREATEST, (), 0)


def test_a_row_group_costs_something_besides_its_rows_and_at_most_as_much() -> None:
    # 90,000 rows cost 120,000, three times 30,000 cost 180,000: the half is in the midst of the first of these three.
    sources = [source("final", 0, 89_999, 90_000)]
    sources += [source("final", low, low + 29_999, 30_000) for low in (90_000, 120_000, 150_000)]
    assert borders(sources, OFFSET, 2) == [105_000]
    # However many there are, none of two ranges has more than two thirds of the rows.
    tiny = [source("final", 10**9 + low, 10**9 + low, 1) for low in range(1000)]
    assert borders([source("final", 0, 999, 1000), *tiny], OFFSET, 2) == [10**9]
