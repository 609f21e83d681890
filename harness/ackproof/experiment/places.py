"""A partition as a file names it: `orders/0`."""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypeAlias

from pydantic import WithJsonSchema

from ackproof.experiment.base import text_field
from ackproof.experiment.roles import parse_place


class Place(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    @classmethod
    def parse(cls, text: str) -> Place:
        """Read `orders/0`. Raises ValueError."""
        return cls(*parse_place(text))

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


PlaceField: TypeAlias = Annotated[
    Place,
    *text_field(Place.parse, Place, "a partition such as orders/0"),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^[A-Za-z0-9._-]+/[0-9]+$",
            "title": "Partition",
            "description": "One partition, such as orders/0.",
        }
    ),
]
