"""The matrix: an experiment and its axes → cells, each a whole experiment that is checked as such.

All problems of a file are found here: those of the file as it stands, those of each cell, those of the
expectations. A problem that only some cells have is shown at the value of the matrix that brings it about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.problems import (
    MOST_PROBLEMS,
    InvalidExperiment,
    MapNode,
    Node,
    Path,
    Problem,
    ScalarNode,
    Severity,
    path_text,
)
from ackproof.plan.axes import Choice, Matrix, Option, matrix_of
from ackproof.plan.builds import with_broker_file
from ackproof.plan.checks import check
from ackproof.plan.diagnostics import Problems
from ackproof.plan.expectations import Expecting
from ackproof.plan.paths import label_of, override, value_at
from ackproof.plan.reader import read_experiment
from ackproof.plan.repeats import Spanning
from ackproof.rundir.batch import OverRepeats
from ackproof.rundir.documents import Scalar
from ackproof.rundir.layout import safe_name

MAX_CASES: Final = 10_000
LONGEST_NAME: Final = 180
"""Longest name of a case, in characters: it is the name of a folder too."""


@dataclass(frozen=True)
class Cell:
    """One combination. `name` is that of its cases, without the repeat."""

    name: str
    label: str
    """What of its name stands for settings that go together."""
    settings: dict[str, Scalar]
    """The values of what varies, by their full paths."""
    experiment: ExperimentSpec
    """Without a matrix, and with the expectations that hold for this cell."""


@dataclass(frozen=True)
class Plan:
    """An experiment that was read and checked."""

    spec: ExperimentSpec
    """What the file says."""
    cells: tuple[Cell, ...]
    """Every combination of its matrix."""
    warnings: tuple[Problem, ...]
    """Doubts, in file order."""
    file: Problems = field(repr=False, compare=False)
    """The file, with the place of everything in it."""
    too_few_repeats: tuple[Problem, ...] = ()
    """Warnings that more repeats would answer."""
    over_repeats: tuple[OverRepeats, ...] = ()
    """Expectations over the repeats of cells, and over cells compared with each other."""
    claimed: tuple[OverRepeats, ...] = ()
    """The same for showings and measurements of claims."""


def analyse(file: str, root: MapNode) -> Plan:
    """The experiment and its cells. Raises `InvalidExperiment` with everything that is wrong."""
    found = Problems(file, with_broker_file(root))
    spec = read_experiment(found)
    matrix = matrix_of(found)
    if spec is None:
        raise InvalidExperiment(found.problems)
    if not matrix.paths:
        check(spec, found)
    cells = _Cells(found, matrix, root)
    cells.read(spec)
    _check_number(found, spec, len(cells.names))
    expecting = Expecting(found, spec, matrix)
    read = [one for one in zip(cells.specs, matrix.choices, strict=True) if one[0] is not None]
    specs = [cell for cell, _ in read if cell is not None]
    matched = expecting.match(specs, [choice for _, choice in read], complete=not cells.problems)
    spanning: tuple[OverRepeats, ...] = ()
    doubted = len(found.warnings)
    if not cells.problems:
        names = [name for name, _ in cells.names]
        spanning = Spanning(found, spec, expecting, names, matrix.choices, specs).match()
    if found.problems or cells.problems:
        raise InvalidExperiment([*found.problems, *cells.problems])
    told = tuple(
        Cell(
            name,
            label,
            _find_varied_values(matrix.paths, choice, experiment),
            experiment.model_copy(update={"matrix": {}, "repeat": 1}),
        )
        for (name, label), choice, experiment in zip(cells.names, matrix.choices, matched, strict=True)
    )
    return Plan(
        spec,
        told,
        tuple(sorted({*found.warnings, *cells.warnings})),
        found,
        too_few_repeats=tuple(found.warnings[doubted:]),
        over_repeats=tuple(one for one in spanning if not one.claim),
        claimed=tuple(one for one in spanning if one.claim),
    )


def _check_number(found: Problems, spec: ExperimentSpec, cells: int) -> None:
    if cells * spec.repeat > MAX_CASES and found.sound(("repeat",)):
        message = f"{cells} cases × {spec.repeat} repeats are more than {MAX_CASES} runs"
        found.report(("repeat",), message)


def _find_varied_values(paths: Sequence[Path], choice: Choice, cell: ExperimentSpec) -> dict[str, Scalar]:
    """The values of what varies: as the matrix writes them, and where it does not as the cell has them."""
    written: dict[Path, Scalar] = {
        path: node.value if isinstance(node, ScalarNode) else label_of(node)
        for path, node in _settings_of(choice).items()
    }
    whole = cell.data() if len(written) < len(paths) else {}
    values: dict[str, Scalar] = {}
    for path in paths:
        value = written[path] if path in written else value_at(whole, path)
        values[path_text(path)] = None if isinstance(value, dict | list) else value
    return values


def _settings_of(choice: Choice) -> dict[Path, Node]:
    """Return the settings of a combination; a later option wins."""
    return {path: node for option in choice if option is not None for path, node in option.settings.items()}


class _Cells:
    """All combinations of the axes, read and checked one by one."""

    def __init__(self, found: Problems, matrix: Matrix, written: MapNode) -> None:
        """`written`: the file without the settings of its broker file, which a cell may replace."""
        self._found = found
        self._written = written
        self._choices = matrix.choices
        self._varies = bool(matrix.paths)
        self.specs: list[ExperimentSpec | None] = []
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.names = [matrix.labels(choice) for choice in self._choices]

    def read(self, whole: ExperimentSpec) -> None:
        """Read and check every cell; fills the lists above. Without axes the one cell is the whole."""
        self._check_names()
        if not self._varies:
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
            for placed in self._place_problem(problem, choices):
                place = (placed.line, placed.column, placed.path)
                if place not in known:
                    known.add(place)
                    where = self.problems if placed.severity is Severity.ERROR else self.warnings
                    where.append(placed)

    def _root(self, choice: Choice) -> MapNode:
        root = self._written
        for path, node in _settings_of(choice).items():
            root = override(root, path, node)
        return with_broker_file(root)

    def _place_problem(self, problem: Problem, choices: list[Choice]) -> list[Problem]:
        """A problem of some cells, at the values of the matrix that bring it about."""
        marks = {
            (node.mark.line, node.mark.column)
            for choice in self._choices
            for option in choice
            if option is not None
            for node in option.settings.values()
        }
        if len(choices) == len(self._choices) or (problem.line, problem.column) in marks:
            return [problem]
        slots = range(len(self._choices[0]))
        guilty = [list(dict.fromkeys(choice[slot] for choice in choices)) for slot in slots]
        for slot in slots:
            there = {choice[slot] for choice in self._choices}
            alone = sum(choice[slot] in guilty[slot] for choice in self._choices)
            options = [option for option in guilty[slot] if option is not None]
            if len(options) == len(guilty[slot]) < len(there) and alone == len(choices):
                return [self._move_problem(problem, option) for option in options]
        for slot in slots:
            option = guilty[slot][0]
            if option is not None and len(guilty[slot]) < len({choice[slot] for choice in self._choices}):
                return [self._move_problem(problem, option)]
        return [problem]

    def _move_problem(self, problem: Problem, option: Option) -> Problem:
        mark = self._found.locate(option.where)
        pairs = ", ".join(f"{path_text(path)}: {label_of(node)}" for path, node in option.settings.items())
        message = f"{problem.message} (with {option.name or pairs})"
        return replace(problem, line=mark.line, column=mark.column, message=message)

    def _check_names(self) -> None:
        """Every case needs a name, and a folder, of its own."""
        seen: dict[str, Choice] = {}
        for choice, (name, _) in zip(self._choices, self.names, strict=True):
            folder = safe_name(name).lower()
            if len(name) > LONGEST_NAME:
                message = f"the name of the case is longer than {LONGEST_NAME} characters: {name[:60]}…"
                last = next((option.where[:2] for option in reversed(choice) if option), ("matrix",))
                self._found.report(last, message)
                return
            other = seen.setdefault(folder, choice)
            if other is choice:
                continue
            both = zip(choice, other, strict=True)
            differing = next(one or another for one, another in both if one is not another)
            assert differing is not None
            message = f"'{name}' is the name of another case already"
            if not differing.together:
                (node,) = differing.settings.values()
                message = f"'{label_of(node)}' gives a case the same name as another value"
            self._found.report(differing.where, message)
