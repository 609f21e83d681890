"""Breadth-first search through all states of a model: bounded, resumable, with the shortest way to each finding.

States are packed into integers and kept exactly, not as hashes (`tables.py`): the rules stay plain functions over
readable values, and most steps cost one look-up and one addition.

`save` and `load` keep a search on disk: a pickled header (values, widths, findings, progress), the packed states in the
order in which they were found, and the position of each one's parent. Load only files of your own: the header is a
pickle.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ackproof_reference.explore.model import Action, Model, StoryLine
from ackproof_reference.explore.ranking import Admission
from ackproof_reference.explore.tables import (
    AtOnce,
    Cells,
    Longer,
    Tables,
    TooNarrowError,
    Unsettled,
    places_of_parents,
)

_SLICE = 8192
"""Greatest number of states between two checks of the clock and the limits."""
_MORE_WIDTH = 4
_PAIR = sys.getsizeof((0, 0)) + 8


class Finding(NamedTuple):
    """A broken invariant: class, sentence, number of steps to it, and the packed state in which it is broken."""

    kind: str
    text: str
    depth: int
    state: int


@dataclass
class Progress:
    """Progress of a search. `states`: number of states found. `depth`: number of steps from the first state
    to those that are visited now. `seconds`: time spent searching, over all runs of the search."""

    states: int = 0
    depth: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        return self.states / self.seconds if self.seconds else 0.0


@dataclass
class Search:
    """A search that can run in parts, be saved (`save`) and continued.

    `wanted`: the search stops when all these classes of findings are found; empty: at the first finding of any class.
    `findings` has the first finding of each class, which has the fewest steps of its class. `seen`: every state found,
    with its parent. `level`: the states of the present depth; states from index `place` on are not visited yet.
    `next_level`: states one step deeper.
    """

    model: Model
    wanted: frozenset[str] = frozenset()
    cells: Cells = field(init=False)
    seen: dict[int, int] = field(init=False)
    level: list[int] = field(init=False)
    place: int = 0
    next_level: list[int] = field(default_factory=list)
    ahead: list[list[tuple[int, int]]] = field(default_factory=list)
    """States reached by steps whose length (`Group.steps`) is above 1, each with its parent: one list per later level,
    the next level first."""
    findings: dict[str, Finding] = field(default_factory=dict)
    progress: Progress = field(default_factory=Progress)

    def __post_init__(self) -> None:
        self.cells = Cells(self.model)
        first = self.cells.pack(self.model.initial)
        self.seen = {first: first}
        self.level = [first]
        self.progress.states = 1
        self.renew()

    def renew(self) -> None:
        """Drop the cached results of all groups of steps. Call this after a change of the packing (`cells`)."""
        self._tables = Tables(self.model.groups, self.cells, self._broken)
        self._admission = Admission(self.model, self.cells, self.wanted)

    def _broken(self, kind: str, text: str, state: int) -> None:
        if kind not in self.findings:
            self.findings[kind] = Finding(kind, text, self.progress.depth, state)

    @property
    def exhausted(self) -> bool:
        """True if no state is left to visit: a wanted class that was not found is impossible."""
        return self.place == len(self.level) and not self.next_level and not any(self.ahead)

    @property
    def satisfied(self) -> bool:
        if self.wanted:
            return self.wanted <= self.findings.keys()
        return bool(self.findings)

    @property
    def bytes(self) -> int:
        """Approximate memory in bytes: of visited and waiting states, and of cached results."""
        state = -(-sys.getsizeof(1 << sum(self.cells.widths)) // 16) * 16
        tables = sum(map(sys.getsizeof, (self.seen, self.level, self.next_level)))
        tables += sum(len(pairs) * (_PAIR + state) for pairs in self.ahead)
        worked_out = sum(len(memo) * 2 * state + sys.getsizeof(memo) for memo in self._tables.memos)
        return len(self.seen) * state + tables + worked_out

    def run(
        self,
        *,
        max_states: int | None = None,
        max_bytes: int | None = None,
        max_seconds: float | None = None,
        watch: Callable[[Progress], None] | None = None,
    ) -> Progress:
        """Search until all wanted findings are made, all states visited, or a limit is reached (None: no limit);
        return `progress`.

        `max_states`: limit of the states found, over all runs of the search. `max_bytes`: limit of its memory
        (`bytes`). `max_seconds`: limit of the time of this call. The limits are checked after each slice of at most
        8192 states, when `watch` is called with the progress, too.
        """
        slice_ = min(_SLICE, max(1, max_states // 8)) if max_states is not None else _SLICE
        began, before = time.perf_counter(), self.progress.seconds
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
                    # The next level, and after it the states that longer steps have led to.
                    self.level, self.next_level, self.place = self.next_level, [], 0
                    self.progress.depth += 1
                    for state, parent in self.ahead.pop(0) if self.ahead else ():
                        if state not in self.seen and self._admission.admits(state, self.seen):
                            self.seen[state] = parent
                            self.level.append(state)
                self._look_at(min(self.place + slice_, len(self.level)))
                self.progress.states = len(self.seen)
                self.progress.seconds = before + time.perf_counter() - began
                if watch is not None:
                    watch(self.progress)
        return self.progress

    def _look_at(self, end: int) -> None:
        while self.place < end:
            try:
                self._take_up_to(end)
            except TooNarrowError as narrow:
                cell = narrow.cell
            else:
                return
            # Only here: the error keeps the loop's frame, and with it the repacked states.
            self._widen(cell)

    def _take_up_to(self, end: int) -> None:
        """Visit the states of the present level before index `end`, and add the new states that their steps lead to.

        Raises `TooNarrowError` if a value needs a wider cell; `place` is then the index of the state to resume from.
        """
        seen, level, note = self.seen, self.level, self._note
        table = [(row.mask, row.memo, row) for row in self._tables.rows]
        for self.place in range(self.place, end):  # noqa: B020 - it is where to go on
            state = level[self.place]
            for mask, memo, row in table:
                try:
                    found = memo[state & mask]
                except KeyError:
                    found = self._tables.work_out(row, state)
                if not found:
                    continue
                steps, unsettled, longer = found
                for difference in steps:
                    successor = state + difference
                    if successor not in seen:
                        note(successor, state)
                if unsettled:
                    for successor in self._settled(state, unsettled):
                        if successor not in seen:
                            note(successor, state)
                if longer:
                    self._note_ahead(state, longer)
        self.place = end

    def _note(self, state: int, parent: int) -> None:
        seen, admission = self.seen, self._admission
        if not admission.free:
            state = admission.alike(state)
            if state in seen or not admission.admits(state, seen):
                return
        seen[state] = parent
        self.next_level.append(state)

    def _note_ahead(self, state: int, longer: Longer) -> None:
        """Queue the states that longer steps lead to: a step that counts as n leads n levels deeper."""
        seen, alike = self.seen, self._admission.alike
        for count, differences, unsettled in longer:
            while len(self.ahead) < count:
                self.ahead.append([])
            note = self.ahead[count - 1].append
            for difference in differences:
                successor = state + difference
                if successor not in seen:
                    note((alike(successor), state))
            for successor in self._settled(state, unsettled):
                if successor not in seen:
                    note((alike(successor), state))

    def _settled(self, state: int, unsettled: Unsettled) -> Iterator[int]:
        for at_once, differences in unsettled:
            for difference in differences:
                successor = state + difference
                for mask, memo, group in at_once:
                    try:
                        successor += memo[successor & mask]
                    except KeyError:
                        late = (AtOnce(mask, memo, group),)
                        successor = self._tables.settled(successor, late)
                yield successor

    def _widen(self, cell: int) -> None:
        """Give a cell more bits and repack all states. A bytearray holds them meanwhile, to avoid a second table in
        memory."""
        above = self.cells.shifts[cell] + self.cells.widths[cell]
        low = (1 << above) - 1
        self.cells.widths[cell] += _MORE_WIDTH
        self.cells.place()
        self.renew()

        def repack(state: int) -> int:
            return state >> above << above + _MORE_WIDTH | state & low

        size = (sum(self.cells.widths) + 7) // 8
        places = places_of_parents(self.seen)
        packed = bytearray()
        for state in self.seen:
            packed += repack(state).to_bytes(size, "little")
        this, following = len(self.level), len(self.next_level)
        ahead = [[(repack(state), repack(parent)) for state, parent in pairs] for pairs in self.ahead]
        self.seen, self.level, self.next_level, self.ahead = {}, [], [], []
        self.findings = {
            kind: finding._replace(state=repack(finding.state)) for kind, finding in self.findings.items()
        }
        states = [int.from_bytes(packed[at : at + size], "little") for at in range(0, len(packed), size)]
        self.restore(states, places, this, following, ahead)

    def restore(
        self,
        states: list[int],
        places: Sequence[int],
        this: int,
        following: int,
        ahead: list[list[tuple[int, int]]],
    ) -> None:
        """Restore a search from its packed `states`, in the order in which they were found. `places`: for each state,
        the index of its parent. `following`: number of the last states, which are the next level. `this`: number of the
        states before them, which are the present level; after `load` only those that are not visited yet. `ahead`:
        states of later levels (`Search.ahead`)."""
        self.ahead = ahead
        self.seen = {state: states[place] for state, place in zip(states, places, strict=True)}
        self.level = states[len(states) - following - this : len(states) - following]
        self.next_level = states[len(states) - following :]
        self.renew()

    def way_to(self, state: int) -> list[StoryLine]:
        """Return the shortest counterexample that leads to a state that was found. Raises KeyError for any other."""
        way = [state]
        while (parent := self.seen[way[-1]]) != way[-1]:
            way.append(parent)
        way.reverse()
        if self.model.retold is not None:
            return self.model.retold([self.cells.row(one) for one in way])
        return [self._between(parent, child) for parent, child in pairwise(way)]

    def follow(self, way: Sequence[tuple[str, str, str]]) -> list[StoryLine]:
        """Return the counterexample for these steps (actor, text, target) from the first state on.

        The search need not have taken this path. Raises ValueError for a step that is not possible.
        """
        lines: list[StoryLine] = []
        state = self.cells.pack(self.model.initial)
        for number, words in enumerate(way, 1):
            found = (step for step in self._steps_from(state) if step[0][:3] == words)
            if (step := next(found, None)) is None:
                raise ValueError(f"step {number} is not possible: {words[0]}: {words[1]}")
            lines.append(self._story_line(step[0], state, step[1]))
            state = step[1]
        return lines

    def _steps_from(self, state: int) -> Iterator[tuple[Action, int]]:
        row, tables = self.cells.row(state), self._tables
        for group in self.model.groups:
            values = [row[cell] for cell in group.cells]
            for action, new in group.moves(*values) if group.moves and not group.at_once else ():
                step = state + tables.difference(group, values, new)
                yield action, tables.settled(step, tables.concerned(group, values, new))

    def _story_line(self, action: Action, before: int, after: int) -> StoryLine:
        changes = zip(self.model.names, self.cells.row(before), self.cells.row(after), strict=True)
        return StoryLine(action, tuple(change for change in changes if change[1] != change[2]))

    def _between(self, parent: int, state: int) -> StoryLine:
        for action, after in self._steps_from(parent):
            if after == state:
                return self._story_line(action, parent, state)
        raise AssertionError("a state has no step that leads to it")


@contextmanager
def _no_collector() -> Iterator[None]:
    """Switch the garbage collector off in a `with` block: it would scan integers, which form no cycles, repeatedly."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


_FORMAT = 5


def save(search: Search, path: Path, of: str) -> None:
    """Write a search to a file, which replaces an older file atomically. `of`: name of its world and rules. Raises
    OSError if it cannot be written."""
    cells = search.cells
    width = (sum(cells.widths) + 7) // 8
    parents = places_of_parents(search.seen)
    header = {
        "format": _FORMAT,
        "of": of,
        "values": cells.values,
        "widths": cells.widths,
        "states": len(search.seen),
        "waiting": len(search.level) - search.place,
        "next": len(search.next_level),
        "ahead": search.ahead,
        "findings": search.findings,
        "progress": search.progress,
        "wanted": search.wanted,
    }
    unfinished = path.with_name(path.name + ".part")
    with unfinished.open("wb") as file:
        pickle.dump(header, file)
        for state in search.seen:
            file.write(state.to_bytes(width, "little"))
        parents.tofile(file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def load(model: Model, path: Path, of: str) -> Search:
    """Return a saved search of the same model, ready to continue.

    Raises ValueError if another version wrote the file or `of` differs: with other rules the same states would have
    other next steps. Other broken files raise errors such as OSError, EOFError, KeyError or `pickle.UnpicklingError`.
    ImportError or AttributeError: the pickle names something that does not exist.
    """
    with path.open("rb") as file:
        header = pickle.load(file)
        if header["format"] != _FORMAT or header["of"] != of:
            raise ValueError("it holds a search of another world, or one that another version began")
        cells = Cells(model, header["widths"])
        for cell, values in enumerate(header["values"]):
            for value in values:
                cells.number(cell, value)
        width, count = (sum(cells.widths) + 7) // 8, header["states"]
        states = [int.from_bytes(file.read(width), "little") for _ in range(count)]
        parents = array("Q")
        parents.fromfile(file, count)
    search = Search(model, header["wanted"])
    search.cells = cells
    search.findings, search.progress = header["findings"], header["progress"]
    search.restore(states, parents, header["waiting"], header["next"], header["ahead"])
    return search
