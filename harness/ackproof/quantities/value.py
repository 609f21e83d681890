"""A measured number, as far as the evidence tells it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ackproof.rundir.bounds import Unit


@dataclass(frozen=True)
class Value:
    """A number between `low` and `high`, both included; `high` is infinite where nothing ends it. `why`: why it is not
    one number, in words: what cut it, or what is missing. `never`: an event was watched for all the time, for `low` at
    least, and did not come."""

    low: float
    high: float
    why: str = ""
    never: bool = False

    @classmethod
    def exactly(cls, number: float) -> Value:
        """One number."""
        return cls(number, number)

    @classmethod
    def unknown(cls, why: str) -> Value:
        """Nothing is known."""
        return cls(-math.inf, math.inf, why)

    @property
    def known(self) -> bool:
        """Whether anything is."""
        return self.low > -math.inf

    def text(self, unit: Unit) -> str:
        """In words."""
        if not self.known:
            return "unknown"
        low = number_text(self.low, unit)
        if self.high == math.inf:
            return f"never in {low}" if self.never else f"at least {low}"
        high = number_text(self.high, unit)
        return low if low == high else f"{low} to {high}"


def number_text(number: float, unit: Unit) -> str:
    """A number with its unit, to a millisecond or to four digits."""
    if unit in (Unit.COUNT, Unit.NUMBER):
        return f"{number:.0f}"
    if unit is Unit.SECONDS and number >= 1:
        return f"{number:.3f} s"
    if unit is Unit.SECONDS:
        return f"{number * 1e3:.4g} ms"
    return f"{number:.4g}/s" if number < 1000 else f"{number:.0f}/s"


def longest(values: list[Value]) -> Value:
    """The greatest of them; of those that are open or wide the reason of the one that reaches highest. Never, where one
    never came."""
    top = max(values, key=lambda one: (one.never, one.high, one.low))
    return Value(max(one.low for one in values), top.high, top.why, top.never)


def shortest(values: list[Value]) -> Value:
    """The smallest of them. Never, where none of them ever came."""
    first = min(values, key=lambda one: (one.never, one.high, one.low))
    return Value(min(one.low for one in values), first.high, first.why, first.never)


def total(values: list[Value]) -> Value:
    """Their sum."""
    why = next((one.why for one in values if one.why), "")
    return Value(sum(one.low for one in values), sum(one.high for one in values), why)
