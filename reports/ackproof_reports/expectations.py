"""Views of a case's expectations, and of expectations over its repeats: distribution, interval, verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from ackproof.quantities.quantity import Value, number_text
from ackproof.repeats.demand import span_text, value_text
from ackproof.repeats.intervals import spread_of
from ackproof.rundir.anomalies import TABLE
from ackproof.rundir.batch import OverRepeats
from ackproof.rundir.bounds import Bound, Unit
from ackproof_reports.loading import BatchView, CaseView, State
from ackproof_reports.wording import ABSENT, plural, scalar, short_setting


@dataclass(frozen=True)
class ExpectationResult:
    """Result of one bound in one case. `count`: number of findings; None: not counted, or the quantity is no count.
    `holds` None: undecided. `seen`: the measured value in words, if the quantity is not a count."""

    case: CaseView
    count: int | None
    holds: bool | None
    seen: str = ""


@dataclass(frozen=True)
class Expectation:
    """One bound of one `expect` line, with its result in every case to which it applies. `given`: (setting,
    value) pairs to which the line is limited. `anomaly`: the class or quantity. `bound`: such as `<= 5`, as
    the file has it.
    """

    given: tuple[tuple[str, str], ...]
    anomaly: str
    bound: str
    results: tuple[ExpectationResult, ...]

    @property
    def where(self) -> str:
        """Settings for which the bound is expected, by short names, such as `acks=all`; `every case` if the line names
        none."""
        return ", ".join(f"{short_setting(name)}={value}" for name, value in self.given) or "every case"

    @property
    def count_met(self) -> int:
        return sum(results.holds is True for results in self.results)


def expectations(cases: Sequence[CaseView]) -> list[Expectation]:
    """Return the expectations of one experiment, each once, with its result in every case to which it
    applies.
    """
    lines: dict[tuple[tuple[tuple[str, str], ...], str, str], list[ExpectationResult]] = {}
    for case in cases:
        expect_lines = case.resolved("experiment", "expect")
        for expect in expect_lines if isinstance(expect_lines, list) else ():
            if not isinstance(expect, dict):
                continue
            settings = expect.get("given")
            given = tuple(
                (name, _text(value))
                for name, value in (settings.items() if isinstance(settings, dict) else ())
            )
            for anomaly, bound in expect.items():
                if anomaly == "given":
                    continue
                results = lines.setdefault((given, anomaly, _text(bound)), [])
                if _applies(given, case):
                    results.append(_judge_expectation(case, anomaly, _text(bound)))
    return [
        Expectation(given, anomaly, bound, tuple(results))
        for (given, anomaly, bound), results in lines.items()
    ]


def _judge_expectation(case: CaseView, name: str, bound: str) -> ExpectationResult:
    """Return the result of the bound on quantity `name` in a case. For an anomaly class it is computed from the audit's
    count, otherwise taken from the judge. Without either it is undecided."""
    if name in TABLE:
        count = case.counts.get(name)
        return ExpectationResult(case, count, _holds(bound, count))
    for one in case.judged.expected if case.judged else ():
        if (one.quantity, one.bound) == (name, bound):
            notes = [one.why, f"timing {one.timing}" if one.timing else ""]
            note = "; ".join(filter(None, notes))
            return ExpectationResult(case, None, one.holds, f"{one.seen} ({note})" if note else one.seen)
    return ExpectationResult(case, None, None)


def _text(value: JsonValue) -> str:
    return scalar(value) if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _applies(given: Sequence[tuple[str, str]], case: CaseView) -> bool:
    """Return True unless the case has another value for one of the settings in `given`.

    `given` names a setting by its path or by the path's last part.
    """
    return not any(
        (path == name or path.endswith((f".{name}", f"[{name}]"))) and scalar(actual) != value
        for name, value in given
        for path, actual in case.settings.items()
    )


def _holds(bound: str, count: int | None) -> bool | None:
    if count is None:
        return None
    try:
        return Bound.parse(bound).holds(count)
    except ValueError:
        return None  # of another version: it cannot be said


WIDTH: Final = 320
HEIGHT: Final = 120
_LEFT, _TOP, _BOTTOM = 4, 6, 18


@dataclass(frozen=True)
class Curve:
    """Distribution curve of one case (`cell`: its name) as SVG paths. `low`, `high`: curves of the least and
    greatest values that its repeats can have had.
    """

    cell: str
    low: str
    high: str


@dataclass(frozen=True)
class DistributionChart:
    """Distribution curves in a box of WIDTH × HEIGHT. `interval`: x and width of the confidence interval;
    None if there is none on this axis. `least`, `most`: values at the left and right end, as text.
    """

    curves: tuple[Curve, ...]
    interval: tuple[float, float] | None
    least: str
    most: str


@dataclass(frozen=True)
class RepeatsRow:
    """One case in the table of values over repeats, all as text. `cell`: name of the case. `known`: number of repeats
    with a value, such as `3 of 5`. `interval`: 95 % confidence interval of the median. `p90`: 90th percentile. Without
    any value, all but `cell` and `known` are `ABSENT`."""

    cell: str
    known: str
    least: str = ABSENT
    median: str = ABSENT
    interval: str = ABSENT
    p90: str = ABSENT
    most: str = ABSENT


@dataclass(frozen=True)
class RepeatsView:
    """One quantity over the repeats of cases: for an expectation, a claim, or the time after a fault.

    `title`: the quantity, and what it is measured for, in words. `rows`: one row per case. The fields from `seen` on
    are text: the estimate, its confidence interval, the number of repeats, the brokers' timing, and why it is
    undecided. They are '' for the time after a fault."""

    title: str
    rows: tuple[RepeatsRow, ...]
    picture: DistributionChart | None
    """The distribution as a drawing. None if no value is known, or for times until an event that happened in no
    repeat."""
    state: State | None = None
    """Verdict on the expectation; None if the quantity is only shown."""
    seen: str = ""
    interval: str = ""
    repeats: str = ""
    timing: str = ""
    why: str = ""


def over_repeats(batch: BatchView) -> list[RepeatsView]:
    """Return a view of each expectation over repeats, in the order of `batch.json`, then of each measurement
    for a claim.
    """
    return [
        RepeatsView(
            title=f"{one.claim}: {one.title}" if one.claim else one.title,
            rows=tuple(row_of(cell, values, Unit(one.unit)) for cell, values in _values(one).items()),
            picture=draw_distribution(one),
            state=None if one.claim else state_of(one),
            seen=one.seen or ABSENT,
            interval=f"{one.interval} ({one.confidence * 100:.4g} %)" if one.interval else ABSENT,
            repeats=plural(one.repeats, "repeat"),
            timing=one.timing,
            why=one.why,
        )
        for one in (*batch.file.over_repeats, *batch.file.claimed)
    ]


def state_of(one: OverRepeats) -> State:
    """Return the verdict of an expectation as a state; `NOT_JUDGED` without a verdict."""
    return State.NOT_JUDGED if one.verdict is None else State(one.verdict.value)


def row_of(cell: str, values: Sequence[Value], unit: Unit) -> RepeatsRow:
    """Return the table row of one case, with the spread of its repeats' values as text."""
    known, spread = f"{sum(one.is_known for one in values)} of {len(values)}", spread_of(values)
    if spread is None:
        return RepeatsRow(cell, known)
    return RepeatsRow(
        cell,
        known,
        value_text(spread.least, unit),
        value_text(spread.median.seen, unit),
        span_text(spread.median.low, spread.median.high, unit),
        value_text(spread.p90.seen, unit),
        value_text(spread.most, unit),
    )


def _values(one: OverRepeats) -> dict[str, list[Value]]:
    return {
        cell: [
            Value.unknown(value.why)
            if value.low is None
            else Value(value.low, math.inf if value.high is None else value.high, value.why, value.never)
            for value in values
        ]
        for cell, values in zip(one.cells, one.values, strict=False)
    }


# -- the picture ----------------------------------------------------------------------------------------------------


def draw_distribution(one: OverRepeats) -> DistributionChart | None:
    """Draw the distribution of values over repeats, one curve per case. None if no value is known, or if the values are
    times until an event that happened in no repeat.

    The confidence interval is drawn only if it has the same axis: not for a ratio or difference of two cases."""
    interval = None
    # That of a ratio or a difference of two cases is on another axis.
    if one.interval and len(one.cells) <= 1:
        interval = -math.inf if one.low is None else one.low, math.inf if one.high is None else one.high
    return picture(_values(one), Unit(one.unit), interval)


def picture(
    groups: Mapping[str, Sequence[Value]], unit: Unit, between: tuple[float, float] | None = None
) -> DistributionChart | None:
    """Draw the distribution of each case's values. None if no value is known, or if the values are times until an event
    that happened in no repeat.

    `groups`: the values by name of the case. `between`: ends of a confidence interval to draw; None: no interval."""
    known = {cell: [one for one in group if one.is_known] for cell, group in groups.items()}
    numbers = [end for group in known.values() for one in group for end in (one.low, one.high)]
    finite = [end for end in (*numbers, *(between or ())) if math.isfinite(end)]
    if not finite or all(one.never for group in known.values() for one in group):
        return None
    least, most = min(finite), max(finite)

    def across(number: float) -> float:
        share = 0.5 if most == least else (min(max(number, least), most) - least) / (most - least)
        share = float(number > 0) if math.isinf(number) else share
        return round(_LEFT + share * (WIDTH - 2 * _LEFT), 1)

    interval = None
    if between is not None:
        left, right = map(across, between)
        interval = (left, round(max(1.0, right - left), 1))
    curves = []
    for cell, group in known.items():
        ends = [one.low for one in group], [one.high for one in group]
        low, high = (_steps(side, len(groups[cell]), across) for side in ends)
        curves.append(Curve(cell, low, high))
    return DistributionChart(tuple(curves), interval, number_text(least, unit), number_text(most, unit))


def _steps(numbers: Sequence[float], count: int, across: Callable[[float], float]) -> str:
    """Return the SVG path of a step curve that rises at each of `numbers`, by 1 / `count` of the height. `count`:
    number of repeats, also of those without a value. `across`: returns the x coordinate of a number. Infinite numbers
    are left out."""
    path = [f"M{_LEFT} {HEIGHT - _BOTTOM}"]
    for done, number in enumerate(sorted(one for one in numbers if math.isfinite(one)), start=1):
        height = round(HEIGHT - _BOTTOM - (HEIGHT - _BOTTOM - _TOP) * done / count, 1)
        path.append(f"H{across(number)}V{height}")
    return "".join([*path, f"H{WIDTH - _LEFT}"])
