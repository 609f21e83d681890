"""Faults of the KRaft quorum: it is lost, or a controller leaves it and comes back (KIP-853).

The witness of a lost quorum is the operating system (no majority of the controllers runs), and the remaining
controllers, which have no leader. The witness of a removal is DescribeQuorum at a broker that did not get the request.
Its answer lists the voters that the quorum's leader has committed.
"""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import Final, Literal

from pydantic import Field, field_validator

from ackproof.base.advice import Advice
from ackproof.base.errors import FaultNotConfirmed
from ackproof.base.units import wrong
from ackproof.cluster import admin, queries
from ackproof.cluster.protocol import NodeState
from ackproof.cluster.queries import Quorum, Voter
from ackproof.experiment.backends import Ability
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.exposure import NOTHING, Exposure, Incidents
from ackproof.experiment.fault import WHERE_IT_RUNS, Complaints, FaultSpec, Grip, NodeFault
from ackproof.experiment.kafka import KRAFT, numbers
from ackproof.experiment.roles import Role, RoleKind
from ackproof.faults.context import FaultContext
from ackproof.faults.injection import Aim, Injection, injects
from ackproof.faults.planned.views import views
from ackproof.faults.processes import GONE_WITHIN_S, ProcessInjection
from ackproof.network.wire import WireError

LEADERLESS_LOOKS: Final = 5
"""Number of consecutive observations that must find no active controller."""
ELECTED_WITHIN_S: Final = 60.0


class LoseQuorum(FaultSpec):
    """So many controllers are killed or paused (`by`) that no majority is left, the active one among them. No metadata
    can change until they return."""

    KIND = "lose_quorum"
    SUMMARY = "Kill or pause so many controllers that no majority is left, the active one among them."
    HEALING = "restart or resume them"
    HOLD_KEY = "for"
    ASKS = frozenset({Ability.PROCESSES})
    OVER = WHERE_IT_RUNS
    NOT_IN = MappingProxyType(
        {"zookeeper": Advice("there is no quorum of controllers", "aim kill or pause at zookeeper")}
    )

    by: Literal["kill", "pause"] = Field("kill", description="SIGKILL, or SIGSTOP.")

    @property
    def targets(self) -> tuple[Role, ...]:
        """Return the role of all controllers. Which of them are hit depends on the active controller."""
        return (Role(RoleKind.CONTROLLERS),)

    @property
    def grip(self) -> Grip:
        return Grip.DOWN if self.by == "kill" else Grip.STILL

    def reach(self, spec: ExperimentSpec) -> tuple[frozenset[int], int]:
        nodes, every = super().reach(spec)
        return nodes, (every + 1) // 2

    def check(self, spec: ExperimentSpec, say: Complaints) -> None:
        if spec.cluster.combined and say.sound(("by",), cluster=True):
            why = Advice("with combined nodes the brokers would go too", "kill: {target: majority} says that")
            say.report((), why, key=True)

    def __str__(self) -> str:
        return f"{self.kind} by {self.by}"

    def planned(self, exposure: Exposure) -> Incidents:
        """Return no incidents: without a quorum no leader is elected, no broker is fenced and no replica leaves an ISR.
        The next active controller waits for a whole session time-out before it fences a broker."""
        return NOTHING


@injects(LoseQuorum)
class _LoseQuorumInjection(ProcessInjection[LoseQuorum]):
    """Kill or pause the active controller, and as many others as are needed to leave no majority. Healing starts or
    resumes them.

    Confirmed when they are gone or stopped, and `LEADERLESS_LOOKS` consecutive observations find no active controller.
    The healing is confirmed when they answer and a controller leads the quorum."""

    def __init__(self, fault: LoseQuorum, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self.voters = self.nodes
        active = context.cluster.controller()
        # The active controller first, then enough others to leave no majority.
        ordered = sorted(self.voters, key=lambda node: (node.id != active, node.id))
        self.nodes = tuple(ordered[: (len(ordered) + 1) // 2])

    def inject(self) -> str:
        if self.fault.by == "kill":
            did = self._strike(lambda node: node.kill(), "SIGKILL")
        else:
            did = self._strike(lambda node: node.pause(), "SIGSTOP")
        return f"{did}, of {len(self.voters)} controllers"

    def confirm(self) -> str:
        state = NodeState.GONE if self.fault.by == "kill" else NodeState.STOPPED
        witness = self._await_state(state, GONE_WITHIN_S)
        looks = 0

        def leaderless() -> bool:
            nonlocal looks
            looks = looks + 1 if self.context.cluster.controller() is None else 0
            return looks >= LEADERLESS_LOOKS

        self.wait_for(
            leaderless,
            "no controller to lead the quorum",
            state=lambda: f"active controller: {self.context.cluster.controller()}",
        )
        left = [str(node.id) for node in self.voters if node not in self.nodes]
        who = f"controller {', '.join(left)} knows no leader" if left else "no controller is left"
        return f"{witness}; DescribeQuorum: {who}"

    def heal(self) -> str:
        if self.fault.by == "kill":
            return self._start_dead_nodes()
        for node in self.nodes:
            with self.holds.acting_on(node.id):
                self.holds.release(node.id, self.fault.number)
                others = self.holds.others(node.id, self.fault.number, Grip.STILL)
                if node.state() is NodeState.STOPPED and not others:
                    node.resume()
        return f"SIGCONT to {self._name_nodes()}"

    def confirm_healed(self) -> str:
        ready = self._await_ready()
        leader = self.wait_for(
            self.context.cluster.controller,
            "a controller to lead the quorum",
            within_s=ELECTED_WITHIN_S,
        )
        if leader not in {node.id for node in self.voters}:
            raise self.not_confirmed(f"node {leader} leads, and is no controller")
        return f"{ready}; DescribeQuorum: controller {leader} leads"


CHANGED_WITHIN_S: Final = 40.0
"""Maximum seconds for a change of voters: an added controller must first fetch the whole log."""


class RemoveController(NodeFault):
    """A controller is removed from the quorum while it runs, and added again (KIP-853).

    The quorum is first made dynamic (kraft.version 1). A running quorum can be made dynamic since Kafka 4.1.
    """

    KIND = "remove_controller"
    SUMMARY = "Remove a controller from the quorum while it runs, and add it again."
    HEALING = "add it again"
    HOLD_KEY = "for"
    ASKS = frozenset({Ability.PROCESSES})
    NOT_IN = MappingProxyType({"zookeeper": "ZooKeeper's servers are no KRaft quorum"})

    @field_validator("target")
    @classmethod
    def _one_controller(cls, value: Role) -> Role:
        if value.kind is not RoleKind.CONTROLLER:
            raise wrong(f"{value} is not one controller: aim at controller or controller(102)")
        return value

    def check(self, spec: ExperimentSpec, say: Complaints) -> None:
        if not say.sound(("target",), cluster=True):
            return
        if len(spec.cluster.controller_ids) < 3:
            say.report(("target",), "it takes 3 controllers or more, so that a quorum is left")
        elif numbers(spec.cluster.kafka.version) < (4, 1):
            why = Advice(
                f"Kafka {spec.cluster.kafka} cannot change a running quorum", "it takes 4.1 or later"
            )
            say.report(("target",), why)

    def at_odds(self, first: FaultSpec, spec: ExperimentSpec) -> str:
        met = self.meets(first, spec) if isinstance(first, RemoveController) else ""
        return f"keeps {met} out of the quorum" if met else ""

    def planned(self, exposure: Exposure) -> Incidents:
        """Return no incidents: a quorum remains and no broker is touched. The next active controller waits for a whole
        session time-out before it fences a broker."""
        return NOTHING


@injects(RemoveController)
class _ControllerRemoval(Injection[RemoveController]):
    """Remove controllers from the quorum (RemoveRaftVoter). Healing adds them again (AddRaftVoter).

    Removal and healing are confirmed by DescribeQuorum at another broker, whose voters lack or contain the controllers.
    Raises `FaultNotConfirmed` if a controller is no voter, or if Kafka refuses the change for `CHANGED_WITHIN_S`
    seconds.
    """

    def __init__(self, fault: RemoveController, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._removed: list[Voter] = []

    def inject(self) -> str:
        self.wait_until_accepted(self._make_dynamic, "the quorum to be a dynamic one", CHANGED_WITHIN_S)
        before = self._quorum()
        if before is None:
            raise FaultNotConfirmed("no broker lists the voters of the quorum")
        for node in self.nodes:
            voter = before.voter(node.id)
            if voter is None:
                raise FaultNotConfirmed(f"controller {node.id} is no voter: nothing to remove")
            self._removed.append(voter)
            what = f"controller {node.id} to be taken out"
            self.wait_until_accepted(partial(self._set_voter, voter, False), what, CHANGED_WITHIN_S)
        return f"asked broker {views(self.context).asked} to remove controller {self._name_nodes()} from the quorum"

    def _make_dynamic(self) -> bool:
        """Return True if kraft.version is 1 already. Otherwise request it and return False; Kafka refuses that until
        every voter has stated what it supports."""
        link = views(self.context).asked_link
        if admin.features(link).finalised.get(KRAFT, 0) >= 1:
            return True
        admin.raise_features(link, {KRAFT: 1})
        return False

    def _set_voter(self, voter: Voter, wanted: bool) -> bool:
        link = views(self.context).asked_link
        if (queries.quorum(link, directories=True).voter(voter.node) is not None) is not wanted:
            (admin.add_voter if wanted else admin.remove_voter)(link, voter)
        return True

    def confirm(self) -> str:
        return self._listed(False)

    def heal(self) -> str:
        """Add the controllers again, with the directories and endpoints that they had; return what was done, in
        words."""
        for voter in self._removed:
            what = f"controller {voter.node} to be taken in"
            self.wait_until_accepted(partial(self._set_voter, voter, True), what, CHANGED_WITHIN_S)
        return (
            f"asked for controller {self._name_nodes()} to be taken in again"
            if self._removed
            else "nothing to undo"
        )

    def confirm_healed(self) -> str:
        return self._listed(True)

    def _listed(self, wanted: bool) -> str:
        def there() -> Quorum | None:
            now = self._quorum()
            if now is None or any((now.voter(node.id) is not None) is not wanted for node in self.nodes):
                return None
            return now

        where = "among" if wanted else "no longer among"
        now = self.wait_for(
            there,
            f"another broker to list controller {self._name_nodes()} {where} the voters",
            state=lambda: str(self._quorum()),
        )
        voters = ", ".join(str(voter.node) for voter in now.voters)
        return f"DescribeQuorum at {views(self.context).name}: controller {now.leader} leads, voters {voters}"

    def _quorum(self) -> Quorum | None:
        try:
            return queries.quorum(views(self.context).witness_link, directories=True)
        except (WireError, FaultNotConfirmed):
            return None

    def _name_nodes(self) -> str:
        return ", ".join(str(node.id) for node in self.nodes)
