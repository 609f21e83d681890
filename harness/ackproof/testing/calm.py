"""What goes on around a run inside somebody else's process: its warnings, its signals."""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def own_warnings() -> Iterator[None]:
    """What libraries of the harness warn of is not about the tests, which may hold every warning for an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


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
