"""What `ackproof trend` makes its page of: many batches in the order of their dates."""

from __future__ import annotations

from ackproof.rundir.comparison import Side
from ackproof.rundir.documents import Document


class TrendPoint(Document):
    """A case in one batch. `verdicts` in words, `worst` of them; `lost` of all its repeats, None: not counted.

    `changed`: what differs from the point before it, in words; `apart`: what is so for certain of its numbers.
    """

    batch: str
    wall_ns: int
    version: str
    verdicts: str
    worst: str
    lost: int | None
    recovery: Side
    throughput: Side
    changed: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()


class TrendCase(Document):
    """One case over time, oldest first."""

    case: str
    points: tuple[TrendPoint, ...]


class TrendFile(Document):
    """All of it. `unread`: folders that hold no batch that can be read, with why."""

    directory: str
    cases: tuple[TrendCase, ...]
    unread: tuple[str, ...] = ()
