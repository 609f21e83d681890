"""A set of numbers as runs of neighbours: what is known of millions of seqs in a few words, since few are missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ackproof.ledgers.rows import Bools, Ints, distinct


def _none() -> Ints:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Runs:
    """Numbers a·`stride` + `rest`, as runs of a: run i is `first[i]` … `last[i]`, ascending, none next to another."""

    stride: int = 1
    rest: int = 0
    first: Ints = field(default_factory=_none)
    last: Ints = field(default_factory=_none)

    @classmethod
    def of(cls, spans: Iterable[tuple[int, int]]) -> Runs:
        """All numbers of these spans, each of which is from its first up to its last."""
        first, last = np.array([*spans], np.int64).reshape(-1, 2).T
        return cls()._joined(first, last)

    def __len__(self) -> int:
        return len(self.first)

    def plus(self, numbers: Ints) -> Runs:
        """With these, all of which leave `rest` by `stride`."""
        if not len(numbers):
            return self
        new = distinct((numbers - self.rest) // self.stride)
        breaks = np.flatnonzero(np.diff(new) != 1)
        starts, ends = np.concatenate([[0], breaks + 1]), np.concatenate([breaks, [len(new) - 1]])
        return self._joined(new[starts], new[ends])

    def _joined(self, first: Ints, last: Ints) -> Runs:
        """With these runs, in any order; they may overlap."""
        first, last = np.concatenate([self.first, first]), np.concatenate([self.last, last])
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


def in_runs(runs: Mapping[int, Runs], producer: Ints, seq: Ints) -> Bools:
    """Which of these identities are in the runs of their producers."""
    there = np.zeros(len(seq), dtype=np.bool_)
    for number, of_producer in runs.items():
        mine = producer == number
        there[mine] = of_producer.has(seq[mine])
    return there
