"""The values of each cell numbered as they appear, and a row of numbers packed into one integer."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from ackproof_reference.explore.model import Model

FIRST_WIDTH = 12
"""Bits for a cell's number before it has to be widened, if the model does not say better."""


class _Field(NamedTuple):
    """Where a counter lies in its cell."""

    shift: int
    mask: int


class _Counters:
    """A cell of counters: each field has bits of its own, so that a group can look at some of them only."""

    def __init__(self, first: Hashable) -> None:
        record: Any = first
        self.make = record._make
        self.most: tuple[int, ...] = tuple(record)
        self.fields: dict[str, _Field] = {}
        self.width = 0
        self.made: dict[int, Hashable] = {}
        for name, most in zip(record._fields, record, strict=True):
            self.fields[name] = _Field(self.width, (1 << most.bit_length()) - 1)
            self.width += most.bit_length()

    def number(self, value: Iterable[int]) -> int:
        """The fields side by side. Raises ValueError for one that is more than it was at first."""
        number = 0
        for field, count in zip(self.fields.values(), value, strict=True):
            if not 0 <= count <= field.mask:
                raise ValueError(f"{value} does not count down")
            number |= count << field.shift
        return number

    def value(self, number: int) -> Hashable:
        """The record again; what was masked out of the number is 0."""
        made = self.made.get(number)
        if made is None:
            made = self.make(number >> field.shift & field.mask for field in self.fields.values())
            self.made[number] = made
        return made

    def mask(self, names: Iterable[str]) -> int:
        """The bits of some fields."""
        return sum(self.fields[name].mask << self.fields[name].shift for name in names)


class Cells:
    """Numbers for the values of each cell of a model, and the packing of a row of them into one integer."""

    def __init__(self, model: Model, widths: Sequence[int] = ()) -> None:
        first = model.initial
        self.counters = {cell: _Counters(first[cell]) for cell in model.counters}
        self.values: list[list[Hashable]] = [[] for _ in first]
        self.numbers: list[dict[Hashable, int]] = [{} for _ in first]
        self.widths = list(widths or model.widths or [FIRST_WIDTH] * len(first))
        for cell, counters in self.counters.items():
            self.widths[cell] = counters.width
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
            if cell in self.counters:
                number = self.counters[cell].number(value)  # type: ignore[arg-type]
            else:
                number = len(numbers)
                if number > self.masks[cell]:
                    raise TooNarrowError(cell)
            numbers[value] = number
            self.values[cell].append(value)
        return number

    def mask(self, cells: Iterable[int], counts: Iterable[str] = ()) -> int:
        """The bits of some cells in a packed state; with `counts` only those fields of a cell of counters."""
        bits = {cell: self.masks[cell] for cell in cells}
        for cell in bits.keys() & self.counters.keys() if counts else ():
            bits[cell] = self.counters[cell].mask(counts)
        return sum(mask << self.shifts[cell] for cell, mask in bits.items())

    def pack(self, row: Sequence[Hashable]) -> int:
        """A state as an integer."""
        return sum(self.number(cell, value) << self.shifts[cell] for cell, value in enumerate(row))

    def of(self, state: int, cell: int) -> Hashable:
        """One cell's value in a packed state."""
        number = state >> self.shifts[cell] & self.masks[cell]
        return self.counters[cell].value(number) if cell in self.counters else self.values[cell][number]

    def row(self, state: int) -> tuple[Hashable, ...]:
        """All values of a packed state."""
        return tuple(self.of(state, cell) for cell in range(len(self.widths)))


class TooNarrowError(Exception):
    """A cell has more values than its bits can number."""

    def __init__(self, cell: int) -> None:
        super().__init__(cell)
        self.cell = cell


def places_of_parents(seen: dict[int, int]) -> array[int]:
    """The place of each state's parent in the order in which they were found.

    The places stand in the parents' stead meanwhile: a second table would be as large as the first.
    """
    parents = list(seen.values())
    seen.update(zip(seen, range(len(seen)), strict=True))
    places = array("Q", map(seen.__getitem__, parents))
    seen.update(zip(seen, parents, strict=True))
    return places
