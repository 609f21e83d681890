"""What a soak deleted while it went on (`--keep`), as the passes must know it: nothing is said of it any more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ackproof.ledgers.rows import Bools, Ints
from ackproof.ledgers.runs import Runs, in_runs
from ackproof.rundir.partition import TopicPartition

SPARED: Final = "spared"
"""Counted beside the classes: acknowledged attempts that the ledgers have, of records that went with a window."""


@dataclass(frozen=True)
class Deleted:
    """Of one directory; of most there is nothing."""

    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Records below stood in deleted windows."""
    attempts: Mapping[int, Runs] = field(default_factory=dict)
    """By producer the seqs of attempts that were audited in these windows."""

    def stood_at(self, place: TopicPartition, offset: Ints) -> Bools:
        """Which of these offsets are of deleted windows."""
        deleted: Bools = (offset >= 0) & (offset < self.starts.get(place, 0))
        return deleted

    def has(self, producer: Ints, seq: Ints) -> Bools:
        """Which of these attempts were audited in deleted windows."""
        return in_runs(self.attempts, producer, seq)


NOTHING_DELETED: Final = Deleted()
