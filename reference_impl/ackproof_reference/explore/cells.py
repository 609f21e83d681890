"""The values of each cell numbered as they appear, and a row of numbers packed into one integer."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

FIRST_WIDTH = 12
"""Bits for a cell's number before it has to be widened."""


class Cells:
    """Numbers for the values of each cell, and the packing of a row of them into one integer."""

    def __init__(self, count: int, widths: Sequence[int] | None = None) -> None:
        self.values: list[list[Hashable]] = [[] for _ in range(count)]
        self.numbers: list[dict[Hashable, int]] = [{} for _ in range(count)]
        self.widths = list(widths or [FIRST_WIDTH] * count)
        self.shifts: list[int] = []
        self.masks: list[int] = []
        self.place()

    def place(self) -> None:
        """Work out where each cell lies, from the widths."""
        self.shifts = [sum(self.widths[:cell]) for cell in range(len(self.widths))]
        self.masks = [(1 << width) - 1 for width in self.widths]

    def number(self, cell: int, value: Hashable) -> int:
        """The number of a value, a new one if it is new. Raises TooNarrowError when they run out."""
        numbers = self.numbers[cell]
        number = numbers.get(value)
        if number is None:
            number = len(numbers)
            if number > self.masks[cell]:
                raise TooNarrowError(cell)
            numbers[value] = number
            self.values[cell].append(value)
        return number

    def pack(self, row: Sequence[Hashable]) -> int:
        """A state as an integer."""
        return sum(self.number(cell, value) << self.shifts[cell] for cell, value in enumerate(row))

    def of(self, state: int, cell: int) -> Hashable:
        """One cell's value in a packed state."""
        return self.values[cell][state >> self.shifts[cell] & self.masks[cell]]

    def row(self, state: int) -> tuple[Hashable, ...]:
        """All values of a packed state."""
        return tuple(self.of(state, cell) for cell in range(len(self.widths)))


class TooNarrowError(Exception):
    """A cell has more values than its bits can number."""

    def __init__(self, cell: int) -> None:
        super().__init__(cell)
        self.cell = cell
