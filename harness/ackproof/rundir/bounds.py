"""A bound on one quantity, as `expect` states it and `case.json` keeps it: a comparison, and when it must hold.

0                                         exactly this count
"< 6s"                                    a value, in the unit of its quantity
"always >= 2"                             a state, at every moment; `never`: at none
"never < 2 during fault 1"                a state, at no moment while fault 1 is in force
"always >= 3 outside faults"              a state, at every moment without a fault; `during faults`: with any
"eventually == 3 by 10s after fault 1"    a state, at a moment within 10 s of the confirmation of fault 1
"settles == 3 by 10s after fault 1"       a state, from such a moment until the load ends
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ackproof.base.advice import expected
from ackproof.base.units import (
    duration_text,
    parse_duration,
    parse_rate,
    parse_share,
    rate_text,
    share_text,
)

OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
}
"""Comparison operators of triggers and expectations. Longer signs come first, so that a regular expression of
them matches `>=` before `>`.
"""


class Unit(StrEnum):
    """Unit of the quantity that a bound limits."""

    COUNT = "count"
    SECONDS = "s"
    PER_SECOND = "1/s"
    SHARE = "%"
    NUMBER = "number"
    """Unit of a plain number: a size, an id, an epoch, an offset."""


class Mode(StrEnum):
    """Moments at which a state, such as the size of an ISR, must satisfy the comparison."""

    ALWAYS = "always"
    NEVER = "never"
    EVENTUALLY = "eventually"
    SETTLES = "settles"
    """From some moment until the end of the load."""


class Span(StrEnum):
    """Kind of the part of a run in which a bound is checked; `Window` adds the number of the fault."""

    WHOLE = ""
    """The whole run."""
    DURING = "during fault"
    """From the confirmation of a fault until its healing begins, or until it ends without one."""
    AFTER = "after fault"
    """From the confirmation of a fault on."""
    DURING_FAULTS = "during faults"
    """From the request for any fault until that fault has recovered, failed or missed."""
    OUTSIDE = "outside faults"
    """All of the load that is not `during faults`."""


@dataclass(frozen=True)
class Window:
    """The part of a run in which a bound is checked. `span`: its kind. `fault`: number of the fault for DURING and
    AFTER; None for the other kinds. As text: `during fault 1`; '' for the whole run."""

    span: Span = Span.WHOLE
    fault: int | None = None

    def __str__(self) -> str:
        return self.span.value if self.fault is None else f"{self.span.value} {self.fault}"


WHOLE: Final = Window()
_TAIL: Final = re.compile(
    r"(?:\s+by\s+(?P<by>\S+))?(?:\s+(?P<span>during fault|after fault)\s+(?P<fault>[1-9][0-9]{0,2})"
    r"|\s+(?P<wide>during faults|outside faults))?\s*\Z"
)
_HEAD: Final = re.compile(r"\s*(?:(?P<mode>always|never|eventually|settles)\s+)?(?P<op>>=|<=|==|>|<)?\s*")
_COUNT: Final = re.compile(r"[0-9]{1,15}\Z")
_EXAMPLES: Final = {
    Unit.COUNT: 'a count such as 0, or a bound in quotes such as "> 0", ">= 3" or "<= 2"',
    Unit.SECONDS: 'a bound with its unit in quotes such as "< 6s" or "<= 200ms"',
    Unit.PER_SECOND: 'a bound with its unit in quotes such as "> 1000/s"',
    Unit.SHARE: 'a bound with its unit in quotes such as "< 5%"',
    Unit.NUMBER: 'a state over time such as "always >= 2", "never < 2 during fault 1", "eventually == 3 by 10s after '
    'fault 1" or "settles == 3 by 10s after fault 1"',
}
UNIT_PARSERS: Final[Mapping[Unit, Callable[[str], float | None]]] = {
    Unit.SECONDS: parse_duration,
    Unit.PER_SECOND: parse_rate,
    Unit.SHARE: parse_share,
}
"""Parsers of numbers that are written with their unit. They raise ValueError for another form. That of rates returns
None for `full` (full speed)."""
UNIT_TEXTS: Final[Mapping[Unit, Callable[[float], str]]] = {
    Unit.SECONDS: duration_text,
    Unit.PER_SECOND: rate_text,
    Unit.SHARE: share_text,
}
"""Functions that write a number with its unit, in the form that `UNIT_PARSERS` read."""


@dataclass(frozen=True)
class Bound:
    """A comparison with a number, and when it must hold: `0`, `> 0`, `< 6s`, `always >= 2 during fault 1`.

    `op`: an operator of `OPERATORS` except `!=`. `value`: a number in `unit`; a share is 0 … 1. `mode`: None unless the
    quantity is a state. `window`: the part of the run that counts. `by_s`: deadline of the modes `eventually` and
    `settles`, in seconds; None: no deadline. It counts from the confirmation of the window's fault, or without a fault
    from the beginning of the load.
    """

    op: str
    value: float
    unit: Unit = Unit.COUNT
    mode: Mode | None = None
    window: Window = WHOLE
    by_s: float | None = None

    @classmethod
    def parse(cls, given: object, unit: Unit = Unit.COUNT) -> Bound:
        """Parse a bound: a whole number (exactly that count), or a text such as "> 0" or "< 6s after fault 1".

        `unit`: unit of the quantity, which decides the form of the number: `200ms` for SECONDS, `1000/s` for
        PER_SECOND, `5%` for SHARE, a whole number otherwise. NUMBER is the unit of states; their bounds begin with a
        mode (`always >= 2`), other bounds have none. Raises ValueError for another form, for `< 0`, and for a window or
        deadline that the mode cannot have.
        """
        wrong_form = ValueError(expected(_EXAMPLES[unit]))
        if (
            isinstance(given, int)
            and not isinstance(given, bool)
            and unit is Unit.COUNT
            and 0 <= given < 10**15
        ):
            return cls("==", given)
        if not isinstance(given, str):
            raise wrong_form
        head = _HEAD.match(given)
        assert head is not None  # every part of the pattern is optional, so it always matches
        end, by, window = split_tail(given)
        mode = Mode(head["mode"]) if head["mode"] else None
        if (mode is not None) != (unit is Unit.NUMBER) or head.end() > end:
            raise wrong_form
        value = _parse_number(given[head.end() : end].strip(), unit, wrong_form)
        bound = cls(head["op"] or "==", value, unit, mode, window, _deadline(by, mode, window))
        if bound.op == "<" and bound.value == 0 and unit is not Unit.NUMBER:  # except a leader: -1 is none
            raise ValueError("no count is below 0" if unit is Unit.COUNT else "nothing is below 0")
        return bound

    def __str__(self) -> str:
        plain = self.op == "==" and self.unit is Unit.COUNT
        text = UNIT_TEXTS.get(self.unit)
        number = str(int(self.value)) if text is None else text(self.value)
        by = None if self.by_s is None else f"by {duration_text(self.by_s)}"
        words = (self.mode, None if plain else self.op, number, by, str(self.window))
        return " ".join(word for word in words if word)

    @property
    def as_written(self) -> int | str:
        """The bound as an experiment file has it: a plain count as a number, anything else as text."""
        text = str(self)
        return int(text) if text.isdigit() else text

    def holds(self, number: float) -> bool:
        return OPERATORS[self.op](number, self.value)

    def holds_between(self, low: float, high: float) -> bool | None:
        """Return True if every number from `low` to `high` satisfies the bound, False if none does, None if only some
        do."""
        ends = self.holds(low), self.holds(high)
        if self.op == "==":
            return all(ends) if low == high or not low <= self.value <= high else None
        return ends[0] if ends[0] == ends[1] else None

    def is_exceeded_by(self, low: float, high: float) -> bool:
        """Return True if every number from `low` to `high` is too high for the bound (`<`, `<=` or `==`). False for
        numbers that are too low: they do not refute an expectation, they only do not demonstrate it."""
        return self.holds_between(low, high) is False and (
            self.op in ("<", "<=") or (self.op == "==" and low > self.value)
        )

    @property
    def lowest(self) -> int:
        value = int(self.value)
        return {">": value + 1, ">=": value, "==": value}.get(self.op, 0)

    @property
    def highest(self) -> int | None:
        """The largest count that satisfies the bound; None if it has no upper limit."""
        value = int(self.value)
        return {"<": value - 1, "<=": value, "==": value}.get(self.op)


def split_tail(text: str) -> tuple[int, str | None, Window]:
    """Split the deadline and the window off the end of a bound, such as `by 10s after fault 1`.

    Returns (length of the text before them, deadline, window). The deadline is as written (`10s`), None if the bound
    has none. The window is `WHOLE` if the bound names none.
    """
    tail = _TAIL.search(text)
    assert tail is not None  # every part of the pattern is optional, so it always matches
    span = tail["span"] or tail["wide"]
    window = Window(Span(span), int(tail["fault"]) if tail["fault"] else None) if span else WHOLE
    return tail.start(), tail["by"], window


def _parse_number(text: str, unit: Unit, wrong_form: ValueError) -> float:
    if unit in (Unit.COUNT, Unit.NUMBER):
        if not _COUNT.match(text):
            raise wrong_form
        return int(text)
    try:
        number = UNIT_PARSERS[unit](text)
    except ValueError as error:
        raise wrong_form from error
    if number is None:  # `full` stands for no number
        raise wrong_form
    return number


def _deadline(text: str | None, mode: Mode | None, window: Window) -> float | None:
    if mode is Mode.SETTLES and window.span not in (Span.WHOLE, Span.AFTER):
        raise ValueError("'settles' means until the end of the load: write no window, or 'after fault N'")
    if text is None:
        return None
    if mode not in (Mode.EVENTUALLY, Mode.SETTLES):
        raise ValueError(
            "only 'eventually' and 'settles' have a time by which: eventually == 3 by 10s after fault 1"
        )
    if window.span not in (Span.WHOLE, Span.AFTER):
        raise ValueError(
            f"'by {text}' counts from the beginning of the load, or with 'after fault N' from a fault"
        )
    return parse_duration(text)
