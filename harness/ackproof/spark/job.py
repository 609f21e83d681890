"""A job, as a room hands it to Spark: groups of work, a task for each, and tasks that judge what these say.

Nothing here knows Spark but by `Edge`, or what the work is: a job can be handed to a stand-in of an edge, too.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from threading import Thread
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


def group_by_rows(items: Iterable[Item], rows: int) -> Iterator[tuple[Item, ...]]:
    """Neighbours, together up to `rows` rows."""
    held: list[Item] = []
    for item in items:
        if held and sum(other.rows for other in held) + item.rows > rows:
            yield tuple(held)
            held = []
        held.append(item)
    if held:
        yield tuple(held)


Progress = Callable[[str], None]
T = TypeVar("T")

_LOOK_S = 0.5
_TELL_EVERY_S = 5.0
CANCEL_S = 1.0
"""So long a cancelled job may take to say so; Spark ends its tasks whether or not anybody waits."""


def run_in_background(action: Callable[[], T], name: str) -> Future[T]:
    """What it comes to. A thread that ends with the process: not one of an executor, which the process waits for."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(action())
        except BaseException as error:  # noqa: BLE001 - raised again where the result is asked for
            future.set_exception(error)

    Thread(target=run, name=name, daemon=True).start()
    return future


def await_job(
    job: Callable[[], T],
    cancel: Callable[[], object],
    done: Callable[[], tuple[int, int]],
    what: str,
    tell: Progress,
) -> T:
    """Wait for a job. `done` says how many tasks of how many are; an interrupt cancels it and is raised again."""
    future = run_in_background(job, "spark-job")
    told, said = time.monotonic(), (0, 0)
    try:
        while not wait_for([future], _LOOK_S).done:
            if time.monotonic() - told < _TELL_EVERY_S:
                continue
            # Not by this thread: py4j tells of an interrupt within a call by a traceback, and may raise something else.
            if (now := run_in_background(done, "spark-progress").result()) != said:
                told, said = time.monotonic(), now
                tell(f"{what}: {now[0]} of {now[1]} tasks done")
        return future.result()
    except KeyboardInterrupt:
        with contextlib.suppress(Exception):  # Spark may be dead already, and its tasks with it
            run_in_background(cancel, "spark-cancel").result(CANCEL_S)
        wait_for([future], CANCEL_S)
        raise
