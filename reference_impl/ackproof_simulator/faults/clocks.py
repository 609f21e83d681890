"""Wall clocks that jump, in the model. Time-outs of requests and of followers go by them in Kafka, sessions do not."""

from __future__ import annotations

from typing import ClassVar

from ackproof.experiment.kafka import numbers
from ackproof.faults.clocks import ClockJump
from ackproof_simulator.clock import SECOND
from ackproof_simulator.faults.virtual import Virtual, does
from ackproof_simulator.timing import seconds


@does(ClockJump)
class ClockRun(Virtual[ClockJump]):
    """What a broker takes for now is shifted: how long a follower has lagged, and how old a request of its own is.

    Forwards, who has asked for something takes the answer for overdue and connects anew (NetworkClient), and the active
    controller takes the others' silence for too long and resigns (LeaderState.timeUntilCheckQuorumExpires).
    """

    REQUESTS_S: ClassVar[float] = 30.0
    """replica.socket.timeout.ms, controller.socket.timeout.ms."""

    def inject(self) -> str:
        self.must_run()
        for node in self.nodes:
            self._shift(node, self.fault.by)
        return f"the clock of {self.names()} set to {self.fault.by:+g} s"

    def _shift(self, node: int, by: float) -> None:
        shifts = self.world.network.shifts
        shifts[node] = shifts.get(node, 0) + seconds(by)
        if by >= self.REQUESTS_S:
            self.world.network.reset_all_of(self.host(node))
        quorum = self.world.control.quorum
        spec = self.world.case.experiment.cluster
        # Before KIP-996 any voter that waited for too long raises the epoch, and so ends the leader's.
        disturbs = node == quorum.active or (node in quorum.voters and numbers(spec.kafka.version) < (4, 0))
        overdue = seconds(by) >= 3 * self.world.timing.quorum_timeout // 2
        if disturbs and overdue and not spec.metadata.broker_controls:
            quorum.resign()
            self.world.control.look()

    def _off(self) -> dict[int, float]:
        off = {node: self.world.network.shifts.get(node, 0) / SECOND for node in self.nodes}
        self.witness = "; ".join(f"node {node} takes it for {by:+g} s" for node, by in off.items())
        return off

    def bites(self) -> bool:
        """They are off by so much, with what other faults have shifted them by."""
        return all(by != 0 for by in self._off().values())

    def heal(self) -> str:
        for node in self.nodes:
            self._shift(node, -self.fault.by)
        return f"the clock of {self.names()} set right"

    def healed(self) -> bool:
        self._off()
        return self.answer()
