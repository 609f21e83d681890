"""Rows that one task puts aside for others, in a file: raw columns, narrow where their values are near each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ackproof.ledgers.rows import Array, Rows, constant, is_constant, squeezed
from ackproof.rundir.storage import located

KEYS = ("seq", "offset", "read_seq", "at_ns", "read_ns")
"""Columns by which a bucket is cut."""


@dataclass(frozen=True)
class SpilledColumn:
    """One column in a file, or beside it."""

    name: str
    type: str
    """The numpy type of the column."""
    stored: str | None
    """The numpy type in the file; None: nothing is in the file, `base` is the one value of all rows."""
    base: int
    """What is to be added to what is in the file."""


@dataclass(frozen=True)
class Spilled:
    """Rows in a file: raw columns one after the other, but for those of one value, which stand here."""

    path: str
    start: int
    length: int
    columns: tuple[SpilledColumn, ...]
    spans: Mapping[str, tuple[int, int]]
    """The least and the greatest value of those columns that are keys."""

    @property
    def rows(self) -> int:
        return self.length

    def load(self) -> Rows:
        """Read back. Raises OSError."""
        read: dict[str, Array] = {}
        with located(self.path).open("rb") as file:
            file.seek(self.start)
            for column in self.columns:
                if column.stored is None:
                    read[column.name] = constant(column.base, column.type, self.length)
                    continue
                raw = np.empty(self.length, column.stored)
                if file.readinto(raw.view(np.uint8).data) != raw.nbytes:
                    raise OSError(f"{self.path}: cut short")
                wide = raw.astype(column.type, copy=False)
                read[column.name] = wide + column.base if column.base else wide
        return Rows(read, self.length)


class SpillFile:
    """Writer of one file of spilled rows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb")
        self._position = 0

    def add(self, rows: Rows) -> Spilled:
        """Append; where they are now. Raises OSError (a full disk)."""
        start = self._position
        columns: list[SpilledColumn] = []
        spans = {
            name: (int(rows[name].min()), int(rows[name].max()))
            for name in KEYS
            if name in rows.columns and len(rows)
        }
        for name, column in rows.columns.items():
            thin = squeezed(column)
            if is_constant(thin):
                columns.append(SpilledColumn(name, thin.dtype.str, None, int(thin[0])))
                continue
            raw, base = _narrowed(thin)
            columns.append(SpilledColumn(name, thin.dtype.str, raw.dtype.str, base))
            self._file.write(raw.view(np.uint8).data)
            self._position += raw.nbytes
        return Spilled(str(self._path), start, len(rows), tuple(columns), spans)

    def close(self) -> None:
        self._file.close()


def _narrowed(column: Array) -> tuple[Array, int]:
    """The column with 32 bits if its values lie that near to each other, and what was taken off them."""
    if column.dtype != np.int64 or not len(column):
        return np.ascontiguousarray(column), 0
    least = int(column.min())
    if int(column.max()) - least >> 32:
        return np.ascontiguousarray(column), 0
    return (column - least).astype(np.uint32), least
