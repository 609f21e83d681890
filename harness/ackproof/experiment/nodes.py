"""What a file holds, as nodes that know their line and column."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

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
    """What a node holds, without the places."""
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
