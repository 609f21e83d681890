"""Crashes and starvation of processes: crash loops, kills during a start, exhausted memory, CPU starvation.

The witness is the operating system: a process is gone, or another runs. A kill during a start and an exhausted heap are
also seen in the node's log.

Starvation is a duty cycle of SIGSTOP and SIGCONT (a container is frozen and thawed), ten times a second. It needs no
root, and no load that slows other processes. Its witness is the kernel: how often all threads are stopped, or the
container is frozen.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Final

from pydantic import Field, field_validator

from ackproof.base.errors import FaultNotConfirmed, WaitTimeout
from ackproof.base.units import Duration
from ackproof.base.wait import wait_until
from ackproof.cluster.protocol import LocalNode, NodeState
from ackproof.experiment.base import Whole
from ackproof.experiment.exposure import Exposure, Incidents
from ackproof.experiment.fault import Grip
from ackproof.experiment.roles import Role, refuse_controllers
from ackproof.faults.context import FaultContext
from ackproof.faults.injection import Aim, injects
from ackproof.faults.processes import GONE_WITHIN_S, ProcessFault, ProcessInjection


class CrashLoop(ProcessFault):
    """SIGKILL and start, several times, as under a supervisor that restarts a crashed process each time."""

    KIND = "crash_loop"
    DONE = "crashed again and again"
    PER_NODE = Incidents(kills=1)
    ENDS_NODES = True
    SUMMARY = "End the process at once and start it, again and again; the last start stays."

    times: Whole = Field(3, ge=2, le=100, description="Number of crashes.")
    up: Duration = Field(0.5, description="Time from a start to the next crash.")

    def observed(self, nodes: int) -> Incidents:
        return super().observed(nodes * self.times)


@injects(CrashLoop)
class CrashLoopInjection(ProcessInjection[CrashLoop]):
    """Injection of a crash loop. The first crash is the injection; the others are part of the healing.

    The healing is confirmed when `times` different processes of each node have ended and the nodes answer."""

    def __init__(self, fault: CrashLoop, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._crashed: list[int | None] = []

    def inject(self) -> str:
        return self._crash()

    def _crash(self) -> str:
        pids = [node.pid for node in self.nodes]
        did = self._strike(lambda node: node.kill(), "SIGKILL")
        self._await_state(NodeState.GONE, GONE_WITHIN_S)
        self._crashed += pids
        return did

    def heal(self) -> str:
        crashes = 1
        while self._crashed and crashes < self.fault.times:
            self._start_dead_nodes()
            self._pause_for(self.fault.up)
            if self._crash_again():
                crashes += 1
        return f"{crashes if self._crashed else 0} crashes, then {self._start_dead_nodes()}"

    def _crash_again(self) -> bool:
        """Crash all nodes once more, as soon as no other fault holds them. Return False, without a crash, if a node is
        down: try again later."""
        for node in self.nodes:
            self.holds.await_free(node.id, self.fault.number, self.context.stop)
            if node.state() is NodeState.GONE:
                return False
        self._crash()
        return True

    def confirm_healed(self) -> str:
        if self.refused:
            return self._await_ready()
        lived = {pid for pid in self._crashed if pid is not None}
        if len(lived) != self.fault.times * len(self.nodes):
            raise self.not_confirmed(f"{len(lived)} processes crashed, not {self.fault.times}")
        return f"/proc: {len(lived)} processes are gone; {self._await_ready()}"


STARTED: Final = "Kafka startTimeMs"
"""Text in the line that Kafka logs when the start of a broker or controller is complete (AppInfoParser)."""
LOGS_WITHIN_S: Final = 30.0
_TAIL_LINES: Final = 300


class KillStarting(ProcessFault):
    """SIGKILL, start, and SIGKILL during the start, so that the recovery of the node's logs is itself interrupted."""

    KIND = "kill_starting"
    DONE = "killed while starting"
    PER_NODE = Incidents(kills=2)
    ENDS_NODES = True
    SUMMARY = "End the process, start it, and end it again before it has started."
    HEALING = "start again"
    HOLD_KEY = "restart_after"

    up: Duration = Field(0.1, description="Time from its first log line to the second SIGKILL.")


@injects(KillStarting)
class _KillStartingInjection(ProcessInjection[KillStarting]):
    """Kill each node, start it, and kill it again before the start is complete.

    Raises `FaultNotConfirmed` if the node logs nothing after its start, or logs that the start was complete."""

    def inject(self) -> str:
        self._last_line: dict[int, str] = {}
        self._strike(lambda node: node.kill(), "SIGKILL")
        self._await_state(NodeState.GONE, GONE_WITHIN_S)
        for node in self.nodes:
            self._last_line[node.id] = (self._log(node) or [""])[-1]
            node.start()
            self.wait_for(
                lambda node=node: self._since(node),  # type: ignore[misc]
                f"node {node.id} to log that it starts",
                state=lambda node=node: node.state().value,  # type: ignore[misc]
                within_s=LOGS_WITHIN_S,
            )
            self._pause_for(self.fault.up)
            node.kill()
        return f"SIGKILL to {self._name_nodes()}, and again {self.fault.up:g} s after the first line of its start"

    def confirm(self) -> str:
        gone = super().confirm()
        for node in self.nodes:
            if any(STARTED in line for line in self._since(node)):
                raise self.not_confirmed(f"node {node.id} had started before it was killed")
        return f"{gone}; its log begins a start and does not end it"

    @staticmethod
    def _log(node: LocalNode) -> list[str]:
        """Return Kafka's own lines (they begin with `[`) from the end of the node's log. The JVM's output,
        which `log_tail` puts after them, is left out."""
        return [line for line in node.log_tail(_TAIL_LINES).splitlines() if line.startswith("[")]

    def _since(self, node: LocalNode) -> list[str]:
        lines = self._log(node)
        last = self._last_line[node.id]
        if last not in lines:
            return lines
        return lines[len(lines) - lines[::-1].index(last) :]


OOM: Final = "java.lang.OutOfMemoryError"
REQUEST_BYTES: Final = 100 << 20
"""Default of socket.request.max.bytes (100 MiB). Kafka refuses larger requests."""
OUT_WITHIN_S: Final = 20.0
LAST_WORDS_WITHIN_S: Final = 3.0


class OutOfMemory(ProcessFault):
    """Requests that claim to be large use up a broker's heap; its JVM ends with an OutOfMemoryError. Each request
    announces 100 MiB, the default of socket.request.max.bytes, and the broker allocates that size at once."""

    KIND = "out_of_memory"
    DONE = "run out of memory"
    PER_NODE = Incidents(kills=1)
    ENDS_NODES = True
    SUMMARY = "Fill a broker's heap with announced requests until its JVM ends."
    HEALING = "start again"
    HOLD_KEY = "restart_after"

    @field_validator("target")
    @classmethod
    def _with_clients(cls, value: Role) -> Role:
        return refuse_controllers(value, "takes no requests of clients")


@injects(OutOfMemory)
class OutOfMemoryInjection(ProcessInjection[OutOfMemory]):
    """Send each broker requests that announce sizes which together exceed its heap. Confirmed when each broker's
    process is gone and the last `_TAIL_LINES` lines of its log have more OutOfMemoryErrors than before."""

    def inject(self) -> str:
        self._said = {node.id: node.log_tail(_TAIL_LINES).count(OOM) for node in self.nodes}
        number = 2 + self.context.cluster.spec.heap // REQUEST_BYTES
        self._strike(lambda node: node.expect_end(), "requests")
        for node in self.nodes:
            self._fill(node, number)
        return f"{number} requests of {REQUEST_BYTES >> 20} MB announced to {self._name_nodes()}"

    def _fill(self, node: LocalNode, number: int) -> None:
        address = self.context.cluster.client_addresses()[node.id]
        with contextlib.ExitStack() as stack:
            for _ in range(number):
                try:
                    link = stack.enter_context(socket.create_connection((address.host, address.port), 2.0))
                    link.sendall(REQUEST_BYTES.to_bytes(4, "big") + b"\0")
                except OSError:
                    break  # the process has ended, or `confirm` will report that it has not
            with contextlib.suppress(WaitTimeout):
                wait_until(
                    lambda: node.state() is NodeState.GONE,
                    what=f"node {node.id} to run out of memory",
                    timeout_s=OUT_WITHIN_S,
                    stop=self.context.stop,
                )

    def confirm(self) -> str:
        gone = super().confirm()
        for node in self.nodes:
            try:
                # a container's last output is readable a moment after its end
                wait_until(
                    lambda node=node: node.log_tail(_TAIL_LINES).count(OOM) > self._said[node.id],  # type: ignore[misc]
                    what=f"the last words of node {node.id}",
                    timeout_s=LAST_WORDS_WITHIN_S,
                )
            except WaitTimeout as error:
                raise self.not_confirmed(f"node {node.id} ended, and not by {OOM}") from error
        return f"{gone}; its last words: {OOM}"


PERIOD_S: Final = 0.1
LOOK_S: Final = 1.5
"""Seconds for which the witness observes a node that is starved of processor time."""
LOOK_EVERY_S: Final = 0.003
MUCH: Final = 0.6
"""Share of the expected standstill that must be observed. It is below 1, because a busy machine delays the
harness' signals too."""


class Starve(ProcessFault):
    """The process runs for a share of the time only: it is stopped and continued ten times a second (SIGSTOP,
    SIGCONT)."""

    KIND = "starve"
    DONE = "starved of processor time"
    GRIP = Grip.SLOW
    SUMMARY = "Let the process run for only a share of the time, in cycles of 0.1 s."
    HEALING = "let it run"
    HOLD_KEY = "for"

    share: float = Field(0.1, ge=0.01, le=0.9, description="Share of the time for which it runs.")

    def planned(self, exposure: Exposure) -> Incidents:
        return exposure.noticed(self.hold, exposure.aimed_at(self.targets))


@injects(Starve)
class StarveInjection(ProcessInjection[Starve]):
    """Stop and continue all target nodes periodically, on a thread. Healing ends the thread and leaves the nodes
    running.

    Confirmed when samples of `LOOK_S` seconds show each node stopped for at least the share `MUCH` of the expected
    time. The healing is confirmed when no sample shows a node stopped that no other fault holds, and all nodes answer.
    Healing raises `FaultNotConfirmed` if a node has another process and no other fault has held the node.
    """

    def __init__(self, fault: Starve, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._pids = {node.id: node.pid for node in self.nodes}
        self._changes: dict[int, int] = {}

    def inject(self) -> str:
        self._strike(lambda _: None, "a cycle")
        self._changes = {node.id: self.holds.changes(node.id) for node in self.nodes}
        self._thread = threading.Thread(target=self._cycle, name=f"starve-{self.fault.number}", daemon=True)
        self._thread.start()
        cycle = f"every {PERIOD_S * 1000:g} ms, {self.fault.share:.0%} running"
        return f"SIGSTOP and SIGCONT to {self._name_nodes()} {cycle}"

    def _cycle(self) -> None:
        try:
            while not self._over.is_set() and not self.context.stop.is_set():
                for node in self.nodes:
                    node.pause()
                self._over.wait(PERIOD_S * (1 - self.fault.share))
                self._let_go_on()
                self._over.wait(PERIOD_S * self.fault.share)
        finally:
            self._let_go_on()

    def _let_go_on(self) -> None:
        """Continue the nodes (SIGCONT), except those that another fault keeps stopped."""
        for node in self.nodes:
            with self.holds.acting_on(node.id):
                if not self.holds.others(node.id, self.fault.number, Grip.STILL):
                    node.resume()

    def confirm(self) -> str:
        stopped, cpu = self._look()
        for node in self.nodes:
            if stopped[node.id] < (1 - self.fault.share) * MUCH:
                raise self.not_confirmed(
                    f"node {node.id} stood still for {stopped[node.id]:.0%} of the time, "
                    f"not for {1 - self.fault.share:.0%}"
                )
        return "/proc: " + "; ".join(
            f"node {node.id} stands still for {stopped[node.id]:.0%} of the time, CPU time {cpu[node.id]:.2f} s "
            f"in {LOOK_S:g} s"
            for node in self.nodes
        )

    def heal(self) -> str:
        if self._thread is None:
            return "nothing to undo"
        self._over.set()
        self._thread.join()
        other = [node.id for node in self.nodes if node.pid != self._pids[node.id]]
        # A process that another fault ended does not count.
        lost = [node for node in other if self.holds.changes(node) == self._changes[node]]
        for node in self.nodes:
            self.holds.release(node.id, self.fault.number)
        if lost:
            raise FaultNotConfirmed(f"starve did not hold: node {lost[0]} is another process by now")
        ended = f"; the process of node {', '.join(map(str, other))} had ended" if other else ""
        return f"SIGCONT to {self._name_nodes()}{ended}"

    def confirm_healed(self) -> str:
        if self.refused:
            return self._await_ready()
        stopped, _ = self._look()
        for node in self.nodes:
            if stopped[node.id] and not self.holds.others(node.id, self.fault.number):
                raise self.not_confirmed(f"node {node.id} still stands still at times")
        return f"/proc: {self._name_nodes()} never stands still; {self._await_ready()}"

    def _look(self) -> tuple[dict[int, float], dict[int, float]]:
        """Sample the nodes for `LOOK_S` seconds. Return two mappings by node: the share of samples in which it was
        stopped, and the CPU seconds that it used."""
        before = {node.id: _cpu_s(node.pid) for node in self.nodes}
        still = dict.fromkeys(before, 0)
        looks = 0
        end = time.monotonic() + LOOK_S
        while time.monotonic() < end and not self.context.stop.wait(LOOK_EVERY_S):
            looks += 1
            for node in self.nodes:
                still[node.id] += node.state() is NodeState.STOPPED
        cpu = {node.id: _cpu_s(node.pid) - before[node.id] for node in self.nodes}
        return {node: count / max(1, looks) for node, count in still.items()}, cpu


def _cpu_s(pid: int | None) -> float:
    import psutil

    try:
        times = psutil.Process(-1 if pid is None else pid).cpu_times()
    except (psutil.Error, ValueError):  # it has ended
        return 0.0
    return float(times.user + times.system)
