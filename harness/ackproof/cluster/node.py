"""A node as a process of this machine (a JVM, or the first process of a container), and the watcher that notices ends
of processes (by pidfd)."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from ackproof.base.errors import BadInput, NodeDied, WaitTimeout
from ackproof.base.processes import ProcessState, remove_attach_socket, started
from ackproof.base.wait import wait_until
from ackproof.cluster.clocks import NodeClock
from ackproof.cluster.disks.node_disk import NodeDisk
from ackproof.cluster.protocol import NodeEvent, NodeState, OnNodeEvent
from ackproof.rundir import timeline
from ackproof.rundir.timeline import NodeEnded, NodeStarted

_STATES: Final[dict[ProcessState, NodeState]] = {
    "running": NodeState.RUNNING,
    "stopped": NodeState.STOPPED,
    "zombie": NodeState.GONE,
    "gone": NodeState.GONE,
}
_TAIL_BYTES: Final = 32 << 10
REPORTED_LINES: Final = 12
"""Number of log lines that the report of a node's death quotes."""


class NodeFiles:
    """Paths of one node's files in its `folder`, `nodes/<id>`. Everything but `data` stays after the run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.properties = folder / "server.properties"
        self.hosts = folder / "hosts"
        """The hosts file of the node's JVM."""
        self.clock = folder / "clock"
        """The offset that the node's JVM adds to its wall clock."""
        self.clock_library = folder / "libclock.so"
        """The clock library; only in the folder of a container."""
        self.exporter = folder / "exporter.yaml"
        """The configuration of the node's metrics exporter, if the node has one."""
        self.rules = folder / "rules.btm"
        """The Byteman rules that the node's JVM loads, if its Kafka has some."""
        self.log = folder / "server.log"
        self.stdout = folder / "stdout.log"
        """Standard output and standard error of the node's JVM: usually empty. A container's are written at its end."""
        self.data = folder / "data"


@dataclass(eq=False, repr=False)
class ProcessNode:
    """A node that ackproof starts (a `LocalNode`). `launch` starts a process for it, whose end `watcher` notices.

    `ready(node, seconds)` waits until the node is ready (`Node.await_ready`). `on_event` gets its starts and ends.
    `clock`: None if no fault of the run sets clocks.
    """

    id: int
    name: str
    """Node's name in messages, and in the marks of its process."""
    is_broker: bool
    is_controller: bool
    files: NodeFiles
    disk: NodeDisk
    launch: Callable[[], NodeProcess]
    watcher: Watcher
    on_event: OnNodeEvent
    ready: Callable[[ProcessNode, float], None]
    clock: NodeClock | None = None
    death: NodeDied | None = field(default=None, init=False)
    """Unexpected end of the node's process; None if there was none since the last start."""
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False)
    _child: NodeProcess | None = field(default=None, init=False)
    exit_status: int | None = field(default=None, init=False)
    """Exit status of the last process (negative: the signal that ended it); None until the watcher has noticed its end,
    and before the first process."""
    _expected: bool = field(default=False, init=False)
    _expected_status: int | None = field(default=None, init=False)
    """Exit status that counts as an expected end; None for no particular status."""
    _end_reported: threading.Event = field(default_factory=threading.Event, init=False)
    """Set once the end of the node's last process was reported."""

    def __post_init__(self) -> None:
        self._end_reported.set()

    @property
    def pid(self) -> int | None:
        child = self._child
        return None if child is None else child.pid

    @property
    def alive(self) -> bool:
        """True if the node's process exists, also while it is paused."""
        return self.state() is not NodeState.GONE

    def state(self) -> NodeState:
        child = self._child
        return NodeState.GONE if child is None else _STATES[child.state()]

    def start(self) -> None:
        if self.state() is NodeState.GONE:
            # First wait until the end of the previous process is reported: that event precedes this start.
            self._end_reported.wait(5.0)
        with self._lock:
            if self.state() is not NodeState.GONE:
                raise BadInput(f"node {self.id} cannot be started: it is {self.state().value}")
            self._expected = False
            self._expected_status = self.exit_status = None
            self.death = None
            self._child = child = self.launch()
            self._end_reported.clear()
            self.on_event(NodeEvent(self.id, NodeStarted(pid=child.pid)))
            self.watcher.watch(child, self._ended)

    def kill(self) -> None:
        self._end_by(signal.SIGKILL)

    def terminate(self) -> None:
        self._end_by(signal.SIGTERM)

    def expect_end(self, status: int | None = None) -> None:
        with self._lock:
            if status is None:
                self._expected = True
            else:
                self._expected_status = status

    def stop(self, timeout_s: float = 30.0) -> bool:
        """Send SIGTERM, and SIGKILL after `timeout_s`. Return True if the process ended before SIGKILL was needed, also
        if none ran. Raises `WaitTimeout` if the process outlives SIGKILL by 10 s."""
        self.terminate()
        child = self._child
        if child is None:
            return True
        try:
            child.wait(timeout_s)
        except WaitTimeout:
            self.kill()
            child.wait(10.0)
            return False
        return True

    def pause(self) -> None:
        self.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.send_signal(signal.SIGCONT)

    def await_ready(self, timeout_s: float) -> None:
        self.ready(self, timeout_s)

    def log_tail(self, lines: int = 20) -> str:
        parts = [_tail(self.files.log, lines), _tail(self.files.stdout, lines)]
        return "\n".join(part for part in parts if part)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal that does not end the process; do nothing if no process runs."""
        with self._lock:
            if self._child is not None:
                self._child.signal(number)

    def _end_by(self, number: signal.Signals) -> None:
        """Send the node's process a signal that ends it, and mark its end as expected. Does nothing if no process runs.
        The lock makes the watcher see the end only after the mark."""
        with self._lock:
            if self._child is not None and self._child.signal(number):
                self._expected = True

    def _ended(self, child: NodeProcess, number: int) -> None:
        status = status_text(number)
        remove_attach_socket(child.pid)
        with self._lock:
            what: NodeEnded | timeline.NodeDied
            self.exit_status = number
            if self._expected or number == self._expected_status:
                what = NodeEnded(pid=child.pid, status=status)
            else:
                tail = self.log_tail(REPORTED_LINES)
                self.death = NodeDied(
                    f"node {self.id} ({self.name}, pid {child.pid}) died by itself: {status}"
                    + (f"; last log lines:\n{tail}" if tail else "; it logged nothing")
                )
                what = timeline.NodeDied(pid=child.pid, status=status, log=tail)
        try:
            self.on_event(NodeEvent(self.id, what))
        finally:
            self._end_reported.set()


def status_text(status: int) -> str:
    """Return an exit status in words, such as `exit status 1`. A negative status gives the signal's name, such as
    `SIGKILL`, or `signal 40` if Python has no name for it."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def _tail(file: Path, lines: int) -> str:
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - max(_TAIL_BYTES, lines << 10)))
            data = opened.read()
    except OSError:
        return ""
    return "\n".join(data.decode("utf-8", "replace").splitlines()[-lines:]).strip()


class NodeProcess(Protocol):
    """The process of a node: a child of the harness (`ackproof.base.processes.Child`), or the first process of a
    container."""

    @property
    def pid(self) -> int:
        """Process id on this machine, also for a process in a container."""

    @property
    def started(self) -> int:
        """Start time of the process in clock ticks since boot; 0 if it had ended before the time was read."""

    @property
    def role(self) -> str:
        """Node's name in messages, such as `broker-1`."""

    def poll(self) -> int | None:
        """Return the exit status (negative: the signal that ended the process), None while it runs. 255 also if the
        container engine does not report it."""

    def signal(self, number: int) -> bool:
        """Send a signal to the process. Return False if it has already ended. Raises `EngineFailed` if a container's
        engine fails."""

    def wait(self, timeout_s: float) -> int:
        """Wait until the process has ended and return its exit status. Raises `WaitTimeout` after `timeout_s`
        seconds."""

    def state(self) -> ProcessState:
        """Return the kernel's present state of the process."""


OnEnd = Callable[[NodeProcess, int], None]
"""Receiver of a process's end, called once on the watcher's thread with the exit status.

A negative status is the number of the signal that ended the process."""


class Watcher:
    """A thread that waits for the ends of any number of processes, reaps them, and reports each to its receiver."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._lock = threading.Lock()
        self._new: list[tuple[NodeProcess, OnEnd]] = []
        self._watched: dict[int, tuple[NodeProcess, OnEnd]] = {}
        self._closing = False
        self._closed = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="node-watcher", daemon=True)
        self._thread.start()

    def watch(self, child: NodeProcess, on_end: OnEnd) -> None:
        """Call `on_end(child, exit status)` on the watcher's thread when the process has ended, maybe before this
        method returns. A negative status is the number of the signal that ended it."""
        with self._lock:
            self._new.append((child, on_end))
        os.eventfd_write(self._wake, 1)

    def close(self, timeout_s: float = 10.0) -> None:
        """Wait until the end of every watched process is reported, and stop the thread. May be called again.

        Raises `WaitTimeout` if a process still runs after `timeout_s` seconds, and otherwise the first exception that
        an `on_end` raised.
        """
        if self._closed:
            return
        with self._lock:
            self._closing = True
        os.eventfd_write(self._wake, 1)
        wait_until(
            lambda: not self._thread.is_alive(),
            what="the ends of all nodes to be reported",
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
                    self._report(descriptor)

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

    def _report(self, descriptor: int) -> None:
        child, on_end = self._watched[descriptor]
        status = child.poll()
        if status is None:
            return
        self._selector.unregister(descriptor)
        os.close(descriptor)
        # Reported before it is forgotten: `close` returns only after the last report.
        self._call(on_end, child, status)
        with self._lock:
            del self._watched[descriptor]

    def _call(self, on_end: OnEnd, child: NodeProcess, status: int) -> None:
        """Call the receiver `on_end` with a process that ended and its exit status. An exception is kept in `_failure`
        (the first one), so that the ends of other nodes are still reported."""
        try:
            on_end(child, status)
        except Exception as error:  # noqa: BLE001 — kept, and raised by `close`
            self._failure = self._failure or error
