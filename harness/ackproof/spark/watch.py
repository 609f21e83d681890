"""A Spark job in a thread of its own: who waits for it tells how far it is, and can cancel it at any moment."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from threading import Thread
from typing import TypeVar

Progress = Callable[[str], None]
T = TypeVar("T")

_LOOK_S = 0.5
_TELL_EVERY_S = 5.0
CANCEL_S = 1.0
"""So long a cancelled job may take to say so; Spark ends its tasks whether or not anybody waits."""


def in_background(action: Callable[[], T], name: str) -> Future[T]:
    """What it comes to. A thread that ends with the process: not one of an executor, which the process waits for."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(action())
        except BaseException as error:  # noqa: BLE001 - raised again where the result is asked for
            future.set_exception(error)

    Thread(target=run, name=name, daemon=True).start()
    return future


def watched(
    job: Callable[[], T],
    cancel: Callable[[], object],
    done: Callable[[], tuple[int, int]],
    what: str,
    tell: Progress,
) -> T:
    """Wait for a job. `done` says how many tasks of how many are; an interrupt cancels it and is raised again."""
    future = in_background(job, "spark-job")
    told, said = time.monotonic(), (0, 0)
    try:
        while not wait_for([future], _LOOK_S).done:
            if time.monotonic() - told < _TELL_EVERY_S:
                continue
            # Not by this thread: py4j tells of an interrupt within a call by a traceback, and may raise something else.
            if (now := in_background(done, "spark-progress").result()) != said:
                told, said = time.monotonic(), now
                tell(f"{what}: {now[0]} of {now[1]} tasks done")
        return future.result()
    except KeyboardInterrupt:
        with contextlib.suppress(Exception):  # Spark may be dead already, and its tasks with it
            in_background(cancel, "spark-cancel").result(CANCEL_S)
        wait_for([future], CANCEL_S)
        raise
