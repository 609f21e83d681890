"""What a fault comes to for one partition, counted in the explorer's words, and what it may look at to say so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ackproof.experiment.roles import HELD_BY_ONE, Role, RoleKind, minority_of
from ackproof.experiment.spec import SystemUnderTest

AS_KRAFT: Final = "it knows reassignments as KRaft makes them, not as ZooKeeper's controller does"
"""Why the model does not play some planned work in ZooKeeper mode."""
LAG: Final = "replica.lag.time.max.ms"


class Incidents(NamedTuple):
    """How often each kind of thing happens to brokers that hold the partition (`explore.scope.Budget`)."""

    kills: int = 0
    power_losses: int = 0
    clean_stops: int = 0
    cuts: int = 0
    shrinks: int = 0
    preferred: int = 0
    hand_overs: int = 0
    unclean: int = 0

    def plus(self, other: Incidents) -> Incidents:
        """Both together."""
        return Incidents(*(mine + its for mine, its in zip(self, other, strict=True)))

    def most(self, other: Incidents) -> Incidents:
        """The larger of each."""
        return Incidents(*(max(mine, its) for mine, its in zip(self, other, strict=True)))

    def times(self, number: int) -> Incidents:
        """So many of these."""
        return Incidents(*(number * mine for mine in self))

    def __str__(self) -> str:
        return ", ".join(f"{name}={count}" for name, count in self._asdict().items() if count) or "nothing"


NOTHING: Final = Incidents()


@dataclass(frozen=True)
class Exposure:
    """A topic of a case, as its faults look at it. `time_out`: the shortest in force at any broker, in ms.

    `faults`: how many the case has. How long a fault lasts is `FaultSpec.hold`.
    """

    experiment: SystemUnderTest
    faults: int
    topic: str
    time_out: Callable[[str], int]
    session: str
    """The setting after which a broker that is silent is fenced."""

    @property
    def replicas(self) -> int:
        """Of each of its partitions."""
        return self.experiment.topics[self.topic].replication_factor

    def brokers(self, role: Role) -> int:
        """How many brokers with a replica of the topic can hold this role at once."""
        cluster, rf = self.experiment.cluster, self.replicas
        if role.kind is RoleKind.LIST:
            return self.aimed_at(role.parts)
        if role.kind is RoleKind.RACK:
            # Of several holders each may be in a rack of its own.
            if any(part.kind not in HELD_BY_ONE for part in role.parts):
                return rf
            racks = Counter(cluster.members.racks.get(broker) for broker in cluster.broker_ids)
            return min(max(racks.values()) if role.rack is None else racks[role.rack], rf)
        controllers = 0
        if cluster.metadata.broker_controls:
            controllers = 1
        elif cluster.combined:
            controllers = 1 if role.kind is RoleKind.CONTROLLER else cluster.brokers
        holders = {
            RoleKind.FOLLOWERS: rf - 1,
            RoleKind.ISR: rf,
            RoleKind.BROKERS: cluster.brokers,
            RoleKind.MINORITY: minority_of(cluster.brokers),
            RoleKind.MAJORITY: cluster.brokers - minority_of(cluster.brokers),
            RoleKind.CONTROLLER: controllers,
            RoleKind.CONTROLLERS: controllers,
            RoleKind.ZOOKEEPER: 0,
        }
        return min(holders.get(role.kind, 1), rf)

    def aimed_at(self, targets: Iterable[Role]) -> int:
        """How many brokers with a replica a fault of these roles can hit."""
        return min(sum(map(self.brokers, targets)), self.replicas)

    def lasts(self, hold: float | None, setting: str) -> bool:
        """Whether what is held so long lasts as long as this time-out."""
        return hold is None or hold * 1000 >= self.time_out(setting)

    def noticed(self, hold: float | None, nodes: int) -> Incidents:
        """Brokers that stand still: fenced when their session ends, or dropped from the ISR as slow."""
        if self.lasts(hold, self.session):
            return Incidents(cuts=nodes)
        return Incidents(shrinks=nodes) if self.lasts(hold, LAG) else NOTHING
