"""Notices the end of processes at once: the kernel says so (a pidfd turns readable), nobody polls."""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
from collections.abc import Callable
from typing import Protocol

from ackproof.base.processes import ProcessState, started
from ackproof.base.wait import wait_until


class Served(Protocol):
    """The process that serves a node: a child of ours (`ackproof.base.processes.Child`), or that of a container."""

    @property
    def pid(self) -> int:
        """Its pid on this machine."""

    @property
    def started(self) -> int:
        """Its start time in clock ticks since boot, 0 if it had ended before it could be asked."""

    @property
    def role(self) -> str:
        """What it is called in messages."""

    def poll(self) -> int | None:
        """The exit status (negative: the signal that ended it), or None while it lives."""

    def signal(self, number: int) -> bool:
        """Send a signal to it. False if it has already ended."""

    def wait(self, timeout_s: float) -> int:
        """Wait until it has ended; the exit status. Raises `WaitTimeout`."""

    def state(self) -> ProcessState:
        """What the kernel says now."""


OnEnd = Callable[[Served, int], None]
"""Called once per child, on the watcher's thread, with its exit status (negative: the signal that ended it)."""


class Watcher:
    """One thread that waits for the ends of any number of children and reaps them."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._lock = threading.Lock()
        self._new: list[tuple[Served, OnEnd]] = []
        self._watched: dict[int, tuple[Served, OnEnd]] = {}
        self._closing = False
        self._closed = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="node-watcher", daemon=True)
        self._thread.start()

    def watch(self, child: Served, on_end: OnEnd) -> None:
        """Call `on_end` when the child has ended, which may be before this returns."""
        with self._lock:
            self._new.append((child, on_end))
        os.eventfd_write(self._wake, 1)

    def close(self, timeout_s: float = 10.0) -> None:
        """Return when the end of every child was told. Raises `WaitTimeout` while one lives on.

        Raises what a receiver raised, if one did. May be called again.
        """
        if self._closed:
            return
        with self._lock:
            self._closing = True
        os.eventfd_write(self._wake, 1)
        wait_until(
            lambda: not self._thread.is_alive(),
            what="the ends of all nodes to be told",
            timeout_s=timeout_s,
            interval_s=0.002,
            state=lambda: ", ".join(child.role for child, _ in list(self._watched.values())),
        )
        self._closed = True
        self._selector.close()
        os.close(self._wake)
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        while not self._done():
            ready = [key.fd for key, _ in self._selector.select()]
            for descriptor in ready:
                if descriptor == self._wake:
                    self._take_new()
                else:
                    self._tell(descriptor)

    def _done(self) -> bool:
        with self._lock:
            return self._closing and not self._new and not self._watched

    def _take_new(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        with self._lock:
            new, self._new = self._new, []
            for child, on_end in new:
                # A child of ours that was not yet reaped keeps its pid: only this thread reaps, or the child itself,
                # which then knows the status. Another process' pid may have a new owner by now: the start time tells.
                try:
                    # pid 0: it had ended before anybody could ask
                    descriptor = os.pidfd_open(child.pid) if child.pid else -1
                except ProcessLookupError:
                    descriptor = -1
                if descriptor >= 0 and child.started != started(child.pid):
                    os.close(descriptor)
                    descriptor = -1
                if descriptor >= 0:
                    self._watched[descriptor] = (child, on_end)
                    self._selector.register(descriptor, selectors.EVENT_READ)
                else:
                    self._call(on_end, child, child.wait(0.0))

    def _tell(self, descriptor: int) -> None:
        child, on_end = self._watched[descriptor]
        status = child.poll()
        if status is None:
            return
        self._selector.unregister(descriptor)
        os.close(descriptor)
        # Told before it is forgotten: `close` returns only after the last word.
        self._call(on_end, child, status)
        with self._lock:
            del self._watched[descriptor]

    def _call(self, on_end: OnEnd, child: Served, status: int) -> None:
        """A receiver that fails must not keep the ends of other nodes from being told."""
        try:
            on_end(child, status)
        except Exception as error:  # noqa: BLE001 — kept, and raised by `close`
            self._failure = self._failure or error
