"""What is demanded of a quantity over the repeats of a case, as expectations state it.

"p95 < 6s"                                    of all repeats of each case
"mean in 1s..3s during fault 1"               within a range, of a part of each run
"mean of acks=all over acks=1 in 1.1..3"      the ratio of two cases
"median of acks=all minus acks=1 < 2s"        the difference of two cases
"mean of acks=all over acks=1"                without a bound: it is measured, and nothing is demanded
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ackproof.base.advice import Advice, expected
from ackproof.quantities.quantity import Value, number_text, quantile_share
from ackproof.rundir.bounds import UNIT_PARSERS, UNIT_TEXTS, WHOLE, Unit, Window, split_tail

STATISTICS: Final = ("mean", "median", "max", "p90", "p95", "p99", "p99.9")
"""Statistics that an error message suggests."""
_DEMAND: Final = re.compile(
    r"\s*(?P<statistic>[A-Za-z][A-Za-z0-9.]*)"
    r"(?:\s+of\s+(?P<of>[^\s,]+(?:\s*,\s*[^\s,]+)*)\s+(?P<how>over|minus)\s+(?P<baseline>[^\s,]+(?:\s*,\s*[^\s,]+)*))?"
    r"(?:\s+(?:(?P<op>>=|<=|==|>|<)\s*(?P<value>\S.*)|in\s+(?P<low>\S.*?)\s*\.\.\s*(?P<high>\S.*)))?\Z"
)
_PLAIN: Final = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?\Z")
_EXAMPLE: Final = '"p95 < 6s", "mean in 1s..3s" or "mean of acks=all over acks=1 in 1.1..3"'


class Contrast(StrEnum):
    """Comparison of two groups of repeats: as a ratio or as a difference."""

    OVER = "over"
    """Ratio: the first group divided by the second."""
    MINUS = "minus"
    """Difference: the first group minus the second."""


@dataclass(frozen=True)
class Statistic:
    """A statistic of repeats, such as mean, p95 or max. `share`: the quantile's share, 0 … 1 (p95: 0.95, max: 1); None
    for the mean."""

    name: str
    share: float | None = None

    @classmethod
    def named(cls, word: str) -> Statistic | None:
        if word in ("mean", "max"):
            return cls(word, 1.0 if word == "max" else None)
        if word == "median":
            return cls(word, 0.5)
        share = quantile_share(word)
        return None if share is None else cls(word, share)

    @property
    def is_max(self) -> bool:
        """True for the maximum, which describes only the repeats that ran."""
        return self.share == 1.0


@dataclass(frozen=True)
class Range:
    """Numbers between `low` and `high`. A bound belongs to the range unless it is open (`low_open`,
    `high_open`).
    """

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False

    def holds(self, number: float) -> bool:
        above = number > self.low or (number == self.low and not self.low_open)
        below = number < self.high or (number == self.high and not self.high_open)
        return above and below

    def covers(self, low: float, high: float) -> bool | None:
        """Return True if all numbers from `low` to `high` are in the range, False if none are, None if only
        some are.
        """
        if self.holds(low) and self.holds(high):
            return True
        beneath = high < self.low or (high == self.low and self.low_open)
        beyond = low > self.high or (low == self.high and self.high_open)
        return False if beneath or beyond else None


@dataclass(frozen=True)
class Demand:
    """Expectation over repeats: a statistic, and the range in which it must be. `of`, `baseline`: settings (`acks=all`)
    or names of the groups to compare. `how`: the comparison; None: each case is judged by itself."""

    statistic: Statistic
    range: Range
    unit: Unit
    condition: str
    """Range in words, such as `< 6s`; '' without a range."""
    of: tuple[str, ...] = ()
    how: Contrast | None = None
    baseline: tuple[str, ...] = ()
    window: Window = WHOLE

    @classmethod
    def parse(cls, text: str, unit: Unit) -> Demand:
        """Parse a demand on a quantity of this unit. Raises ValueError for any other text.

        A demand has a statistic, perhaps two groups of repeats (`of A over B`, `of A minus B`), a bound or range, and
        perhaps a window: `p95 < 6s`, `mean of acks=all over acks=1 < 2`. Without a bound the number is only measured.
        """
        at, by, window = split_tail(text)
        match = _DEMAND.match(text[:at].rstrip())
        if match is None or by is not None:
            raise ValueError(expected(f"a statistic and its bound such as {_EXAMPLE}"))
        statistic = Statistic.named(match["statistic"])
        if statistic is None:
            raise ValueError(
                Advice(f"unknown statistic '{match['statistic'][:60]}'", f"there is {', '.join(STATISTICS)}")
            )
        how = Contrast(match["how"]) if match["how"] else None
        if how is not None and statistic.is_max:
            raise ValueError(
                Advice("max is of the repeats that ran, and is not compared", "write p95 or median")
            )
        ends = [text for text in (match["value"], match["low"], match["high"]) if text is not None]
        numbers = [_number(one.strip(), unit, how) for one in ends]
        if len(numbers) == 2 and numbers[0] > numbers[1]:
            raise ValueError("a range goes from the smaller number to the greater")
        words = [_text(one, unit, how) for one in numbers]
        told = f"{match['op']} {words[0]}" if match["op"] else f"in {'..'.join(words)}" if words else ""
        return cls(
            statistic,
            _range(match["op"], numbers),
            unit,
            told,
            _items(match["of"]),
            how,
            _items(match["baseline"]),
            window,
        )

    @property
    def is_bare(self) -> bool:
        """True if the expectation has no bound: the number is only measured."""
        return not self.condition

    def __str__(self) -> str:
        chosen = f"of {','.join(self.of)} {self.how} {','.join(self.baseline)}" if self.how else ""
        words = (self.statistic.name, chosen, self.condition, str(self.window))
        return " ".join(word for word in words if word)


def _items(text: str | None) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(",")) if text else ()


def _range(op: str | None, numbers: list[float]) -> Range:
    if op is None:
        return Range(numbers[0], numbers[1]) if numbers else Range()
    if op == "==":
        return Range(numbers[0], numbers[0])
    if op in ("<", "<="):
        return Range(high=numbers[0], high_open=op == "<")
    return Range(low=numbers[0], low_open=op == ">")


def _number(text: str, unit: Unit, how: Contrast | None) -> float:
    sign, length = 1, text
    if how is Contrast.MINUS and text.startswith("-"):
        sign, length = -1, text[1:].lstrip()
    if how is Contrast.OVER or unit in (Unit.COUNT, Unit.NUMBER):
        if not _PLAIN.match(length):
            what = "a ratio is a plain number" if how is Contrast.OVER else "a count has no unit"
            raise ValueError(f"{what} such as 1.5, not '{text[:60]}'")
        return sign * float(length)
    try:
        number = UNIT_PARSERS[unit](length)
    except ValueError as error:
        raise ValueError(f"expected {error}, not '{text[:60]}'") from error
    if number is None:
        raise ValueError(Advice("'full' is no number", "write a rate such as 5000/s"))
    return sign * number


def _text(number: float, unit: Unit, how: Contrast | None) -> str:
    sign, size = ("-" if number < 0 else ""), abs(number)
    if how is Contrast.OVER or unit in (Unit.COUNT, Unit.NUMBER):
        return f"{sign}{size:.9f}".rstrip("0").rstrip(".")
    return f"{sign}{UNIT_TEXTS[unit](size)}"


_FOUR_DIGITS: Final = 1000
"""Numbers from this one on are rounded to whole numbers: four digits would round known ones away."""


def value_text(value: Value, unit: Unit, how: Contrast | None = None) -> str:
    """Return a value in words: as a range if it is not exact, as `never in TIME` if its event did not happen. `unit`:
    unit of the quantity. `how`: set if the value is a difference or ratio of the quantity; None: it is the quantity
    itself."""
    return value.text(unit) if value.never else span_text(value.low, value.high, unit, how)


def span_text(low: float, high: float, unit: Unit, how: Contrast | None = None) -> str:
    """Return the range from `low` to `high` in words: `1 s to 2 s`, or with an infinite end `at least 1 s`, `at most 2
    s` or `not bounded`. `unit`: unit of the quantity. `how`: set if the numbers are differences or ratios of the
    quantity; None: the quantity itself."""
    if not math.isfinite(low):
        return f"at most {_end_text(high, unit, how)}" if math.isfinite(high) else "not bounded"
    if not math.isfinite(high):
        nothing = low <= 0 and how is not Contrast.MINUS
        return "not bounded" if nothing else f"at least {_end_text(low, unit, how)}"
    ends = _end_text(low, unit, how), _end_text(high, unit, how)
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def _end_text(number: float, unit: Unit, how: Contrast | None) -> str:
    if how is Contrast.OVER or unit in (Unit.COUNT, Unit.NUMBER):
        return f"{number:.4g}" if abs(number) < _FOUR_DIGITS else f"{number:.0f}"
    sign = "-" if number < 0 else ""
    return sign + number_text(abs(number), unit)
