"""What an experiment expects to see: bounds on the counts of anomaly classes (DESIGN §1.6, §6)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from pydantic import BeforeValidator, Field, PlainSerializer

from ackproof.experiment.base import OPERATORS, Spec
from ackproof.experiment.quantities import wrong
from ackproof.rundir.documents import Scalar

_BOUND: Final = re.compile(r"\s*(>=|<=|==|>|<)?\s*([0-9]{1,15})\s*\Z")
BOUND_PATTERN: Final = r"^ *(>=|<=|==|>|<)? *[0-9]+ *$"


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


def _read_bound(value: object) -> object:
    if isinstance(value, Bound):
        return value
    try:
        return Bound.parse(value)
    except ValueError as error:
        raise wrong(str(error)) from error


BoundField: TypeAlias = Annotated[
    Bound,
    BeforeValidator(_read_bound),
    PlainSerializer(lambda bound: bound.value if bound.op == "==" else str(bound)),
]


class ExpectSpec(Spec):
    """Bounds for the cases that have the `given` settings; without `given`, for every case.

    A setting is named by its path or by the end of it (`acks`, `min.insync.replicas`).
    """

    given: dict[str, Scalar] = Field(default_factory=dict)
    bounds: dict[str, BoundField] = Field(default_factory=dict)

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value}" for name, value in self.given.items()) or "every case"
        return f"{given}: " + ", ".join(f"{name} {bound}" for name, bound in self.bounds.items())
