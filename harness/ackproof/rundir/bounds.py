"""A comparison with a count, as expectations state it and `case.json` keeps it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
}
"""Comparisons of triggers and expectations; longer signs first, so that a pattern made of them finds them."""

_BOUND: Final = re.compile(r"\s*(>=|<=|==|>|<)?\s*([0-9]{1,15})\s*\Z")


@dataclass(frozen=True)
class Bound:
    """A comparison with a count: `0`, `> 0`, `<= 2`."""

    op: str
    value: int

    @classmethod
    def parse(cls, given: object) -> Bound:
        """Read a whole number (exactly that many) or a text such as "> 0". Raises ValueError."""
        if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 10**15:
            return cls("==", given)
        match = _BOUND.match(given) if isinstance(given, str) else None
        if match is None:
            raise ValueError(
                'expected a count such as 0, or a bound in quotes such as "> 0", ">= 3" or "<= 2"'
            )
        bound = cls(match[1] or "==", int(match[2]))
        if bound.op == "<" and bound.value == 0:
            raise ValueError("no count is below 0")
        return bound

    def __str__(self) -> str:
        return str(self.value) if self.op == "==" else f"{self.op} {self.value}"

    def holds(self, count: int) -> bool:
        """Whether `count` is within the bound."""
        return OPERATORS[self.op](count, self.value)

    @property
    def lowest(self) -> int:
        """The smallest count that holds."""
        return {">": self.value + 1, ">=": self.value, "==": self.value}.get(self.op, 0)

    @property
    def highest(self) -> int | None:
        """The largest count that holds; None when there is no upper bound."""
        return {"<": self.value - 1, "<=": self.value, "==": self.value}.get(self.op)
