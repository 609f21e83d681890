"""A controller leaves the quorum and comes back to it, while it runs (KIP-853).

Witnesses: DescribeQuorum, asked at another broker than the one that was asked for the change: it lists the voters that
the leader of the quorum has committed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Final

from pydantic import field_validator

from ackproof.base.errors import FaultNotConfirmed
from ackproof.base.units import wrong
from ackproof.cluster import admin, queries
from ackproof.cluster.queries import Quorum, Voter
from ackproof.experiment.backends import Ability
from ackproof.experiment.exposure import NOTHING, Exposure, Incidents
from ackproof.experiment.fault import Complaints, FaultSpec, NodeFault
from ackproof.experiment.kafka import KRAFT, numbers
from ackproof.experiment.roles import Role, RoleKind
from ackproof.experiment.spec import SystemUnderTest
from ackproof.faults.injection import Aim, FaultContext, Injection, injects
from ackproof.faults.planned.views import views
from ackproof.network.wire import WireError

CHANGED_WITHIN_S: Final = 40.0
"""A controller that is taken in must have fetched all of the log first."""


class RemoveController(NodeFault):
    """A controller is taken out of the quorum while it runs, and taken in again (KIP-853).

    The quorum is made a dynamic one first (kraft.version 1), which Kafka can do with a running one since 4.1.
    """

    KIND = "remove_controller"
    SUMMARY = "Take a controller out of the quorum while it runs, and take it in again."
    HEALING = "take it in again"
    HOLD_KEY = "for"
    ASKS = frozenset({Ability.PROCESSES})
    NOT_IN = MappingProxyType({"zookeeper": "ZooKeeper's servers are no KRaft quorum"})

    @field_validator("target")
    @classmethod
    def _one_controller(cls, value: Role) -> Role:
        if value.kind is not RoleKind.CONTROLLER:
            raise wrong(f"{value} is not one controller: aim at controller or controller(102)")
        return value

    def check(self, spec: SystemUnderTest, say: Complaints) -> None:
        """Two are left, and the release can."""
        if not say.sound(("target",), cluster=True):
            return
        if len(spec.cluster.controller_ids) < 3:
            say.report(("target",), "it takes 3 controllers or more, so that a quorum is left")
        elif numbers(spec.cluster.kafka.version) < (4, 1):
            say.report(
                ("target",),
                f"Kafka {spec.cluster.kafka} cannot change a running quorum; it takes 4.1 or later",
            )

    def at_odds(self, first: FaultSpec, spec: SystemUnderTest) -> str:
        """Who is no voter cannot be removed."""
        met = self.meets(first, spec) if isinstance(first, RemoveController) else ""
        return f"keeps {met} out of the quorum" if met else ""

    def planned(self, exposure: Exposure) -> Incidents:
        """A quorum is left, and no broker is touched; whoever is the active controller next gives each broker a whole
        session."""
        return NOTHING


@injects(RemoveController)
class ControllerRemoval(Injection[RemoveController]):
    """RemoveRaftVoter; healed by AddRaftVoter."""

    def __init__(self, fault: RemoveController, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._removed: list[Voter] = []

    def inject(self) -> str:
        """Make the quorum a dynamic one if it is not, and take the controllers out."""
        self._await("the quorum to be a dynamic one", self._make_dynamic)
        before = self._quorum()
        if before is None:
            raise FaultNotConfirmed("nobody tells who votes in the quorum")
        for node in self.nodes:
            voter = before.voter(node.id)
            if voter is None:
                raise FaultNotConfirmed(f"controller {node.id} is no voter: nothing to remove")
            self._removed.append(voter)
            self._await(f"controller {node.id} to be taken out", partial(self._remove, voter))
        return (
            f"asked broker {views(self.context).asked} to remove controller {self._names()} from the quorum"
        )

    def _make_dynamic(self) -> bool:
        """Whether kraft.version is 1; asks for it when it is not. A voter must have told what it supports before."""
        link = views(self.context).asked_link
        if admin.features(link).finalised.get(KRAFT, 0) >= 1:
            return True
        admin.raise_features(link, {KRAFT: 1})
        return False

    def _remove(self, voter: Voter) -> bool:
        now = queries.quorum(views(self.context).asked_link, directories=True)
        if now.voter(voter.node) is not None:
            admin.remove_voter(views(self.context).asked_link, voter)
        return True

    def confirm(self) -> str:
        """Another broker lists the voters without them."""
        return self._listed(False)

    def heal(self) -> str:
        """Take them in again, with the directories and endpoints that they had."""
        for voter in self._removed:
            self._await(f"controller {voter.node} to be taken in", partial(self._add, voter))
        return (
            f"asked for controller {self._names()} to be taken in again"
            if self._removed
            else "nothing to undo"
        )

    def _add(self, voter: Voter) -> bool:
        now = queries.quorum(views(self.context).asked_link, directories=True)
        if now.voter(voter.node) is None:
            admin.add_voter(views(self.context).asked_link, voter)
        return True

    def confirm_healed(self) -> str:
        """Another broker lists them among the voters."""
        return self._listed(True)

    def _listed(self, wanted: bool) -> str:
        def there() -> Quorum | None:
            now = self._quorum()
            if now is None or any((now.voter(node.id) is not None) is not wanted for node in self.nodes):
                return None
            return now

        now = self.seen(
            there,
            f"another broker to list controller {self._names()} {'among' if wanted else 'no longer among'} the voters",
            state=lambda: str(self._quorum()),
        )
        voters = ", ".join(str(voter.node) for voter in now.voters)
        return f"DescribeQuorum at {views(self.context).name}: controller {now.leader} leads, voters {voters}"

    def _quorum(self) -> Quorum | None:
        try:
            return queries.quorum(views(self.context).witness_link, directories=True)
        except (WireError, FaultNotConfirmed):
            return None

    def _await(self, what: str, change: Callable[[], bool]) -> None:
        """Ask until Kafka takes it: while another change is under way it refuses."""
        said: list[str] = []

        def taken() -> bool:
            try:
                return change()
            except (WireError, FaultNotConfirmed) as error:
                said[:] = [str(error)]
                return False

        self.seen(taken, what, state=lambda: "; ".join(said) or "nothing", within_s=CHANGED_WITHIN_S)

    def _names(self) -> str:
        return ", ".join(str(node.id) for node in self.nodes)
