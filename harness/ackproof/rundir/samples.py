"""`observed/partitions.jsonl`: what the protocol said of each partition, at 5 Hz or more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import Field, ValidationError

from ackproof.rundir.documents import Document


class Sample(Document):
    """One partition at one moment. -1 is unknown (no leader, no answer).

    `log_ends` maps a broker's id to the log end offset of its own replica, asked as a debugging replica; a broker
    that did not answer is missing. `high_watermark` and `last_stable` are asked at the leader.
    """

    t_ns: int
    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    high_watermark: int = -1
    last_stable: int = -1
    log_ends: dict[int, int] = Field(default_factory=dict)
    eligible: tuple[int, ...] = ()


def read_samples(path: Path) -> list[Sample]:
    """All whole samples; none where there is no such file."""
    return list(each_sample(path)) if path.exists() else []


def each_sample(path: Path) -> Iterator[Sample]:
    """One whole sample after another; a torn line is passed over. Raises OSError."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                yield Sample.model_validate_json(line)
            except ValidationError:
                continue
