"""A node as a JVM process of this machine."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ackproof.base.errors import BadInput, NodeDied, WaitTimeout
from ackproof.base.processes import ProcessState
from ackproof.base.wait import wait_until
from ackproof.cluster.clocks import NodeClock
from ackproof.cluster.disks.node_disk import NodeDisk
from ackproof.cluster.protocol import NodeEvent, NodeState, OnNodeEvent
from ackproof.cluster.watcher import Served, Watcher
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
"""How much of its log a death is reported with."""


class NodeFiles:
    """The folder of one node, `nodes/<id>`. Everything but `data` stays."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.properties = folder / "server.properties"
        self.hosts = folder / "hosts"
        """The names that its JVM knows."""
        self.clock = folder / "clock"
        """How far its wall clock is from this machine's."""
        self.clock_library = folder / "libclock.so"
        """Where a container finds the library by which its clock can be set."""
        self.exporter = folder / "exporter.yaml"
        """Which of its metrics it tells, where it does."""
        self.log = folder / "server.log"
        self.stdout = folder / "stdout.log"
        """What its JVM prints: usually nothing."""
        self.data = folder / "data"


@dataclass(eq=False, repr=False)
class ProcessNode:
    """One node. `launch` starts a process for it; `ready` waits until it takes part in the cluster."""

    id: int
    name: str
    """What it is called in messages, and in its process' marks."""
    is_broker: bool
    is_controller: bool
    files: NodeFiles
    disk: NodeDisk
    launch: Callable[[], Served]
    watcher: Watcher
    on_event: OnNodeEvent
    ready: Callable[[ProcessNode, float], None]
    clock: NodeClock | None = None
    death: NodeDied | None = field(default=None, init=False)
    """Its death by itself, until it is started again."""
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False)
    _child: Served | None = field(default=None, init=False)
    _expected: bool = field(default=False, init=False)
    _told: threading.Event = field(default_factory=threading.Event, init=False)
    """Whether the end of its last process was told."""

    def __post_init__(self) -> None:
        self._told.set()

    @property
    def pid(self) -> int | None:
        child = self._child
        return None if child is None else child.pid

    @property
    def alive(self) -> bool:
        """Whether its process exists."""
        return self.state() is not NodeState.GONE

    def state(self) -> NodeState:
        child = self._child
        return NodeState.GONE if child is None else _STATES[child.state()]

    def start(self) -> None:
        if self.state() is NodeState.GONE:
            # The end of the process before is an event of its own, and comes first.
            self._told.wait(5.0)
        with self._lock:
            if self.state() is not NodeState.GONE:
                raise BadInput(f"node {self.id} cannot be started: it is {self.state().value}")
            self._expected = False
            self.death = None
            self._child = child = self.launch()
            self._told.clear()
            self.on_event(NodeEvent(self.id, NodeStarted(pid=child.pid)))
            self.watcher.watch(child, self._ended)

    def kill(self) -> None:
        self._end_by(signal.SIGKILL)

    def terminate(self) -> None:
        self._end_by(signal.SIGTERM)

    def expect_end(self) -> None:
        with self._lock:
            self._expected = True

    def stop(self, timeout_s: float = 30.0) -> bool:
        """SIGTERM, and after `timeout_s` SIGKILL. Whether it ended by itself in time."""
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
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def await_ready(self, timeout_s: float) -> None:
        self.ready(self, timeout_s)

    def log_tail(self, lines: int = 20) -> str:
        parts = [_tail(self.files.log, lines), _tail(self.files.stdout, lines)]
        return "\n".join(part for part in parts if part)

    def _signal(self, number: signal.Signals) -> None:
        with self._lock:
            if self._child is not None:
                self._child.signal(number)

    def _end_by(self, number: signal.Signals) -> None:
        """The lock keeps the watcher from judging an end before we have said that we asked for it."""
        with self._lock:
            if self._child is not None and self._child.signal(number):
                self._expected = True

    def _ended(self, child: Served, number: int) -> None:
        status = status_text(number)
        with self._lock:
            what: NodeEnded | timeline.NodeDied
            if self._expected:
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
            self._told.set()


def stop_together(nodes: list[ProcessNode], timeout_s: float) -> list[int]:
    """SIGTERM to all; those that still live after `timeout_s` seconds."""
    for node in nodes:
        node.terminate()
    try:
        wait_until(
            lambda: not any(node.alive for node in nodes), what="nodes to shut down", timeout_s=timeout_s
        )
    except WaitTimeout:
        return [node.id for node in nodes if node.alive]
    return []


def status_text(status: int) -> str:
    """An exit status in words: `exit status 1`, `SIGKILL`."""
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
