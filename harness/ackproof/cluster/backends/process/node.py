"""A node as a JVM process of this machine."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ackproof.base.errors import BadInput, NodeDied, WaitTimeout
from ackproof.base.processes import ProcessState
from ackproof.base.wait import wait_until
from ackproof.cluster.clocks import NodeClock
from ackproof.cluster.disks.node_disk import NodeDisk
from ackproof.cluster.protocol import NodeEvent, NodeState, OnNodeEvent
from ackproof.cluster.watcher import Served, Watcher
from ackproof.rundir.timeline import EventKind

_STATES: Final[dict[ProcessState, NodeState]] = {
    "running": NodeState.RUNNING,
    "stopped": NodeState.STOPPED,
    "zombie": NodeState.GONE,
    "gone": NodeState.GONE,
}
_TAIL_BYTES: Final = 32 << 10
REPORTED_LINES: Final = 12
"""How much of its log a death is reported with."""


@dataclass(frozen=True)
class NodeFiles:
    """The folder of one node, `nodes/<id>`. Everything but `data` stays."""

    folder: Path

    @property
    def properties(self) -> Path:
        """Its settings."""
        return self.folder / "server.properties"

    @property
    def hosts(self) -> Path:
        """The names that its JVM knows."""
        return self.folder / "hosts"

    @property
    def clock(self) -> Path:
        """How far its wall clock is from this machine's."""
        return self.folder / "clock"

    @property
    def clock_library(self) -> Path:
        """Where a container finds the library by which its clock can be set."""
        return self.folder / "libclock.so"

    @property
    def log(self) -> Path:
        """What it logs."""
        return self.folder / "server.log"

    @property
    def stdout(self) -> Path:
        """What its JVM prints: usually nothing."""
        return self.folder / "stdout.log"

    @property
    def data(self) -> Path:
        """Its log directory."""
        return self.folder / "data"


class ProcessNode:
    """One node. `launch` starts a process for it; `await_ready` waits until it takes part in the cluster."""

    def __init__(
        self,
        node_id: int,
        *,
        broker: bool,
        controller: bool,
        name: str,
        files: NodeFiles,
        disk: NodeDisk,
        launch: Callable[[], Served],
        watcher: Watcher,
        on_event: OnNodeEvent,
        await_ready: Callable[[ProcessNode, float], None],
        clock: NodeClock | None = None,
    ) -> None:
        self.files = files
        self.disk = disk
        self._id = node_id
        self._broker = broker
        self._controller = controller
        self._name = name
        self.clock = clock
        self._launch = launch
        self._watcher = watcher
        self._on_event = on_event
        self._await_ready = await_ready
        self._lock = threading.RLock()
        self._child: Served | None = None
        self._expected = False
        self._death: NodeDied | None = None
        self._told = threading.Event()
        self._told.set()

    @property
    def id(self) -> int:
        """Its number."""
        return self._id

    @property
    def is_broker(self) -> bool:
        """Whether it holds partitions."""
        return self._broker

    @property
    def is_controller(self) -> bool:
        """Whether it votes, or is a ZooKeeper server."""
        return self._controller

    @property
    def name(self) -> str:
        """What it is called in messages, and in its process' marks."""
        return self._name

    @property
    def pid(self) -> int | None:
        """The process that serves it, or served it last."""
        child = self._child
        return None if child is None else child.pid

    @property
    def alive(self) -> bool:
        """Whether its process exists."""
        return self.state() is not NodeState.GONE

    @property
    def death(self) -> NodeDied | None:
        """Its death by itself, until it is started again."""
        return self._death

    def state(self) -> NodeState:
        """What /proc says."""
        child = self._child
        return NodeState.GONE if child is None else _STATES[child.state()]

    def start(self) -> None:
        """Start a process. Raises `BadInput` when there is one."""
        if self.state() is NodeState.GONE:
            # The end of the process before is an event of its own, and comes first.
            self._told.wait(5.0)
        with self._lock:
            if self.state() is not NodeState.GONE:
                raise BadInput(f"node {self._id} cannot be started: it is {self.state().value}")
            self._expected = False
            self._death = None
            self._child = child = self._launch()
            self._told.clear()
            self._on_event(NodeEvent(EventKind.NODE_STARTED, self._id, child.pid))
            self._watcher.watch(child, self._ended)

    def kill(self) -> None:
        """SIGKILL."""
        self._end_by(signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM."""
        self._end_by(signal.SIGTERM)

    def expect_end(self) -> None:
        """A fault is about to make it end."""
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
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def await_ready(self, timeout_s: float) -> None:
        """Wait until it takes part in the cluster again."""
        self._await_ready(self, timeout_s)

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of its log, and what its JVM printed if it printed anything."""
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

    def _ended(self, child: Served, status: int) -> None:
        with self._lock:
            tail = self.log_tail(REPORTED_LINES)
            if not self._expected:
                self._death = NodeDied(
                    f"node {self._id} ({self.name}, pid {child.pid}) died by itself: {status_text(status)}"
                    + (f"; last log lines:\n{tail}" if tail else "; it logged nothing")
                )
            kind = EventKind.NODE_ENDED if self._expected else EventKind.NODE_DIED
        event = NodeEvent(kind, self._id, child.pid, status_text(status), tail)
        try:
            self._on_event(event)
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
            opened.seek(max(0, file.stat().st_size - _TAIL_BYTES))
            data = opened.read()
    except OSError:
        return ""
    return "\n".join(data.decode("utf-8", "replace").splitlines()[-lines:]).strip()
