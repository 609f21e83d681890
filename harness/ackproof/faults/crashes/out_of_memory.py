"""A broker runs out of memory.

Witnesses: the operating system, that the process is gone, and what it said last.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Final

from pydantic import field_validator

from ackproof.base.errors import WaitTimeout
from ackproof.base.wait import wait_until
from ackproof.cluster.protocol import LocalNode, NodeState
from ackproof.experiment.exposure import Incidents
from ackproof.experiment.roles import Role, refuse_controllers
from ackproof.faults.injection import Aim, FaultContext, injects
from ackproof.faults.processes import OfProcesses, ProcessInjection

_TAIL_LINES: Final = 300
OOM: Final = "java.lang.OutOfMemoryError"
REQUEST_BYTES: Final = 100 << 20
"""socket.request.max.bytes: more is refused."""
OUT_WITHIN_S: Final = 20.0
LAST_WORDS_WITHIN_S: Final = 3.0


class OutOfMemory(OfProcesses):
    """A broker's heap is used up by requests that claim to be large; its JVM ends by OutOfMemoryError.

    Each announces as much as socket.request.max.bytes allows, which the broker allocates at once.
    """

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
    """Requests are announced whose sizes add up to more than the heap; the broker allocates each at once."""

    def __init__(self, fault: OutOfMemory, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._said: dict[int, int] = {}

    def inject(self) -> str:
        self._said = {node.id: node.log_tail(_TAIL_LINES).count(OOM) for node in self.nodes}
        number = 2 + self.context.cluster.spec.heap // REQUEST_BYTES
        self._strike(lambda node: node.expect_end(), "requests")
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
                raise self.unseen(f"node {node.id} ended, and not by {OOM}") from error
        return f"{gone}; its last words: {OOM}"
