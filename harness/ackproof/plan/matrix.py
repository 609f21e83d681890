"""Applies the matrix to an experiment. Each resulting cell is a whole experiment, and is checked as one.

All problems of a file are found here: those of the file itself, of each cell, and of the expectations. A problem that
only some cells have is reported at the value of the matrix that causes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ackproof.base.advice import Advice
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.problems import (
    MOST_PROBLEMS,
    InvalidExperiment,
    MapNode,
    Node,
    Path,
    Problem,
    ScalarNode,
    path_text,
)
from ackproof.plan.axes import Choice, Matrix, Option, matrix_of
from ackproof.plan.builds import with_broker_file
from ackproof.plan.checks import check
from ackproof.plan.diagnostics import Problems
from ackproof.plan.expectations import ExpectationMatcher
from ackproof.plan.paths import label_of, override, value_at
from ackproof.plan.reader import read_experiment
from ackproof.plan.repeats import RepeatsMatcher
from ackproof.rundir.documents import Scalar
from ackproof.rundir.layout import safe_name

if TYPE_CHECKING:
    from ackproof.rundir.batch import OverRepeats

MAX_CASES: Final = 10_000
LONGEST_NAME: Final = 180
"""Maximum length of a case's name, in characters. It is also the name of a folder."""


@dataclass(frozen=True)
class Cell:
    """One combination of the matrix. `name`: the name of its cases without the repeat."""

    name: str
    label: str
    """The part of the name for settings that vary together; '' without any."""
    settings: dict[str, Scalar]
    """The values of the settings that vary, by their full paths."""
    experiment: ExperimentSpec
    """The experiment of this cell: without a matrix, with `repeat: 1`, and with the expectations that apply."""


@dataclass(frozen=True)
class Plan:
    """An experiment file that was read and checked: the experiment, the cells of its matrix, warnings, and expectations
    over repeats."""

    spec: ExperimentSpec
    """The experiment as the file writes it, with its matrix."""
    cells: tuple[Cell, ...]
    """One cell for each combination of the matrix, in its order."""
    warnings: tuple[Problem, ...]
    """Problems that do not make the file invalid, in file order."""
    file: Problems = field(repr=False, compare=False)
    """The document of the file, which has the position of every value."""
    too_few_repeats: tuple[Problem, ...] = ()
    """Those of the `warnings` that more repeats would resolve."""
    over_repeats: tuple[OverRepeats, ...] = ()
    """Expectations over the repeats of cells, and over cells that are compared with each other."""
    claimed: tuple[OverRepeats, ...] = ()
    """Statistics over repeats that the file's claims (`claims:`) need, with their cells."""


def analyse(file: str, root: MapNode) -> Plan:
    """Return the plan of the experiment `root`, which is checked with all its cells. `file`: its name in messages.
    Raises `InvalidExperiment` with all problems."""
    found = Problems(file, with_broker_file(root))
    spec = read_experiment(found)
    matrix = matrix_of(found)
    if spec is None:
        raise InvalidExperiment(found.problems)
    labels = [matrix.labels(choice) for choice in matrix.choices]
    names = [name for name, _ in labels]
    if not matrix.paths:
        check(spec, found)
    _check_names(found, matrix, names)
    specs, elsewhere = _read_cells(found, matrix, root) if matrix.paths else ([spec], [])
    if len(names) * spec.repeat > MAX_CASES and found.sound(("repeat",)):
        message = f"{len(names)} cases × {spec.repeat} repeats are more than {MAX_CASES} runs"
        found.report(("repeat",), message)
    errors = [problem for problem in elsewhere if problem.severity == "error"]
    expecting = ExpectationMatcher(found, spec, matrix)
    read = [(cell, choice) for cell, choice in zip(specs, matrix.choices, strict=True) if cell is not None]
    cells = [cell for cell, _ in read]
    matched = expecting.match(cells, [choice for _, choice in read], complete=not errors)
    doubted = len(found.warnings)
    spanning = () if errors else RepeatsMatcher(found, spec, expecting, names, matrix.choices, cells).match()
    if found.problems or errors:
        raise InvalidExperiment([*found.problems, *errors])
    return Plan(
        spec,
        tuple(
            Cell(
                name,
                label,
                _find_varied_values(matrix.paths, choice, experiment),
                experiment.model_copy(update={"matrix": {}, "repeat": 1}),
            )
            for (name, label), choice, experiment in zip(labels, matrix.choices, matched, strict=True)
        ),
        tuple(sorted({*found.warnings, *elsewhere})),
        found,
        too_few_repeats=tuple(found.warnings[doubted:]),
        over_repeats=tuple(one for one in spanning if not one.claim),
        claimed=tuple(one for one in spanning if one.claim),
    )


def _find_varied_values(paths: Sequence[Path], choice: Choice, cell: ExperimentSpec) -> dict[str, Scalar]:
    """Return the value of each setting in `paths`, by the text of its path: as `choice` writes it, else as the cell has
    it. A list or mapping that `choice` writes is given as its label (`label_of`). One that only the cell has is given
    as None."""
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
    return {path: node for option in choice if option is not None for path, node in option.settings.items()}


def _check_names(found: Problems, matrix: Matrix, names: Sequence[str]) -> None:
    seen: dict[str, Choice] = {}
    for choice, name in zip(matrix.choices, names, strict=True):
        if len(name) > LONGEST_NAME:
            message = f"the name of the case is longer than {LONGEST_NAME} characters: {name[:60]}…"
            last = next((option.where[:2] for option in reversed(choice) if option), ("matrix",))
            found.report(last, message)
            return
        other = seen.setdefault(safe_name(name).lower(), choice)
        if other is choice:
            continue
        both = zip(choice, other, strict=True)
        differing = next(option or another for option, another in both if option is not another)
        assert differing is not None
        message = f"'{name}' is the name of another case already"
        if not differing.together:
            (node,) = differing.settings.values()
            message = f"'{label_of(node)}' gives a case the same name as another value"
        found.report(differing.where, message)


def _read_cells(
    found: Problems, matrix: Matrix, written: MapNode
) -> tuple[list[ExperimentSpec | None], list[Problem]]:
    """Read and check every cell. Return the cells, and the problems and warnings that the file itself does not have.

    `written` is the file without the settings of its broker file, because a cell may replace the broker file. A cell
    is None if too little of it could be read. It is also None if more problems were found before than are reported.
    """
    specs: list[ExperimentSpec | None] = []
    by_problem: dict[Problem, list[Choice]] = {}
    for choice in matrix.choices:
        if len(by_problem) > MOST_PROBLEMS:
            specs.append(None)
            continue
        root = written
        for path, node in _settings_of(choice).items():
            root = override(root, path, node)
        cell = Problems(found.file, with_broker_file(root))
        spec = read_experiment(cell)
        if spec is not None:
            check(spec, cell)
        specs.append(spec)
        for problem in (*cell.problems, *cell.warnings):
            by_problem.setdefault(problem, []).append(choice)
    known = {(problem.line, problem.column, problem.path) for problem in found.problems}
    elsewhere: list[Problem] = []
    for problem, choices in by_problem.items():
        for placed in () if problem in found.problems else _place(found, matrix, problem, choices):
            place = (placed.line, placed.column, placed.path)
            if place not in known:
                known.add(place)
                elsewhere.append(placed)
    return specs, elsewhere


def _place(found: Problems, matrix: Matrix, problem: Problem, choices: list[Choice]) -> list[Problem]:
    """Return the problem as problems at the values of the matrix that cause it. `choices`: the combinations whose cells
    have the problem. It is returned unchanged if all cells have it, if it is at a value of the matrix already, or if no
    value causes it."""
    marks = {
        (node.mark.line, node.mark.column)
        for choice in matrix.choices
        for option in filter(None, choice)
        for node in option.settings.values()
    }
    if len(choices) == len(matrix.choices) or (problem.line, problem.column) in marks:
        return [problem]

    def move(option: Option) -> Problem:
        mark = found.locate(option.where)
        pairs = ", ".join(f"{path_text(path)}: {label_of(node)}" for path, node in option.settings.items())
        said, cell = problem.message, f" (with {option.name or pairs})"
        parts = (said.fact, f"{said.hint}{cell}") if said.hint else (f"{said.fact}{cell}",)
        message = Advice(*parts, suggestion=said.suggestion)
        return replace(problem, line=mark.line, column=mark.column, message=message)

    slots = range(len(matrix.choices[0]))
    guilty = [list(dict.fromkeys(choice[slot] for choice in choices)) for slot in slots]
    every = [{choice[slot] for choice in matrix.choices} for slot in slots]
    for slot in slots:
        alone = sum(choice[slot] in guilty[slot] for choice in matrix.choices)
        options = [option for option in guilty[slot] if option is not None]
        if len(options) == len(guilty[slot]) < len(every[slot]) and alone == len(choices):
            return [move(option) for option in options]
    for slot in slots:
        option = guilty[slot][0]
        if option is not None and len(guilty[slot]) < len(every[slot]):
            return [move(option)]
    return [problem]
