"""The matrix: an experiment and its axes → cells, each a whole experiment that is checked as such.

All problems of a file are found here: those of the file as it stands, those of each cell, those of the
expectations. A problem that only some cells have is shown at the value of the matrix that brings it about.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.nodes import ListNode, MapNode, ScalarNode
from ackproof.experiment.problems import (
    MOST_PROBLEMS,
    InvalidExperiment,
    Path,
    Problem,
    Severity,
    path_text,
)
from ackproof.plan.checks import check
from ackproof.plan.diagnostics import Problems
from ackproof.plan.given import Expecting
from ackproof.plan.paths import override, parse_path, short_names, value_text, wrong_path
from ackproof.plan.reader import read_experiment
from ackproof.rundir.documents import Scalar
from ackproof.rundir.layout import safe_name

MAX_CELLS: Final = 1000
MAX_CASES: Final = 10_000
MAX_AXES: Final = 20
MAX_WORK: Final = 500_000
"""Most values that all cells together may have: each cell is read and checked as a whole experiment."""
LONGEST_NAME: Final = 180
"""Longest name of a case, in characters: it is the name of a folder too."""


@dataclass(frozen=True)
class Axis:
    """One setting that varies."""

    key: str
    """As the file writes it."""
    path: Path
    values: tuple[ScalarNode, ...]


@dataclass(frozen=True)
class Cell:
    """One combination. `name` is that of its cases, without the repeat."""

    name: str
    settings: dict[str, Scalar]
    """The axes' values by their full paths."""
    experiment: ExperimentSpec
    """Without a matrix, and with the expectations that hold for this cell."""


Choice: TypeAlias = tuple[int, ...]
"""Which value of each axis."""


@dataclass(frozen=True)
class Plan:
    """An experiment that was read and checked."""

    spec: ExperimentSpec
    """What the file says."""
    cells: tuple[Cell, ...]
    """Every combination of its matrix."""
    warnings: tuple[Problem, ...]
    """What is doubtful, in file order."""
    file: Problems = field(repr=False, compare=False)
    """The file, for who looks further: where something is in it."""


def analyse(file: str, root: MapNode) -> Plan:
    """The experiment and its cells. Raises `InvalidExperiment` with everything that is wrong."""
    found = Problems(file, root)
    spec = read_experiment(found)
    axes = _axes(found)
    if spec is None:
        raise InvalidExperiment(found.problems)
    if not axes:
        check(spec, found)
    cells = _Cells(found, axes)
    cells.read(spec)
    _check_number(found, spec, len(cells.names))
    expecting = Expecting(found, spec, [axis.path for axis in axes])
    matched = expecting.match([cell for cell in cells.specs if cell is not None], complete=not cells.problems)
    if found.problems or cells.problems:
        raise InvalidExperiment([*found.problems, *cells.problems])
    told = tuple(
        Cell(name, settings, experiment.model_copy(update={"matrix": {}, "repeat": 1, "expect": expect}))
        for name, settings, experiment, expect in zip(
            cells.names,
            cells.settings,
            (cell for cell in cells.specs if cell is not None),
            matched,
            strict=True,
        )
    )
    return Plan(spec, told, tuple(sorted({*found.warnings, *cells.warnings})), found)


def _axes(found: Problems) -> tuple[Axis, ...]:
    """The axes that are usable; what is wrong with the others is reported."""
    node = found.root.entries.get("matrix")
    axes: list[Axis] = []
    if isinstance(node, MapNode) and len(node.entries) > MAX_AXES:
        found.report(
            ("matrix",), f"{len(node.entries)} settings are too many to vary; at most {MAX_AXES}", key=True
        )
        return ()
    for key, values in node.entries.items() if isinstance(node, MapNode) else ():
        where: Path = ("matrix", key)
        if not found.sound(where) or not isinstance(values, ListNode):
            continue
        try:
            path = parse_path(key)
        except ValueError as error:
            found.report(where, str(error), key=True)
            continue
        wrong = wrong_path(path, found.root)
        if wrong is not None:
            found.report(where, *wrong, key=True)
        elif any(axis.path == path for axis in axes):
            found.report(where, f"'{path_text(path)}' is varied twice", key=True)
        elif all(found.sound((*where, index)) for index in range(len(values.items))):
            axes.append(Axis(key, path, tuple(v for v in values.items if isinstance(v, ScalarNode))))
    cells = math.prod(len(axis.values) for axis in axes)
    most = min(MAX_CELLS, MAX_WORK // max(1, found.root.nodes))
    if cells > most:
        message = f"{cells} combinations are too many; at most {most} are allowed for this file"
        found.report(("matrix",), message, key=True)
        return ()
    return tuple(axes)


def _check_number(found: Problems, spec: ExperimentSpec, cells: int) -> None:
    if cells * spec.repeat > MAX_CASES and found.sound(("repeat",)):
        message = f"{cells} cells × {spec.repeat} repeats are more than {MAX_CASES} cases"
        found.report(("repeat",), message)


class _Cells:
    """All combinations of the axes, read and checked one by one."""

    def __init__(self, found: Problems, axes: tuple[Axis, ...]) -> None:
        self._found = found
        self._axes = axes
        self._choices: list[Choice] = list(itertools.product(*(range(len(axis.values)) for axis in axes)))
        self.specs: list[ExperimentSpec | None] = []
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        short = short_names([axis.path for axis in axes])
        self.names = [self._name(choice, short) for choice in self._choices]
        self.settings: list[dict[str, Scalar]] = [
            {path_text(axis.path): axis.values[index].value for axis, index in zip(axes, choice, strict=True)}
            for choice in self._choices
        ]

    def _name(self, choice: Choice, short: list[str]) -> str:
        pairs = [
            f"{name}={value_text(axis.values[index].value)}"
            for name, axis, index in zip(short, self._axes, choice, strict=True)
        ]
        return ",".join(pairs) or "case"

    def read(self, whole: ExperimentSpec) -> None:
        """Read and check every cell; fills the lists above. Without axes the one cell is the whole."""
        self._check_names()
        if not self._axes:
            self.specs.append(whole)
            return
        by_problem: dict[Problem, list[Choice]] = {}
        for choice in self._choices:
            if len(by_problem) > MOST_PROBLEMS:
                # Enough is known; the file is refused in any case.
                self.specs.append(None)
                continue
            cell = Problems(self._found.file, self._root(choice))
            spec = read_experiment(cell)
            if spec is not None:
                check(spec, cell)
            self.specs.append(spec)
            for problem in (*cell.problems, *cell.warnings):
                by_problem.setdefault(problem, []).append(choice)
        known = {(problem.line, problem.column, problem.path) for problem in self._found.problems}
        for problem, choices in by_problem.items():
            if problem in self._found.problems:
                continue
            for placed in self._placed(problem, choices):
                place = (placed.line, placed.column, placed.path)
                if place not in known:
                    known.add(place)
                    where = self.problems if placed.severity is Severity.ERROR else self.warnings
                    where.append(placed)

    def _root(self, choice: Choice) -> MapNode:
        root = self._found.root
        for axis, index in zip(self._axes, choice, strict=True):
            root = override(root, axis.path, axis.values[index])
        return root

    def _placed(self, problem: Problem, choices: list[Choice]) -> list[Problem]:
        """A problem of some cells, at the values of the matrix that bring it about."""
        marks = {(value.mark.line, value.mark.column) for axis in self._axes for value in axis.values}
        if len(choices) == len(self._choices) or (problem.line, problem.column) in marks:
            return [problem]
        for position, axis in enumerate(self._axes):
            guilty = {choice[position] for choice in choices}
            alone = [choice for choice in self._choices if choice[position] in guilty]
            if len(guilty) < len(axis.values) and len(alone) == len(choices):
                return [self._moved(problem, axis, index) for index in sorted(guilty)]
        for position, axis in enumerate(self._axes):
            if len({choice[position] for choice in choices}) < len(axis.values):
                return [self._moved(problem, axis, choices[0][position])]
        return [problem]

    def _moved(self, problem: Problem, axis: Axis, index: int) -> Problem:
        value = axis.values[index]
        message = f"{problem.message} (with {path_text(axis.path)}: {value.text})"
        return replace(problem, line=value.mark.line, column=value.mark.column, message=message)

    def _check_names(self) -> None:
        """Every case needs a name, and a folder, of its own."""
        seen: dict[str, Choice] = {}
        for choice, name in zip(self._choices, self.names, strict=True):
            folder = safe_name(name).lower()
            if len(name) > LONGEST_NAME:
                last = self._axes[-1]
                self._found.report(
                    ("matrix", last.key),
                    f"the name of the case is longer than {LONGEST_NAME} characters: {name[:60]}…",
                )
                return
            other = seen.setdefault(folder, choice)
            if other is choice:
                continue
            differing = (i for i, pair in enumerate(zip(choice, other, strict=True)) if pair[0] != pair[1])
            position = next(differing)
            axis = self._axes[position]
            message = f"'{axis.values[choice[position]].text}' gives a case the same name as another value"
            self._found.report(("matrix", axis.key, choice[position]), message)
