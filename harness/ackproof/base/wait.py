"""The one function that waits. Nothing else in ackproof sleeps to let something happen."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType
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


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """SIGTERM ends what was started, as Ctrl-C does, unless somebody else has plans for it."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def first_interrupt() -> Iterator[threading.Event]:
    """The first Ctrl-C or SIGTERM within the block sets this event; from then on they are what they were before.

    On other threads than the main one, which no signal reaches, it is never set.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def ask(_number: int, _frame: FrameType | None) -> None:
        restore()
        asked.set()

    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, ask)
    try:
        yield asked
    finally:
        restore()


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait for the end of the block, which then raises KeyboardInterrupt.

    For clean-ups: cut in two, they leave half of a cluster behind; swallowed, the run would just go on. Signals that
    are ignored stay so. On other threads than the main one, which no signal reaches, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []

    def hear(number: int, _frame: FrameType | None) -> None:
        heard.append(number)

    before = {
        number: signal.signal(number, hear)
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    # a terminal tells all of a process group: what the block starts (umount, nft) inherits the mask, and goes on
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, before)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
        if heard:
            raise KeyboardInterrupt
