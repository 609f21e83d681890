"""Rows that may be more than memory should hold: kept as they come, given back in ranges of a key.

Few rows are one range. More are cut at pivots, drawn from a sample of their own keys, into parts on disk, and these
again until each range fits. So every step of the audit is written once, as a pass over ranges, and a hot partition is
nothing special: it has more ranges.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ackproof.audit.rows import Array, Bools, Rows, Schema, concat, constant, is_constant, squeezed
from ackproof.base.processes import left_behind, mark
from ackproof.rundir.storage import located

_SCRATCH = "ackproof-audit-"
"""How the names of these folders begin; the mark of their process follows."""
_SAMPLE_OF_CHUNK = 512
_MOST_RANGES = 24


class Scratch:
    """A folder of one task for what does not fit in memory: where Spark puts its own of that kind, on the worker.

    `within`: stands in it instead.
    """

    def __init__(self, within: Path | None = None) -> None:
        self._within = within or Path(_local_dir() or tempfile.gettempdir())
        self._folder: Path | None = None
        self._next = 0

    def new(self) -> Path:
        """A path that nobody else uses. Raises OSError."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH}{mark()}-", dir=self._within))
        self._next += 1
        return self._folder / f"{self._next}.rows"

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def sweep() -> None:
    """Remove those of workers that were killed on this machine."""
    for left in left_behind(Path(_local_dir() or tempfile.gettempdir()), _SCRATCH):
        shutil.rmtree(left, ignore_errors=True)


def _local_dir() -> str | None:
    return os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0] or None


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
        for name, column in rows.columns.items():
            thin = squeezed(column)
            if is_constant(thin):
                columns.append(SpilledColumn(name, thin.dtype.str, None, int(thin[0])))
                continue
            raw, base = _narrowed(thin)
            columns.append(SpilledColumn(name, thin.dtype.str, raw.dtype.str, base))
            self._file.write(raw.view(np.uint8).data)
            self._position += raw.nbytes
        return Spilled(str(self._path), start, len(rows), tuple(columns))

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


class SpillableRows:
    """Rows of one kind. More than `most` rows are put on disk, `most` at a time."""

    def __init__(self, schema: Schema, most: int, scratch: Scratch) -> None:
        self.schema = schema
        self.length = 0
        self._most = most
        self.scratch = scratch
        self._held: list[Rows] = []
        self._held_length = 0
        self._spilled: list[Spilled] = []
        self._own_files: list[Path] = []

    def __len__(self) -> int:
        return self.length

    def add(self, rows: Rows) -> None:
        if not len(rows):
            return
        self._held.append(rows)
        self._held_length += len(rows)
        self.length += len(rows)
        if self._held_length > self._most:
            self._put_away()

    def add_spilled(self, spilled: Spilled) -> None:
        """Add rows that are on disk already."""
        self._spilled.append(spilled)
        self.length += spilled.length

    def _put_away(self) -> None:
        path = self.scratch.new()
        self._own_files.append(path)
        with closing(SpillFile(path)) as spill:
            for start in range(0, self._held_length, self._most):
                # One file a call, several chunks: a chunk is what `chunks` gives back at a time.
                piece = _cut(self._held, start, min(start + self._most, self._held_length), self.schema)
                self._spilled.append(spill.add(piece))
        self._held, self._held_length = [], 0

    def chunks(self) -> Iterator[Rows]:
        """All rows, a chunk (never an empty one) at a time; what was on disk comes first."""
        for spilled in self._spilled:
            yield spilled.load()
        for rows in self._held:
            if len(rows):
                yield rows

    def all(self) -> Rows:
        """All rows at once; they are kept in memory from now on."""
        rows = concat(self.chunks(), self.schema)
        self._spilled, self._held, self._held_length = [], [rows], len(rows)
        return rows

    def remove(self) -> None:
        """Forget the rows, and remove the files that were written for them."""
        for path in self._own_files:
            path.unlink(missing_ok=True)
        self._own_files = []
        self._spilled, self._held, self._held_length, self.length = [], [], 0, 0


def _cut(pieces: Sequence[Rows], start: int, stop: int, schema: Schema) -> Rows:
    wanted: list[Rows] = []
    position = 0
    for piece in pieces:
        low, high = max(start - position, 0), min(stop - position, len(piece))
        if low < high:
            wanted.append(piece.slice(low, high))
        position += len(piece)
    return concat(wanted, schema)


def ranges(spillables: Sequence[SpillableRows], keys: Sequence[str], most: int) -> Iterator[tuple[Rows, ...]]:
    """Cut all of them at common borders of a key; the ranges in DESCENDING order, each with the rows of every one.

    `keys`: columns that all of them have, the most significant first. Rows of equal keys are in one range; inside a
    range they are in no particular order. A range has at most `most` rows of all together unless one key alone has
    more. Memory: the rows of one range, and one chunk.
    """
    total = sum(len(spillable) for spillable in spillables)
    if total <= most:
        yield tuple(spillable.all() for spillable in spillables)
        return
    pivots = _pivots(spillables, keys, min(_MOST_RANGES, 1 + 2 * total // most))
    if not pivots:
        yield tuple(spillable.all() for spillable in spillables)
        return
    # What all parts of all spillable rows hold in memory while they are filled stays below one range.
    held = max(1, most // (len(spillables) * (len(pivots) + 1)))
    parts = [_split(spillable, keys, pivots, held) for spillable in spillables]
    for number in reversed(range(len(pivots) + 1)):
        part = [piles_of_range[number] for piles_of_range in parts]
        if sum(len(spillable) for spillable in part) == total:
            yield tuple(
                spillable.all() for spillable in part
            )  # cannot happen with pivots above the least key; never loop
        else:
            yield from ranges(part, keys, most)
        for spillable in part:
            spillable.remove()


def _pivots(spillables: Sequence[SpillableRows], keys: Sequence[str], count: int) -> list[tuple[int, ...]]:
    samples: list[list[Array]] = [[] for _ in keys]
    weights: list[Array] = []
    for spillable in spillables:
        for chunk in spillable.chunks():
            step = max(1, len(chunk) // _SAMPLE_OF_CHUNK)
            for sample, key in zip(samples, keys, strict=True):
                sample.append(chunk[key][::step].astype(np.int64))
            drawn = len(samples[0][-1])
            weights.append(np.full(drawn, len(chunk) / drawn))
    columns = [np.concatenate(sample) for sample in samples]
    order = np.lexsort(tuple(reversed(columns)))
    columns = [column[order] for column in columns]
    least = tuple(int(column[0]) for column in columns)
    heights = np.cumsum(np.concatenate(weights)[order])
    found: list[tuple[int, ...]] = []
    for number in range(1, count):
        at = int(np.searchsorted(heights, heights[-1] * number / count))
        pivot = tuple(int(column[min(at, len(order) - 1)]) for column in columns)
        if pivot > least and (not found or pivot > found[-1]):
            found.append(pivot)
    if not found:
        greatest = tuple(int(column[-1]) for column in columns)
        if greatest > least:
            found.append(greatest)
    return found


def _split(
    spillable: SpillableRows, keys: Sequence[str], pivots: Sequence[tuple[int, ...]], held: int
) -> list[SpillableRows]:
    parts = [SpillableRows(spillable.schema, held, spillable.scratch) for _ in range(len(pivots) + 1)]
    for chunk in spillable.chunks():
        columns = [chunk[key] for key in keys]
        number = np.zeros(len(chunk), dtype=np.uint8)
        for pivot in pivots:
            number += _not_below(columns, pivot)
        order = np.argsort(number, kind="stable")
        borders = np.searchsorted(number[order], np.arange(len(parts) + 1, dtype=np.uint8))
        grouped = chunk.take(order)
        for index, part in enumerate(parts):
            low, high = int(borders[index]), int(borders[index + 1])
            if low < high:
                part.add(grouped.slice(low, high).copied())
    return parts


def _not_below(columns: Sequence[Array], pivot: tuple[int, ...]) -> Bools:
    """Where (columns…) ≥ pivot, compared column by column."""
    above = np.zeros(len(columns[0]), dtype=np.bool_)
    equal = np.ones(len(columns[0]), dtype=np.bool_)
    for column, value in zip(columns, pivot, strict=True):
        above |= equal & (column > value)
        equal &= column == value
    return above | equal
