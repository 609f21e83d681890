"""States as integers, and steps as differences between them.

`Cells` numbers the values of each cell as they appear and packs a row of numbers into one integer. `Tables` evaluates
a group of steps once per combination of its cells' numbers, as differences to be added to a packed state.

A *row* is a set of groups that are looked up together. Its table is filled from the tables of its groups, which have
far fewer entries; the rules are called only where these have none. Some steps are taken at once after another step
(`Group.at_once`). If the row has all cells of such a step, the step is added when the row is evaluated; otherwise at
each state.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from ackproof_reference.explore.model import Group, Model

FIRST_WIDTH = 12
"""Initial number of bits for the values of a cell, if the model sets none."""


class _Counters:
    """Packing of a cell of counters: a named tuple of numbers that only count down. Each counter has its own bits, so
    that a group can read only some of them."""

    def __init__(self, first: Hashable) -> None:
        record: Any = first
        self.make = record._make
        self.most: tuple[int, ...] = tuple(record)
        self.fields: dict[str, tuple[int, int]] = {}
        """By name of a counter: the position of its lowest bit in the cell, and the mask of its bits (not shifted)."""
        self.width = 0
        self.made: dict[int, Hashable] = {}
        for name, most in zip(record._fields, record, strict=True):
            self.fields[name] = self.width, (1 << most.bit_length()) - 1
            self.width += most.bit_length()

    def number(self, value: Iterable[int]) -> int:
        """Return the counters packed into one integer. Raises ValueError if a counter is negative, or needs
        more bits than its value in the first state."""
        number = 0
        for (shift, mask), count in zip(self.fields.values(), value, strict=True):
            if not 0 <= count <= mask:
                raise ValueError(f"{value} does not count down")
            number |= count << shift
        return number

    def value(self, number: int) -> Hashable:
        """Return the counters that are packed into the integer `number`. Counters whose bits were cleared
        (`mask`) are 0."""
        made = self.made.get(number)
        if made is None:
            made = self.make(number >> shift & mask for shift, mask in self.fields.values())
            self.made[number] = made
        return made

    def mask(self, names: Iterable[str]) -> int:
        return sum(mask << shift for shift, mask in map(self.fields.__getitem__, names))


class Cells:
    """Packs a model's states: numbers the values of each cell, and packs the numbers of a state into one integer.

    `widths`: bits per cell. `values`: for each cell, number → value. `numbers`: for each cell, value → number.
    `counters`: index of each cell of counters → its packing. The number of such a cell is no index into `values`.
    """

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
        """Compute the shift and mask of each cell from the widths; call this after a change of `widths`."""
        self.shifts = [sum(self.widths[:cell]) for cell in range(len(self.widths))]
        self.masks = [(1 << width) - 1 for width in self.widths]

    def number(self, cell: int, value: Hashable) -> int:
        """Return the number that stands for a value of a cell; a value without a number gets the next free one.

        Raises `TooNarrowError` if the cell has too few bits for the number. Raises ValueError if a counter is
        negative or needs more bits than its value in the first state.
        """
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
        """Return the bits of some cells in a packed state; with `counts` only those fields of a cell of counters."""
        bits = {cell: self.masks[cell] for cell in cells}
        for cell in bits.keys() & self.counters.keys() if counts else ():
            bits[cell] = self.counters[cell].mask(counts)
        return sum(mask << self.shifts[cell] for cell, mask in bits.items())

    def pack(self, row: Sequence[Hashable]) -> int:
        return sum(self.number(cell, value) << self.shifts[cell] for cell, value in enumerate(row))

    def value_at(self, state: int, cell: int) -> Hashable:
        number = state >> self.shifts[cell] & self.masks[cell]
        return self.counters[cell].value(number) if cell in self.counters else self.values[cell][number]

    def row(self, state: int) -> tuple[Hashable, ...]:
        return tuple(self.value_at(state, cell) for cell in range(len(self.widths)))


class TooNarrowError(Exception):
    """Raised if the cell with index `cell` has more values than its bits can number."""

    def __init__(self, cell: int) -> None:
        super().__init__(cell)
        self.cell = cell


def places_of_parents(seen: dict[int, int]) -> array[int]:
    """Return the position of each state's parent in the order in which states were found. During the call the
    positions replace the parents in `seen`, because a second table would be as large as the first; afterwards
    `seen` is as before."""
    parents = list(seen.values())
    seen.update(zip(seen, range(len(seen)), strict=True))
    places = array("Q", map(seen.__getitem__, parents))
    seen.update(zip(seen, parents, strict=True))
    return places


class AtOnce(NamedTuple):
    """A group whose step is taken at once (`Group.at_once`), with a cache.

    `memo`: bits of the group's cells (selected by `mask`) → number to add to a packed state; 0: no step."""

    mask: int
    memo: dict[int, int]
    group: Group


Unsettled = tuple[tuple[tuple[AtOnce, ...], tuple[int, ...]], ...]
Longer = tuple[tuple[int, tuple[int, ...], Unsettled], ...]
Steps = tuple[()] | tuple[tuple[int, ...], Unsettled, Longer]
"""Cached steps of a row, as differences to add to a packed state; empty: no step.

Three parts. Steps of length 1 (`Group.steps`) after which no group with `at_once` may act. Steps of length 1 after
which such groups may act, with these groups. Longer steps, with their length, in the same two parts.
"""

Broken = Callable[[str, str, int], None]
"""Called with each broken invariant: its class, a sentence, the packed state."""


_Sorted: TypeAlias = tuple[dict[int, None], dict[int, tuple[AtOnce, ...]]]
"""Steps of the same length (`Group.steps`), as differences to add to a packed state.

Two parts: steps after which no group with `at_once` may act; steps after which such groups may act, with these groups.
"""


class _Entry(NamedTuple):
    """Groups with the same cells, and their cached results.

    `memo`: bits of a state that `mask` selects → steps of these groups. It is None if the row's table has the same
    keys, or if the groups only have checks, which are cheap.
    """

    mask: int
    memo: dict[int, Steps] | None
    groups: tuple[Group, ...]


class Row(NamedTuple):
    """Groups that share one cache of steps: those with the same non-empty `Group.row`, or a single group without one.
    `memo`: bits of a state that `mask` selects → steps of all these groups. `entries`: the groups, those with the same
    cells together."""

    mask: int
    memo: dict[int, Steps]
    entries: tuple[_Entry, ...]


class Tables:
    """All rows of a model with their caches, for one packing of its cells.

    `broken(class, sentence, state)` is called with each broken invariant.
    """

    def __init__(self, groups: Sequence[Group], cells: Cells, broken: Broken) -> None:
        self.cells, self._broken = cells, broken
        self._lists: dict[tuple[int, ...], tuple[AtOnce, ...]] = {}
        self._ints: dict[int, int] = {}
        self._tuples: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._plain: dict[tuple[int, ...], Steps] = {}
        self.at_once = [
            AtOnce(cells.mask(group.cells), {}, group) for group in groups if group.at_once is not None
        ]
        self._looking: dict[int, list[AtOnce]] = {}
        for entry in self.at_once:
            for cell in entry.group.cells:
                self._looking.setdefault(cell, []).append(entry)
        together: dict[str, list[Group]] = {}
        for number, group in enumerate(groups):
            if group.at_once is None:
                together.setdefault(group.row or f"{number}", []).append(group)
        self.rows = [self._row(members) for members in together.values()]

    def _row(self, members: Sequence[Group]) -> Row:
        masks: dict[int, list[Group]] = {}
        whole = 0
        for group in members:
            mask = self.cells.mask(group.cells, group.counts)
            masks.setdefault(mask, []).append(group)
            whole |= mask
        entries = []
        for mask, groups in masks.items():
            kept = mask != whole and any(group.moves for group in groups)
            entries.append(_Entry(mask, {} if kept else None, tuple(groups)))
        return Row(whole, {}, tuple(entries))

    @property
    def memos(self) -> list[dict[int, Steps] | dict[int, int]]:
        kept: list[dict[int, Steps] | dict[int, int]] = [entry.memo for entry in self.at_once]
        for row in self.rows:
            kept += [row.memo, *(entry.memo for entry in row.entries if entry.memo is not None)]
        return kept

    def work_out(self, row: Row, state: int) -> Steps:
        """Evaluate the groups of a row in a packed state, and cache and return their steps, as differences to add to
        the state.

        The steps are valid for all states that agree in the row's cells. Broken invariants are reported. Raises
        `TooNarrowError` if a cell has more values than its bits can number.
        """
        steps: dict[int, _Sorted] = {}
        key = state & row.mask
        for entry in row.entries:
            own = state & entry.mask
            found = None if entry.memo is None else entry.memo.get(own)
            if found is None:
                found = self._steps(entry, own, state)
            for count, plain, unsettled in _by_count(found):
                plain_here, unsettled_here = steps.setdefault(count, ({}, {}))
                plain_here.update(dict.fromkeys(plain))
                for at_once, differences in unsettled:
                    here = [each for each in at_once if each.mask & row.mask == each.mask]
                    others = tuple(each for each in at_once if each.mask & row.mask != each.mask)
                    for difference in differences:
                        settled = self.settled(key + difference, here) - key if here else difference
                        unsettled_here[settled] = (*unsettled_here.get(settled, ()), *others)
        row.memo[key] = made = self._freeze(steps)
        return made

    def _steps(self, entry: _Entry, own: int, state: int) -> Steps:
        """Evaluate an entry's groups for one combination of their cells (`own`), cache and return their steps, and
        report broken invariants. `state`: the packed state, for the report."""
        steps: dict[int, _Sorted] = {}
        for group in entry.groups:
            values = [self.cells.value_at(own, cell) for cell in group.cells]
            if group.check is not None:
                for kind, text in group.check(*values):
                    self._broken(kind, text, state)
            for _, new in group.moves(*values) if group.moves is not None else ():
                _, unsettled = steps.setdefault(group.steps, ({}, {}))
                unsettled[self.difference(group, values, new)] = self.concerned(group, values, new)
        found = self._freeze(steps)
        if entry.memo is not None:
            entry.memo[own] = found
        return found

    def _freeze(self, steps: Mapping[int, _Sorted]) -> Steps:
        """Convert steps to the tuple that is cached for them (`Steps`). `steps`: by the length of the steps in a
        counterexample (`Group.steps`).

        To save memory, equal results share one object if all their steps have length 1 and no group with `at_once` may
        act after them."""
        sorted_ = {count: self._sorted(*one) for count, one in sorted(steps.items())}
        plain, unsettled = sorted_.pop(1, ((), ()))
        longer = tuple((count, *one) for count, one in sorted_.items() if any(one))
        if not plain and not unsettled and not longer:
            return ()
        made = (plain, unsettled, longer)
        return made if unsettled or longer else self._plain.setdefault(plain, made)

    def _sorted(
        self, plain: dict[int, None], steps: Mapping[int, tuple[AtOnce, ...]]
    ) -> tuple[tuple[int, ...], Unsettled]:
        """Return two parts of `Steps` for steps of the same length. First the differences after which no group with
        `at_once` may act. Then the other differences, one tuple for each combination of groups that may act after them.

        `plain`: differences of the first part; those of `steps` without groups are added to it. `steps`: difference →
        groups that may act after it; the difference 0 is left out. Equal tuples share one object."""
        by: dict[tuple[int, ...], list[int]] = {}
        for difference, at_once in steps.items():
            if difference and at_once:
                which = tuple(map(id, at_once))
                self._lists.setdefault(which, at_once)
                by.setdefault(which, []).append(difference)
            elif difference:
                plain[difference] = None
        unsettled = tuple((self._lists[which], self._share(differences)) for which, differences in by.items())
        return self._share(plain), unsettled

    def _share(self, differences: Iterable[int]) -> tuple[int, ...]:
        """Return the differences as a tuple; equal tuples, and equal numbers in them, share one object, because few are
        different."""
        ints = self._ints
        made = tuple([ints.setdefault(difference, difference) for difference in differences])
        return self._tuples.setdefault(made, made)

    def settled(self, state: int, at_once: Iterable[AtOnce]) -> int:
        """Return a packed state after all steps that the groups `at_once` can take in it, in this order. Raises
        `TooNarrowError` if a cell has more values than its bits can number."""
        for mask, memo, group in at_once:
            key = state & mask
            difference = memo.get(key)
            if difference is None:
                values = [self.cells.value_at(key, cell) for cell in group.cells]
                moves = () if group.moves is None else group.moves(*values)
                difference = memo[key] = sum(self.difference(group, values, new) for _, new in moves)
            state += difference
        return state

    def concerned(self, group: Group, old: Sequence[Hashable], new: Sequence[Hashable]) -> tuple[AtOnce, ...]:
        """Return the groups with `at_once` that may have a step after a step of `group`: those for which that step
        changed the part of a cell on which they depend (`Group.at_once`). `old`, `new`: the values of the cells of
        `group`, before and after."""
        changed = {
            cell: (was, becomes)
            for cell, was, becomes in zip(group.cells, old, new, strict=True)
            if becomes is not was and cell in self._looking
        }
        near = {id(entry): entry for cell in changed for entry in self._looking[cell]}
        return tuple(entry for entry in near.values() if _matters(entry.group, changed))

    def difference(self, group: Group, old: Sequence[Hashable], new: Sequence[Hashable]) -> int:
        cells, sum_ = self.cells, 0
        for cell, was, becomes in zip(group.cells, old, new, strict=True):
            if becomes is not was:
                sum_ += (cells.number(cell, becomes) - cells.number(cell, was)) << cells.shifts[cell]
        return sum_


def _by_count(steps: Steps) -> Iterator[tuple[int, tuple[int, ...], Unsettled]]:
    if steps:
        plain, unsettled, longer = steps
        yield 1, plain, unsettled
        yield from longer


def _matters(group: Group, changed: Mapping[int, tuple[Hashable, Hashable]]) -> bool:
    """Return True if changes of cells may give a group a step that is taken at once. `changed`: by index of the cell,
    its value before and after."""
    look = group.at_once
    assert look is not None
    looked = [(look(changed[cell][0]), look(changed[cell][1])) for cell in group.cells if cell in changed]
    return any(was != becomes for was, becomes in looked) and all(
        becomes is not None for _, becomes in looked
    )
