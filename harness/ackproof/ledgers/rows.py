"""Columns of equal length, as numpy arrays: the data of every step of the audit.

A column with a single value is a view with stride 0, which costs no memory and survives slicing,
concatenation and spilling.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ackproof.rundir.partition import TopicPartition

Array: TypeAlias = npt.NDArray[Any]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

Schema: TypeAlias = Mapping[str, str]
"""Column name → numpy type."""

PRODUCED: Schema = {
    "producer": "i4",
    "seq": "i8",
    "outcome": "i1",
    "offset": "i8",
    "at_ns": "i8",
    "latency_ns": "i8",
    "txn": "i8",
    "sent_ns": "i8",
}
"""Columns of a produce attempt: some of `rundir.schema.PRODUCED`, and two that are computed. `at_ns`: time of the
delivery report, or of the produce call if none came. `latency_ns`: from call to report; -1 if not acknowledged. `txn`
-1: no transaction."""
_READ: Schema = {
    "reader": "i4",
    "assignment": "i4",
    "read_seq": "i8",
    "offset": "i8",
    "leader_epoch": "i4",
    "producer": "i4",
    "seq": "i8",
}
LIVE: Schema = {**_READ, "read_ns": "i8"}
FINAL: Schema = {**_READ, "intact": "?", "astray": "?", "timestamp_ms": "i8"}
"""Columns of a record in the final read: some of `rundir.schema.CONSUMED`, and `astray`: True if the record's payload
names another partition than the one from which it was read."""
COMMITTED: Schema = {**FINAL, "read_ns": "i8"}
"""Columns of a record in the final read at read_committed. `read_ns` shows whether it was read before its commit."""


def is_constant(column: Array) -> bool:
    """Return True if the column is a numpy view that repeats one value (stride 0); False for an empty column."""
    return len(column) > 0 and column.strides == (0,)


def constant_column(value: object, type_: str, length: int) -> Array:
    """Return a column of `length` rows that repeats `value` but takes the memory of a single value.

    `type_`: numpy type, such as `i8`.
    """
    return np.broadcast_to(np.asarray(value, dtype=type_), (length,))


def squeeze(column: Array) -> Array:
    """Return the column unchanged, or, if all values are equal, a view of the same length that stores only one
    value."""
    if (
        len(column) > 1
        and not is_constant(column)
        and column[0] == column[-1]
        and bool((column == column[0]).all())
    ):
        return np.broadcast_to(column[0], column.shape)
    return column


class Rows:
    """An immutable table: numpy columns of equal length, by name."""

    __slots__ = ("columns", "length")

    def __init__(self, columns: Mapping[str, Array], length: int) -> None:
        self.columns = columns
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, name: str) -> Array:
        return self.columns[name]

    def ints(self, name: str) -> Ints:
        return self.columns[name].astype(np.int64, copy=False)

    def flags(self, name: str) -> Bools:
        return self.columns[name].astype(np.bool_, copy=False)

    def take(self, which: Array) -> Rows:
        """Return the rows at the indices `which`, or, if `which` is a mask of bools, those where it is True."""
        length = int(np.count_nonzero(which)) if which.dtype == np.bool_ else len(which)
        return Rows(
            {
                name: np.broadcast_to(column[0], (length,)) if is_constant(column) else column[which]
                for name, column in self.columns.items()
            },
            length,
        )

    def select(self, names: Iterable[str], which: Array | None = None) -> Rows:
        """Return a table with these columns only. `which`: indices or mask of the rows; None: all."""
        chosen = Rows({name: self.columns[name] for name in names}, self.length)
        return chosen if which is None else chosen.take(which)

    def sorted_by(self, *names: str) -> Rows:
        """Return the rows in ascending order of these columns, the most significant first."""
        order = sort_order([self[name] for name in names])
        return self if order is None else self.take(order)

    def slice(self, start: int, stop: int) -> Rows:
        return Rows({name: column[start:stop] for name, column in self.columns.items()}, stop - start)

    def copied(self) -> Rows:
        """Return a copy with arrays of its own: a slice keeps the memory of all rows that it was taken from. Constant
        columns, which store one value, are shared."""
        return Rows(
            {name: column if is_constant(column) else column.copy() for name, column in self.columns.items()},
            self.length,
        )


def empty_rows(schema: Schema) -> Rows:
    """Return a table of length 0 with the columns of the schema (numpy type by column name)."""
    return Rows({name: np.empty(0, dtype=type_) for name, type_ in schema.items()}, 0)


def concat_rows(pieces: Iterable[Rows], schema: Schema) -> Rows:
    """Return the rows of all pieces one after the other; a table of length 0 if there are none. `schema`: the columns
    of the result, which every piece must have. If only one piece has rows, it is returned with all its columns."""
    filled = [piece for piece in pieces if len(piece)]
    if not filled:
        return empty_rows(schema)
    if len(filled) == 1:
        return filled[0]
    length = sum(len(piece) for piece in filled)
    return Rows({name: _concat_column([piece[name] for piece in filled], length) for name in schema}, length)


def join_places(
    given: Sequence[tuple[TopicPartition, Rows]], schema: Schema
) -> tuple[list[TopicPartition], Ints, Rows]:
    """Join rows of several partitions into one table, in the given order. `schema`: type by column, for a
    table without rows.

    Returns the distinct partitions that have rows, ascending; an array with one number per row of the table,
    the index of its partition among them; and the table.
    """
    places = sorted({place for place, rows in given if len(rows)})
    numbers = np.array([places.index(place) if len(rows) else 0 for place, rows in given], np.int64)
    lengths = np.array([len(rows) for _, rows in given], np.int64)
    return places, np.repeat(numbers, lengths), concat_rows((rows for _, rows in given), schema)


def _concat_column(columns: Sequence[Array], length: int) -> Array:
    first = columns[0]
    if all(is_constant(column) and column[0] == first[0] for column in columns):
        return np.broadcast_to(first[0], (length,))
    return np.concatenate(columns)


def is_sorted(keys: Sequence[Array]) -> bool:
    """Return True if rows with these key columns are in ascending order, the most significant key first (ties
    allowed).
    """
    if len(keys[0]) < 2:
        return True
    settled: Bools | None = None
    for key in keys:
        if is_constant(key):
            continue
        below, above = key[:-1], key[1:]
        wrong = above < below
        if settled is not None:
            wrong &= ~settled
        if wrong.any():
            return False
        rises = above > below
        settled = rises if settled is None else settled | rises
        if settled.all():
            return True
    return True


def sort_order(keys: Sequence[Array]) -> Ints | None:
    """Return indices that sort rows by these key columns, the most significant first; None if they are sorted
    already.
    """
    if is_sorted(keys):
        return None
    varying = [key for key in keys if not is_constant(key)]
    if len(varying) == 1:
        return np.argsort(varying[0], kind="stable").astype(np.int64, copy=False)
    return np.lexsort(tuple(reversed(varying))).astype(np.int64, copy=False)


def distinct_values(values: Ints) -> Ints:
    """Return the distinct values, ascending. (np.unique hashes integers, many times slower on nearly sorted input.)"""
    if not is_sorted([values]):
        values = np.sort(values)
    return values[group_starts([values])]


def group_starts(keys: Sequence[Array]) -> Ints:
    """Return the index of the first row of each combination of key values, ascending. The rows must be sorted by these
    keys."""
    length = len(keys[0])
    if length == 0:
        return np.empty(0, dtype=np.int64)
    changes = np.zeros(length, dtype=np.bool_)
    changes[0] = True
    for key in keys:
        if not is_constant(key):
            changes[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(changes)


def find_repeated(*keys: Array) -> int | None:
    """Return the index of the first row whose keys equal the keys of the next row; None without such a row. The rows
    must be sorted by the keys."""
    same = np.ones(max(0, len(keys[0]) - 1), dtype=np.bool_)
    for key in keys:
        same &= key[1:] == key[:-1]
    return int(np.argmax(same)) if same.any() else None
