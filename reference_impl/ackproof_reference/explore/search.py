"""Breadth-first search through all states of a model, bounded, resumable, with the shortest way to each finding.

A model's state is a row of cells (a broker's log, its memory, a message under way …), its steps are *groups* that
read a few cells and may change them. The search numbers the values of each cell as they appear and packs a state into
one integer, the numbers side by side. What a group does depends on its cells alone, so it is worked out once for each
combination of their numbers, as differences to be added to the packed state: the rules stay plain functions over
readable values, and most steps cost one look-up and one addition. States are kept exactly, not as hashes.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ackproof_reference.explore.cells import Cells, TooNarrowError

_SLICE = 8192
"""States between two looks at the clock and the limits."""
_MORE_WIDTH = 4


class Happening(NamedTuple):
    """One step for a reader: who acts, on whom (as names, "" nobody), and what, as a sentence."""

    actor: str
    target: str
    text: str


Move = tuple[Happening, tuple[Hashable, ...]]


class Group(NamedTuple):
    """Steps that read and write the same cells.

    `moves(*cells)` yields each possible step with the new values of those cells, in the same order. `check(*cells)`
    yields (class, sentence) for each invariant that these values break. With `at_once` its step, at most one, is
    taken together with the one that made it possible; it must change nothing that anybody looks at, and come to the
    same however long it waits. `at_once(value)` is what of a cell's value it depends on; None: it has no step then.
    """

    name: str
    cells: tuple[int, ...]
    moves: Callable[..., Iterable[Move]] | None = None
    check: Callable[..., Iterable[tuple[str, str]]] | None = None
    at_once: Callable[[Hashable], Hashable] | None = None


class _Entry(NamedTuple):
    """A group with what was worked out about it: for the numbers of its cells (`mask`) the steps."""

    mask: int
    memo: dict[int, _Steps]
    group: Group


class _AtOnce(NamedTuple):
    """The same for a group whose step is taken at once; 0 stands for none."""

    mask: int
    memo: dict[int, int]
    group: Group


_Steps = tuple[()] | tuple[tuple[int, ...], tuple[tuple[int, tuple[_AtOnce, ...]], ...]]
"""Differences to a packed state; and those after which other groups may have a step at once. Empty: no step at all."""


class Model(Protocol):
    """What can be searched."""

    @property
    def names(self) -> Sequence[str]:
        """A name for each cell."""

    @property
    def initial(self) -> tuple[Hashable, ...]:
        """The first state."""

    @property
    def groups(self) -> Sequence[Group]:
        """All its steps and invariants."""


class Finding(NamedTuple):
    """A broken invariant, the number of steps to it, and the packed state in which it is broken."""

    kind: str
    text: str
    depth: int
    state: int


class Told(NamedTuple):
    """One line of a counterexample: the step, and the cells that it changed (name, before, after)."""

    happening: Happening
    changed: tuple[tuple[str, Hashable, Hashable], ...]


@dataclass
class Progress:
    """How far a search is. `seconds` counts the searching itself, over all its parts."""

    states: int = 0
    depth: int = 0
    waiting: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Distinct states per second."""
        return self.states / self.seconds if self.seconds else 0.0


@dataclass
class Search:
    """A search that can be run in parts, saved (`saved.py`) and gone on with.

    `wanted` names the classes of findings after which it stops; empty: the first of any class. Findings of other
    classes are kept, the shortest of each, and the search goes on behind them.
    """

    model: Model
    wanted: frozenset[str] = frozenset()
    cells: Cells = field(init=False)
    seen: dict[int, int] = field(init=False)
    level: list[int] = field(init=False)
    place: int = 0
    next_level: list[int] = field(default_factory=list)
    findings: dict[str, Finding] = field(default_factory=dict)
    progress: Progress = field(default_factory=Progress)

    def __post_init__(self) -> None:
        self.cells = Cells(len(self.model.names))
        first = self.cells.pack(self.model.initial)
        self.seen = {first: first}
        self.level = [first]
        self.progress.states = 1
        self.renew()

    def renew(self) -> None:
        """Forget what was worked out about groups; needed when the packing has changed."""
        self._table = self._groups()

        self._at_once = [
            _AtOnce(self._mask(group), {}, group) for group in self.model.groups if group.at_once is not None
        ]

    def _groups(self) -> list[_Entry]:
        return [_Entry(self._mask(group), {}, group) for group in self.model.groups if group.at_once is None]

    def _mask(self, group: Group) -> int:
        return sum(self.cells.masks[cell] << self.cells.shifts[cell] for cell in group.cells)

    @property
    def exhausted(self) -> bool:
        """Whether every reachable state was looked at."""
        return self.place == len(self.level) and not self.next_level

    @property
    def found(self) -> Finding | None:
        """The finding for which the search stops, the shortest if there are several."""
        kept = [f for f in self.findings.values() if not self.wanted or f.kind in self.wanted]
        return min(kept, key=lambda finding: finding.depth, default=None)

    @property
    def satisfied(self) -> bool:
        """Whether nothing that is wanted is still to be found."""
        if self.wanted:
            return self.wanted <= self.findings.keys()
        return bool(self.findings)

    @property
    def bytes(self) -> int:
        """Memory of the states seen and those that wait, and of what was worked out; the rest is small."""
        state = -(-sys.getsizeof(1 << sum(self.cells.widths)) // 16) * 16
        sizes = [(len(entry.memo), sys.getsizeof(entry.memo)) for entry in self._table]
        sizes += [(len(entry.memo), sys.getsizeof(entry.memo)) for entry in self._at_once]
        tables = sum(map(sys.getsizeof, (self.seen, self.level, self.next_level)))
        worked_out = sum(count for count, _ in sizes) * 2 * state + sum(size for _, size in sizes)
        return len(self.seen) * state + tables + worked_out

    def run(
        self,
        *,
        max_states: int | None = None,
        max_bytes: int | None = None,
        max_seconds: float | None = None,
        watch: Callable[[Progress], None] | None = None,
    ) -> Progress:
        """Go on until there is a finding, all is seen, or a limit is met; `watch` is called a few times a second."""
        began = time.perf_counter()
        before = self.progress.seconds
        with _no_collector():
            while not self.exhausted and not self.satisfied:
                spent = time.perf_counter() - began
                if max_states is not None and len(self.seen) >= max_states:
                    break
                if max_bytes is not None and self.bytes >= max_bytes:
                    break
                if max_seconds is not None and spent >= max_seconds:
                    break
                if self.place == len(self.level):
                    self.level, self.next_level, self.place = self.next_level, [], 0
                    self.progress.depth += 1
                self._look_at(min(self.place + _SLICE, len(self.level)))
                self.progress.states = len(self.seen)
                self.progress.waiting = len(self.level) - self.place + len(self.next_level)
                self.progress.seconds = before + time.perf_counter() - began
                if watch is not None:
                    watch(self.progress)
        return self.progress

    def _look_at(self, end: int) -> None:
        """Take the states of this level up to `end`, and note those that they lead to. The loop that counts."""
        seen = self.seen
        while self.place < end:
            level, table, note = self.level, self._table, self.next_level.append
            try:
                for self.place in range(self.place, end):  # noqa: B020 - it is where to go on
                    state = level[self.place]
                    for mask, memo, group in table:
                        try:
                            found = memo[state & mask]
                        except KeyError:
                            found = self._work_out(group, memo, state & mask, state)
                        if not found:
                            continue
                        steps, unsettled = found
                        for difference in steps:
                            successor = state + difference
                            if successor not in seen:
                                seen[successor] = state
                                note(successor)
                        for difference, at_once in unsettled:
                            successor = state + difference
                            for mask_, memo_, group_ in at_once:
                                try:
                                    successor += memo_[successor & mask_]
                                except KeyError:
                                    successor = self._settled(successor, ((mask_, memo_, group_),))
                            if successor not in seen:
                                seen[successor] = state
                                note(successor)
                self.place = end
            except TooNarrowError as narrow:
                self._widen(narrow.cell)
                seen = self.seen

    def _settled(self, state: int, at_once: Iterable[tuple[int, dict[int, int], Group]]) -> int:
        """A state after what is done at once in it."""
        for mask, memo, group in at_once:
            key = state & mask
            difference = memo.get(key)
            if difference is None:
                values = [self.cells.of(key, cell) for cell in group.cells]
                moves = () if group.moves is None else group.moves(*values)
                difference = memo[key] = sum(self._difference(group, values, new) for _, new in moves)
            state += difference
        return state

    def _work_out(self, group: Group, memo: dict[int, _Steps], key: int, state: int) -> _Steps:
        """What a group does for one combination of its cells, as differences; and whether an invariant is broken."""
        cells = self.cells
        values = [cells.of(key, cell) for cell in group.cells]
        if group.check is not None:
            for kind, text in group.check(*values):
                if kind not in self.findings:
                    self.findings[kind] = Finding(kind, text, self.progress.depth, state)
        steps: dict[int, tuple[_AtOnce, ...]] = {}
        for _, new in group.moves(*values) if group.moves is not None else ():
            difference = self._difference(group, values, new)
            if difference:
                steps[difference] = self._concerned(group, values, new)
        plain = tuple(difference for difference, at_once in steps.items() if not at_once)
        unsettled = tuple((difference, at_once) for difference, at_once in steps.items() if at_once)
        memo[key] = found = (plain, unsettled) if steps else ()
        return found

    def _concerned(
        self, group: Group, old: Sequence[Hashable], new: Sequence[Hashable]
    ) -> tuple[_AtOnce, ...]:
        """The groups that may have a step at once after this one: those that look at what it changed."""
        changed = {
            cell: (was, becomes)
            for cell, was, becomes in zip(group.cells, old, new, strict=True)
            if becomes is not was
        }
        return tuple(entry for entry in self._at_once if _matters(entry.group, changed))

    def _difference(self, group: Group, old: Sequence[Hashable], new: Sequence[Hashable]) -> int:
        """What a step adds to a packed state."""
        cells, sum_ = self.cells, 0
        for cell, was, becomes in zip(group.cells, old, new, strict=True):
            if becomes is not was:
                sum_ += (cells.number(cell, becomes) - cells.number(cell, was)) << cells.shifts[cell]
        return sum_

    def _widen(self, cell: int) -> None:
        """Give a cell more bits, and pack everything anew."""
        old = list(zip(self.cells.shifts, self.cells.masks, strict=True))
        self.cells.widths[cell] += _MORE_WIDTH
        self.cells.place()
        shifts = self.cells.shifts

        def anew(state: int) -> int:
            return sum((state >> shift & mask) << to for (shift, mask), to in zip(old, shifts, strict=True))

        packed = {state: anew(state) for state in self.seen}
        parents = iter(self.seen.values())
        self.seen = {state: packed[parent] for state, parent in zip(packed.values(), parents, strict=True)}
        self.level = [packed[state] for state in self.level]
        self.next_level = [packed[state] for state in self.next_level]
        self.findings = {
            kind: finding._replace(state=packed[finding.state]) for kind, finding in self.findings.items()
        }
        self.renew()

    def way_to(self, state: int) -> list[Told]:
        """The shortest way from the first state to one that was seen."""
        told: list[Told] = []
        while (parent := self.seen[state]) != state:
            told.append(self._between(parent, state))
            state = parent
        return told[::-1]

    def _between(self, parent: int, state: int) -> Told:
        before, after = self.cells.row(parent), self.cells.row(state)
        for _, _, group in self._table:
            values = [before[cell] for cell in group.cells]
            for happening, new in group.moves(*values) if group.moves is not None else ():
                step = parent + self._difference(group, values, new)
                if self._settled(step, self._concerned(group, values, new)) == state:
                    changes = zip(self.model.names, before, after, strict=True)
                    return Told(happening, tuple(change for change in changes if change[1] != change[2]))
        raise AssertionError("a state has no step that leads to it")


def _matters(group: Group, changed: Mapping[int, tuple[Hashable, Hashable]]) -> bool:
    """Whether a group whose step is taken at once may have got one, where cells have changed (from, to)."""
    look = group.at_once
    assert look is not None
    looked = [(look(changed[cell][0]), look(changed[cell][1])) for cell in group.cells if cell in changed]
    return any(was != becomes for was, becomes in looked) and all(
        becomes is not None for _, becomes in looked
    )


@contextmanager
def _no_collector() -> Iterator[None]:
    """States are integers and make no cycles; the collector would walk them again and again."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
