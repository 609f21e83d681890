"""What a soak deleted while it went on (`--keep`), as the passes must know it: nothing is said of it any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ackproof.audit.rows import Bools, Ints
from ackproof.rundir.partition import TopicPartition

SPARED: Final = "spared"
"""Counted beside the classes: acknowledged attempts that the ledgers have, of records that went with a window."""


@dataclass(frozen=True)
class Deleted:
    """Of one directory; of most there is nothing."""

    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Records below stood in deleted windows."""
    attempts: Mapping[int, tuple[Ints, Ints]] = field(default_factory=dict)
    """By producer the first and last seqs of runs of attempts that were audited in these windows, ascending."""

    def stood_at(self, place: TopicPartition, offset: Ints) -> Bools:
        """Which of these offsets are of deleted windows."""
        deleted: Bools = (offset >= 0) & (offset < self.starts.get(place, 0))
        return deleted

    def has(self, producer: Ints, seq: Ints) -> Bools:
        """Which of these attempts were audited in deleted windows."""
        there = np.zeros(len(seq), dtype=np.bool_)
        for number, (first, last) in self.attempts.items():
            mine = np.flatnonzero(producer == number)
            at = np.searchsorted(first, seq[mine], side="right") - 1
            there[mine] = (at >= 0) & (seq[mine] <= last[at])
        return there


NOTHING_DELETED: Final = Deleted()


def runs_of(spans: Iterable[tuple[int, int, int]]) -> dict[int, tuple[Ints, Ints]]:
    """`Deleted.attempts` of parts of ledgers: producer, first and last seq of each."""
    found: dict[int, list[tuple[int, int]]] = {}
    for producer, first, last in sorted(spans):
        runs = found.setdefault(producer, [])
        if runs and first <= runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], max(last, runs[-1][1]))
        else:
            runs.append((first, last))
    return {
        producer: (np.array([one[0] for one in runs], np.int64), np.array([one[1] for one in runs], np.int64))
        for producer, runs in found.items()
    }
