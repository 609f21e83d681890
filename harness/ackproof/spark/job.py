"""A Spark job: one task per group of work, then judging tasks for the messages of the first tasks. Also waits for a job
and cancels it.

Callers use Spark only through the interface `Edge`, so that tests can replace it.
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
"""Key of a message: two numbers that the task chooses. All messages with the same key go to the same call of
`Job.judge`; their sum decides the task."""

Group = TypeVar("Group")
"""Input of one task."""
Message = TypeVar("Message")


@dataclass(frozen=True)
class Job(Generic[Group, Message]):
    """A Spark job. `task` is called once for each group, with an iterable of that one group, and yields (key, message)
    pairs.

    If the job has a `judge`, the pairs are shuffled: all pairs with one key go to one call of the judge, which yields
    the results.
    """

    what: str
    """Name of the activity in progress messages."""
    groups: Sequence[Group]
    task: Callable[[Iterable[Group]], Iterator[tuple[Key, Message]]]
    judge: Callable[[Iterable[tuple[Key, Message]]], Iterator[Message]] | None = None
    partitions: int = 0
    """Number of judging tasks. A message goes to the task number (sum of its key) modulo this."""


class Edge(Protocol):
    """Runs jobs on Spark, classic or Connect: called with a job, it returns the job's messages.

    Raises `AuditFailed` if Spark dies; Ctrl-C cancels the job.
    """

    @property
    def cores_elsewhere(self) -> int:
        """Number of cores of remote workers that have registered so far; 0 if unknown, or if they are on this
        machine.
        """
        ...

    def __call__(self, job: Job[Group, Message]) -> list[Message]:
        """Run the job. Return the messages of the judging tasks, or of the tasks if there is no judge."""
        ...


class HasRows(Protocol):
    """An object with a number of rows, by which work is grouped into tasks."""

    @property
    def rows(self) -> int: ...


Item = TypeVar("Item", bound=HasRows)


def group_by_rows(items: Iterable[Item], rows: int) -> Iterator[tuple[Item, ...]]:
    """Yield groups of consecutive items. Each group has at most `rows` rows, or is a single larger item."""
    group: list[Item] = []
    for item in items:
        if group and sum(other.rows for other in group) + item.rows > rows:
            yield tuple(group)
            group = []
        group.append(item)
    if group:
        yield tuple(group)


Progress = Callable[[str], None]
T = TypeVar("T")

_LOOK_S = 0.5
_TELL_EVERY_S = 5.0
CANCEL_S = 1.0
"""Seconds to wait for a cancelled job to end. Spark ends its tasks in any case."""


def run_in_background(action: Callable[[], T], name: str) -> Future[T]:
    """Run `action` in a daemon thread and return its future. The thread does not delay the exit of the process, as an
    executor's would."""
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
    """Call `job` in the background and return its result, or raise what it raises. A KeyboardInterrupt calls `cancel`
    and is raised again.

    `done` returns the numbers of finished and of all tasks. `tell` gets messages on the progress; they begin with
    `what`, the name of the job.
    """
    future = run_in_background(job, "spark-job")
    reported_at, reported = time.monotonic(), (0, 0)
    try:
        while not wait_for([future], _LOOK_S).done:
            if time.monotonic() - reported_at < _TELL_EVERY_S:
                continue
            # Run it in another thread: py4j prints a traceback for an interrupt within a call, and may raise another
            # error.
            if (now := run_in_background(done, "spark-progress").result()) != reported:
                reported_at, reported = time.monotonic(), now
                tell(f"{what}: {now[0]} of {now[1]} tasks done")
        return future.result()
    except KeyboardInterrupt:
        with contextlib.suppress(Exception):  # Spark may be dead already, and its tasks with it
            run_in_background(cancel, "spark-cancel").result(CANCEL_S)
        wait_for([future], CANCEL_S)
        raise
