"""Tests of the numbers that the report derives over repeats, against a plain computation. Planted mistakes must be
found: two numbers swapped, one repeat too few, an interval taken for a point."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from math import comb
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackproof.quantities.quantity import Value
from ackproof.repeats.intervals import Spread, spread_of
from ackproof.rundir.bounds import Unit
from ackproof.rundir.lab import ComparedCount
from ackproof_reports import answer, expectations, recovery, views
from ackproof_reports.cells import Cell
from ackproof_reports.loading import State
from ackproof_reports.wording import ABSENT
from derived import QUICK, Numbers

NUMBERS = Numbers()
Ends = tuple[float, float]


MS = st.integers(0, 20_000).map(lambda ms: ms / 1000)


@st.composite
def values(draw: st.DrawFn) -> list[Value]:
    found = []
    for _ in range(draw(st.integers(1, 14))):
        low, more = draw(MS), draw(MS)
        kinds = {
            "exact": Value.exactly(low), "between": Value(low, low + more), "cut": Value(low, math.inf, "cut"),
            "never": Value(low, math.inf, "never", never=True), "unknown": Value.unknown("nobody looked"),
        }  # fmt: skip
        found.append(kinds[draw(st.sampled_from(["exact", "exact", "between", "between", *kinds]))])
    return found


def read(text: str) -> Ends:
    """Parse a value in words, such as `at most 3 s`; return its two ends in seconds."""
    if text == "not bounded":
        return 0, math.inf
    numbers = [
        float(one[0]) / (1000 if one[1] == "ms" else 1) for one in re.findall(r"([0-9.]+) (ms|s)", text)
    ]
    assert numbers, text
    if text.startswith(("at least ", "never in ")):
        return numbers[0], math.inf
    return (0, numbers[0]) if text.startswith("at most ") else (numbers[0], numbers[-1])


def near(found: Ends, plain: Ends) -> bool:
    return found == pytest.approx(plain, abs=6e-4)


def plain_quantile(numbers: Sequence[float], share: Fraction) -> float:
    place = share * len(numbers)
    behind = numbers[min(len(numbers) - 1, math.floor(place))]
    return (numbers[place.numerator - 1] + behind) / 2 if place.denominator == 1 else behind


def plain_interval(lows: Sequence[float], highs: Sequence[float]) -> Ends:
    """Return the confidence interval of the median: the nearest ranks that cover it with 95 %; (0, infinity) if none
    do. Of several pairs, the one with the most equal risks on both sides."""
    count = len(lows)
    mass = [comb(count, k) for k in range(count + 1)]
    found = [
        (upper - lower, abs(sum(mass[:lower]) - sum(mass[upper:])), lower, upper)
        for lower in range(1, count + 1)
        for upper in range(lower + 1, count + 1)
        if sum(mass[lower:upper]) >= Fraction(19, 20) * 2**count
    ]
    return (lows[min(found)[2] - 1], highs[min(found)[3] - 1]) if found else (0, math.inf)


def of_spread(wrong: Callable[[Spread], Spread]) -> Callable[[Any], Any]:
    return lambda right: lambda told: (found := right(told)) and wrong(found)


def by_the_middle_interval(told: Sequence[Value]) -> Spread | None:
    """Planted mistake: take the first, the middle and the last interval in order."""
    found, known = (
        spread_of(told),
        sorted((one for one in told if one.is_known), key=lambda one: (one.low, one.high)),
    )
    if found is None:
        return None
    middle = replace(found.median, seen=known[(len(known) - 1) // 2])
    return replace(found, least=known[0], median=middle, most=known[-1])


OWNER = expectations, "spread_of"


@NUMBERS.derived(
    "rows",
    swapped=(*OWNER, of_spread(lambda one: replace(one, least=one.most, most=one.least))),
    median_and_p90_swapped=(*OWNER, of_spread(lambda one: replace(one, median=one.p90, p90=one.median))),
    one_repeat_too_few=(*OWNER, lambda right: lambda told: right(told[1:])),
    last_repeat_twice=(*OWNER, lambda right: lambda told: right([*told, told[-1]])),
    point=(*OWNER, lambda right: lambda told: right([replace(one, high=one.low) for one in told if one.is_known])),
    unknown_as_nothing=(
        *OWNER, lambda right: lambda told: right([one if one.is_known else Value.exactly(0) for one in told]),
    ),
    middle_interval=(*OWNER, lambda _: by_the_middle_interval),
    never_as_cut=(*OWNER, lambda right: lambda told: right([replace(one, never=False) for one in told])),
    known_too_many=(
        expectations, "row_of",
        lambda right: lambda cell, told, unit: replace(right(cell, told, unit), known=f"{len(told)} of {len(told)}"),
    ),
)  # fmt: skip
@QUICK
@given(values())
def rows(told: list[Value]) -> None:
    row = expectations.row_of("acks=all", told, Unit.SECONDS)
    known = [one for one in told if one.is_known]
    assert row.known == f"{len(known)} of {len(told)}"
    words = row.least, row.median, row.p90, row.most
    if not known:
        assert {*words, row.interval} == {ABSENT}
        return
    lows, highs = sorted(one.low for one in known), sorted(one.high for one in known)
    ends = [read(one) for one in words]
    plain = [
        (lows[0], highs[0]),
        (median(lows), median(highs)),
        (plain_quantile(lows, Fraction(9, 10)), plain_quantile(highs, Fraction(9, 10))),
        (lows[-1], highs[-1]),
    ]
    assert all(near(one, two) for one, two in zip(ends, plain, strict=True))
    assert [one for one, _ in ends] == sorted(one for one, _ in ends), "the lower ends contradict each other"
    assert [two for _, two in ends] == sorted(two for _, two in ends), "the upper ends contradict each other"
    assert near(read(row.interval), plain_interval(lows, highs))
    assert row.most.startswith("never in ") == any(one.never for one in known)
    assert row.least.startswith("never in ") == all(one.never for one in known)


def steps(path: str) -> list[Ends]:
    return [(float(x), float(y)) for x, y in re.findall(r"H([0-9.]+)V([0-9.]+)", path)]


def of_picture(
    wrong: Callable[[expectations.DistributionChart], expectations.DistributionChart],
) -> Callable[[Any], Any]:
    return lambda right: lambda *words: (found := right(*words)) and wrong(found)


@NUMBERS.derived(
    "picture",
    swapped=(
        expectations, "picture", of_picture(
            lambda one: replace(
                one, curves=tuple(replace(each, low=each.high, high=each.low) for each in one.curves)
            )
        ),
    ),
    one_repeat_too_few=(expectations, "_steps", lambda right: lambda told, count, to: right(told[1:], count, to)),
    one_repeat_too_many=(expectations, "_steps", lambda right: lambda told, count, to: right(told, count + 1, to)),
    point=(
        expectations, "picture",
        of_picture(lambda one: one if one.interval is None else replace(one, interval=(one.interval[0], 1.0))),
    ),
    axis=(expectations, "picture", of_picture(lambda one: replace(one, least=one.most, most=one.least))),
)  # fmt: skip
@QUICK
@given(values(), st.none() | st.tuples(MS, MS).map(lambda two: (min(two), max(two))))
def picture(told: list[Value], between: Ends | None) -> None:
    found = expectations.picture({"acks=all": told}, Unit.SECONDS, between)
    known = [one for one in told if one.is_known]
    finite = [end for one in known for end in (one.low, one.high) if end < math.inf] + list(between or ())
    if all(one.never for one in known):
        assert found is None
        return
    assert found is not None
    least, most = min(finite), max(finite)
    assert (near(read(found.least), (least, least)), near(read(found.most), (most, most))) == (True, True)

    def x(number: float) -> float:
        return 4 + 312 * (0.5 if least == most else (number - least) / (most - least))

    for path, ends in ((found.curves[0].low, [one.low for one in known]),
                       (found.curves[0].high, [one.high for one in known])):  # fmt: skip
        plain = [
            (x(end), 102 - 96 * number / len(told))
            for number, end in enumerate(sorted(one for one in ends if one < math.inf), start=1)
        ]
        assert [one for one, _ in steps(path)] == pytest.approx([one for one, _ in plain], abs=0.06)
        assert [two for _, two in steps(path)] == pytest.approx([two for _, two in plain], abs=0.06)
    if between is None:
        assert found.interval is None
    else:
        left, right = map(x, between)
        assert found.interval == pytest.approx((left, max(1, right - left)), abs=0.15)


@NUMBERS.derived(
    "starved",
    next_fault=(recovery, "_value", lambda right: lambda fact, told, what, number: right(fact, told, what, number + 1)),
    point=(
        recovery, "_value",
        lambda right: lambda *words: Value.exactly(found.high) if (found := right(*words)).is_known else found,
    ),
    as_measured=(
        recovery, "_value",
        lambda right: lambda fact, *words: right(SimpleNamespace(case=SimpleNamespace(starved=())), *words),
    ),
)  # fmt: skip
@QUICK
@given(values(), st.booleans(), st.integers(1, 15))
def starved(told: list[Value], is_starved: bool, number: int) -> None:
    """Check the value after each fault. On a starved machine it is only an upper bound."""
    after = [(SimpleNamespace(number=at), [("isr full", one)]) for at, one in enumerate(told, start=1)]
    fact = SimpleNamespace(case=SimpleNamespace(starved=("late",) if is_starved else ()))
    quantity = SimpleNamespace(variant="isr full")
    found = recovery._value(fact, SimpleNamespace(after=after), quantity, number)  # type: ignore[arg-type]
    if number > len(told) or not told[number - 1].is_known:
        assert not found.is_known
    else:
        plain = told[number - 1]
        assert (found.low, found.high) == (0.0 if is_starved else plain.low, plain.high)


@NUMBERS.derived(
    "late",
    swapped=(recovery, "_late", lambda right: lambda shown, real: right(real, shown)),
    point=(
        recovery,
        "_late",
        lambda right: lambda shown, real: right(Value.exactly(shown.low), Value.exactly(real.low)),
    ),
)
@QUICK
@given(values(), values())
def late(shown: list[Value], real: list[Value]) -> None:
    one, two = shown[0], real[0]
    text = recovery._late(one, two)
    if not (one.is_known and two.is_known) or two.high == math.inf:
        assert text == ""
    elif one.high == math.inf:
        assert text == ("never" if one.never else "unknown")
    else:
        assert near(read(text), (max(0, one.low - two.high), max(0, one.high - two.low)))


COUNTS = st.lists(
    st.fixed_dictionaries({"lost": st.none() | st.integers(0, 5000), "acked": st.none() | st.integers(0, 99999)}),
    min_size=1, max_size=6,
)  # fmt: skip


def whole(text: str) -> list[int]:
    return [int(one.replace(",", "")) for one in re.findall(r"[0-9][0-9,]*", text)]


@NUMBERS.derived(
    "cells",
    one_repeat_too_few=(views, "number_range", lambda right: lambda told: right(told[1:])),
    point=(views, "number_range", lambda right: lambda told: right(told[:1])),
    share_of_one_repeat=(
        views.CellFacts,
        "lost_share",
        lambda right: property(lambda cell: right.fget(views.CellFacts(cell.cell, cell.facts[:1]))),
    ),
)
@QUICK
@given(COUNTS, st.lists(st.none() | st.integers(1, 9999), min_size=6, max_size=6))
def cells(counts: list[dict[str, int | None]], gaps: list[int | None]) -> None:
    facts = tuple(
        SimpleNamespace(count=one.get, gap_ms=gap, gap=f"{gap} ms")
        for one, gap in zip(counts, gaps, strict=False)
    )
    cell = views.CellFacts(Cell({}, ()), facts)  # type: ignore[arg-type]
    lost = [one["lost"] for one in counts if one["lost"] is not None]
    assert (
        cell.number("lost") == ABSENT
        if not lost
        else set(whole(cell.number("lost"))) == {min(lost), max(lost)}
    )
    both = [(one["lost"], one["acked"]) for one in counts if one["lost"] is not None and one["acked"]]
    assert cell.lost_share == (sum(n for n, _ in both) / sum(of for _, of in both) if both else None)
    known = [gap for gap in gaps[: len(counts)] if gap is not None]
    assert cell.gap == (f"{max(known)} ms" if known else ABSENT)


def runs(counts: Sequence[dict[str, int | None]]) -> tuple[Any, ...]:
    return tuple(
        SimpleNamespace(
            state=State.PASS, lost=one["lost"], audit=None, counts={"acked": one["acked"]} if one["acked"] else {},
            entry=SimpleNamespace(title=f"acks=1#{number}"),
        )
        for number, one in enumerate(counts, start=1)
    )  # fmt: skip


@NUMBERS.derived(
    "lost",
    one_case_too_few=(answer, "_lost_of_acked", lambda right: lambda told: right(told[:-1] or told)),
    one_repeat_too_few=(
        answer, "_lost_of_acked", lambda right: lambda told: right([replace(one, runs=one.runs[1:]) for one in told])
    ),
    swapped=(
        answer, "_lost_of_acked",
        lambda right: lambda told: " of ".join(reversed(right(told).split(" of "))),
    ),
)  # fmt: skip
@QUICK
@given(st.lists(COUNTS, min_size=1, max_size=3))
def lost(counts: list[list[dict[str, int | None]]]) -> None:
    text = answer._lost_of_acked([Cell({}, runs(one)) for one in counts])
    every = [one for each in counts for one in each]
    gone = sum(one["lost"] or 0 for one in every)
    acked = [one["acked"] for one in every]
    assert whole(text) == ([gone, sum(n for n in acked if n)] if all(acked) else [gone])


@NUMBERS.derived(
    "tally",
    one_repeat_too_few=(
        answer, "tally", lambda right: lambda batch: right(SimpleNamespace(cases=batch.cases[1:] or batch.cases))
    ),
    repeats_as_cases=(
        answer, "cases_text", lambda _: lambda titles: f"{len(told := list(titles))} case{'s' * (len(told) != 1)}"
    ),
)  # fmt: skip
@QUICK
@given(st.lists(st.tuples(st.sampled_from(["acks=1", "acks=all"]), st.sampled_from(list(State))), max_size=9))
def tally(told: list[tuple[str, State]]) -> None:
    cases = [
        SimpleNamespace(state=state, entry=SimpleNamespace(title=f"{name}#{number}"))
        for number, (name, state) in enumerate(told, start=1)
    ]
    text = answer.tally(SimpleNamespace(cases=cases))  # type: ignore[arg-type]
    head, _, states = text.partition(": ")
    assert sum(whole(states)) == len(told)
    names = [name for name, _ in told]
    assert whole(head)[0] == len(set(names))
    counts = {names.count(name) for name in names}
    assert whole(head)[1:] == ([] if counts <= {1} else [max(counts)] if len(counts) == 1 else [len(told)])


@NUMBERS.derived(
    "counted",
    one_repeat_too_few=(ComparedCount, "_text", lambda right: staticmethod(lambda counts: right(counts[1:]))),
    swapped=(
        ComparedCount,
        "texts",
        lambda _: property(lambda self: tuple(map(self._text, self.counts[::-1]))),
    ),
)
@QUICK
@given(st.lists(st.lists(st.integers(0, 5000), max_size=4).map(tuple), min_size=2, max_size=2))
def counted(counts: list[tuple[int, ...]]) -> None:
    for text, each in zip(ComparedCount(anomaly="lost", counts=tuple(counts)).texts, counts, strict=True):
        if not each:
            assert text == "not counted"
        elif len(each) == 1 or not any(each):
            assert whole(text) == [sum(each)]
        else:
            assert whole(text) == [sum(each), sum(n > 0 for n in each), len(each)]


@pytest.mark.parametrize("name", list(NUMBERS.checks))
def test_a_number_is_as_a_plain_count_has_it(name: str) -> None:
    NUMBERS.checks[name]()


@pytest.mark.parametrize(("name", "what"), list(NUMBERS.mistakes))
def test_a_planted_mistake_is_found(name: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert NUMBERS.is_noticed(name, what, monkeypatch)
