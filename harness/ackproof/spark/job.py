"""A job, as a room hands it to Spark: groups of work, a task for each, and tasks that judge what these say.

Nothing here knows Spark but by `Edge`, or what the work is: a job can be handed to a stand-in of an edge, too.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeAlias, TypeVar

Key: TypeAlias = tuple[int, int]
"""What belongs together: messages of one key are judged by one call."""

Group = TypeVar("Group")
"""The work of one task."""
Message = TypeVar("Message")


@dataclass(frozen=True)
class Job(Generic[Group, Message]):
    """One task for each group. With a `judge` the messages of each key come to one call of it, whole."""

    what: str
    """What it does, to be told with the progress."""
    groups: Sequence[Group]
    task: Callable[[Iterable[Group]], Iterator[tuple[Key, Message]]]
    judge: Callable[[Iterable[tuple[Key, Message]]], Iterator[Message]] | None = None
    partitions: int = 0
    """So many tasks judge: a message goes to the one that its key leaves, summed, as the remainder."""


class Edge(Protocol):
    """How Spark runs a job. Raises `AuditFailed` if Spark dies; Ctrl-C cancels it."""

    def __call__(self, job: Job[Group, Message]) -> list[Message]:
        """What the judges say, or the tasks where there is no judge."""
        ...


def warming(cores: int, prepare: str) -> Job[int, str]:
    """Does nothing but what jobs do: behind it workers run, called `prepare` (`module:function`) and met a shuffle."""
    return Job("starting the workers", range(cores), partial(_prepared, prepare=prepare), _handed_on, cores)


def _prepared(numbers: Iterable[int], prepare: str) -> Iterator[tuple[Key, str]]:
    pkgutil.resolve_name(prepare)()
    for number in numbers:
        yield (number, 0), prepare
        yield (number, 1), prepare  # for the neighbour, which may be at another worker


def _handed_on(messages: Iterable[tuple[Key, str]]) -> Iterator[str]:
    for _, message in messages:
        yield message


class HasRows(Protocol):
    """What is cut by its rows."""

    @property
    def rows(self) -> int: ...


Item = TypeVar("Item", bound=HasRows)


def filled(items: Iterable[Item], rows: int) -> Iterator[tuple[Item, ...]]:
    """Neighbours, together up to `rows` rows."""
    held: list[Item] = []
    for item in items:
        if held and sum(other.rows for other in held) + item.rows > rows:
            yield tuple(held)
            held = []
        held.append(item)
    if held:
        yield tuple(held)
