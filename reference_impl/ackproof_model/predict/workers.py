"""Worker processes for independent long tasks. They never outlive their caller."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def cores() -> int:
    """Return the number of processes that can work at once."""
    return len(os.sched_getaffinity(0))


def in_processes(work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[Task, Result]]:
    """Yield each task with its result as it finishes; one process per core, ended at once when the caller stops.

    `work` and the tasks are pickled. Raises what `work` raises.
    """
    pool = ProcessPoolExecutor(min(cores(), len(tasks)), initializer=_deaf)
    try:
        asked = {pool.submit(work, task): task for task in tasks}
        for done in as_completed(asked):
            yield asked[done], done.result()
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _deaf() -> None:
    """Ignore Ctrl-C: the parent handles it and ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
