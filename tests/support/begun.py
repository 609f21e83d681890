"""Waits until a run in a process of its own has come to some point, which takes minutes on a busy machine."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import TypeVar

from ackproof.base.wait import wait_until

T = TypeVar("T")

BEGINS_WITHIN_S = 300.0
"""Longest wait in seconds: a run that takes 10 s alone took 80 s next to twenty busy loops on two cores."""


def await_run(
    process: subprocess.Popen[str] | subprocess.Popen[bytes],
    look: Callable[[], T | None],
    what: str,
    *,
    logs: Callable[[], str] | None = None,
) -> T:
    """Wait until `look` returns something true while the process runs, and return that. Raises AssertionError with the
    process's output if it ends before, `WaitTimeout` after `BEGINS_WITHIN_S`. `what`: the awaited state in words.
    `logs`: returns log lines for the message of `WaitTimeout`."""

    def seen() -> T | None:
        found = look()
        if process.poll() is not None:
            out, err = process.communicate()
            raise AssertionError(f"ended with {process.returncode}, waited for {what}:\n{out}\n{err}")
        return found

    return wait_until(seen, what=what, timeout_s=BEGINS_WITHIN_S, logs=logs)
