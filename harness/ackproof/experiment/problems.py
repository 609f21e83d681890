"""What is wrong with an experiment file: all of it at once, each with its place and the nearest valid name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ackproof.base.errors import BadInput

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


def nearest(name: str, valid: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The valid name that `name` was probably meant to be, or None when none is near (`cutoff`: 1 is equal)."""
    names = list(valid)
    by_lower = {candidate.lower(): candidate for candidate in names}
    lowered = name.lower().replace("-", "_")
    for attempt in (name.lower(), lowered):
        close = difflib.get_close_matches(attempt, by_lower, n=1, cutoff=cutoff)
        if close:
            return by_lower[close[0]]
    return None


def hint(name: str, valid: Sequence[str], otherwise: str, most: int | None = None) -> str:
    """What follows the report of an unknown name: the one that was meant, else `otherwise` and the valid ones."""
    near = nearest(name, valid)
    return f" (did you mean '{near}'?)" if near else f"; {otherwise} {', '.join(valid[:most])}"


@dataclass(frozen=True, order=True)
class Problem:
    """One thing that is wrong. `line` and `column` count from 1; `path` is "" for the document as a whole."""

    file: str
    line: int
    column: int
    path: str
    message: str
    suggestion: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        hint = f" (did you mean '{self.suggestion}'?)" if self.suggestion else ""
        return f"{self.file}:{self.line}:{self.column}: {where}{self.message}{hint}"


MOST_PROBLEMS: Final = 100
"""So many problems of one file are told; a file with more is not one that somebody mistyped."""


class InvalidExperiment(BadInput):
    """An experiment file cannot be used. `problems` holds what is wrong with it, in file order.

    That is everything up to `MOST_PROBLEMS`; the text says when there is more.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        every = sorted(set(problems))
        self.problems: tuple[Problem, ...] = tuple(every[:MOST_PROBLEMS])
        lines = [str(problem) for problem in self.problems]
        if len(every) > MOST_PROBLEMS:
            lines.append(f"{self.problems[0].file}: and more; only {MOST_PROBLEMS} problems are shown")
        super().__init__("\n".join(lines))
