"""The order of the rows in a part of a ledger, and the memory in which they are put into it.

Rows of a client come in long runs of one place (what a reader fetches) or place after place in turn (what a producer
sends). Then their order by place is a few slices, each of which numpy copies at once. And a writer of many parts uses
the same arrays for all: the pages of fresh ones cost more than what is written into them.
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
"""Runs of so many rows on average are copied faster one by one than their rows are gathered."""


class ArrayPool:
    """Arrays by name. One that was there is handed out again: only one part at a time can be written from it."""

    def __init__(self) -> None:
        self._arrays: dict[str, Column] = {}

    def array(self, name: str, dtype: npt.DTypeLike, count: int) -> Column:
        """`count` elements, of no particular value."""
        found = self._arrays.get(name)
        if found is None or len(found) < count or found.dtype != dtype:
            found = self._arrays[name] = np.empty(count, dtype)
        return found[:count]


@dataclass(frozen=True)
class PartOrder:
    """The stable order of rows by (topic, partition): `pieces` of them one after another, or by `index`.

    In that order `lengths[i]` rows are of place `places[i]`.
    """

    count: int
    pieces: tuple[slice, ...]
    index: Indices | None
    places: Indices
    lengths: Indices

    def put(self, values: Column, room: Column) -> Column:
        """Copy a column in this order to `room`, which is as long."""
        if self.index is None:
            return np.concatenate([values[piece] for piece in self.pieces], out=room)
        return np.take(values, self.index, out=room, mode="clip")

    def spread(self, of_place: Column, room: Column) -> Column:
        """Fill `room` with what is the same for all rows of a place."""
        at = 0
        for value, length in zip(of_place[self.places].tolist(), self.lengths.tolist(), strict=True):
            room[at : at + length] = value
            at += length
        return room

    def bounds(self, smallest: int) -> list[int]:
        """Where groups of whole places begin, none but the last of fewer rows than `smallest`."""
        found, at = [0], 0
        for length in self.lengths.tolist():
            if at - found[-1] >= smallest:
                found.append(at)
            at += length
        return found


def find_order(place: Column, places: Sequence[TopicPartition], shelf: ArrayPool) -> PartOrder:
    """The order of rows of which `place` is an index into `places`."""
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
    """The places that have rows, in order, and how many each has."""
    there = np.flatnonzero(lengths)
    return by_name[there], lengths[there]


def _is_round_robin(place: Column, turn: int, shelf: ArrayPool) -> bool:
    """Whether the rows are of all places one after another, again and again."""
    if len(np.unique(place[:turn])) < turn:
        return False
    same = np.equal(place[turn:], place[:-turn], out=shelf.array("same", np.bool_, len(place) - turn))
    return bool(same.all())
