"""Planned work on node after node: rolling restart, rolling upgrade, taking a broker out for good."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field, field_validator

from ackproof.experiment.backends import Ability
from ackproof.experiment.base import Flag
from ackproof.experiment.fault import Complaints, FaultSpec, HoldKey, NodeFault
from ackproof.experiment.incidents import AS_KRAFT, Incidents
from ackproof.experiment.problems import nearest
from ackproof.experiment.quantities import Duration, wrong
from ackproof.experiment.releases import RELEASES, Version, numbers
from ackproof.experiment.roles import Role, RoleKind

if TYPE_CHECKING:
    from ackproof.experiment.incidents import Exposure
    from ackproof.experiment.spec import Surroundings

_NOT_BROKERS = frozenset({RoleKind.CONTROLLER, RoleKind.CONTROLLERS, RoleKind.ZOOKEEPER})


class RollingRestart(NodeFault):
    """A controlled shutdown and a start of node after node, as an operator does it to load new settings.

    The next node's turn comes when all partitions have their ISRs full again. The active controller comes last.
    """

    KIND: ClassVar[str] = "rolling_restart"
    UNPREDICTABLE: ClassVar[str] = ""
    PER_NODE: ClassVar[Incidents] = Incidents(clean_stops=1)
    SUMMARY: ClassVar[str] = "Restart node after node in good order; the next when all ISRs are full again."

    ASKS: ClassVar[frozenset[Ability]] = frozenset({Ability.PROCESSES})

    await_isr: Flag = Field(True, description="Wait for full ISRs between nodes; false: for the node alone.")
    rest: Duration = Field(0.0, description="How long each node runs before the next one's turn.")


class Upgrade(FaultSpec):
    """A rolling upgrade of the whole cluster: controllers, then brokers, then the release's feature levels.

    Each node is shut down in good order and started on the jars of the other release, with the data that it has.
    """

    KIND: ClassVar[str] = "upgrade"
    UNPREDICTABLE: ClassVar[str] = ""
    PER_NODE: ClassVar[Incidents] = Incidents(clean_stops=1)
    SUMMARY: ClassVar[str] = (
        "Restart node after node on a newer release of Kafka, then raise the feature levels."
    )
    ASKS: ClassVar[frozenset[Ability]] = frozenset({Ability.PROCESSES, Ability.RELEASES})
    NOT_IN: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"zookeeper": "no release after 3.9 runs with ZooKeeper"}
    )

    to: Version = Field(description="The release to run afterwards, in quotes; newer than cluster.kafka.")
    finalise: Flag = Field(
        True, description="Raise the feature levels to those of the new release at the end."
    )

    @property
    def releases(self) -> tuple[str, ...]:
        """The one that it goes to."""
        return (self.to,)

    def check(self, spec: Surroundings, say: Complaints) -> None:
        """There is such a release, and it is newer."""
        if not say.sound(("to",), cluster=True):
            return
        now = spec.cluster.kafka
        if self.to not in RELEASES:
            say.report(("to",), f"Kafka '{self.to}' does not exist", nearest(self.to, RELEASES))
        elif numbers(self.to) <= numbers(now):
            say.report(("to",), f"Kafka {self.to} is not newer than {now}; KRaft metadata cannot go back")

    def __str__(self) -> str:
        return f"{self.kind} to {self.to}"

    def planned(self, exposure: Exposure) -> Incidents:
        """Of the whole cluster."""
        return self.observed(exposure.replicas)


class Decommission(NodeFault):
    """Brokers are taken out: their replicas go to others. Drained first, or killed first and replaced afterwards.

    Healed by starting them again, empty-handed: they hold no partition any longer.
    """

    KIND: ClassVar[str] = "decommission"
    UNPREDICTABLE: ClassVar[str] = ""
    SUMMARY: ClassVar[str] = "Take brokers out and give their replicas to others, before or after they go."
    HEALING: ClassVar[str] = "start again"
    HOLD_KEY: ClassVar[HoldKey | None] = "restart_after"

    ASKS: ClassVar[frozenset[Ability]] = frozenset({Ability.PROCESSES})

    drain: Flag = Field(
        True, description="Move the replicas away first, then shut down; false: SIGKILL first, then replace."
    )

    @field_validator("target")
    @classmethod
    def _brokers_only(cls, value: Role) -> Role:
        if value.kind in _NOT_BROKERS:
            raise wrong(f"{value} holds no partitions: aim at brokers")
        return value

    def check(self, spec: Surroundings, say: Complaints) -> None:
        """Another broker can take each replica."""
        if not say.sound(("target",), cluster=True):
            return
        for name, topic in spec.topics.items():
            if topic.replication_factor >= spec.cluster.brokers:
                say.report(
                    ("target",),
                    f"nobody could take its replicas of {name}: {spec.cluster.brokers} brokers, "
                    f"replication factor {topic.replication_factor}",
                )
                return

    def observed(self, nodes: int) -> Incidents:
        return Incidents(clean_stops=nodes) if self.drain else Incidents(kills=nodes)

    def planned(self, exposure: Exposure) -> Incidents:
        return self.observed(exposure.aimed_at(self))

    def not_simulated(self, spec: Surroundings) -> tuple[str, str] | None:
        return ("", AS_KRAFT) if spec.cluster.mode == "zookeeper" else None
