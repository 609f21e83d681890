"""Further faults of processes in the model: starvation, crash loops, a lost quorum."""

from __future__ import annotations

from typing import ClassVar

from ackproof.faults.crashes.crash_loop import CrashLoop
from ackproof.faults.crashes.kill_starting import KillStarting
from ackproof.faults.crashes.lose_quorum import LoseQuorum
from ackproof.faults.crashes.starve import Starve
from ackproof_simulator.faults.processes import DownRun, PauseRun
from ackproof_simulator.faults.virtual import Virtual, does


@does(Starve)
class StarveRun(PauseRun[Starve]):
    """A share of the time only: stopped and continued ten times a second."""

    PERIOD_S: ClassVar[float] = 0.1

    def inject(self) -> str:
        did = super().inject()
        self.over = False
        self.later(self.PERIOD_S * (1 - self.fault.share), self._run)
        return did.replace("SIGSTOP", "SIGSTOP ten times a second")

    def _run(self) -> None:
        if not self.over:
            super().heal()
            self.later(self.PERIOD_S * self.fault.share, self._stop)

    def _stop(self) -> None:
        if self.over:
            return
        for node in self.nodes:
            if self.host(node).running and self.host(node).life == self.lives[node]:
                self.world.network.pause(self.host(node))
        self.later(self.PERIOD_S * (1 - self.fault.share), self._run)

    def bites(self) -> bool:
        return True

    def heal(self) -> str:
        self.over = True
        return super().heal()


@does(CrashLoop)
@does(KillStarting)
class CrashLoopRun(DownRun[CrashLoop | KillStarting]):
    """SIGKILL and start, again and again; `kill_starting`: once more before it has started, then dead."""

    def inject(self) -> str:
        self.must_run(paused=True)
        times = self.fault.times if isinstance(self.fault, CrashLoop) else 2
        self.left = dict.fromkeys(self.nodes, times)
        for node in self.nodes:
            self._crash(node)
        return f"ends {self.names()} {times} times"

    def _crash(self, node: int) -> None:
        self.left[node] -= 1
        self.kill(node)
        if self.left[node] or isinstance(self.fault, CrashLoop):
            self.world.control.start(node)
        if self.left[node]:
            self.later(
                self.fault.up + (0.3 if isinstance(self.fault, KillStarting) else 0), self._crash, node
            )

    def bites(self) -> bool:
        """Every crash has happened."""
        return not any(self.left.values())


@does(LoseQuorum)
class QuorumRun(Virtual[LoseQuorum]):
    """More than half of the controllers go, the active one among them."""

    def inject(self) -> str:
        control = self.world.control
        others = [node for node in control.controllers if node != control.active]
        first = [control.active] if control.active in control.controllers else []
        nodes = tuple((first + others)[: len(control.controllers) // 2 + 1])
        aim = {self.fault.targets[0]: nodes}
        self.inner: Virtual[LoseQuorum] = (
            PauseRun(self.fault, aim, self.world)
            if self.fault.by == "pause"
            else DownRun(self.fault, aim, self.world)
        )
        return self.inner.inject()

    def bites(self) -> bool:
        """There is no active controller."""
        return self.inner.bites()

    def heal(self) -> str:
        return self.inner.heal()

    def healed(self) -> bool:
        return self.inner.healed() and self.world.control.active >= 0
