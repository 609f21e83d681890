"""Fast lookup of keys (by a table if they are dense, else by bisection), of identities and of intervals; sets of
numbers stored as runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ackproof.ledgers.rows import Array, Bools, Ints, distinct_values, group_starts, is_constant

_DENSE = 24
"""Greatest number of table cells per key (four bytes each); sparser keys are found by bisection."""


class Lookup:
    """Finds the index of a value in `keys`, an ascending array of distinct int64 numbers."""

    def __init__(self, keys: Ints) -> None:
        self._keys = keys
        self._table: Array | None = None
        self._least = int(keys[0]) if len(keys) else 0
        self._greatest = int(keys[-1]) if len(keys) else -1
        self._span = self._greatest - self._least + 1
        if self._span > len(keys) and self._span <= _DENSE * len(keys) + 4096:
            table = np.full(self._span, -1, dtype=np.int32)
            table[keys - self._least] = np.arange(len(keys), dtype=np.int32)
            self._table = table

    def find(self, values: Ints) -> Ints:
        """Return the index of each value among the keys; -1 for a value that is no key."""
        if not len(self._keys) or not len(values):
            return np.full(len(values), -1, dtype=np.int64)
        inside = (values >= self._least) & (values <= self._greatest)
        everywhere = bool(inside.all())
        wanted = values if everywhere else values[inside]
        found: Ints
        if self._span == len(self._keys):
            found = wanted - self._least
        elif self._table is not None:
            found = self._table[wanted - self._least].astype(np.int64)
        else:
            found = np.searchsorted(self._keys, wanted).astype(np.int64, copy=False)
            found = np.where(self._keys[found] == wanted, found, -1)
        if everywhere:
            return found
        result = np.full(len(values), -1, dtype=np.int64)
        result[inside] = found
        return result


class Identities:
    """Finds the index of an identity (producer, seq) among distinct identities.

    `producer`, `seq`: parallel arrays of these identities in ascending order.
    """

    def __init__(self, producer: Array, seq: Ints) -> None:
        starts = group_starts([producer])
        ends = np.append(starts, len(seq))[1:]
        self._producers = producer[starts].astype(np.int64)
        self._least, self._greatest = seq[starts], seq[ends - 1]
        spans = [g - s + 1 for s, g in zip(self._least.tolist(), self._greatest.tolist(), strict=True)]
        self._ranks: Ints | None = None
        if sum(spans) < 1 << 62:
            self._bases = np.cumsum([0, *spans], dtype=np.int64)[:-1]
        else:
            # The seqs span too much to number all producers' seqs consecutively: number their ranks instead.
            self._ranks = distinct_values(seq)
            self._bases = np.arange(len(spans), dtype=np.int64) * len(self._ranks)
        self._lookup = Lookup(self._keys(np.repeat(np.arange(len(starts)), ends - starts), seq))

    def _keys(self, number: Ints, seq: Ints) -> Ints:
        keys: Ints
        if self._ranks is not None:
            keys = self._bases[number] + np.searchsorted(self._ranks, seq)
        elif len(self._bases) == 1:
            keys = seq - self._least[0]
        else:
            keys = (self._bases - self._least)[number] + seq
        return keys

    def find(self, producer: Array, seq: Ints) -> Ints:
        """Return the index of each of these identities (parallel arrays); -1 if it is unknown."""
        if not len(self._producers) or not len(seq):
            return np.full(len(seq), -1, dtype=np.int64)
        known: Bools
        if is_constant(producer):
            at = int(np.searchsorted(self._producers, int(producer[0])))
            if at == len(self._producers) or self._producers[at] != producer[0]:
                return np.full(len(seq), -1, dtype=np.int64)
            number = np.full(len(seq), at, dtype=np.int64)
            known = (seq >= self._least[at]) & (seq <= self._greatest[at])
        else:
            number = Lookup(self._producers).find(producer.astype(np.int64))
            known = (number >= 0) & (seq >= self._least[number]) & (seq <= self._greatest[number])
        if self._ranks is not None:
            ranks = np.searchsorted(self._ranks, seq)
            known &= (ranks < len(self._ranks)) & (
                self._ranks[np.minimum(ranks, len(self._ranks) - 1)] == seq
            )
        if known.all():
            return self._lookup.find(self._keys(number, seq))
        result = np.full(len(seq), -1, dtype=np.int64)
        if known.any():
            result[known] = self._lookup.find(self._keys(number[known], seq[known]))
        return result


def highest_over(values: Ints, after: Ints, before: Ints, height: Ints) -> Ints:
    """Return for each value the greatest `height` of the open intervals (after, before) that contain it.

    The result is the least int64 if no interval contains the value. `values` must ascend; `after`, `before` and
    `height` are parallel: element i of each belongs to interval i.

    Takes (intervals + values) · log(values) steps. It is a range query in a sparse table, done backwards: an interval
    marks two overlapping blocks of 2^k values that cover it, and each block then marks its two halves.
    """
    none = np.iinfo(np.int64).min
    low = np.searchsorted(values, after, side="right")
    high = np.searchsorted(values, before, side="left")
    holds = high > low
    low, high, height = low[holds], high[holds], height[holds]
    result = np.full(len(values), none, dtype=np.int64)
    if not len(low):
        return result
    lengths = high - low
    level = np.frexp(lengths.astype(np.float64))[1] - 1  # floor(log2), exact below 2^53
    current = result
    for k in range(int(level.max()), -1, -1):
        block = 1 << k
        here = level == k
        if here.any():
            np.maximum.at(current, low[here], height[here])
            np.maximum.at(current, high[here] - block, height[here])
        if k:
            half = block >> 1
            below = current.copy()
            np.maximum(below[half:], current[: len(current) - half], out=below[half:])
            current = below
    return current


def are_covered(values: Ints, gaps: Sequence[Ints]) -> Bools:
    """Return a mask: True for each of the ascending `values` in one of the open intervals (gaps[0][i],
    gaps[1][i]).
    """
    after, before = gaps
    result: Bools = highest_over(values, after, before, np.zeros(len(after), dtype=np.int64)) == 0
    return result


@dataclass(frozen=True)
class NumberRuns:
    """An immutable set of numbers a·`stride` + `rest`, stored as runs of consecutive a: `first[i]` … `last[i]`,
    both included.

    Runs ascend and are never adjacent, so millions of consecutive seqs take one run. `len` is the number of runs.
    """

    stride: int = 1
    rest: int = 0
    first: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    last: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def from_spans(cls, spans: Iterable[tuple[int, int]]) -> NumberRuns:
        """Return the set of all numbers in these spans (first, last), both ends included. There must be a span."""
        first, last = np.array([*spans], np.int64).reshape(-1, 2).T
        return cls()._joined(first, last)

    def __len__(self) -> int:
        return len(self.first)

    def union(self, numbers: Ints) -> NumberRuns:
        """Return the union with these numbers. Each must have the remainder `rest` when divided by `stride`."""
        if not len(numbers):
            return self
        new = distinct_values((numbers - self.rest) // self.stride)
        breaks = np.flatnonzero(np.diff(new) != 1)
        starts, ends = np.concatenate([[0], breaks + 1]), np.concatenate([breaks, [len(new) - 1]])
        return self._joined(new[starts], new[ends])

    def _joined(self, first: Ints, last: Ints) -> NumberRuns:
        """Return the union with these runs, in any order; they may overlap."""
        first, last = np.concatenate([self.first, first]), np.concatenate([self.last, last])
        order = np.argsort(first, kind="stable")
        first, last = first[order], np.maximum.accumulate(last[order])
        opens = np.concatenate([[True], first[1:] > last[:-1] + 1])
        closes = np.concatenate([opens[1:], [True]])
        return NumberRuns(self.stride, self.rest, first[opens], last[closes])

    def has(self, numbers: Ints) -> Bools:
        """Return a mask: True for each of these numbers that is in the set."""
        if not len(self.first):
            return np.zeros(len(numbers), dtype=np.bool_)
        a, rest = np.divmod(numbers - self.rest, self.stride)
        at = np.searchsorted(self.first, a, side="right") - 1
        there: Bools = (rest == 0) & (at >= 0) & (a <= self.last[at])
        return there


def are_in_runs(runs: Mapping[int, NumberRuns], producer: Ints, seq: Ints) -> Bools:
    """Return a mask: True for each identity (producer, seq) whose seq is in the runs of its producer."""
    there = np.zeros(len(seq), dtype=np.bool_)
    for number, of_producer in runs.items():
        mine = producer == number
        there[mine] = of_producer.has(seq[mine])
    return there
