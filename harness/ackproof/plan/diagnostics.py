"""Collects the problems of one document while it is read, with their positions. Marks the fields that have a
problem, so that checks which depend on them are skipped.

A validation error of pydantic is reported in the terms of the file: path, expected shape, value, remedy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ackproof.base.advice import Advice
from ackproof.base.units import FROM_FILE, UNKNOWN, WRONG, write_like
from ackproof.experiment.problems import (
    MOST_PROBLEMS,
    ListNode,
    MapNode,
    Mark,
    Node,
    Path,
    Problem,
    ScalarNode,
    nearest,
    path_text,
    shorten,
    shorten_advice,
)
from ackproof.plan.paths import GROUPS, group_of

M = TypeVar("M", bound=BaseModel)


_BOUNDS_AT: Final[Mapping[int | str, int]] = {"expect": 2, "claims": 4}
"""Index of the part `bounds` or `over_repeats` in the path of a pydantic error, by the first part of the path."""
_EXPECTED: Final = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dataclass_type": "another fault such as {{fault: 1, by: 1s}}",
    "list_type": "a list",
    "tuple_type": "a list",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "finite_number": "a finite number",
    "string_too_long": "at most {max_length} characters",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
    "int_parsing_size": "a smaller number",
    "literal_error": "{expected}",
}
NO_VALUE: Final = Advice("expected a value, not nothing", "leave the field out to have its default")
_TRUTHS: Final = {
    **dict.fromkeys(("yes", "on", "enabled", "enable", "y"), "true"),
    **dict.fromkeys(("no", "off", "disabled", "disable", "n"), "false"),
}


class Problems:
    """Collects problems by the path of their field. `root`: the document, whose nodes give the position in the file.

    `file`: the document's name in messages. A path with a problem is marked as broken, so that checks that depend on it
    are skipped. Once there are more problems than can be reported (`full`), a path is only marked.
    """

    def __init__(self, file: str, root: MapNode) -> None:
        self.file = file
        self.root = root
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self._broken: set[Path] = set()
        self._meant: list[tuple[Path, str]] = []

    def report(
        self,
        path: Path,
        fact: str,
        hint: str = "",
        *,
        suggestion: str | None = None,
        key: bool = False,
        part: Path = (),
    ) -> None:
        """Add a problem with the value at `path`; if `key` is True, with the name of that field.

        `fact`: what is wrong, or an `Advice`. `hint`: what to do about it. `suggestion`: the text that the user
        probably meant. `part`: keys and indexes that lead from `path` to the exact position, such as the index of a
        list item; the message names `path` only. A problem that was added already is not added again.
        """
        self._broken.add(path)
        if self.full:
            return
        problem = self.problem(path, fact, hint, suggestion=suggestion, key=key, part=part)
        if problem not in self.problems:
            self.problems.append(problem)

    def complain(
        self, path: Path, fact: str, hint: str = "", *, suggestion: str | None = None, key: bool = False
    ) -> None:
        """Add a problem, with the parameters of `report`, unless `path` or one of its parents has a problem already."""
        if self.sound(path):
            self.report(path, fact, hint, suggestion=suggestion, key=key)

    def warn(self, path: Path, fact: str, hint: str = "", *, key: bool = False) -> None:
        """Add a warning about the value at `path`; if `key` is True, about the name of that field. Only the first
        warning for each path is kept, and none if the field or one of its parents has a problem."""
        problem = replace(self.problem(path, fact, hint, key=key), severity="warning")
        if self.sound(path) and all(problem.path != warning.path for warning in self.warnings):
            self.warnings.append(problem)

    def problem(
        self,
        path: Path,
        fact: str,
        hint: str = "",
        *,
        suggestion: str | None = None,
        key: bool = False,
        part: Path = (),
    ) -> Problem:
        """Return the problem that `report` would add for these arguments, with its position in the file.

        Nothing is added.
        """
        mark, where = self.locate(path + part, key=key), shorten(path_text(path), 250)
        message = Advice(fact, hint, suggestion=suggestion)
        return Problem(self.file, mark.line, mark.column, where, shorten_advice(message))

    @property
    def full(self) -> bool:
        """True if there are more problems than are reported. No further problem is added then."""
        return len(self.problems) > MOST_PROBLEMS

    def unknown(
        self, path: Path, what: str, valid: Iterable[str], *, hint: str = "", said: str | None = None
    ) -> None:
        """Add a problem about an unknown name: `said`, or the last part of `path`. `what`: the kind of name, such as
        `topic`.

        The message suggests the nearest of the `valid` names; if none is near, it lists them. With a `hint`,
        the message has that text instead of both.
        """
        if self.full:
            self._broken.add(path)
            return
        names, name = list(valid), said or str(path[-1])
        near = nearest(name, names)
        if near is not None:
            self._meant.append((path, near))
        elif not hint:
            hint = f"expected one of {', '.join(names)}"
        self.report(
            path, f"unknown {what} '{shorten(name)}'", hint, suggestion=None if hint else near, key=True
        )

    def unknown_value(self, path: Path, what: str, name: str, valid: Iterable[str], part: Path = ()) -> None:
        names = list(valid)
        near = nearest(name, names)
        hint = f"there is {', '.join(names)}" if near is None and names else ""
        self.report(path, f"{what} '{shorten(name)}' does not exist", hint, suggestion=near, part=part)

    def misspelt(self, path: Path) -> bool:
        """Return True if an unknown field next to `path` is probably its misspelling: then `path` must not be reported
        as missing."""
        return any(broken[:-1] == path[:-1] and near == path[-1] for broken, near in self._meant)

    def breaks(self, path: Path) -> None:
        self._broken.add(path)

    def sound(self, *paths: Path) -> bool:
        """Return True if neither these fields nor their parents have a problem."""
        return not any(path[:length] in self._broken for path in paths for length in range(len(path) + 1))

    def sound_below(self, path: Path) -> bool:
        """Return True if neither `path` nor anything below it has a problem."""
        return not any(broken[: len(path)] == path for broken in self._broken)

    def validated(self, path: Path, model: type[M], data: Mapping[str, object]) -> M | None:
        """Return the data at `path` as an instance of `model`; None, with problems reported, if the data does
        not fit."""
        try:
            return model.model_validate(data, context=FROM_FILE)
        except ValidationError as error:
            for detail in ordered(error):
                self.refuse(detail, path + path_of(detail))
            return None

    def refuse(self, detail: ErrorDetails, path: Path) -> None:
        """Report one of pydantic's errors as a problem of the field at `path`. Do not report it if that field has a
        problem already, or is missing because it was misspelt (`misspelt`)."""
        if self.full or path in self._broken:
            self.breaks(path)
            return
        kind, context, node = detail["type"], detail.get("ctx", {}), self.node(path)
        of_key = detail["loc"][-1:] == ("[key]",)
        if kind == UNKNOWN:
            self.unknown(path, context["what"], context["valid"], said=context["said"])
        elif kind in ("extra_forbidden", "unexpected_keyword_argument"):
            siblings, name = group_of(path[:-1]), str(path[-1])
            homes = [above for above, fields in GROUPS.items() if above and name in fields]
            shown = [".".join("NAME" if part == "*" else str(part) for part in above) for above in homes]
            belongs = f"it belongs under {' or '.join(shown)}" if shown and name not in siblings else ""
            self.unknown(path, "field", siblings, hint=belongs)
        elif kind == "missing":
            if not self.misspelt(path):
                self.report(path, f"the field '{path[-1]}' is missing")
        elif isinstance(node, ScalarNode) and node.value is None and "config" not in path and not of_key:
            self.report(path, NO_VALUE)
        else:
            there = ScalarNode(str(path[-1]), str(path[-1])) if of_key else node
            meant = _nearest_value(detail, there)
            message = _expected(detail, there)
            todo = remedy(kind, there, path) if meant is None and not message.hint else ""
            self.report(path, message, todo, suggestion=meant, key=of_key)

    def node(self, path: Path) -> Node | None:
        """Return the node at `path` in the document; None if the document has no value there."""
        node: Node | None = self.root
        for part in path:
            node = _child(node, part)
        return node

    def locate(self, path: Path, *, key: bool = False) -> Mark:
        """Return the position of the value at `path`, or of its key (`key` True). If the file does not have the path,
        return the position of the key of its nearest existing parent."""
        node: Node = self.root
        name = self.root.mark
        for part in path:
            child = _child(node, part)
            if child is None:
                return name
            name = node.keys[str(part)].mark if isinstance(node, MapNode) else child.mark
            node = child
        return name if key else node.mark


def _child(node: Node | None, part: str | int) -> Node | None:
    if isinstance(node, MapNode):
        return node.entries.get(str(part))
    if isinstance(node, ListNode) and isinstance(part, int) and 0 <= part < len(node.items):
        return node.items[part]
    return None


def describe(node: Node | None) -> str:
    """Return a node in words, to complete "expected …, not …". None: the file has no value there."""
    match node:
        case None:
            return "nothing"
        case MapNode():
            return "a mapping"
        case ListNode():
            return "a list" if node.items else "an empty list"
        case ScalarNode(value=None):
            return "nothing" if node.text == "" else f"'{node.text}'"
        case ScalarNode(value=bool()):
            return f"the truth value {node.text}"
        case ScalarNode(value=str()):
            return f"the text '{shorten(node.text)}'"
        case _:
            return f"the number {node.text}"


def ordered(error: ValidationError) -> list[ErrorDetails]:
    """Return the errors of a validation, those for unknown fields before those for missing fields: a misspelt field is
    not missing."""
    return sorted(error.errors(include_url=False), key=lambda detail: detail["type"] == "missing")


def path_of(detail: ErrorDetails) -> Path:
    """Return the path of a pydantic error as the experiment file has it. It lacks the fields `bounds` and
    `over_repeats` of an expectation, which have no key of their own in a file."""
    path = tuple(part for part in detail["loc"] if part != "[key]")
    at = _BOUNDS_AT.get(path[0], len(path)) if path else 0
    return path[:at] + path[at + 1 :] if path[at : at + 1] in (("bounds",), ("over_repeats",)) else path


def _expected(detail: ErrorDetails, node: Node | None) -> Advice:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == WRONG:
        text = Advice(context["text"])
        return Advice(f"{text.fact}, not {describe(node)}") if text.is_shape else text
    if kind not in _EXPECTED:
        return Advice(detail["msg"])
    length = context.get("actual_length") if isinstance(node, ListNode) else None
    there = describe(node) if length is None else f"one of {length}"
    for bound in context.keys() & {"gt", "ge", "lt", "le"}:
        example = node.text if isinstance(node, ScalarNode) else ""
        if limit := write_like(example, context[bound]):
            return Advice(f"expected {_EXPECTED[kind].format(**{bound: limit})}, not {example}")
    return Advice(f"expected {_EXPECTED[kind].format(**context)}, not {there}")


def _nearest_value(detail: ErrorDetails, node: Node | None) -> str | None:
    if not isinstance(node, ScalarNode):
        return None
    if detail["type"] == "bool_type":
        return _TRUTHS.get(node.text.lower())
    if detail["type"] != "literal_error":
        return None
    valid = str(detail.get("ctx", {}).get("expected", "")).replace(" or ", ", ").split(", ")
    return nearest(node.text, [name.strip("'") for name in valid])


MAPPING: Final = frozenset({"dict_type", "mapping_type", "model_type", "model_attributes_type"})
LIST: Final = frozenset({"list_type", "tuple_type"})
_UNQUOTED: Final = frozenset({"int_type", "float_type", "bool_type"})
_GLUED: Final = re.compile(r"([A-Za-z][\w.-]*)[:=] ?(\S.*)")
_SEVERAL: Final = re.compile(r"\s+or\s+|\s*[,|]\s*")
_LITERAL: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?|true|false")
_VARIED: Final = frozenset({"cluster", "topics", "workload", "observe", "evidence"})


def remedy(kind: str, node: Node | None, path: Path) -> str:
    """Return the remedy for a `node` that pydantic refuses with an error of type `kind`; '' if none is known."""
    match node:
        case ListNode() if kind in MAPPING:
            names = [f"{item.text}: …" for item in node.items if isinstance(item, ScalarNode)]
            return f"write {{{', '.join(names) or 'NAME: VALUE'}}}, or NAME: VALUE below it without dashes"
        case ListNode():
            return _vary([item.text for item in node.items if isinstance(item, ScalarNode)], path)
        case MapNode() if path[:1] == ("matrix",):
            return f"write the whole path: {'.'.join([*map(str, path[1:]), *_first_keys(node)])}: [1, 2]"
        case MapNode():
            return "begin each item with a dash: '- NAME: VALUE'" if kind in LIST else ""
        case ScalarNode(value=str()):
            return _remedy_for_text(kind, node.text, path)
        case ScalarNode() if kind == "string_type":
            return f'put it in quotes: "{shorten(node.text)}"'
        case ScalarNode() if kind in LIST:
            return f"write [{shorten(node.text)}]"
        case _:
            return ""


def _first_keys(node: Node) -> list[str]:
    key = next(iter(node.entries), None) if isinstance(node, MapNode) else None
    return [key, *_first_keys(node.entries[key])] if isinstance(node, MapNode) and key is not None else []


def _remedy_for_text(kind: str, text: str, path: Path) -> str:
    if text[:1] in "“”„‘’«":
        return 'these quotes are none for YAML, write straight ones: "…"'
    if kind in MAPPING:
        if glued := _GLUED.fullmatch(text):
            return f"write {{{glued[1]}: {shorten(glued[2])}}}"
        return "write its fields as NAME: VALUE below it"
    if kind in LIST:
        return f"write [{', '.join(_SEVERAL.split(shorten(text)))}]"
    value, sign, _ = text.partition("#")
    if sign and value.strip():
        return "a comment needs a blank before its '#'"
    if text.endswith(","):
        return "take the comma away"
    if kind in _UNQUOTED and _LITERAL.fullmatch(text):
        return "take the quotes away"
    return _vary(_SEVERAL.split(text), path)


def _vary(values: list[str], path: Path) -> str:
    if len(values) < 2 or not all(values) or (path[:1] and path[0] not in _VARIED):
        return ""
    return f"one value stands here; to try several, matrix: {{'{path_text(path)}': [{', '.join(values)}]}}"
