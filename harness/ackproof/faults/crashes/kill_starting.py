"""A process dies, and dies again while it starts.

Witnesses: the operating system, that it is gone, and its own log, which begins a start and does not end it.
"""

from __future__ import annotations

from typing import Final

from pydantic import Field

from ackproof.base.units import Duration
from ackproof.cluster.protocol import LocalNode, NodeState
from ackproof.experiment.exposure import Incidents
from ackproof.faults.injection import Aim, FaultContext, injects
from ackproof.faults.processes import GONE_WITHIN_S, OfProcesses, ProcessInjection

STARTED: Final = "Kafka startTimeMs"
"""What Kafka logs when a start is through (AppInfoParser), of every release and role."""
LOGS_WITHIN_S: Final = 30.0
_TAIL_LINES: Final = 300


class KillStarting(OfProcesses):
    """SIGKILL, start, and SIGKILL again while it starts: recovery of its logs is itself interrupted."""

    KIND = "kill_starting"
    DONE = "killed while starting"
    PER_NODE = Incidents(kills=2)
    ENDS_NODES = True
    SUMMARY = "End the process, start it, and end it again before it has started."
    HEALING = "start again"
    HOLD_KEY = "restart_after"

    up: Duration = Field(0.1, description="How long it may live from its first line of log on.")


@injects(KillStarting)
class KillStartingInjection(ProcessInjection[KillStarting]):
    """Killed, started, and killed while it starts."""

    def __init__(self, fault: KillStarting, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._last_line: dict[int, str] = {}

    def inject(self) -> str:
        self._strike(lambda node: node.kill(), "SIGKILL")
        self._until(NodeState.GONE, GONE_WITHIN_S)
        for node in self.nodes:
            self._last_line[node.id] = (self._log(node) or [""])[-1]
            node.start()
            self.seen(
                lambda node=node: self._since(node),  # type: ignore[misc]
                f"node {node.id} to log that it starts",
                state=lambda node=node: node.state().value,  # type: ignore[misc]
                within_s=LOGS_WITHIN_S,
            )
            self._let_run(self.fault.up)
            node.kill()
        return f"SIGKILL to {self._names()}, and again {self.fault.up:g} s after the first line of its start"

    def confirm(self) -> str:
        """It is gone, and its log begins a start which it does not end."""
        gone = super().confirm()
        for node in self.nodes:
            if any(STARTED in line for line in self._since(node)):
                raise self.unseen(f"node {node.id} had started before it was killed")
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
