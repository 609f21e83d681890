"""Which states a search takes up: one of all that are alike, none that can do less than another, none at an end."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

from ackproof_reference.explore.cells import Cells
from ackproof_reference.explore.model import Epochs, Model, Ranks


class Admission:
    """Says of packed states what a search is to keep, for one packing of a model's cells."""

    def __init__(self, model: Model, cells: Cells, wanted: frozenset[str]) -> None:
        self._ranks = None if model.epochs is None else _Ranks(model.epochs, cells)
        self._more = Spare(cells) if model.frugal else None
        self._ends = [
            [
                _Condition(cells.mask(one.cells, one.counts), {}, one.cells, one.holds)
                for one in end.conditions
            ]
            for end in model.ends
            if not end.kinds or (wanted and wanted <= end.kinds)
        ]
        self._cells = cells
        self.free = not (self._ranks or self._more or self._ends)
        """Whether every state is kept as it is."""

    def alike(self, state: int) -> int:
        """The one state that stands for all that are alike."""
        return state if self._ranks is None else self._ranks.of(state)

    def wanted(self, state: int, seen: dict[int, int]) -> bool:
        """Whether a state that was not seen has to be gone on from."""
        for conditions in self._ends:
            for mask, memo, cells, holds in conditions:
                key = state & mask
                held = memo.get(key)
                if held is None:
                    held = memo[key] = holds(*(self._cells.of(key, cell) for cell in cells))
                if not held:
                    break
            else:
                return False
        if self._more is not None:
            for more in self._more[state & self._more.mask]:
                if state + more in seen:
                    return False
        return True


class _Condition(NamedTuple):
    mask: int
    memo: dict[int, bool]
    cells: tuple[int, ...]
    holds: Callable[..., bool]


class Spare(dict[int, tuple[int, ...]]):
    """For what is left of all counters, packed: the differences to all that have as much of each, and more of some."""

    def __init__(self, cells: Cells) -> None:
        super().__init__()
        self.mask = cells.mask(cells.counters)
        self._fields = [
            (field.shift + cells.shifts[cell], field.mask, most)
            for cell, counters in cells.counters.items()
            for field, most in zip(counters.fields.values(), counters.most, strict=True)
            if most
        ]

    def __missing__(self, left: int) -> tuple[int, ...]:
        choices = [
            [more << shift for more in range(most - (left >> shift & mask) + 1)]
            for shift, mask, most in self._fields
        ]
        self[left] = made = tuple(sum(chosen) for chosen in product(*choices) if any(chosen))
        return made


class _Occurring(dict[int, int]):
    """For each number of a cell the epochs that occur in its value."""

    def __init__(self, epochs: Epochs, cells: Cells, cell: int) -> None:
        super().__init__()
        self.cell = cell
        self._epochs, self._values = epochs, cells.values[cell]

    def __missing__(self, number: int) -> int:
        self[number] = bits = self._epochs.occurring(self.cell, self._values[number])
        return bits


class _Differences(dict[int, int]):
    """For each number of a cell what ranks add to a packed state."""

    def __init__(self, epochs: Epochs, cells: Cells, cell: int, ranks: Ranks) -> None:
        super().__init__()
        self._epochs, self._cells, self._cell, self._ranks = epochs, cells, cell, ranks

    def __missing__(self, number: int) -> int:
        cells, cell = self._cells, self._cell
        ranked = cells.number(cell, self._epochs.ranked(cell, cells.values[cell][number], self._ranks))
        self[number] = difference = (ranked - number) << cells.shifts[cell]
        return difference


class _Ranks:
    """Ranks in the place of epochs, cell by cell, for packed states."""

    def __init__(self, epochs: Epochs, cells: Cells) -> None:
        self._epochs, self._cells = epochs, cells
        free = [cell for cell in range(len(cells.widths)) if cell not in cells.counters]
        self._occurring = [
            (cells.shifts[cell], cells.masks[cell], _Occurring(epochs, cells, cell)) for cell in free
        ]
        self._moved: dict[int, list[tuple[int, int, _Differences]] | None] = {}

    def of(self, state: int) -> int:
        """The state with ranks."""
        bits = 0
        for shift, mask, occurring in self._occurring:
            bits |= occurring[state >> shift & mask]
        try:
            moved = self._moved[bits]
        except KeyError:
            moved = self._moved[bits] = self._work_out(bits)
        if moved is None:
            return state
        ranked = state
        for shift, mask, differences in moved:
            ranked += differences[state >> shift & mask]
        return ranked

    def _work_out(self, bits: int) -> list[tuple[int, int, _Differences]] | None:
        ranks = self._epochs.ranks(bits)
        if ranks is None:
            return None
        return [
            (shift, mask, _Differences(self._epochs, self._cells, occurring.cell, ranks))
            for shift, mask, occurring in self._occurring
        ]
