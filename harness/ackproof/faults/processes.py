"""Faults of processes: kill, stop, pause, restart; and the base of all faults of whole processes.

The witness is the operating system (the process is gone, stopped, or frozen with its container), never the signal's own
return value. The protocol witnesses healing: the node answers and, if it is a broker, is registered and unfenced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

from ackproof.base.errors import FaultNotConfirmed, WaitTimeout
from ackproof.base.wait import wait_until
from ackproof.cluster.protocol import LocalNode, NodeState, local
from ackproof.experiment.backends import Ability
from ackproof.experiment.exposure import Exposure, Incidents
from ackproof.experiment.fault import WHERE_IT_LIVES, WHERE_IT_RUNS, Grip, NodeFault
from ackproof.faults.context import FaultContext
from ackproof.faults.injection import Aim, Injection, SpecT, injects
from ackproof.rundir.timeline import fault_name

GONE_WITHIN_S = 10.0
"""Seconds in which a killed process must end. It normally takes far less."""
STOPPED_WITHIN_S = 30.0
"""Seconds for a controlled shutdown: the broker moves leaderships, flushes, and leaves."""
SHUTDOWN_WITHIN_S = 90.0
"""Seconds for the shutdown of a broker that finds no controller. It can take until all faults are healed."""


class ProcessFault(NodeFault):
    """Base of faults of whole processes of nodes, such as a kill, a shutdown or a pause."""

    ASKS = frozenset({Ability.PROCESSES})
    GRIP = Grip.DOWN
    OVER = WHERE_IT_RUNS


class Kill(ProcessFault):
    """SIGKILL: the process ends; its page cache and its disk stay."""

    KIND = "kill"
    DONE = "killed"
    OVER = WHERE_IT_LIVES
    IN_FORCE_S = 1.0
    PER_NODE = Incidents(kills=1)
    ENDS_NODES = True
    SUMMARY = "End the process at once (SIGKILL)."
    HEALING = "start again"
    HOLD_KEY = "restart_after"


class Stop(ProcessFault):
    """SIGTERM: a controlled shutdown, in which the broker moves its leaderships."""

    KIND = "stop"
    DONE = "stopped"
    PER_NODE = Incidents(clean_stops=1)
    ENDS_NODES = True
    SUMMARY = "Shut the node down (SIGTERM, a controlled shutdown)."
    HEALING = "start again"
    HOLD_KEY = "restart_after"


class Pause(ProcessFault):
    """SIGSTOP: the process stops with its connections open, until SIGCONT."""

    KIND = "pause"
    DONE = "paused"
    GRIP = Grip.STILL
    IN_FORCE_S = 1.0
    SUMMARY = "Freeze the node (SIGSTOP; a container's control group is frozen); its connections stay open."
    HEALING = "resume"
    HOLD_KEY = "for"

    def planned(self, exposure: Exposure) -> Incidents:
        return exposure.noticed(self.hold, exposure.aimed_at(self.targets))


class Restart(ProcessFault):
    """A controlled shutdown and an immediate start."""

    KIND = "restart"
    DONE = "restarted"
    PER_NODE = Incidents(clean_stops=1)
    ENDS_NODES = True
    SUMMARY = "Shut the node down (SIGTERM) and start it again at once."


class ProcessInjection(Injection[SpecT]):
    """Base of injections that end, stop or start processes of nodes. If a fault aims at several nodes, all of them must
    run.

    By default the fault is confirmed when all processes are gone. Healing starts the nodes that are down and that no
    other fault keeps down. It is confirmed when all nodes answer."""

    def __init__(self, fault: SpecT, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self.nodes: tuple[LocalNode, ...] = local(aim.nodes)
        self.refused = False
        """True if there was nothing to break, and so nothing to heal: a node did not run."""
        self._terminated: dict[int, tuple[LocalNode, int | None]] = {}
        """Nodes that got a SIGTERM, by node id, each with its process id at that time."""

    def _terminate(self, node: LocalNode) -> None:
        self._terminated[node.id] = node, node.pid
        node.terminate()

    def _await_shutdowns(self) -> None:
        """Send SIGTERM again to nodes that this fault shut down and that still run, and wait for their end. Without a
        controller a shutdown takes long. Raises `FaultNotConfirmed` if a node does not end in time."""
        for node, pid in self._terminated.values():
            if _has_ended(node, pid):
                continue  # whichever fault holds the node now
            with self.holds.acting_on(node.id):
                if node.state() is NodeState.RUNNING and node.pid == pid:
                    node.terminate()
            end = partial(
                self.wait_for,
                partial(_has_ended, node, pid),
                f"node {node.id} to shut down",
                SHUTDOWN_WITHIN_S,
                state=partial(_state_word, node),
            )
            self._when_free(node, end)

    def _strike(self, act: Callable[[LocalNode], None], word: str) -> str:
        """Lock all target nodes, claim each for the fault, and call `act` on each. A fault that keeps no node down or
        stopped (its `grip` is None) claims none.

        Return what was done: `word`, and the names of the nodes. Raises `FaultNotConfirmed`, before `act` is called for
        any node, if `_require_breakable` refuses one.
        """
        with self._lock_nodes():
            self._require_breakable()
            for node in self.nodes:
                if self.fault.grip is not None:
                    self.holds.take(node.id, self.fault.number, self.fault.grip)
                act(node)
        return f"{word} to {self._name_nodes()}"

    @contextmanager
    def _lock_nodes(self) -> Iterator[None]:
        with ExitStack() as stack:
            for node in sorted(self.nodes, key=lambda node: node.id):
                stack.enter_context(self.holds.acting_on(node.id))
            yield

    def _require_breakable(self) -> None:
        """Raise `FaultNotConfirmed`, and set `refused` (nothing was broken, so nothing is healed), if a node does not
        run.

        A stopped node (SIGSTOP) is accepted in two cases. The fault can break a stopped process, as SIGKILL does
        (`OVER` contains `Grip.STILL`). Or another fault starves the node (stops it from time to time) and none keeps it
        stopped.
        """
        for node in self.nodes:
            state, number = node.state(), self.fault.number
            # A starved node is stopped from time to time.
            starved = self.holds.others(node.id, number, Grip.SLOW) and not self.holds.others(
                node.id, number, Grip.STILL
            )
            breakable = state is NodeState.STOPPED and (Grip.STILL in self.fault.OVER or starved)
            if state is not NodeState.RUNNING and not breakable:
                self.refused = True
                raise FaultNotConfirmed(
                    f"{self.fault.kind} is aimed at node {node.id}, which is {state.value}: nothing to break"
                )

    def _await_state(
        self, state: NodeState, within_s: float, nodes: Sequence[LocalNode] | None = None
    ) -> str:
        for node in self.nodes if nodes is None else nodes:
            self.wait_for(
                lambda node=node: node.state() is state,  # type: ignore[misc]
                f"node {node.id} to be {state.value}",
                within_s,
                interval_s=0.005,
                state=partial(_state_word, node),
                to_the_end=True,
            )
        return f"kernel: {self._name_nodes()} {state.value}"

    def _when_free(self, node: LocalNode, see: Callable[[], object]) -> None:
        """Wait until no other fault holds the node, and call `see`. If `see` raises `FaultNotConfirmed` and another
        fault held the node meanwhile, do both again."""
        while True:
            self.holds.await_free(node.id, self.fault.number, self.context.stop)
            before = self.holds.changes(node.id)
            try:
                see()
                return
            except FaultNotConfirmed:
                if self.holds.changes(node.id) == before:
                    raise

    def _pause_for(self, seconds: float) -> None:
        with suppress(WaitTimeout):
            wait_until(lambda: False, what="its time", timeout_s=seconds, stop=self.context.stop)

    def _start_dead_nodes(self) -> str:
        """Await the end of nodes that this fault shut down. Then release all its nodes, and start those that
        are down and that no other fault keeps down. Return what was done, in words. Raises
        `FaultNotConfirmed` if a node does not end in time."""
        did: list[str] = []
        if self.refused:
            return "nothing to undo"
        self._await_shutdowns()
        for node in self.nodes:
            with self.holds.acting_on(node.id):
                self.holds.release(node.id, self.fault.number)
                others = self.holds.others(node.id, self.fault.number, Grip.DOWN)
                if others:
                    did.append(f"left node {node.id} to fault {', '.join(map(fault_name, others))}")
                elif node.state() is NodeState.GONE:
                    node.start()
                    did.append(f"started {node.id}")
        return ", ".join(did) or "started nothing"

    def _await_ready(self) -> str:
        """Wait until each node runs and answers; return that in words. Time in which another fault holds the node does
        not count. Raises `FaultNotConfirmed` if a node does not answer in time."""
        if self.refused:
            return f"nothing was done to {self._name_nodes()}"

        def see(node: LocalNode) -> None:
            self._await_state(NodeState.RUNNING, GONE_WITHIN_S, [node])
            self.await_ready(node)

        for node in self.nodes:
            self._when_free(node, partial(see, node))
        return f"protocol: {self._name_nodes()} answers, registered and unfenced"

    def confirm(self) -> str:
        return self._await_state(NodeState.GONE, GONE_WITHIN_S)

    def heal(self) -> str:
        return self._start_dead_nodes()

    def confirm_healed(self) -> str:
        return self._await_ready()

    def _name_nodes(self) -> str:
        return "node " + ", ".join(str(node.id) for node in self.nodes)


def _state_word(node: LocalNode) -> str:
    return node.state().value


def _has_ended(node: LocalNode, pid: int | None) -> bool:
    return node.state() is NodeState.GONE or node.pid != pid


@injects(Kill)
class KillInjection(ProcessInjection[Kill]):
    """Kill nodes with SIGKILL; confirmed and healed as in `ProcessInjection`."""

    def inject(self) -> str:
        return self._strike(lambda node: node.kill(), "SIGKILL")


@injects(Stop)
class _StopInjection(ProcessInjection[Stop]):
    """Shut nodes down by SIGTERM (a controlled shutdown). Confirmed when all are gone within `STOPPED_WITHIN_S`
    seconds. Healing starts them again."""

    def inject(self) -> str:
        return self._strike(self._terminate, "SIGTERM")

    def confirm(self) -> str:
        return self._await_state(NodeState.GONE, STOPPED_WITHIN_S)


@injects(Pause)
class PauseInjection(ProcessInjection[Pause]):
    """Stop the processes of nodes by SIGSTOP. Healing sends SIGCONT. Containers are frozen and thawed instead.

    Confirmed when the kernel shows all nodes stopped. The healing is confirmed when they answer again."""

    def __init__(self, fault: Pause, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._standing: dict[int, int | None] = {}

    def inject(self) -> str:
        return self._strike(lambda node: node.pause(), "SIGSTOP")

    def confirm(self) -> str:
        witness = self._await_state(NodeState.STOPPED, GONE_WITHIN_S)
        self._standing = {node.id: node.pid for node in self.nodes}
        return witness

    def heal(self) -> str:
        """Send SIGCONT to nodes that are still stopped and that no other fault keeps stopped; return what was done, in
        words.

        Raises `FaultNotConfirmed` for a node whose process already runs again, because it was not paused for its full
        time.
        """
        woken, resumed, other = [], [], []
        for node in self.nodes:
            with self.holds.acting_on(node.id):
                self.holds.release(node.id, self.fault.number)
                still = node.state() is NodeState.STOPPED
                if still and not self.holds.others(node.id, self.fault.number, Grip.STILL):
                    node.resume()
                    resumed.append(str(node.id))
                elif (
                    not still
                    and node.state() is NodeState.RUNNING
                    and self._standing.get(node.id) == node.pid
                ):
                    woken.append(str(node.id))
                elif self._standing:  # another fault has replaced the process
                    other.append(str(node.id))
        if woken:
            raise FaultNotConfirmed(f"pause did not hold: node {', '.join(woken)} ran before its healing")
        ended = f"; the process of node {', '.join(other)} had ended" if other else ""
        return f"SIGCONT to {', '.join(resumed) or 'nothing'}{ended}"


@injects(Restart)
class _RestartInjection(ProcessInjection[Restart]):
    """Shut nodes down and start them at once. Confirmed when no node has its earlier process, and each node runs or is
    held by another fault."""

    def inject(self) -> str:
        self._before = {node.id: node.pid for node in self.nodes}
        self._strike(lambda _: None, "a bounce")
        for node in self.nodes:
            self._terminate(node)
            self.wait_for(
                partial(_has_ended, node, self._before[node.id]),
                f"node {node.id} to shut down",
                STOPPED_WITHIN_S,
                interval_s=0.005,
                state=partial(_state_word, node),
                logs=partial(node.log_tail, 5),
                to_the_end=True,
            )
            self._start(node)
        return f"SIGTERM and start of {self._name_nodes()}"

    def _start(self, node: LocalNode) -> None:
        """Release the node, wait until no other fault holds it, and start it unless another fault has started it."""
        self.holds.release(node.id, self.fault.number)
        self.holds.await_free(node.id, self.fault.number, self.context.stop)
        with self.holds.acting_on(node.id):
            if node.state() is NodeState.GONE:
                node.start()

    def confirm(self) -> str:
        for node in self.nodes:
            held = self.holds.others(node.id, self.fault.number)
            runs = node.state() is NodeState.RUNNING or held
            if not runs or node.pid == self._before[node.id]:
                raise self.not_confirmed(f"node {node.id} is {node.state().value}, pid {node.pid}")
        return f"/proc: another process runs {self._name_nodes()}"
