"""The quorum of controllers is lost: more than half of them go, the active one among them.

Witnesses: the operating system, that they are gone or stand still; those that are left, that nobody leads them.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final, Literal

from pydantic import Field

from ackproof.cluster.protocol import NodeState
from ackproof.experiment.backends import Ability
from ackproof.experiment.exposure import NOTHING, Exposure, Incidents
from ackproof.experiment.fault import WHERE_IT_RUNS, Complaints, FaultSpec, Grip
from ackproof.experiment.roles import Role, RoleKind
from ackproof.experiment.spec import SystemUnderTest
from ackproof.faults.injection import Aim, FaultContext, injects
from ackproof.faults.processes import GONE_WITHIN_S, ProcessInjection

LEADERLESS_LOOKS: Final = 5
"""So many looks in a row must find no active controller."""
ELECTED_WITHIN_S: Final = 60.0


class LoseQuorum(FaultSpec):
    """More than half of the controllers go, the active one among them: no metadata can change until they are back."""

    KIND = "lose_quorum"
    SUMMARY = "Kill or pause more than half of the controllers, the active one among them."
    HEALING = "bring them back"
    HOLD_KEY = "for"
    ASKS = frozenset({Ability.PROCESSES})
    OVER = WHERE_IT_RUNS
    NOT_IN = MappingProxyType(
        {"zookeeper": "there is no quorum of controllers; aim kill or pause at zookeeper"}
    )

    by: Literal["kill", "pause"] = Field("kill", description="SIGKILL, or SIGSTOP.")

    @property
    def targets(self) -> tuple[Role, ...]:
        """All controllers; which of them go follows from who is active."""
        return (Role(RoleKind.CONTROLLERS),)

    @property
    def grip(self) -> Grip:
        return Grip.DOWN if self.by == "kill" else Grip.STILL

    def reach(self, spec: SystemUnderTest) -> tuple[frozenset[int], int]:
        """As many as leave no majority."""
        nodes, every = super().reach(spec)
        return nodes, (every + 1) // 2

    def check(self, spec: SystemUnderTest, say: Complaints) -> None:
        """Combined nodes would take their partitions with them, which is another fault."""
        if spec.cluster.combined and say.sound(("by",), cluster=True):
            say.report(
                (),
                "with combined nodes the brokers would go too; kill: {target: majority} says that",
                key=True,
            )

    def __str__(self) -> str:
        return f"{self.kind} by {self.by}"

    def planned(self, exposure: Exposure) -> Incidents:
        """Without a quorum no metadata can change, so nothing is elected, fenced or dropped; and whoever is the
        active controller next gives each broker a whole session."""
        return NOTHING


@injects(LoseQuorum)
class LoseQuorumInjection(ProcessInjection[LoseQuorum]):
    """Controllers are killed or paused until they are no majority."""

    def __init__(self, fault: LoseQuorum, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self.voters = self.nodes
        active = context.cluster.controller()
        # The active one first; then so many that those who stay are no majority.
        ordered = sorted(self.voters, key=lambda node: (node.id != active, node.id))
        self.nodes = tuple(ordered[: (len(ordered) + 1) // 2])

    def inject(self) -> str:
        if self.fault.by == "kill":
            did = self._strike(lambda node: node.kill(), "SIGKILL")
        else:
            did = self._strike(lambda node: node.pause(), "SIGSTOP")
        return f"{did}, of {len(self.voters)} controllers"

    def confirm(self) -> str:
        """They are gone, and those that are left have no leader."""
        state = NodeState.GONE if self.fault.by == "kill" else NodeState.STOPPED
        witness = self._until(state, GONE_WITHIN_S)
        looks = 0

        def leaderless() -> bool:
            nonlocal looks
            looks = looks + 1 if self.context.cluster.controller() is None else 0
            return looks >= LEADERLESS_LOOKS

        self.seen(
            leaderless,
            "no controller to lead the quorum",
            state=lambda: f"active controller: {self.context.cluster.controller()}",
        )
        left = [str(node.id) for node in self.voters if node not in self.nodes]
        who = f"controller {', '.join(left)} knows no leader" if left else "no controller is left"
        return f"{witness}; DescribeQuorum: {who}"

    def heal(self) -> str:
        if self.fault.by == "kill":
            return self._start_the_dead()
        for node in self.nodes:
            with self.holds.acting_on(node.id):
                self.holds.release(node.id, self.fault.number)
                others = self.holds.others(node.id, self.fault.number, Grip.STILL)
                if node.state() is NodeState.STOPPED and not others:
                    node.resume()
        return f"SIGCONT to {self._names()}"

    def confirm_healed(self) -> str:
        """They answer, and one of the quorum leads it."""
        ready = self._until_ready()
        leader = self.seen(
            self.context.cluster.controller,
            "a controller to lead the quorum",
            within_s=ELECTED_WITHIN_S,
        )
        if leader not in {node.id for node in self.voters}:
            raise self.unseen(f"node {leader} leads, and is no controller")
        return f"{ready}; DescribeQuorum: controller {leader} leads"
