"""What planned work on one partition has in common: asked for at one broker, witnessed at another."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias, TypeVar

from pydantic import Field

from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster.protocol import PartitionState
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.roles import PartitionField, Role, RoleKind
from ackproof.experiment.spec import SystemUnderTest
from ackproof.faults.injection import Aim, FaultContext, Injection
from ackproof.faults.planned.views import Views, find_views, state_at, state_of, views
from ackproof.rundir.partition import TopicPartition

UNCLEAN: Final = "unclean.leader.election.enable"
BrokerId: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]


class OfPartition(FaultSpec):
    """Planned work on one partition."""

    partition: PartitionField

    @property
    def targets(self) -> tuple[Role, ...]:
        """Its preferred leader: somebody always is, also while nobody leads."""
        return (Role(RoleKind.PREFERRED_LEADER, self.partition.topic, self.partition.partition),)

    def __str__(self) -> str:
        return f"{self.kind} {self.partition}"


def missing_broker(spec: SystemUnderTest, broker: int) -> str:
    """That there is no such broker."""
    last = spec.cluster.broker_ids[-1]
    return f"broker {broker} does not exist; the brokers of this cluster are {'1' if last == 1 else f'1 to {last}'}"


PlannedT = TypeVar("PlannedT", bound=OfPartition)


class _OfPartition(Injection[PlannedT]):
    """What planned work on one partition has in common."""

    def __init__(self, fault: PlannedT, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self.place = TopicPartition(*fault.partition)
        self.views: Views | None = None
        self._before: PartitionState | None = None

    @property
    def before(self) -> PartitionState:
        """The partition as it was when the work began."""
        if self._before is None:
            raise FaultNotConfirmed(f"{self.fault.kind} was not begun")
        return self._before

    def _look(self) -> Views:
        """Note what there is, and who is asked and who witnesses."""
        self._before = state_of(self.context, self.place)
        self.views = views(self.context)
        return self.views

    def _witness(self) -> PartitionState | None:
        """The partition as another broker than the asked one shows it. One that was restarted is looked up anew."""
        look = find_views(self.context)
        return None if look is None else state_at(look.witness_link, self.place)

    def _await_leader(self) -> str:
        """Wait until the leader answers for its partition."""
        ends = self.seen(
            lambda: self.context.cluster.partition_ends([self.place.topic]).get(self.place),
            f"the leader of {self.place} to answer for it",
        )
        return (
            f"protocol: broker {ends.leader} answers as leader of {self.place} in epoch {ends.leader_epoch}"
        )
