"""Waiting for a run in a process of its own to come to some point, which on a starved machine takes minutes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import TypeVar

from ackproof.base.wait import wait_until

T = TypeVar("T")

BEGINS_WITHIN_S = 300.0
"""No bar: one that takes 10 s alone took 80 s beside twenty busy loops on two cores."""


def await_run(
    process: subprocess.Popen[str] | subprocess.Popen[bytes],
    look: Callable[[], T | None],
    what: str,
    *,
    logs: Callable[[], str] | None = None,
) -> T:
    """What `look` sees of it, once that is true and it runs on. Raises AssertionError, with its words, if it ended."""

    def seen() -> T | None:
        found = look()
        if process.poll() is not None:
            out, err = process.communicate()
            raise AssertionError(f"ended with {process.returncode}, waited for {what}:\n{out}\n{err}")
        return found

    return wait_until(seen, what=what, timeout_s=BEGINS_WITHIN_S, logs=logs)
