"""Tests of the numbers and positions that the report derives of losses, against a plain computation. Planted mistakes
must be found."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackproof.rundir.lab import ComparedSide
from ackproof.rundir.model import ConformanceFile, SimulatedSpread, Truncation
from ackproof.rundir.timeline import Event, EventKind
from ackproof_reports import comparison_pages, course, findings, mechanics, reference, stories, views
from derived import QUICK, Numbers

NUMBERS = Numbers()


def whole(text: str) -> list[int]:
    return [int(one.replace(",", "")) for one in re.findall(r"[0-9][0-9,]*", text)]


@NUMBERS.derived(
    "causes",
    one_cause_too_few=(stories, "_all", lambda right: lambda replay: list(right(replay))[1:]),
    last_as_end=(
        stories, "_all",
        lambda right: lambda replay: (replace(one, what=one.what.replace("to 1", "to 2")) for one in right(replay)),
    ),
    swapped=(
        stories, "causes_of",
        lambda right: lambda case: (found := right(case)) and replace(
            found, more=found.more_records, more_records=found.more
        ),
    ),
)  # fmt: skip
@QUICK
@given(st.lists(st.integers(2, 99), min_size=48, max_size=56))
def of_causes(acked: list[int]) -> None:
    cuts = tuple(
        Truncation(topic="orders", partition=0, from_offset=100 + number, to_offset=191, old_epoch=0, new_epoch=1,
                   new_leader=2, why="why", acked=count)
        for number, count in enumerate(acked)
    )  # fmt: skip
    case: Any = SimpleNamespace(conformance=ConformanceFile(truncations=cuts), untold=())
    found = stories.causes_of(case)
    assert found is not None
    heaviest = sorted(acked, reverse=True)
    assert [one.records for one in found.shown] == heaviest[: stories.MOST]
    assert (found.more, found.more_records) == (len(heaviest[stories.MOST :]), sum(heaviest[stories.MOST :]))
    assert all(whole(one.what)[1] == 190 for one in found.shown)


@NUMBERS.derived(
    "bars",
    one_offset_too_few=(
        mechanics, "_bars", lambda right: lambda shown, start, end, epoch=-1: right(shown, start, end - 1, epoch)
    ),
    from_nothing=(
        mechanics, "_bars", lambda right: lambda shown, *words: right((shown[0] - 1, shown[1]), *words),
    ),
)  # fmt: skip
@QUICK
@given(st.integers(0, 50), st.integers(1, 50), st.integers(0, 120), st.integers(1, 60))
def bars(low: int, size: int, start: int, length: int) -> None:
    high, end = low + size, start + length
    found = list(mechanics._bars((low, high), start, end))
    inside = [offset for offset in range(start, end) if low <= offset < high]
    assert len(found) == bool(inside)
    for bar in found:
        assert (bar.x, bar.width) == pytest.approx(
            (100 * (inside[0] - low) / size, 100 * len(inside) / size), abs=0.002
        )


@NUMBERS.derived(
    "end",
    one_offset_too_few=(
        views,
        "_columns",
        lambda right: lambda spans, start, last: right(spans, start, last + 1),
    ),
    at_the_last=(views, "LogMap", lambda right: lambda **words: right(**words | {"end_x": 100.0})),
)
@QUICK
@given(st.integers(0, 40), st.integers(50, 90), st.integers(50, 90))
def end(start: int, of_read: int, first: int) -> None:
    """Check where the end of the final read is drawn in a log whose last records were lost."""
    group = findings.Group("lost", "orders", 0, None, 10, first, first + 9, (), 1, ((first, first + 9),))
    read = SimpleNamespace(topic="orders", partition=0, start=start, end=of_read)
    fact: Any = SimpleNamespace(
        case=SimpleNamespace(final=SimpleNamespace(partitions=[read])), lost_groups=(group,)
    )
    (found,) = views._maps(fact)
    last = max(of_read, first + 10)
    assert found.end_x == pytest.approx(100 * (of_read - start) / (last - start), abs=0.002)
    (x, width), size = found.parts[0], last - start
    assert (x, width) == pytest.approx((100 * (first - start) / size, 1000 / size), abs=0.002)


@NUMBERS.derived(
    "ranges",
    swapped=(
        reference, "_range",
        lambda right: lambda one, told: right(one.model_copy(update={"least": one.most, "most": one.least}), told),
    ),
    point=(
        reference, "_range",
        lambda right: lambda one, told: right(one.model_copy(update={"least": one.p50, "most": one.p50}), told),
    ),
)  # fmt: skip
@QUICK
@given(st.lists(st.integers(0, 9999), min_size=3, max_size=3))
def of_ranges(numbers: list[int]) -> None:
    least, middle, most = sorted(numbers)
    one = spread(least, middle, most)
    text = reference._range(one, lambda value: f"{value:.0f}")
    assert whole(text) == ([middle, least, most] if least < most else [middle])


def spread(least: float, middle: float, most: float) -> SimulatedSpread:
    fields = dict.fromkeys(
        (name for name, one in SimulatedSpread.model_fields.items() if one.is_required()), 1.0
    )
    return SimulatedSpread.model_validate(
        {**fields, "name": "lost", "runs": 9, "least": least, "p50": middle, "most": most}
    )


@NUMBERS.derived(
    "marks",
    point=(
        comparison_pages, "_line",
        lambda right: lambda title, unit, case, sides: right(
            title, unit, case, [one.model_copy(update={"low": one.middle, "high": one.middle}) for one in sides]
        ),
    ),
    swapped=(
        comparison_pages, "_line",
        lambda right: lambda *words: replace(
            found := right(*words), marks=tuple(replace(one, low=one.high, high=one.low) for one in found.marks)
        ),
    ),
    one_batch_too_few=(
        comparison_pages, "_line", lambda right: lambda *words: replace(found := right(*words), marks=found.marks[1:])
    ),
)  # fmt: skip
@QUICK
@given(st.lists(st.lists(st.integers(1, 500), min_size=3, max_size=3), min_size=2, max_size=6))
def marks(told: list[list[int]]) -> None:
    """Check the marks of each batch: its interval and middle, with the greatest value at the upper edge."""
    sides = [ComparedSide(repeats=3, low=a, middle=b, high=c) for a, b, c in map(sorted, told)]
    point = SimpleNamespace(batch="b", verdicts="3 PASS", worst="PASS", changed=())
    case: Any = SimpleNamespace(points=[point] * len(sides))
    found = comparison_pages._line("title", "s", case, sides)
    top = max(max(each) for each in told)
    assert float(found.top.removesuffix(" s")) == pytest.approx(top, rel=1e-3)
    assert len(found.marks) == len(sides)
    for mark, side in zip(found.marks, sides, strict=True):
        plain = [82 - 74 * (number or 0) / top for number in (side.low, side.high, side.middle)]
        assert [mark.low, mark.high, mark.seen] == pytest.approx(plain, abs=0.06)


@NUMBERS.derived(
    "findings",
    one_too_few=(findings, "_count", lambda right: lambda column: right(column[1:])),
)
@QUICK
@given(st.lists(st.sampled_from(["lost", "duplicate"]), min_size=1, max_size=20), st.integers(0, 30))
def of_findings(classes: list[str], room: int) -> None:
    counts = findings._count(pa.chunked_array([pa.array(classes)]))
    assert counts == {name: classes.count(name) for name in set(classes)}
    quota = findings._quotas(counts, room, ["duplicate"])
    assert sum(quota.values()) == min(room, len(classes))
    assert quota.get("duplicate", 0) == min(room, classes.count("duplicate")), (
        "the class that is asked for comes first"
    )


@NUMBERS.derived(
    "phases",
    ends_of_the_next=(
        course, "_phases",
        lambda right: lambda events, end: tuple(
            replace(one, end_ns=one.end_ns + 1) for one in right(events, end)
        ),
    ),
    one_phase_too_few=(course, "_phases", lambda right: lambda events, end: right(events[1:], end)),
)  # fmt: skip
@QUICK
@given(st.lists(st.integers(0, 99), min_size=1, max_size=6, unique=True))
def phases(begins: list[int]) -> None:
    begins = sorted(begins)
    events = [
        Event(t_ns=at, wall_ns=0, kind=EventKind.PHASE, detail={"phase": f"p{number}"})
        for number, at in enumerate(begins)
    ]
    found = course._phases(events, 200)
    assert [(one.name, one.start_ns, one.end_ns) for one in found] == [
        (f"p{number}", at, [*begins, 200][number + 1]) for number, at in enumerate(begins)
    ]


@pytest.mark.parametrize("name", list(NUMBERS.checks))
def test_a_number_is_as_a_plain_count_has_it(name: str) -> None:
    NUMBERS.checks[name]()


@pytest.mark.parametrize(("name", "what"), list(NUMBERS.mistakes))
def test_a_planted_mistake_is_found(name: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert NUMBERS.is_noticed(name, what, monkeypatch)
