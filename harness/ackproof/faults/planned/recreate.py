"""A topic is deleted and created again under load.

Witnesses: another broker than the asked one shows no such topic; then every broker shows it, with leaders and full
ISRs, and its logs begin anew.
"""

from __future__ import annotations

from typing import Final

from pydantic import Field

from ackproof.base.errors import FaultNotConfirmed, WaitTimeout
from ackproof.cluster import queries
from ackproof.cluster.protocol import PartitionEnds
from ackproof.experiment.backends import Ability
from ackproof.experiment.exposure import NOTHING
from ackproof.experiment.fault import Complaints, FaultSpec
from ackproof.experiment.roles import Role, RoleKind
from ackproof.experiment.spec import SystemUnderTest, TopicSpec
from ackproof.faults.injection import Aim, FaultContext, Injection, injects
from ackproof.faults.planned.views import ask_for_one, find_views, views
from ackproof.network.wire import WireError
from ackproof.rundir.partition import TopicPartition

DELETE_S: Final = 10.0
_UNKNOWN_TOPIC: Final = 3
CREATED_WITHIN_S: Final = 60.0


class Recreate(FaultSpec):
    """A topic is deleted and created again under the same name while clients write to it and read from it.

    What had been acknowledged until then is gone, as was asked for: it counts as `deleted`, and not as lost.
    """

    KIND = "recreate"
    PER_NODE = NOTHING
    SUMMARY = "Delete a topic and create it again; what it held is gone, as was asked for."
    ASKS = frozenset({Ability.DELETION})

    topic: str = Field(strict=True, description="The topic.")

    @property
    def targets(self) -> tuple[Role, ...]:
        """The leader of its first partition: somebody is, or nobody could delete it."""
        return (Role(RoleKind.PREFERRED_LEADER, self.topic, 0),)

    def drops(self, topic: str) -> bool:
        return topic == self.topic

    def check(self, spec: SystemUnderTest, say: Complaints) -> None:
        """There is such a topic."""
        if self.topic not in spec.topics:
            say.unknown_value(("topic",), "the topic", self.topic, spec.topics)

    def __str__(self) -> str:
        return f"{self.kind} {self.topic}"


@injects(Recreate)
class Recreation(Injection[Recreate]):
    """Delete, and create again."""

    def __init__(self, fault: Recreate, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._before: dict[TopicPartition, PartitionEnds] = {}
        self._deleted = False

    @property
    def spec(self) -> TopicSpec:
        """What it was made from. Raises `FaultNotConfirmed` where no experiment says so."""
        case = self.context.case
        if case is None or self.fault.topic not in case.experiment.topics:
            raise FaultNotConfirmed(f"nobody says how {self.fault.topic} is to be made again")
        return case.experiment.topics[self.fault.topic]

    def inject(self) -> str:
        partitions = self.spec.partitions
        self._before = self.context.cluster.partition_ends([self.fault.topic])
        if len(self._before) < partitions:
            raise FaultNotConfirmed(f"{self.fault.topic} is not there, or lacks leaders: nothing to delete")
        self._deleted = True
        asked = ask_for_one(
            self.context,
            lambda link: queries.delete_topics(link, [self.fault.topic], DELETE_S),
            _UNKNOWN_TOPIC,
        )
        ends = ", ".join(f"{place}: {ends.log_end}" for place, ends in sorted(self._before.items()))
        return f"asked broker {asked} to delete {self.fault.topic}, whose logs ended at {ends}"

    def confirm(self) -> str:
        """Another broker does not know it."""

        def gone() -> bool:
            look = find_views(self.context)
            try:
                return look is not None and not queries.partitions(look.witness_link, [self.fault.topic])
            except WireError:
                return False

        self.seen(gone, f"another broker to show no topic {self.fault.topic}")
        return f"metadata of {views(self.context).name}: no topic {self.fault.topic}"

    def heal(self) -> str:
        """Create it again. Clients that ask for it in vain do not bring it into being."""
        if not self._deleted:
            return "nothing to undo"
        try:
            self.context.cluster.create_topics({self.fault.topic: self.spec}, CREATED_WITHIN_S)
        except WaitTimeout as error:
            raise self.unseen(error) from error
        return f"created {self.fault.topic} again"

    def confirm_healed(self) -> str:
        """Its logs begin anew."""
        after = self.seen(self._all_ends, f"every leader of {self.fault.topic} to answer")
        for place, ends in after.items():
            if ends.start > 0:
                raise FaultNotConfirmed(f"the log of {place} does not begin anew: {ends}")
        said = ", ".join(f"{place}: {ends.start} to {ends.log_end}" for place, ends in sorted(after.items()))
        return f"protocol: leaders answer with new logs, {said}"

    def _all_ends(self) -> dict[TopicPartition, PartitionEnds] | None:
        ends = self.context.cluster.partition_ends([self.fault.topic])
        return ends if len(ends) == self.spec.partitions else None
