"""The order of rows in a part of a ledger, and reusable arrays to sort them into.

Rows of a reader come in long runs of one partition, rows of a producer round-robin over the partitions. Both
are sorted by a few slices, which numpy copies at once. A writer of many parts reuses its arrays: fresh pages
cost more than the copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ackproof.rundir.partition import TopicPartition

Column = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]

_LONG: Final = 32
"""Average length of a run from which copying slices is faster than gathering rows."""


class ArrayPool:
    """Reusable arrays by name. Only one part at a time can be written from them."""

    def __init__(self) -> None:
        self._arrays: dict[str, Column] = {}

    def array(self, name: str, dtype: npt.DTypeLike, count: int) -> Column:
        """Return an uninitialized array of `count` elements."""
        found = self._arrays.get(name)
        if found is None or len(found) < count or found.dtype != dtype:
            found = self._arrays[name] = np.empty(count, dtype)
        return found[:count]


@dataclass(frozen=True)
class PartOrder:
    """The stable order of rows by (topic, partition): concatenated `pieces`, or by `index`.

    In that order `lengths[i]` rows are of `places[i]`.
    """

    count: int
    pieces: tuple[slice, ...]
    index: Indices | None
    places: Indices
    lengths: Indices

    def put(self, values: Column, room: Column) -> Column:
        """Copy a column in this order to `room`, which has the same length."""
        if self.index is None:
            return np.concatenate([values[piece] for piece in self.pieces], out=room)
        return np.take(values, self.index, out=room, mode="clip")

    def spread(self, of_place: Column, room: Column) -> Column:
        """Fill `room` with one value per partition."""
        at = 0
        for value, length in zip(of_place[self.places].tolist(), self.lengths.tolist(), strict=True):
            room[at : at + length] = value
            at += length
        return room

    def bounds(self, smallest: int) -> list[int]:
        """Return the starts of row groups of whole partitions; each but the last has at least `smallest`
        rows."""
        found, at = [0], 0
        for length in self.lengths.tolist():
            if at - found[-1] >= smallest:
                found.append(at)
            at += length
        return found


def find_order(place: Column, places: Sequence[TopicPartition], shelf: ArrayPool) -> PartOrder:
    """Return the order of rows whose `place` is an index into `places`."""
    # numpy sorts numbers of 16 bits by radix, five times as fast as longer ones
    rank = np.empty(len(places), np.uint16 if len(places) <= 1 << 16 else np.uint32)
    by_name = np.array(sorted(range(len(places)), key=places.__getitem__), np.int64)
    rank[by_name] = np.arange(len(places))
    count, turn = len(place), len(places)
    if _is_round_robin(place, turn, shelf):
        first = np.argsort(rank[place[:turn]], kind="stable")
        pieces = tuple(slice(begin, None, turn) for begin in first.tolist())
        lengths = np.array([len(range(begin, count, turn)) for begin in first.tolist()], np.int64)
        return PartOrder(count, pieces, None, place[first].astype(np.int64), lengths)
    changes = np.not_equal(place[1:], place[:-1], out=shelf.array("changes", np.bool_, max(0, count - 1)))
    begins = np.append(0, np.flatnonzero(changes) + 1)
    if len(begins) * _LONG <= count:
        sizes = np.diff(begins, append=count)
        ranks = rank[place[begins]]
        turns = np.argsort(ranks, kind="stable")
        pieces = tuple(
            slice(begin, begin + size)
            for begin, size in zip(begins[turns].tolist(), sizes[turns].tolist(), strict=True)
        )
        lengths = np.bincount(ranks, sizes, len(places)).astype(np.int64)
        return PartOrder(count, pieces, None, *_count_places(by_name, lengths))
    ranks = rank[place]
    lengths = np.bincount(ranks, minlength=len(places))
    return PartOrder(count, (), np.argsort(ranks, kind="stable"), *_count_places(by_name, lengths))


def _count_places(by_name: Indices, lengths: Indices) -> tuple[Indices, Indices]:
    """Return the partitions that have rows, in order, with their numbers of rows."""
    there = np.flatnonzero(lengths)
    return by_name[there], lengths[there]


def _is_round_robin(place: Column, turn: int, shelf: ArrayPool) -> bool:
    """Return True if the rows go round-robin over all partitions."""
    if len(np.unique(place[:turn])) < turn:
        return False
    same = np.equal(place[turn:], place[:-turn], out=shelf.array("same", np.bool_, len(place) - turn))
    return bool(same.all())
