"""`observed/partitions.jsonl`: what the protocol said of each partition, at 5 Hz or more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError


@dataclass(frozen=True, slots=True)
class Sample:
    """One partition at one moment. -1 is unknown (no leader, no answer).

    `log_ends` maps a broker's id to the log end offset of its own replica, asked as a debugging replica; a broker
    that did not answer is missing. `high_watermark` and `last_stable` are asked at the leader.

    No `Document`: a soak leaves tens of thousands an hour, and one of those takes four times the memory.
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
    log_ends: Mapping[int, int] = field(default_factory=dict)
    eligible: tuple[int, ...] = ()

    def line(self) -> str:
        """As a line of the file, without its end."""
        return _lines().dump_json(self).decode()


@cache
def _lines() -> TypeAdapter[Sample]:
    return TypeAdapter(Sample)


def read_samples(path: Path) -> list[Sample]:
    """All whole samples; none where there is no such file. What is the same in many is one object."""
    if not path.exists():
        return []
    known: dict[tuple[int, ...], tuple[int, ...]] = {}
    found = []
    for one in each_sample(path):
        replicas, isr, eligible = (
            known.setdefault(ids, ids) for ids in (one.replicas, one.isr, one.eligible)
        )
        found.append(replace(one, replicas=replicas, isr=isr, eligible=eligible))
    return found


def each_sample(path: Path) -> Iterator[Sample]:
    """One whole sample after another; a torn line is passed over. Raises OSError."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                yield _lines().validate_json(line)
            except ValidationError:
                continue
