"""`TopicPartition`, the one type for a partition of a topic, used from the experiment file to the findings."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_TEXT: Final = re.compile(r"([A-Za-z0-9._-]{1,249})/([0-9]{1,9})\Z")


def internal(topic: str) -> bool:
    """Return True for names that begin with `__`, as those of Kafka's internal topics do: `__consumer_offsets`, …"""
    return topic.startswith("__")


class TopicPartition(NamedTuple):
    """A partition of a topic; as text `orders/0`."""

    topic: str
    partition: int

    @classmethod
    def parse(cls, text: str) -> TopicPartition:
        """Parse a text such as `orders/0`. Raises ValueError for a text of another form."""
        match = _TEXT.match(text)
        if match is None:
            raise ValueError(f"expected a partition such as orders/0, not '{text[:60]}'")
        return cls(match[1], int(match[2]))

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"
