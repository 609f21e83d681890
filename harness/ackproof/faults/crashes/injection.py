"""Crash loop, death during start-up, out of memory.

Witnesses: the operating system (each process is gone, another runs), and what the process itself logged last.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Final

from ackproof.base.errors import FaultNotConfirmed, WaitTimeout
from ackproof.base.wait import wait_until
from ackproof.cluster.protocol import LocalNode, NodeState
from ackproof.faults.crashes.specification import CrashLoop, KillStarting, OutOfMemory
from ackproof.faults.holds import Grip
from ackproof.faults.injection import Aim, FaultContext, injects
from ackproof.faults.planned.views import seen
from ackproof.faults.processes.injection import GONE_WITHIN_S, ProcessInjection

STARTED: Final = "Kafka startTimeMs"
"""What Kafka logs when a start is through (AppInfoParser), of every release and role."""
LOGS_WITHIN_S: Final = 30.0
_TAIL_LINES: Final = 300
OOM: Final = "java.lang.OutOfMemoryError"
REQUEST_BYTES: Final = 100 << 20
"""socket.request.max.bytes: more is refused."""
OUT_WITHIN_S: Final = 20.0
LAST_WORDS_WITHIN_S: Final = 3.0


@injects(CrashLoop)
class CrashLoopInjection(ProcessInjection[CrashLoop]):
    """The first crash is the injection; the others are its way to the end."""

    def __init__(self, fault: CrashLoop, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self.times = fault.times
        self.up_s = fault.up
        self._crashed: list[int | None] = []

    def inject(self) -> str:
        """Crash for the first time."""
        return self._crash()

    def _crash(self) -> str:
        pids = [node.pid for node in self.nodes]
        did = self._strike(lambda node: node.kill(), "SIGKILL", Grip.DOWN, NodeState.RUNNING)
        self._until(NodeState.GONE, GONE_WITHIN_S)
        self._crashed += pids
        return did

    def heal(self) -> str:
        """Start, and crash again; the last start stays."""
        crashes = 1
        while self._crashed and crashes < self.times:
            self._start_the_dead()
            with contextlib.suppress(WaitTimeout):  # so long it lives
                wait_until(lambda: False, what="its life", timeout_s=self.up_s, stop=self.context.stop)
            if self._crash_again():
                crashes += 1
        return f"{crashes if self._crashed else 0} crashes, then {self._start_the_dead()}"

    def _crash_again(self) -> bool:
        """Whether it could: a node that another fault has, or that this one is to start yet, crashes later."""
        for node in self.nodes:
            self.holds.await_free(node.id, self.fault.number, self.context.stop)
            if node.state() is NodeState.GONE:
                return False
        self._crash()
        return True

    def confirm_healed(self) -> str:
        """As many processes as were asked for are gone, and another serves."""
        if self.refused:
            return self._until_ready()
        lived = {pid for pid in self._crashed if pid is not None}
        if len(lived) != self.times * len(self.nodes):
            raise FaultNotConfirmed(f"crash_loop: {len(lived)} processes crashed, not {self.times}")
        return f"/proc: {len(lived)} processes are gone; {self._until_ready()}"


@injects(KillStarting)
class KillStartingInjection(ProcessInjection[KillStarting]):
    """Killed, started, and killed while it starts."""

    def __init__(self, fault: KillStarting, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self.up_s = fault.up
        self._last_line: dict[int, str] = {}

    def inject(self) -> str:
        """SIGKILL, start, SIGKILL."""
        self._strike(lambda node: node.kill(), "SIGKILL", Grip.DOWN, NodeState.RUNNING)
        self._until(NodeState.GONE, GONE_WITHIN_S)
        for node in self.nodes:
            self._last_line[node.id] = self._log(node)[-1:][0] if self._log(node) else ""
            node.start()
            seen(
                self.context,
                lambda node=node: self._since(node),  # type: ignore[misc]
                f"node {node.id} to log that it starts",
                state=lambda node=node: node.state().value,  # type: ignore[misc]
                within_s=LOGS_WITHIN_S,
            )
            with contextlib.suppress(WaitTimeout):  # so long it lives
                wait_until(lambda: False, what="its life", timeout_s=self.up_s, stop=self.context.stop)
            node.kill()
        return f"SIGKILL to {self._names()}, and again {self.up_s:g} s after the first line of its start"

    def confirm(self) -> str:
        """It is gone, and its log begins a start which it does not end."""
        gone = super().confirm()
        for node in self.nodes:
            if any(STARTED in line for line in self._since(node)):
                raise FaultNotConfirmed(f"kill_starting: node {node.id} had started before it was killed")
        return f"{gone}; its log begins a start and does not end it"

    @staticmethod
    def _log(node: LocalNode) -> list[str]:
        """Lines of its log, not of what its JVM printed, which stand at the end however old they are."""
        return [line for line in node.log_tail(_TAIL_LINES).splitlines() if line.startswith("[")]

    def _since(self, node: LocalNode) -> list[str]:
        """What it logged since its death."""
        lines = self._log(node)
        last = self._last_line[node.id]
        if last not in lines:
            return lines
        return lines[len(lines) - lines[::-1].index(last) :]


@injects(OutOfMemory)
class OutOfMemoryInjection(ProcessInjection[OutOfMemory]):
    """Requests are announced whose sizes add up to more than the heap; the broker allocates each at once."""

    def __init__(self, fault: OutOfMemory, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._said: dict[int, int] = {}

    def inject(self) -> str:
        """Announce them."""
        self._said = {node.id: node.log_tail(_TAIL_LINES).count(OOM) for node in self.nodes}
        number = 2 + self.context.cluster.spec.heap // REQUEST_BYTES
        self._strike(lambda node: node.expect_end(), "requests", Grip.DOWN, NodeState.RUNNING)
        for node in self.nodes:
            self._fill(node, number)
        return f"{number} requests of {REQUEST_BYTES >> 20} MB announced to {self._names()}"

    def _fill(self, node: LocalNode, number: int) -> None:
        address = self.context.cluster.client_addresses()[node.id]
        with contextlib.ExitStack() as stack:
            for _ in range(number):
                try:
                    link = stack.enter_context(socket.create_connection((address.host, address.port), 2.0))
                    link.sendall(REQUEST_BYTES.to_bytes(4, "big") + b"\0")
                except OSError:
                    break  # it has ended already, or this shows in the confirmation
            with contextlib.suppress(WaitTimeout):
                wait_until(
                    lambda: node.state() is NodeState.GONE,
                    what=f"node {node.id} to run out of memory",
                    timeout_s=OUT_WITHIN_S,
                    stop=self.context.stop,
                )

    def confirm(self) -> str:
        """The process is gone, and said why."""
        gone = super().confirm()
        for node in self.nodes:
            try:
                # what a container printed is known a moment after its end
                wait_until(
                    lambda node=node: node.log_tail(_TAIL_LINES).count(OOM) > self._said[node.id],  # type: ignore[misc]
                    what=f"the last words of node {node.id}",
                    timeout_s=LAST_WORDS_WITHIN_S,
                )
            except WaitTimeout as error:
                raise FaultNotConfirmed(f"out_of_memory: node {node.id} ended, and not by {OOM}") from error
        return f"{gone}; its last words: {OOM}"
