"""CPU starvation by a duty cycle: SIGSTOP, SIGCONT, ten times a second.

A duty cycle starves in the same way on every backend, without root, cgroups or a load that others would feel. The
witness looks at /proc by itself: how often all threads stand still, and how much CPU time the process took.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Final

from pydantic import Field

from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster.protocol import NodeState
from ackproof.experiment.exposure import Exposure, Incidents
from ackproof.experiment.fault import Grip
from ackproof.faults.injection import Aim, FaultContext, injects
from ackproof.faults.processes import OfProcesses, ProcessInjection

PERIOD_S: Final = 0.1
LOOK_S: Final = 1.5
"""How long the witness looks."""
LOOK_EVERY_S: Final = 0.003
MUCH: Final = 0.6
"""The part of the wanted standstill that must be seen: a busy machine delays our own signals too."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Starve(OfProcesses):
    """The process gets a share of the time only: it is stopped and continued ten times a second (SIGSTOP, SIGCONT)."""

    KIND = "starve"
    DONE = "starved of processor time"
    GRIP = Grip.SLOW
    SUMMARY = "Let the process run for a share of the time only, ten times a second."
    HEALING = "let it run"
    HOLD_KEY = "for"

    share: float = Field(0.1, ge=0.01, le=0.9, description="Share of the time in which it runs.")

    def planned(self, exposure: Exposure) -> Incidents:
        return exposure.noticed(self.hold, exposure.aimed_at(self.targets))


@injects(Starve)
class StarveInjection(ProcessInjection[Starve]):
    """One thread stops and continues the nodes; healed by its end, with all nodes running."""

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
        return f"SIGSTOP and SIGCONT to {self._names()} every {PERIOD_S * 1000:g} ms, {self.fault.share:.0%} running"

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
        """Continue them, but those that another fault wants to stand still."""
        for node in self.nodes:
            with self.holds.acting_on(node.id):
                if not self.holds.others(node.id, self.fault.number, Grip.STILL):
                    node.resume()

    def confirm(self) -> str:
        """It stands still for most of the rest of the time, and takes no more CPU time than its share."""
        stopped, cpu = self._look()
        wanted = (1 - self.fault.share) * MUCH
        for node in self.nodes:
            if stopped[node.id] < wanted:
                raise self.unseen(
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
        # One that another fault ended is that fault's doing.
        lost = [node for node in other if self.holds.changes(node) == self._changes[node]]
        for node in self.nodes:
            self.holds.release(node.id, self.fault.number)
        if lost:
            raise FaultNotConfirmed(f"starve did not hold: node {lost[0]} is another process by now")
        ended = f"; the process of node {', '.join(map(str, other))} had ended" if other else ""
        return f"SIGCONT to {self._names()}{ended}"

    def confirm_healed(self) -> str:
        """It never stands still, and answers."""
        if self.refused:
            return self._until_ready()
        stopped, _ = self._look()
        for node in self.nodes:
            if stopped[node.id] and not self.holds.others(node.id, self.fault.number):
                raise self.unseen(f"node {node.id} still stands still at times")
        return f"/proc: {self._names()} never stands still; {self._until_ready()}"

    def _look(self) -> tuple[dict[int, float], dict[int, float]]:
        """By node: the share of looks that found it stopped, and the seconds of CPU time that it took."""
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
    """CPU seconds that a process has taken so far, of itself and the kernel for it; 0 when it is gone."""
    try:
        fields = (
            Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        )
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS
