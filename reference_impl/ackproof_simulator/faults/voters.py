"""A controller leaves the quorum and comes back to it (KIP-853), in the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from ackproof.base.errors import FaultNotConfirmed
from ackproof.faults.crashes.remove_controller import RemoveController
from ackproof_simulator.faults.virtual import Virtual, does
from ackproof_simulator.timing import seconds

AGAIN_S = 0.05
COMMITTED_S = 0.03
"""From the request until most of the voters have written it, as real ones showed."""
DYNAMIC_S = 0.35
"""Until the first request is taken: the quorum is made a dynamic one before (kraft.version 1)."""


@does(RemoveController)
class VotersRun(Virtual[RemoveController]):
    """RemoveRaftVoter, healed by AddRaftVoter. Each is asked for until the active controller takes it."""

    WITHIN_S: ClassVar[float] = 40.0

    def inject(self) -> str:
        self.must_be_heard()
        quorum = self.world.control.quorum
        (self.node,) = self.nodes
        if self.node not in quorum.voters:
            raise FaultNotConfirmed(f"controller {self.node} is no voter: nothing to remove")
        self._ask(self._may_go, self._go, 0.0 if quorum.dynamic else DYNAMIC_S)
        quorum.dynamic = True
        return f"asked a broker to remove controller {self.node} from the quorum"

    def _ask(self, may: Callable[[], bool], change: Callable[[], None], after_s: float = 0.0) -> None:
        """Asked again until it can be committed, or the time for it is over."""
        until = self.world.clock.now + seconds(self.WITHIN_S - AGAIN_S)

        def look() -> None:
            if may():
                change()
            elif self.world.clock.now < until:
                self.later(AGAIN_S, look)

        self.later(after_s + COMMITTED_S, look)

    def _may_go(self) -> bool:
        quorum = self.world.control.quorum
        return quorum.may_become([voter for voter in quorum.voters if voter != self.node])

    def _go(self) -> None:
        quorum = self.world.control.quorum
        quorum.voters = [voter for voter in quorum.voters if voter != self.node]
        self.world.control.look()

    def _may_come(self) -> bool:
        quorum = self.world.control.quorum
        return quorum.may_join(self.node) and quorum.may_become([*quorum.voters, self.node])

    def _come(self) -> None:
        quorum = self.world.control.quorum
        if self.node not in quorum.voters:
            quorum.voters = [*quorum.voters, self.node]
        self.world.control.look()

    def _listed(self) -> bool:
        """Whether it is among the voters that a broker is told of; nobody tells without an active controller."""
        control = self.world.control
        asked = [node for node in control.brokers if control.ready(node) and control.reaches(node)]
        if not asked:
            return False
        voters = ", ".join(map(str, sorted(control.quorum.voters)))
        self.witness = f"broker {asked[-1]}: controller {control.active} leads, voters {voters}"
        return True

    def bites(self) -> bool:
        """A broker is told of the voters without it."""
        return self._listed() and self.node not in self.world.control.quorum.voters

    def heal(self) -> str:
        """Ask for it to be taken in again."""
        self._ask(self._may_come, self._come)
        return f"asked for controller {self.node} to be taken in again"

    def healed(self) -> bool:
        """A broker is told of the voters with it."""
        return self._listed() and self.node in self.world.control.quorum.voters
