"""Faults of processes: kill, stop, pause, restart.

The witness is the operating system (`/proc`: the process is gone, or stands still), never the signal's own return
value; healing is witnessed by the protocol: the node answers and, if a broker, is registered and unfenced.
"""

from __future__ import annotations

from collections.abc import Callable

from ackproof.cluster.protocol import Node, NodeState
from ackproof.errors import FaultNotConfirmed, WaitTimeout
from ackproof.faults.injection import Aim, Field, injects
from ackproof.plan.fault_processes import Kill, Pause, Restart, Stop
from ackproof.plan.faults import FaultSpec
from ackproof.wait import wait_until

GONE_WITHIN_S = 10.0
"""A SIGKILLed process is gone long before; more means that something holds it."""
STOPPED_WITHIN_S = 30.0
"""A controlled shutdown: hand over leaderships, flush, leave."""
READY_WITHIN_S = 60.0
"""A killed broker may register only after its old session has ended (DUPLICATE_BROKER_REGISTRATION)."""


class _OfProcesses:
    """What the four have in common: several nodes, aimed at only if they run."""

    def __init__(self, fault: FaultSpec, aim: Aim, field: Field) -> None:
        self.fault = fault
        self.nodes = aim.nodes
        self.field = field

    def _must_be(self, *states: NodeState) -> None:
        for node in self.nodes:
            state = node.state()
            if state not in states:
                raise FaultNotConfirmed(
                    f"{self.fault.kind} is aimed at node {node.id}, which is {state.value}: nothing to break"
                )

    def _until(self, state: NodeState, within_s: float) -> str:
        for node in self.nodes:
            try:
                wait_until(
                    lambda node=node: node.state() is state,  # type: ignore[misc]
                    what=f"node {node.id} to be {state.value}",
                    timeout_s=within_s,
                    interval_s=0.005,
                    state=lambda node=node: node.state().value,  # type: ignore[misc]
                )
            except WaitTimeout as error:
                raise FaultNotConfirmed(f"{self.fault.kind}: {error}") from error
        return f"/proc: {self._names()} {state.value}"

    def _start_the_dead(self) -> str:
        started = [node for node in self.nodes if node.state() is NodeState.GONE]
        for node in started:
            node.start()
        return f"started {', '.join(str(node.id) for node in started) or 'nothing'}"

    def _until_ready(self) -> str:
        for node in self.nodes:
            try:
                node.await_ready(READY_WITHIN_S)
            except WaitTimeout as error:
                raise FaultNotConfirmed(f"{self.fault.kind}: healing: {error}") from error
        return f"protocol: {self._names()} answers, registered and unfenced"

    def _names(self) -> str:
        return "node " + ", ".join(str(node.id) for node in self.nodes)

    def _each(self, act: Callable[[Node], None], word: str) -> str:
        for node in self.nodes:
            act(node)
        return f"{word} to {self._names()}"


@injects(Kill)
class KillInjection(_OfProcesses):
    """SIGKILL; healed by starting the node again."""

    def inject(self) -> str:
        """Send SIGKILL."""
        self._must_be(NodeState.RUNNING, NodeState.STOPPED)
        return self._each(lambda node: node.kill(), "SIGKILL")

    def confirm(self) -> str:
        """The process is gone."""
        return self._until(NodeState.GONE, GONE_WITHIN_S)

    def heal(self) -> str:
        """Start what is dead."""
        return self._start_the_dead()

    def confirm_healed(self) -> str:
        """The node answers and is unfenced."""
        return self._until_ready()


@injects(Stop)
class StopInjection(KillInjection):
    """SIGTERM and a controlled shutdown; healed by starting the node again."""

    def inject(self) -> str:
        """Send SIGTERM."""
        self._must_be(NodeState.RUNNING)
        return self._each(lambda node: node.terminate(), "SIGTERM")

    def confirm(self) -> str:
        """The process is gone."""
        return self._until(NodeState.GONE, STOPPED_WITHIN_S)


@injects(Pause)
class PauseInjection(_OfProcesses):
    """SIGSTOP; healed by SIGCONT."""

    def __init__(self, fault: FaultSpec, aim: Aim, field: Field) -> None:
        super().__init__(fault, aim, field)
        self._standing: dict[int, int | None] = {}

    def inject(self) -> str:
        """Send SIGSTOP."""
        self._must_be(NodeState.RUNNING)
        return self._each(lambda node: node.pause(), "SIGSTOP")

    def confirm(self) -> str:
        """All threads stand still."""
        witness = self._until(NodeState.STOPPED, GONE_WITHIN_S)
        self._standing = {node.id: node.pid for node in self.nodes}
        return witness

    def heal(self) -> str:
        """Send SIGCONT to what still stands. A process that runs again already was not paused for its time."""
        woken = [
            node
            for node in self.nodes
            # another process than the one that was paused is the doing of another fault
            if node.state() is NodeState.RUNNING and self._standing.get(node.id) == node.pid
        ]
        standing = [node for node in self.nodes if node.state() is NodeState.STOPPED]
        for node in standing:
            node.resume()
        if woken:
            names = ", ".join(str(node.id) for node in woken)
            raise FaultNotConfirmed(f"pause did not hold: node {names} ran before its healing")
        return f"SIGCONT to {', '.join(str(node.id) for node in standing) or 'nothing'}"

    def confirm_healed(self) -> str:
        """The processes run, and answer."""
        self._until(NodeState.RUNNING, GONE_WITHIN_S)
        return self._until_ready()


@injects(Restart)
class RestartInjection(_OfProcesses):
    """A graceful bounce. Its effect is that another process serves the node afterwards."""

    def inject(self) -> str:
        """SIGTERM, until gone, then start again, node by node."""
        self._must_be(NodeState.RUNNING)
        self._before = {node.id: node.pid for node in self.nodes}
        for node in self.nodes:
            node.terminate()
            self._gone(node)
            node.start()
        return f"SIGTERM and start of {self._names()}"

    def _gone(self, node: Node) -> None:
        try:
            wait_until(
                lambda: node.state() is NodeState.GONE,
                what=f"node {node.id} to shut down",
                timeout_s=STOPPED_WITHIN_S,
                interval_s=0.005,
                state=lambda: node.state().value,
                logs=lambda: node.log_tail(5),
            )
        except WaitTimeout as error:
            raise FaultNotConfirmed(f"restart: {error}") from error

    def confirm(self) -> str:
        """Another process runs."""
        for node in self.nodes:
            if node.state() is not NodeState.RUNNING or node.pid == self._before[node.id]:
                raise FaultNotConfirmed(f"restart: node {node.id} is {node.state().value}, pid {node.pid}")
        return f"/proc: another process runs {self._names()}"

    def heal(self) -> str:
        """Start what is dead, should the bounce have stopped half way."""
        return self._start_the_dead()

    def confirm_healed(self) -> str:
        """The node answers and is unfenced."""
        return self._until_ready()
