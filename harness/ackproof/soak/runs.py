"""A set of numbers as runs of neighbours: what is known of millions of seqs in a few words, since few are missing."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ackproof.audit.rows import Bools, Ints, distinct


def _none() -> Ints:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Runs:
    """Numbers a·`stride` + `rest`, as runs of a: run i is `first[i]` … `last[i]`, ascending, none next to another."""

    stride: int = 1
    rest: int = 0
    first: Ints = field(default_factory=_none)
    last: Ints = field(default_factory=_none)

    def __len__(self) -> int:
        return len(self.first)

    def plus(self, numbers: Ints) -> Runs:
        """With these, all of which leave `rest` by `stride`."""
        if not len(numbers):
            return self
        new = distinct((numbers - self.rest) // self.stride)
        breaks = np.flatnonzero(np.diff(new) != 1)
        first = np.concatenate([self.first, new[np.concatenate([[0], breaks + 1])]])
        last = np.concatenate([self.last, new[np.concatenate([breaks, [len(new) - 1]])]])
        order = np.argsort(first, kind="stable")
        first, last = first[order], np.maximum.accumulate(last[order])
        opens = np.concatenate([[True], first[1:] > last[:-1] + 1])
        closes = np.concatenate([opens[1:], [True]])
        return Runs(self.stride, self.rest, first[opens], last[closes])

    def has(self, numbers: Ints) -> Bools:
        """Which of these are in the set."""
        if not len(self.first):
            return np.zeros(len(numbers), dtype=np.bool_)
        a, rest = np.divmod(numbers - self.rest, self.stride)
        at = np.searchsorted(self.first, a, side="right") - 1
        there: Bools = (rest == 0) & (at >= 0) & (a <= self.last[at])
        return there
