"""Something done from within the network namespace of another process, by a thread that enters it and ends (root)."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from ackproof.cluster.network.failure import LinkError

_CLONE_NEWNET: Final = 0x40000000

T = TypeVar("T")


def inside(pid: int, act: Callable[[], T]) -> T:
    """What `act` returns or raises; sockets that it makes stay in that namespace. Raises `LinkError` for no way in."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            _enter(pid)
            results.append(act())
        except BaseException as error:  # noqa: BLE001 — carried to the caller's thread, and raised there
            errors.append(error)

    thread = threading.Thread(target=run, name=f"netns-{pid}", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _enter(pid: int) -> None:
    """Move this thread, and it alone, into the namespace."""
    try:
        with Path(f"/proc/{pid}/ns/net").open("rb") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
    except OSError as error:
        raise LinkError(f"no way into the network namespace of process {pid}: {error}") from error
