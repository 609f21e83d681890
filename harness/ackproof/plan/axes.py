"""Expands the `matrix:` of a file into combinations of settings.

An axis is one setting with its values (`workload.producers.acks: [0, 1, all]`), or several settings that vary together.
In the second case its items are mappings. Its key is then the group of these settings (`workload.producers: [{acks: 1},
…]`), or a free name, with full paths in the items. `exclude` and `include` work as in GitHub Actions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from types import MappingProxyType
from typing import Final, TypeAlias

from ackproof.base.advice import Advice, advice_of
from ackproof.experiment.problems import ListNode, MapNode, Node, Path, ScalarNode, nearest, path_text
from ackproof.plan.diagnostics import Problems, describe
from ackproof.plan.paths import (
    ROOTS,
    is_called,
    label_of,
    may_be_at,
    may_stand_at,
    parse_path,
    short_names,
    wrong_path,
)

MAX_CELLS: Final = 1000
MAX_AXES: Final = 20
MAX_WORK: Final = 500_000
"""Maximum number of values in all cells together. Each cell is read and checked as a whole experiment."""
NAME: Final = "name"
INCLUDE: Final = "include"
EXCLUDE: Final = "exclude"
_LABEL: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}\Z")
_NAMED: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")


@dataclass(frozen=True, eq=False)
class Option:
    """Settings with their values: one value of an axis, or one item of `include` or `exclude`. Two options are equal
    only if they are the same object.

    `where`: path of the item in the file. `name`: name of the item in the file; '' if it has none. `together`: True if
    the file writes the option as a mapping of several settings that vary together. `items`: for an `exclude`, the items
    of axes that it refers to by name (`workload.producers: plain`).
    """

    settings: Mapping[Path, Node]
    where: Path
    name: str = ""
    together: bool = False
    items: tuple[Option, ...] = ()

    @property
    def axis(self) -> str:
        return str(self.where[1])


Axes: TypeAlias = Mapping[str, tuple[Option, ...]]
"""The options of each axis, by the axis' key in the file."""
Choice: TypeAlias = tuple[Option | None, ...]
"""One combination: an option of each axis, then for each `include` its item if that applies, else None. A
case that an `include` adds has no option of any axis."""


@dataclass(frozen=True)
class Matrix:
    """The settings that the matrix of a file varies, and the combinations that it selects.

    `choices`: each combination, as an option per axis and then an option per `include`; None: that axis or
    `include` does not apply.
    """

    paths: tuple[Path, ...]
    """Paths of all settings that vary."""
    choices: tuple[Choice, ...]

    def labels(self, choice: Choice) -> tuple[str, str]:
        """Return the name of a combination (`case` if it has no settings), and the part of it for settings that vary
        together ('' without any)."""
        short = dict(zip(self.paths, short_names(self.paths), strict=True))
        whole, together = [], []
        for option in filter(None, choice):
            pairs = (f"{short[path]}={label_of(node)}" for path, node in option.settings.items())
            if label := option.name or ",".join(pairs):
                whole.append(label)
                together += [label] if option.together else []
        return ",".join(whole) or "case", ",".join(together)


def matrix_of(found: Problems) -> Matrix:
    """Return the matrix of the document `found.root`, without its unusable parts, and report their problems to `found`.
    If the file has no matrix, or too large a matrix, or `exclude` leaves nothing, the result has a single combination,
    without settings."""
    node = found.root.entries.get("matrix")
    entries = node.entries if isinstance(node, MapNode) and found.sound(("matrix",)) else {}
    if len(entries) > MAX_AXES:
        found.report(
            ("matrix",), f"{len(entries)} settings are too many to vary", f"at most {MAX_AXES}", key=True
        )
        return Matrix((), ((),))
    axes: dict[str, tuple[Option, ...]] = {}
    for key, values in entries.items():
        if key in (INCLUDE, EXCLUDE) or not isinstance(values, ListNode) or not found.sound(("matrix", key)):
            continue
        options = _read_options(found, key, values)
        taken = _paths_of(chain.from_iterable(axes.values()))
        if twice := next((path for path in _paths_of(options) if path in taken), None):
            found.report(("matrix", key), f"'{path_text(twice)}' is varied twice", key=True)
        elif options:
            axes[key] = options
    cells = math.prod(map(len, axes.values()))
    most = min(MAX_CELLS, MAX_WORK // max(1, found.root.nodes))
    if cells > most:
        why = Advice(f"{cells} combinations are too many", f"at most {most} are allowed for this file")
        found.report(("matrix",), why, key=True)
        return Matrix((), ((),))
    return _combine(found, axes)


def _paths_of(options: Iterable[Option]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(path for option in options for path in option.settings))


def _read_options(found: Problems, key: str, values: ListNode) -> tuple[Option, ...]:
    """Return the options of the axis `key` from the list of its values. If any has a problem, report it and return
    none."""
    where: Path = ("matrix", key)
    together = any(isinstance(item, MapNode) and not may_stand_at(key, item) for item in values.items)
    path: Path = ()
    try:
        path = parse_path(key)
        wrong = None if together else wrong_path(path, found.root)
    except ValueError as error:
        wrong = advice_of(error)
    prefix = f"{key}." if path and path[0] in ROOTS else ""
    if together and not prefix and not _LABEL.match(key):
        wrong = Advice("expected a group of settings such as workload.producers, or a name of your own")
    if wrong is not None:
        found.report(where, wrong, key=True)
        return ()
    options: list[Option | None] = []
    for index, item in enumerate(values.items):
        at: Path = (*where, index)
        if together:
            options.append(_read_together(found, at, item, prefix))
        elif may_be_at(path, item):
            options.append(Option({path: item}, at))
        else:
            found.report(at, f"expected a single value, not {describe(item)}")
            options.append(None)
    good = tuple(option for option in options if option is not None)
    return good if len(good) == len(options) else ()


def _read_together(
    found: Problems,
    where: Path,
    item: Node,
    prefix: str = "",
    known: Sequence[Path] = (),
    axes: Axes = MappingProxyType({}),
) -> Option | None:
    """Read one item of a matrix: a mapping of settings that vary together. Return None if it is wrong; its problems are
    reported.

    A key is `name`, or the path of a setting below `prefix`, a text such as `workload.producers.` ('': the root). The
    end of a path is enough if exactly one path of `known` ends so. A key may also be an axis of `axes` whose items have
    names; its value is then the name of one of these items.
    """
    if not isinstance(item, MapNode):
        example = f"{{{(prefix and 'acks') or 'workload.producers.acks'}: 1}}"
        found.report(where, f"expected settings that go together, such as {example}, not {describe(item)}")
        return None
    settings: dict[Path, Node] = {}
    named = {axis: options for axis, options in axes.items() if any(option.name for option in options)}
    items: list[Option] = []
    name, good = "", True
    for key, node in item.entries.items():
        place: Path = (*where, key)
        if not isinstance(node, ScalarNode) and any(may_stand_at(text, node) for text in (prefix + key, key)):
            path = _path(found, place, prefix + key, known)
            if path is not None and may_be_at(path, node):
                settings[path] = node
        elif not isinstance(node, ScalarNode):
            found.report(place, f"expected a single value, not {describe(node)}")
        elif key == NAME:
            name = node.text
            if not _NAMED.match(name):
                found.report(place, "expected a name of letters, digits, '.', '_' and '-'")
        elif key in named:
            items += [option for option in named[key] if option.name == node.text]
            names = [option.name for option in named[key]]
            if node.text not in names:
                found.report(
                    place,
                    f"'{key}' has no item of that name, but {', '.join(names)}",
                    suggestion=nearest(node.text, names),
                )
        elif (path := _path(found, place, prefix + key, known)) is not None:
            settings[path] = node
        good &= found.sound(place)
    return Option(settings, where, name, together=True, items=tuple(items)) if good else None


def _path(found: Problems, place: Path, text: str, known: Sequence[Path]) -> Path | None:
    fitting = [path for path in known if is_called(path, text)]
    if len(fitting) == 1:
        return fitting[0]
    try:
        path = parse_path(text)
        wrong = wrong_path(path, found.root)
    except ValueError as error:
        wrong = advice_of(error)
    if wrong is None:
        return path
    found.report(place, wrong, key=True)
    return None


def _combine(found: Problems, axes: Axes) -> Matrix:
    """Return the combinations of the axes, without those that `exclude` removes, and with those that `include`
    adds."""
    varied = _paths_of(chain.from_iterable(axes.values()))
    excluded = _read_list(found, EXCLUDE, varied, axes)
    included = _read_list(found, INCLUDE, varied)
    # As in GitHub Actions: without an axis, each `include` is a case of its own.
    rows: list[Choice] = list(product(*axes.values())) if axes else []
    for option in excluded:
        if not any(_is_excluded(row, option) for row in rows) and found.sound_below(("matrix",)):
            found.report(option.where, "no combination has all of these")
        rows = [row for row in rows if not _is_excluded(row, option)]
    choices: list[Choice] = [(*row, *(None,) * len(included)) for row in rows]
    for slot, option in enumerate(included, len(axes)):
        own = {path: node for path, node in option.settings.items() if path in varied}
        fitting = [number for number, row in enumerate(rows) if _has_all(row, own)]
        for number in fitting:
            choices[number] = (*choices[number][:slot], option, *choices[number][slot + 1 :])
        if not fitting:
            slots = range(len(axes) + len(included))
            choices.append(tuple(option if at == slot else None for at in slots))
    if excluded and not choices and found.sound_below(("matrix",)):
        found.report(("matrix", EXCLUDE), "nothing is left", key=True)
    return Matrix(tuple(dict.fromkeys((*varied, *_paths_of(included)))), tuple(choices) or ((),))


def _read_list(
    found: Problems, key: str, varied: Sequence[Path], axes: Axes = MappingProxyType({})
) -> list[Option]:
    values = found.node(("matrix", key))
    options = (
        _read_together(found, ("matrix", key, index), item, known=varied, axes=axes)
        for index, item in enumerate(values.items if isinstance(values, ListNode) else ())
    )
    return [option for option in options if option is not None]


def _has_all(row: Choice, settings: Mapping[Path, Node]) -> bool:
    has = {path: node for option in row if option is not None for path, node in option.settings.items()}
    return all(path in has and label_of(has[path]) == label_of(settings[path]) for path in settings)


def _is_excluded(row: Choice, excluded: Option) -> bool:
    named = not excluded.name or any(option is not None and option.name == excluded.name for option in row)
    return named and all(item in row for item in excluded.items) and _has_all(row, excluded.settings)
