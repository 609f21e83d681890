"""The one function that waits. Nothing else in ackproof sleeps to let something happen."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event
from typing import TypeVar

from ackproof.base.errors import Interrupted, WaitTimeout

T = TypeVar("T")


def wait_until(
    look: Callable[[], T | None],
    *,
    what: str,
    timeout_s: float,
    interval_s: float = 0.02,
    state: Callable[[], str] | None = None,
    logs: Callable[[], str] | None = None,
    stop: Event | None = None,
) -> T:
    """Call `look` until it returns something true, and return that.

    `what` completes the sentence "waited for …". `state` and `logs` are asked only on failure. `look` may raise
    to end the wait at once (a node that died will never become ready). `stop` ends the wait with `Interrupted`.

    Raises `WaitTimeout` after `timeout_s` seconds; `look` is called at least once, and once more at the end.
    """
    deadline = time.monotonic() + timeout_s
    pause = Event() if stop is None else stop
    while True:
        last_look = time.monotonic() >= deadline
        if pause.is_set():
            raise Interrupted(f"stopped while waiting for {what}")
        seen = look()
        if seen:
            return seen
        if last_look:
            break
        pause.wait(min(interval_s, max(0.0, deadline - time.monotonic())))
    message = f"waited {timeout_s:g} s for {what}"
    if state is not None:
        message += f"; last seen: {state()}"
    if logs is not None and (tail := logs().strip()):
        message += f"\nlast log lines:\n{tail}"
    raise WaitTimeout(message)
