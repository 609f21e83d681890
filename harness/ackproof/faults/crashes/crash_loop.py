"""A process crashes and is started, again and again.

The witness is the operating system: each process is gone, another runs.
"""

from __future__ import annotations

from pydantic import Field

from ackproof.base.units import Duration
from ackproof.cluster.protocol import NodeState
from ackproof.experiment.base import Whole
from ackproof.experiment.exposure import Incidents
from ackproof.faults.injection import Aim, FaultContext, injects
from ackproof.faults.processes import GONE_WITHIN_S, OfProcesses, ProcessInjection


class CrashLoop(OfProcesses):
    """SIGKILL and start, again and again, as under a supervisor that always starts what has crashed."""

    KIND = "crash_loop"
    DONE = "crashed again and again"
    PER_NODE = Incidents(kills=1)
    ENDS_NODES = True
    SUMMARY = "End the process at once and start it, again and again; at last it stays up."

    times: Whole = Field(3, ge=2, le=100, description="How many times it crashes.")
    up: Duration = Field(0.5, description="How long each process lives before it crashes.")

    def observed(self, nodes: int) -> Incidents:
        return super().observed(nodes * self.times)


@injects(CrashLoop)
class CrashLoopInjection(ProcessInjection[CrashLoop]):
    """The first crash is the injection; the others are its way to the end."""

    def __init__(self, fault: CrashLoop, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._crashed: list[int | None] = []

    def inject(self) -> str:
        """Crash for the first time."""
        return self._crash()

    def _crash(self) -> str:
        pids = [node.pid for node in self.nodes]
        did = self._strike(lambda node: node.kill(), "SIGKILL")
        self._until(NodeState.GONE, GONE_WITHIN_S)
        self._crashed += pids
        return did

    def heal(self) -> str:
        """Start, and crash again; the last start stays."""
        crashes = 1
        while self._crashed and crashes < self.fault.times:
            self._start_the_dead()
            self._let_run(self.fault.up)
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
        if len(lived) != self.fault.times * len(self.nodes):
            raise self.unseen(f"{len(lived)} processes crashed, not {self.fault.times}")
        return f"/proc: {len(lived)} processes are gone; {self._until_ready()}"
