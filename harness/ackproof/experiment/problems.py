"""Nodes of a document (values with their line and column), and the problems that are found in it.

A problem names its place in the file and, where there is one, the nearest valid name.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from ackproof.base.advice import Advice
from ackproof.base.errors import BadInput
from ackproof.rundir.documents import Scalar


@dataclass(frozen=True, slots=True)
class Mark:
    """A position in a file; both numbers count from 1."""

    line: int
    column: int


START: Final = Mark(1, 1)
NOWHERE: Final = Mark(0, 0)
"""Position of a value that is not in the file but on the command line."""


@dataclass(frozen=True, slots=True)
class ScalarNode:
    """A single value in a file. `text`: the value as the file writes it. `value`: the value as parsed. `nodes` and
    `depth` are 1."""

    value: Scalar
    text: str
    mark: Mark = START
    nodes: int = 1
    depth: int = 1


@dataclass(slots=True)
class ListNode:
    """A list. `nodes`: number of nodes in it, itself and the targets of aliases included. `depth`: levels of nesting;
    1 for an empty list.
    """

    mark: Mark = START
    items: list[Node] = field(default_factory=list)
    nodes: int = 1
    depth: int = 1


@dataclass(slots=True)
class MapNode:
    """A mapping. `entries`: values by the text of their key. `keys`: the nodes of the keys. `nodes` and `depth` are
    counted as in a list; keys count as nodes.
    """

    mark: Mark = START
    entries: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, ScalarNode] = field(default_factory=dict)
    nodes: int = 1
    depth: int = 1


Node: TypeAlias = ScalarNode | ListNode | MapNode
Data: TypeAlias = "dict[str, Data] | list[Data] | Scalar"
"""The values of nodes, without positions."""


def plain(node: Node) -> Data:
    """Return the value of a node as dictionaries, lists and single values, without positions."""
    match node:
        case MapNode():
            return {key: plain(value) for key, value in node.entries.items()}
        case ListNode():
            return [plain(item) for item in node.items]
        case _:
            return node.value


def nodes_of(data: Data) -> Node:
    """Return the node of plain data. Its position, and those of all nodes in it, are line 1. Their `nodes` and `depth`
    are 1: they are not counted."""
    match data:
        case dict():
            return MapNode(
                entries={str(key): nodes_of(value) for key, value in data.items()},
                keys={str(key): ScalarNode(str(key), str(key)) for key in data},
            )
        case list():
            return ListNode(items=[nodes_of(item) for item in data])
        case _:
            return ScalarNode(data, "null" if data is None else str(data))


def root_of(data: dict[str, Data]) -> MapNode:
    """Return the root node of the data of a whole document. As in `nodes_of`, every position is line 1, and nodes are
    not counted."""
    root = nodes_of(data)
    assert isinstance(root, MapNode)
    return root


def _printable(text: str) -> str:
    """Return text from a file with characters replaced that a terminal might act on. The length stays the same."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def shorten(text: str, limit: int = 60) -> str:
    """Return text from a file, shortened to `limit` characters and made printable for a message."""
    shown = _printable(text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def shorten_advice(advice: Advice, limit: int = 500) -> Advice:
    """Return a message, made printable, with fact and hint shortened to `limit` characters together, and the suggestion
    to 300."""
    fact = shorten(advice.fact, limit)
    hint = shorten(advice.hint, max(1, limit - len(fact) - 2))
    return Advice(fact, hint, suggestion=shorten(advice.suggestion, 300))


Path: TypeAlias = tuple[str | int, ...]
"""Path from the root of a document to a field: names of fields, and list indices that count from 0."""

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def path_text(path: Path) -> str:
    """Return a path as users write it: ``topics.orders.config[min.insync.replicas]``, ``faults[1].kill``.

    List indices count from 1 here, as in `after: {fault: 1}`. The root is the empty text.
    """
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part + 1}]"
        elif part and _PLAIN.issuperset(part):
            text += f".{part}" if text else part
        else:
            text += f"[{part}]"
    return text


_ALSO_SAID: Final[Mapping[str, tuple[str, ...]]] = {
    "version": ("kafka",),
    "replicas": ("replication_factor",),
    "nodes": ("brokers",),
    "node": ("broker",),
    "any": ("broker",),
    "random": ("broker",),
    "everyone": ("brokers",),
    "all": ("brokers",),
    "start": ("at",),
    "begin": ("at",),
    "time": ("at",),
    "duration": ("for",),
    "freeze": ("pause",),
    "suspend": ("pause",),
    "crash": ("kill",),
    "kill_broker": ("kill",),
    "shutdown": ("stop",),
    "network_partition": ("split", "isolate"),
    "partition": ("split", "isolate"),
    "latency": ("delay",),
    "no_loss": ("lost",),
    "zk": ("zookeeper",),
    "off": ("none",),
    "container": ("docker",),
    "containers": ("docker",),
    "max": ("full",),
}
"""Names that people also use → the valid names that they may mean."""


def nearest(name: str, valid: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the valid name that `name` probably means, by `_ALSO_SAID`, else the one with the most similar spelling;
    None if none is near. `cutoff`: required similarity, 0 … 1."""
    names = list(valid)
    for meant in _ALSO_SAID.get(name.lower(), ()):
        if meant in names:
            return meant
    by_lower = {candidate.lower(): candidate for candidate in names}
    lowered = name.lower().replace("-", "_")
    for attempt in (name.lower(), lowered):
        close = difflib.get_close_matches(attempt, by_lower, n=1, cutoff=cutoff)
        if close:
            return by_lower[close[0]]
    return None


def unknown_name(
    fact: str, name: str, valid: Sequence[str], otherwise: str, most: int | None = None
) -> Advice:
    """Return the message about an unknown name: `fact (did you mean …?)`, else `fact; `, `otherwise` and the valid
    names.

    `most`: the largest number of valid names to list; None: all.
    """
    near = nearest(name, valid)
    return Advice(fact, suggestion=near) if near else Advice(fact, f"{otherwise} {', '.join(valid[:most])}")


@dataclass(frozen=True, order=True)
class Problem:
    """One error or warning. `line` and `column` count from 1; 0 if it is in no line of the file (`--set`). `path` is
    "" for the document as a whole."""

    file: str
    line: int
    column: int
    path: str
    message: Advice
    """What is wrong, and in most messages what to do."""
    severity: Literal["error", "warning"] = field(default="error", compare=False)
    """A file with an error is refused; one with warnings only is not."""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        where = f"{self.path}: " if self.path else ""
        return f"{place}: {where}{self.message}"

    def as_json(self) -> dict[str, str | int | None]:
        """Return the problem as JSON for editors and CI. `message` lacks the remedy, which is in `hint` (null if none
        is known). `line` and `column` are null if the problem is in no line of the file."""
        return {
            "file": self.file,
            "line": self.line or None,
            "column": self.column or None,
            "path": self.path,
            "severity": self.severity,
            "message": self.message.fact,
            "hint": self.message.remedy,
        }

    def excerpt(self, lines: Sequence[str]) -> str:
        """Return a line break, the line of the file (at most 100 characters) and a caret below the column. Return '' if
        the problem is in no line. `lines`: lines of the file."""
        if not 0 < self.line <= len(lines):
            return ""
        number, cut = f"{self.line:6} | ", max(0, self.column - _EXCERPT // 2)
        shown = _printable(lines[self.line - 1].replace("\t", "→"))
        caret = " " * (self.column - 1 - cut) + "^"
        return f"\n{number}{shown[cut : cut + _EXCERPT]}\n{' ' * (len(number) - 2)}| {caret}"


_EXCERPT: Final = 100
"""Maximum number of characters of a line that are shown."""
MOST_PROBLEMS: Final = 100
"""Maximum number of problems reported for one file; a file with more has no mere typing mistakes."""


class InvalidExperiment(BadInput):
    """An experiment file cannot be used. `problems` holds its problems in file order, each once, at most
    `MOST_PROBLEMS`. The text says if there were more. If `lines` has the lines of the file, the text shows each problem
    with its line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        every = sorted(set(problems))
        self.problems: tuple[Problem, ...] = tuple(every[:MOST_PROBLEMS])
        self.lines: Sequence[str] = ()
        self._more = len(every) > MOST_PROBLEMS
        Exception.__init__(self, self.problems)

    @property
    def listed(self) -> tuple[Problem, ...]:
        """The problems to show; if there were more, the last entry says so."""
        more = Advice("and more", f"only the first {MOST_PROBLEMS} problems are shown")
        return (*self.problems, *([Problem(self.problems[0].file, 0, 0, "", more)] if self._more else ()))

    def __str__(self) -> str:
        return "\n".join(f"{problem}{problem.excerpt(self.lines)}" for problem in self.listed)
