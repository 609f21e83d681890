"""Problems of one document while it is being understood: where they are, and what they make meaningless."""

from __future__ import annotations

from collections.abc import Iterable

from ackproof.experiment.nodes import ListNode, MapNode, Mark, Node, ScalarNode, shorten
from ackproof.experiment.problems import MOST_PROBLEMS, Path, Problem, nearest, path_text


class Problems:
    """Collects problems by the path of their field; the nodes say where that is in the file.

    A path that has a problem is marked as broken, so that checks which depend on it keep silent.
    """

    def __init__(self, file: str, root: MapNode) -> None:
        self.file = file
        self.root = root
        self.problems: list[Problem] = []
        self._broken: set[Path] = set()
        self._meant: list[tuple[Path, str]] = []

    def report(
        self, path: Path, message: str, suggestion: str | None = None, *, key: bool = False, part: Path = ()
    ) -> None:
        """Note a problem of the field at `path`, or with `key` of its name.

        `part` continues `path` to where exactly it is, when that has no path of its own for the user.
        """
        self._broken.add(path)
        if self.full:
            return
        mark = self.locate(path + part, key=key)
        problem = Problem(
            self.file,
            mark.line,
            mark.column,
            shorten(path_text(path), 250),
            shorten(message, 500),
            suggestion,
        )
        if problem not in self.problems:
            self.problems.append(problem)

    @property
    def full(self) -> bool:
        """Whether there are more problems than will be told: then no more are looked into."""
        return len(self.problems) > MOST_PROBLEMS

    def unknown(self, path: Path, what: str, valid: Iterable[str], *, hint: str = "") -> None:
        """Note a name that nobody knows: the last part of `path`, which should be one of `valid`."""
        if self.full:
            self._broken.add(path)
            return
        names = list(valid)
        near = nearest(str(path[-1]), names)
        message = f"unknown {what} '{shorten(str(path[-1]))}'"
        if hint:
            message += f"; {hint}"
        elif near is None:
            message += f"; expected one of {', '.join(names)}"
        if near is not None:
            self._meant.append((path, near))
        self.report(path, message, None if hint else near, key=True)

    def unknown_value(self, path: Path, what: str, name: str, valid: Iterable[str], part: Path = ()) -> None:
        """Note a value that names something which does not exist."""
        names = list(valid)
        near = nearest(name, names)
        message = f"{what} '{shorten(name)}' does not exist"
        if near is None and names:
            message += f"; there is {', '.join(names)}"
        self.report(path, message, near, part=part)

    def misspelt(self, path: Path) -> bool:
        """Whether an unknown name beside `path` was probably meant to be it: then it is not missing."""
        return any(broken[:-1] == path[:-1] and near == path[-1] for broken, near in self._meant)

    def breaks(self, path: Path) -> None:
        """Mark `path` as broken without a further problem."""
        self._broken.add(path)

    def sound(self, *paths: Path) -> bool:
        """Whether neither these fields nor what they are part of have a problem."""
        return not any(path[:length] in self._broken for path in paths for length in range(len(path) + 1))

    def sound_below(self, path: Path) -> bool:
        """Whether nothing at `path` or below it has a problem."""
        return not any(broken[: len(path)] == path for broken in self._broken)

    def node(self, path: Path) -> Node | None:
        """The node at `path`, None if the file does not have it."""
        node: Node | None = self.root
        for part in path:
            node = _child(node, part)
        return node

    def locate(self, path: Path, *, key: bool = False) -> Mark:
        """Where `path` is; where it is missing, the name of the nearest thing around it that is there."""
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
    """What stands in the file, as the end of "expected …, not …"."""
    match node:
        case None:
            return "nothing"
        case MapNode():
            return "a mapping"
        case ListNode():
            return "a list"
        case ScalarNode(value=None):
            return "nothing" if node.text == "" else f"'{node.text}'"
        case ScalarNode(value=bool()):
            return f"the truth value {node.text}"
        case ScalarNode(value=str()):
            return f"the text '{shorten(node.text)}'"
        case _:
            return f"the number {node.text}"
