"""A job, as a room hands it to Spark: groups of work, a task for each, and tasks that judge what these say.

Nothing here knows Spark but by `Edge`, or what the work is: a job can be handed to a stand-in of an edge, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
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

    @property
    def cores_elsewhere(self) -> int:
        """Of the workers that have come by now; 0 where they are on this machine, and where that is not known."""
        ...

    def __call__(self, job: Job[Group, Message]) -> list[Message]:
        """What the judges say, or the tasks where there is no judge."""
        ...


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
