"""What an experiment expects to see: bounds on the counts of anomaly classes."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from pydantic import BeforeValidator, Field, PlainSerializer

from ackproof.experiment.base import Spec
from ackproof.experiment.quantities import wrong
from ackproof.rundir.bounds import Bound
from ackproof.rundir.documents import Scalar

BOUND_PATTERN: Final = r"^ *(>=|<=|==|>|<)? *[0-9]+ *$"


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
