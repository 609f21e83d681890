"""What groups do, worked out once for each combination of their cells' numbers, as differences to a packed state.

A *row* is the groups that are looked up together. Its table is filled from its groups' own ones, which have far fewer
entries; the rules themselves are asked only where these have none. What is to be done at once after a step is done
when the row is worked out if the row has the cells for it, and at each state else.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ackproof_reference.explore.cells import Cells
from ackproof_reference.explore.model import Group


class AtOnce(NamedTuple):
    """A group whose step is taken at once: for the numbers of its cells (`mask`) the difference, 0 for none."""

    mask: int
    memo: dict[int, int]
    group: Group


Unsettled = tuple[tuple[tuple[AtOnce, ...], tuple[int, ...]], ...]
Longer = tuple[tuple[int, tuple[int, ...], Unsettled], ...]
Steps = tuple[()] | tuple[tuple[int, ...], Unsettled, Longer]
"""Differences to a packed state; groups that may have a step at once, each with the differences after which they may;
and the same for what counts as several steps, with how many. Empty: no step at all."""

Broken = Callable[[str, str, int], None]
"""Told of a broken invariant: its class, a sentence, the state."""


class _Sorted(NamedTuple):
    """Differences that count as equally many steps: plain ones, and those with what may be done at once after them."""

    plain: dict[int, None]
    unsettled: dict[int, tuple[AtOnce, ...]]


class _Entry(NamedTuple):
    """Groups of the same cells with what was worked out about them.

    Nothing is kept if that would be the row's table over again, or if there are checks only, which cost little.
    """

    mask: int
    memo: dict[int, Steps] | None
    groups: tuple[Group, ...]


class Row(NamedTuple):
    """Groups that are looked up together."""

    mask: int
    memo: dict[int, Steps]
    entries: tuple[_Entry, ...]


class Tables:
    """All rows of a model, for one packing of its cells."""

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
        """All that was worked out."""
        kept: list[dict[int, Steps] | dict[int, int]] = [entry.memo for entry in self.at_once]
        for row in self.rows:
            kept += [row.memo, *(entry.memo for entry in row.entries if entry.memo is not None)]
        return kept

    def work_out(self, row: Row, state: int) -> Steps:
        """What a row's groups do in a state, kept for all that agree with it in their cells."""
        steps: dict[int, _Sorted] = {}
        key = state & row.mask
        for entry in row.entries:
            own = state & entry.mask
            found = None if entry.memo is None else entry.memo.get(own)
            if found is None:
                found = self._steps(entry, own, state)
            for count, plain, unsettled in _by_count(found):
                sorted_ = steps.setdefault(count, _Sorted({}, {}))
                sorted_.plain.update(dict.fromkeys(plain))
                for at_once, differences in unsettled:
                    here = [each for each in at_once if each.mask & row.mask == each.mask]
                    others = tuple(each for each in at_once if each.mask & row.mask != each.mask)
                    for difference in differences:
                        settled = self.settled(key + difference, here) - key if here else difference
                        sorted_.unsettled[settled] = (*sorted_.unsettled.get(settled, ()), *others)
        row.memo[key] = made = self._made(steps)
        return made

    def _steps(self, entry: _Entry, own: int, state: int) -> Steps:
        """What an entry's groups do for one combination of their cells; and whether an invariant is broken."""
        steps: dict[int, _Sorted] = {}
        for group in entry.groups:
            values = [self.cells.of(own, cell) for cell in group.cells]
            if group.check is not None:
                for kind, text in group.check(*values):
                    self._broken(kind, text, state)
            for _, new in group.moves(*values) if group.moves is not None else ():
                sorted_ = steps.setdefault(group.steps, _Sorted({}, {}))
                sorted_.unsettled[self.difference(group, values, new)] = self.concerned(group, values, new)
        found = self._made(steps)
        if entry.memo is not None:
            entry.memo[own] = found
        return found

    def _made(self, steps: Mapping[int, _Sorted]) -> Steps:
        """Steps to be kept; equal ones without anything to be done at once are one object."""
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
        """Differences to be kept, sorted by what is to be looked at after them; equal lists of that are one object."""
        by: dict[tuple[int, ...], list[int]] = {}
        for difference, at_once in steps.items():
            if difference and at_once:
                which = tuple(map(id, at_once))
                self._lists.setdefault(which, at_once)
                by.setdefault(which, []).append(difference)
            elif difference:
                plain[difference] = None
        unsettled = tuple((self._lists[which], self._one(differences)) for which, differences in by.items())
        return self._one(plain), unsettled

    def _one(self, differences: Iterable[int]) -> tuple[int, ...]:
        """A tuple of differences, the same object each time: few of them are different."""
        ints = self._ints
        made = tuple([ints.setdefault(difference, difference) for difference in differences])
        return self._tuples.setdefault(made, made)

    def settled(self, state: int, at_once: Iterable[AtOnce]) -> int:
        """A state after what is done at once in it."""
        for mask, memo, group in at_once:
            key = state & mask
            difference = memo.get(key)
            if difference is None:
                values = [self.cells.of(key, cell) for cell in group.cells]
                moves = () if group.moves is None else group.moves(*values)
                difference = memo[key] = sum(self.difference(group, values, new) for _, new in moves)
            state += difference
        return state

    def concerned(self, group: Group, old: Sequence[Hashable], new: Sequence[Hashable]) -> tuple[AtOnce, ...]:
        """The groups that may have a step at once after this one: those that look at what it changed."""
        changed = {
            cell: (was, becomes)
            for cell, was, becomes in zip(group.cells, old, new, strict=True)
            if becomes is not was and cell in self._looking
        }
        near = {id(entry): entry for cell in changed for entry in self._looking[cell]}
        return tuple(entry for entry in near.values() if _matters(entry.group, changed))

    def difference(self, group: Group, old: Sequence[Hashable], new: Sequence[Hashable]) -> int:
        """What a step adds to a packed state."""
        cells, sum_ = self.cells, 0
        for cell, was, becomes in zip(group.cells, old, new, strict=True):
            if becomes is not was:
                sum_ += (cells.number(cell, becomes) - cells.number(cell, was)) << cells.shifts[cell]
        return sum_


def _by_count(steps: Steps) -> Iterator[tuple[int, tuple[int, ...], Unsettled]]:
    """Steps by how many they count as."""
    if steps:
        plain, unsettled, longer = steps
        yield 1, plain, unsettled
        yield from longer


def _matters(group: Group, changed: Mapping[int, tuple[Hashable, Hashable]]) -> bool:
    """Whether a group whose step is taken at once may have got one, where cells have changed (from, to)."""
    look = group.at_once
    assert look is not None
    looked = [(look(changed[cell][0]), look(changed[cell][1])) for cell in group.cells if cell in changed]
    return any(was != becomes for was, becomes in looked) and all(
        becomes is not None for _, becomes in looked
    )
