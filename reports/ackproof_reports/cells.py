"""Cases as a matrix: the settings that vary span it, and a cell has all repeats of one combination of settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Final

from ackproof.rundir.documents import Scalar
from ackproof_reports.loading import WORST_FIRST, CaseView, State
from ackproof_reports.wording import ABSENT, joined, scalar, setting_names

CELL: Final = "cell"
"""Path of the axis for settings that vary together. No real setting has this path: it has no dot."""


@dataclass(frozen=True)
class Axis:
    """A setting that the matrix of one experiment varies. `path`: its path in the experiment. `name`: its short
    name. `values`: its distinct values, in the order of the cases.

    Settings that vary together are one axis with the path `CELL`: its values are the names of their groups, `ABSENT`
    for cases without such a name.
    """

    path: str
    name: str
    values: tuple[Scalar, ...]

    def pair(self, value: str) -> str:
        """Return a value with the name of its setting, such as `acks=1`; for settings that vary together, only the
        group's name, but `cell=` before `ABSENT`."""
        return value if self.path == CELL and value != ABSENT else f"{self.name}={value}"


@dataclass(frozen=True)
class Cell:
    """All repeats of one combination of settings. `settings`: the value of each varied setting, by path; None if its
    cases do not have the setting.

    Settings that vary together are missing there. One entry with the path `CELL` has the name of their group instead,
    or `ABSENT`."""

    settings: Mapping[str, Scalar]
    runs: tuple[CaseView, ...]

    @property
    def states(self) -> tuple[State, ...]:
        """The states of its repeats, each once, worst first."""
        present = {run.state for run in self.runs}
        return tuple(state for state in WORST_FIRST if state in present)

    @property
    def judged(self) -> tuple[CaseView, ...]:
        return tuple(run for run in self.runs if run.state in {State.PASS, State.FAIL})

    @property
    def losses(self) -> tuple[int, ...]:
        """Number of lost records in each judged repeat that counted them."""
        return tuple(run.lost for run in self.judged if run.lost is not None)


@dataclass(frozen=True)
class Grid:
    """One table of a matrix: `cells` row by row. A cell is None if no case has its settings.

    `rows`, `columns`: axes of the table; None: it has a single row or column. `fixed`: (name, value) of each further
    axis. A matrix has one table for each combination of their values that a case has."""

    rows: Axis | None
    columns: Axis | None
    fixed: tuple[tuple[str, str], ...]
    cells: tuple[tuple[Cell | None, ...], ...]


@dataclass(frozen=True)
class Matrix:
    """All cells of one experiment, with the axes that span them and the tables that show them."""

    axes: tuple[Axis, ...]
    cells: tuple[Cell, ...]
    grids: tuple[Grid, ...]


def matrix_of(cases: Sequence[CaseView]) -> Matrix:
    """Return the matrix of one experiment's cases. Of the axes with several values, the two with most become rows and
    columns; if none has several, those with one value do."""
    told = _settings(cases)
    paths = list(dict.fromkeys(path for settings in told for path in settings))
    names = setting_names(paths)
    axes = tuple(
        Axis(path, names[path], tuple({scalar(s[path]): s[path] for s in told if path in s}.values()))
        for path in paths
    )
    grouped: dict[tuple[tuple[str, Scalar], ...], list[CaseView]] = {}
    for case, settings in zip(cases, told, strict=True):
        grouped.setdefault(tuple((path, settings.get(path)) for path in paths), []).append(case)
    cells = tuple(Cell(dict(settings), tuple(runs)) for settings, runs in grouped.items())
    varying = [axis for axis in axes if len(axis.values) > 1] or list(axes)
    return Matrix(axes, cells, _grids(varying, cells))


def _settings(cases: Sequence[CaseView]) -> list[Mapping[str, Scalar]]:
    """Return the varied settings of each case. Settings that vary together become one, with the name of their
    group as its value.
    """
    if not any(case.entry.cell for case in cases):
        return [case.settings for case in cases]
    of_cell: dict[str, dict[str, set[str]]] = {}
    for case in cases:
        for path, value in case.settings.items():
            of_cell.setdefault(path, {}).setdefault(case.entry.cell, set()).add(scalar(value))
    free = {path for path, values in of_cell.items() if any(len(each) > 1 for each in values.values())}
    return [
        {CELL: case.entry.cell or ABSENT}
        | {path: case.settings[path] for path in case.settings if path in free}
        for case in cases
    ]


def _grids(axes: Sequence[Axis], cells: Sequence[Cell]) -> tuple[Grid, ...]:
    by_size = sorted(axes, key=lambda axis: -len(axis.values))
    rows = by_size[0] if by_size else None
    columns = by_size[1] if len(by_size) > 1 else None
    further = [axis for axis in axes if axis not in (rows, columns)]
    known = {_key(axes, cell.settings): cell for cell in cells}
    grids = []
    for fixed in product(*(axis.values for axis in further)):
        at = dict(zip((axis.path for axis in further), fixed, strict=True))
        table = tuple(
            tuple(
                known.get(_key(axes, {**at, **_axis_value(rows, row), **_axis_value(columns, column)}))
                for column in (columns.values if columns else (None,))
            )
            for row in (rows.values if rows else (None,))
        )
        if any(cell for line in table for cell in line):
            names = tuple((axis.name, scalar(at[axis.path])) for axis in further)
            grids.append(Grid(rows, columns, names, table))
    return tuple(grids)


def _axis_value(axis: Axis | None, value: Scalar) -> dict[str, Scalar]:
    return {axis.path: value} if axis else {}


def _key(axes: Sequence[Axis], settings: Mapping[str, Scalar]) -> tuple[str, ...]:
    return tuple(scalar(settings.get(axis.path)) for axis in axes)


def subject(chosen: Sequence[Cell], matrix: Matrix) -> str:
    """Return a name for the chosen cells with as few settings as possible; '' if all cells are chosen.

    Examples: `acks=0 and acks=1`, `acks=all with min.insync.replicas=1`. If neither one nor two settings separate the
    cells from the others, a single cell is named by all its settings, several by their number: `3 of 8 settings`."""
    if len(chosen) == len(matrix.cells):
        return ""
    wanted = {id(cell) for cell in chosen}
    axes = [axis for axis in matrix.axes if len(axis.values) > 1]
    for axis in axes:
        values = _distinct(chosen, axis)
        if _covered([(axis, values)], matrix) == wanted:
            return joined([axis.pair(value) for value in values])
    for many, one in permutations(axes, 2):
        values, fixed = _distinct(chosen, many), _distinct(chosen, one)
        if len(fixed) == 1 and _covered([(many, values), (one, fixed)], matrix) == wanted:
            each = {1: " with ", 2: ", both with "}.get(len(values), ", all with ")
            return joined([many.pair(value) for value in values]) + f"{each}{one.pair(fixed[0])}"
    if len(chosen) == 1:
        return joined([axis.pair(scalar(chosen[0].settings.get(axis.path))) for axis in axes])
    return f"{len(chosen)} of {len(matrix.cells)} settings"


def _distinct(cells: Sequence[Cell], axis: Axis) -> list[str]:
    present = {scalar(cell.settings.get(axis.path)) for cell in cells}
    return [scalar(value) for value in axis.values if scalar(value) in present]


def _covered(fixed: Sequence[tuple[Axis, Sequence[str]]], matrix: Matrix) -> set[int]:
    return {
        id(cell)
        for cell in matrix.cells
        if all(scalar(cell.settings.get(axis.path)) in values for axis, values in fixed)
    }
