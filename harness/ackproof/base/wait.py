"""`wait_until`, the only function that waits for a state, and context managers that convert or delay Ctrl-C and
SIGTERM."""

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
    """Call `look` every `interval_s` seconds until it returns a true value, and return that value.

    `what` completes the sentence "waited for …". `state` and `logs` return what was seen last and the last
    log lines, for the error message; they are called only on failure. `look` may raise to end the wait at
    once (a node that died will never become ready). If `stop` is set, the wait ends with `Interrupted`.

    Raises `WaitTimeout` after `timeout_s` seconds. The last call of `look` comes after the deadline.
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
    """Raise KeyboardInterrupt on SIGTERM within the block, as on Ctrl-C. Nothing changes if SIGTERM has a handler
    already or is ignored, or outside of the main thread."""
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
    """Set the yielded event on the first Ctrl-C or SIGTERM within the block. The previous handlers apply from then
    on. An ignored signal stays ignored.

    On a thread other than the main one, which receives no signals, the event is never set.
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
    """Delay Ctrl-C and SIGTERM: if one comes within the block, the end of the block raises KeyboardInterrupt. Use it
    for clean-ups: an interrupted clean-up would leave half of a cluster, and a swallowed signal would let the run go
    on. Ignored signals stay ignored. On a thread other than the main thread, which receives no signals, it does
    nothing."""
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
    # A terminal signals the whole process group: commands of the block (umount, nft) inherit the mask and continue.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, before)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
        if heard:
            raise KeyboardInterrupt
