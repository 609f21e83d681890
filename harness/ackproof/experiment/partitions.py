"""A partition as a file names it: `orders/0`."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import WithJsonSchema

from ackproof.experiment.base import text_field
from ackproof.rundir.partition import TopicPartition

PartitionField: TypeAlias = Annotated[
    TopicPartition,
    *text_field(TopicPartition.parse, TopicPartition, "a partition such as orders/0"),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^[A-Za-z0-9._-]+/[0-9]+$",
            "title": "Partition",
            "description": "One partition, such as orders/0.",
        }
    ),
]
