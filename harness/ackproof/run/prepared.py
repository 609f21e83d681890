"""The next case's cluster starts while the present case comes to its end.

Not before that one has healed: two clusters at once would take the processors from each other under faults.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack

from ackproof.run.case import CaseRun
from ackproof.run.phases import Watcher
from ackproof.rundir.timeline import Event


class HeldBack:
    """Keeps what a case tells until its turn has come, then passes it on."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._lock = threading.Lock()
        self._kept: list[Event] | None = []

    def event(self, event: Event) -> None:
        """Keep it, or pass it on."""
        with self._lock:
            if self._kept is not None:
                self._kept.append(event)
                return
        self._watcher.event(event)

    def live(self, acked: int, read: int, isr: str) -> None:
        """Pass it on: a case that is not yet its turn has no load."""
        self._watcher.live(acked, read, isr)

    def release(self) -> None:
        """Its turn has come."""
        with self._lock:
            kept, self._kept = self._kept or [], None
        for event in kept:
            self._watcher.event(event)


class PreparedCase:
    """A case whose preparation goes on in a thread of its own, until it is taken or dropped."""

    def __init__(self, run: CaseRun, held: HeldBack) -> None:
        self.run = run
        self._held = held
        self._stack = ExitStack()
        self._error: BaseException | None = None
        self._stack.enter_context(run)
        self._thread = threading.Thread(target=self._prepare, name="prepare-case", daemon=True)
        self._thread.start()

    def _prepare(self) -> None:
        try:
            self.run.prepare()
        except BaseException as error:  # noqa: BLE001 — raised again by `go`, on the thread that asks for the case
            self._error = error

    def go(self) -> None:
        """Its turn: wait until it is prepared, bring it through, end it. Raises as `CaseRun` does."""
        self._held.release()
        try:
            with self._stack:
                try:
                    self._thread.join()
                finally:
                    # An interrupt must not end a cluster under the hands of the thread that starts it.
                    self._thread.join()
                if self._error is not None:
                    raise self._error
                self.run.go()
        finally:
            self.drop()

    def drop(self) -> None:
        """End what was started, once nothing more is being started. A second time nothing happens."""
        self._thread.join()
        self._stack.close()
