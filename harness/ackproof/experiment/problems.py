"""Documents as nodes that know their line and column, and problems with them: each has its place and the nearest
valid name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from ackproof.base.errors import BadInput
from ackproof.rundir.documents import Scalar


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a file; both count from 1."""

    line: int
    column: int


START: Final = Mark(1, 1)
NOWHERE: Final = Mark(0, 0)
"""Where something is that the file does not say: the command line does."""


@dataclass(frozen=True, slots=True)
class ScalarNode:
    """A value without parts. `text` is what the file says, `value` what it means."""

    value: Scalar
    text: str
    mark: Mark = START
    nodes: int = 1
    depth: int = 1


@dataclass(slots=True)
class ListNode:
    """A list. `nodes` and `depth` measure it with its aliases followed."""

    mark: Mark = START
    items: list[Node] = field(default_factory=list)
    nodes: int = 1
    depth: int = 1


@dataclass(slots=True)
class MapNode:
    """A mapping: `entries` by the text of the key, `keys` the nodes of the keys."""

    mark: Mark = START
    entries: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, ScalarNode] = field(default_factory=dict)
    nodes: int = 1
    depth: int = 1


Node: TypeAlias = ScalarNode | ListNode | MapNode
Data: TypeAlias = "dict[str, Data] | list[Data] | Scalar"
"""What nodes hold, without their places."""


def plain(node: Node) -> Data:
    """Return the data of a node without marks."""
    match node:
        case MapNode():
            return {key: plain(value) for key, value in node.entries.items()}
        case ListNode():
            return [plain(item) for item in node.items]
        case _:
            return node.value


def nodes_of(data: Data) -> Node:
    """Data as nodes without a place (all at line 1)."""
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
    """The nodes of a whole document, likewise."""
    root = nodes_of(data)
    assert isinstance(root, MapNode)
    return root


def printable(text: str) -> str:
    """Text from a file without what a terminal might obey; as long as before."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def shorten(text: str, limit: int = 60) -> str:
    """Text from a file, fit for one line of a message."""
    shown = printable(text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


Path: TypeAlias = tuple[str | int, ...]
"""A way from the root of a document to a field: names of fields, and list indices counting from 0."""

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def path_text(path: Path) -> str:
    """A path as a user reads it: ``topics.orders.config[min.insync.replicas]``, ``faults[1].kill``.

    List indices are shown counting from 1, as `after: {fault: 1}` counts. The root is the empty text.
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
"""What else people call things, and what is meant."""


def nearest(name: str, valid: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The valid name that `name` was probably meant to be, or None when none is near (`cutoff`: 1 is equal)."""
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


def hint(name: str, valid: Sequence[str], otherwise: str, most: int | None = None) -> str:
    """Return the end of a message about an unknown name: the name that was meant, else `otherwise` and valid names."""
    near = nearest(name, valid)
    return f" (did you mean '{near}'?)" if near else f"; {otherwise} {', '.join(valid[:most])}"


_REMEDY: Final = re.compile(r"((?:[^';]|(?<=\w)'(?=\w)|'[^']*')*?)(?:; (.+)| \((did you mean .+\?)\))\Z")
"""A message: what is wrong, and behind a semicolon that is not quoted what to do."""


@dataclass(frozen=True, order=True)
class Problem:
    """One thing that is wrong, or doubtful. `line` and `column` count from 1, 0 for what no line of the file says
    (`--set`); `path` is "" for the document as a whole."""

    file: str
    line: int
    column: int
    path: str
    message: str
    """What is wrong; mostly also, behind a semicolon, what to do."""
    suggestion: str | None = field(default=None, compare=False)
    severity: Literal["error", "warning"] = field(default="error", compare=False)
    """A file with an error is refused."""

    @property
    def hint(self) -> str | None:
        """Remedy, None where none is known."""
        if self.suggestion:
            return f"did you mean '{self.suggestion}'?"
        remedy = _REMEDY.match(self.message)
        return (remedy[2] or remedy[3]) if remedy else None

    @property
    def fact(self) -> str:
        remedy = _REMEDY.match(self.message)
        return remedy[1] if remedy else self.message

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        where = f"{self.path}: " if self.path else ""
        hint = f" ({self.hint})" if self.suggestion else ""
        return f"{place}: {where}{self.message}{hint}"

    def as_json(self) -> dict[str, str | int | None]:
        """Return it for editors and CI; `line` and `column` are null for what is not in the file."""
        return {
            "file": self.file,
            "line": self.line or None,
            "column": self.column or None,
            "path": self.path,
            "severity": self.severity,
            "message": self.fact,
            "hint": self.hint,
        }

    def excerpt(self, lines: Sequence[str]) -> str:
        """The line of the file that it is about, and a caret below its column; empty where there is none."""
        if not 0 < self.line <= len(lines):
            return ""
        number, cut = f"{self.line:6} | ", max(0, self.column - _EXCERPT // 2)
        shown = printable(lines[self.line - 1].replace("\t", "→"))
        caret = " " * (self.column - 1 - cut) + "^"
        return f"\n{number}{shown[cut : cut + _EXCERPT]}\n{' ' * (len(number) - 2)}| {caret}"


_EXCERPT: Final = 100
"""Most characters of a line that are shown."""
MOST_PROBLEMS: Final = 100
"""Most problems reported for one file; more are no typing mistakes."""


class InvalidExperiment(BadInput):
    """An experiment file cannot be used. `problems` holds what is wrong with it, in file order.

    At most `MOST_PROBLEMS` of them; the text says when there are more. With `lines` of the file, each problem is shown
    with its line.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        every = sorted(set(problems))
        self.problems: tuple[Problem, ...] = tuple(every[:MOST_PROBLEMS])
        self.lines: Sequence[str] = ()
        self._more = len(every) > MOST_PROBLEMS
        super().__init__(self.problems)

    @property
    def listed(self) -> tuple[Problem, ...]:
        """The problems, and where there are more a last one that says so."""
        more = f"and more; only the first {MOST_PROBLEMS} problems are shown"
        return (*self.problems, *([Problem(self.problems[0].file, 0, 0, "", more)] if self._more else ()))

    def __str__(self) -> str:
        return "\n".join(f"{problem}{problem.excerpt(self.lines)}" for problem in self.listed)
