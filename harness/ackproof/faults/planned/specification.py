"""Planned work as faults: leader moves, reassignments, changes of settings. Nothing fails; records can be lost.

What an operator does to a running cluster on purpose. Each is asked for through the admin protocol at one broker
and witnessed at another, which has its own copy of the metadata. Roll-outs stand in `fault_rollouts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, TypeAlias

from pydantic import Field

from ackproof.experiment.backends import Ability
from ackproof.experiment.base import Config
from ackproof.experiment.fault import Complaints, FaultSpec, HoldKey
from ackproof.experiment.incidents import AS_KRAFT, Incidents
from ackproof.experiment.partitions import PartitionField
from ackproof.experiment.quantities import Size
from ackproof.experiment.roles import Role, RoleField, RoleKind
from ackproof.experiment.settings import Scope, refusal
from ackproof.experiment.topic_settings import wrong_topic_setting

if TYPE_CHECKING:
    from ackproof.experiment.drawing import Draw
    from ackproof.experiment.incidents import Exposure
    from ackproof.experiment.nodes import Data
    from ackproof.experiment.spec import Surroundings

UNCLEAN: Final = "unclean.leader.election.enable"
_SIMULATED: Final = frozenset(
    {
        "min.insync.replicas",
        UNCLEAN,
        "flush.messages",
        "log.flush.interval.messages",
    }
)
"""What the model can change while brokers run: any other setting would change nothing there, and seem to."""
BrokerId: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]


class OfPartition(FaultSpec):
    """Planned work on one partition."""

    UNPREDICTABLE: ClassVar[str] = ""

    partition: PartitionField

    @property
    def targets(self) -> tuple[Role, ...]:
        """Its preferred leader: somebody always is, also while nobody leads."""
        return (Role(RoleKind.PREFERRED_LEADER, self.partition.topic, self.partition.partition),)

    def __str__(self) -> str:
        return f"{self.kind} {self.partition}"


def missing_broker(spec: Surroundings, broker: int) -> str:
    """That there is no such broker."""
    last = spec.cluster.broker_ids[-1]
    return f"broker {broker} does not exist; the brokers of this cluster are {'1' if last == 1 else f'1 to {last}'}"


class ElectPreferred(OfPartition):
    """A preferred election: the first of the assigned replicas is made leader again (KIP-460)."""

    KIND: ClassVar[str] = "elect_preferred"
    SUMMARY: ClassVar[str] = (
        "Make the first assigned replica of a partition its leader; another must lead before."
    )

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Of any partition."""
        return {"partition": draw.other_place()}

    def planned(self, exposure: Exposure) -> Incidents:
        del exposure
        return Incidents(preferred=1, hand_overs=1)


class ElectUnclean(OfPartition):
    """An unclean election by an operator: a live replica is made leader though nobody in sync is left.

    It takes place whatever unclean.leader.election.enable says, and what only the old leader had is gone.
    """

    KIND: ClassVar[str] = "elect_unclean"
    SUMMARY: ClassVar[str] = "Make any live replica of a leaderless partition its leader, in sync or not."

    def may_set(self, spec: Surroundings, topic: str) -> Mapping[str, str]:
        """As if the topic allowed it."""
        del spec
        return {UNCLEAN: "true"} if topic == self.partition.topic else {}

    def planned(self, exposure: Exposure) -> Incidents:
        del exposure
        return Incidents(unclean=1)


class Move(OfPartition):
    """What reassignments have in common."""

    to: Annotated[tuple[BrokerId, ...], Field(min_length=1, max_length=50)] = Field(
        description="Brokers of its replicas afterwards, preferred leader first."
    )
    throttle: Size | None = Field(
        None, ge=1, description="Bytes a second that new replicas may copy, so that it takes its time."
    )

    def check(self, spec: Surroundings, say: Complaints) -> None:
        """Its brokers exist, once each."""
        if not say.sound(("to",), cluster=True):
            return
        for index, broker in enumerate(self.to):
            if broker not in spec.cluster.broker_ids:
                say.report(("to", index), missing_broker(spec, broker))
                return
        if len(set(self.to)) != len(self.to):
            say.report(("to",), "a broker holds one replica of a partition, not two")

    def may_shrink_to(self, topic: str) -> int | None:
        """As many as it names."""
        return len(self.to) if topic == self.partition.topic else None

    def __str__(self) -> str:
        return f"{self.kind} {self.partition} to {', '.join(map(str, self.to))}"

    def planned(self, exposure: Exposure) -> Incidents:
        del exposure
        return Incidents(hand_overs=1)

    def not_simulated(self, spec: Surroundings) -> tuple[str, str] | None:
        return ("", AS_KRAFT) if spec.cluster.mode == "zookeeper" else None


class Reassign(Move):
    """Grow, shrink or move a partition: AlterPartitionReassignments, until the new replicas are all in sync."""

    KIND: ClassVar[str] = "reassign"
    SUMMARY: ClassVar[str] = "Give a partition other replicas: more, fewer, or on other brokers."

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """As many replicas as there are, on other brokers or in another order."""
        place = draw.other_place()
        brokers = list(draw.experiment.cluster.broker_ids)
        copies = draw.experiment.topics[place.rpartition("/")[0]].replication_factor
        return {"partition": place, "to": [*draw.more.sample(brokers, copies)]} if len(brokers) > 1 else None


class CancelReassign(Move):
    """A reassignment that is cancelled before it is through; `throttle` keeps it from being through too soon."""

    KIND: ClassVar[str] = "cancel_reassign"
    SUMMARY: ClassVar[str] = "Begin to give a partition other replicas, and cancel that while it goes on."
    HEALING: ClassVar[str] = "cancel it"
    HOLD_KEY: ClassVar[HoldKey | None] = "for"

    throttle: Size | None = Field(
        1 << 10,
        ge=1,
        description="Bytes a second that new replicas may copy, so that it is not through too soon.",
    )

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """To brokers that hold no replica yet: all others are through at once."""
        place = draw.other_place()
        brokers = list(draw.experiment.cluster.broker_ids)
        copies = draw.experiment.topics[place.rpartition("/")[0]].replication_factor
        if copies >= len(brokers):
            return None
        return {"partition": place, "to": [*draw.more.sample(brokers, copies)]}


class Recreate(FaultSpec):
    """A topic is deleted and created again under the same name while clients write to it and read from it.

    What had been acknowledged until then is gone, as was asked for: losses of this topic are shown, and not judged.
    """

    KIND: ClassVar[str] = "recreate"
    UNPREDICTABLE: ClassVar[str] = ""
    SUMMARY: ClassVar[str] = "Delete a topic and create it again; what it held is gone, as was asked for."

    ASKS: ClassVar[frozenset[Ability]] = frozenset({Ability.DELETION})

    topic: str = Field(strict=True, description="The topic.")

    @property
    def targets(self) -> tuple[Role, ...]:
        """The leader of its first partition: somebody is, or nobody could delete it."""
        return (Role(RoleKind.PREFERRED_LEADER, self.topic, 0),)

    def drops(self, topic: str) -> bool:
        """All that it holds."""
        return topic == self.topic

    def check(self, spec: Surroundings, say: Complaints) -> None:
        """There is such a topic."""
        if self.topic not in spec.topics:
            say.unknown_value(("topic",), "the topic", self.topic, spec.topics)

    def __str__(self) -> str:
        return f"{self.kind} {self.topic}"


class MoveLogDir(FaultSpec):
    """Replicas of a partition move to another log dir of their brokers (JBOD), while they lead or follow."""

    KIND: ClassVar[str] = "move_log_dir"
    UNPREDICTABLE: ClassVar[str] = ""
    SUMMARY: ClassVar[str] = "Move replicas of a partition to another log dir of the same broker."
    ASKS: ClassVar[frozenset[Ability]] = frozenset({Ability.DISKS})

    partition: PartitionField
    target: RoleField

    @property
    def targets(self) -> tuple[Role, ...]:
        """Whose replicas move."""
        return (self.target,)

    def check(self, spec: Surroundings, say: Complaints) -> None:
        """There is another log dir."""
        if spec.cluster.log_dirs < 2 and say.sound(("target",), cluster=True):
            say.report(("target",), "its brokers have one log dir; cluster.log_dirs: 2 gives them two")

    def __str__(self) -> str:
        return f"{self.kind} {self.partition} of {self.target}"

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Of a replica, where there are several log dirs."""
        place = draw.other_place()
        return {"partition": place, "target": f"leader({place})"}


class SetConfig(FaultSpec):
    """A dynamic change of settings (IncrementalAlterConfigs) of a topic, a broker, or all brokers.

    It is put back at its healing. A run is judged by the weakest promise that was in force at any time.
    """

    KIND: ClassVar[str] = "set"
    UNPREDICTABLE: ClassVar[str] = ""
    SUMMARY: ClassVar[str] = (
        "Change settings of a topic, a broker or (with neither) all brokers while they run."
    )
    HEALING: ClassVar[str] = "put it back"
    HOLD_KEY: ClassVar[HoldKey | None] = "for"

    topic: str | None = Field(None, strict=True, description="The topic whose settings change.")
    broker: BrokerId | None = Field(None, description="The broker whose settings change.")
    config: Config = Field(
        description="Settings and their new values, such as min.insync.replicas: 1.", min_length=1
    )

    def check(self, spec: Surroundings, say: Complaints) -> None:
        """Topic or broker exists; the harness' own settings stay."""
        if self.topic is not None and self.broker is not None:
            say.report(("broker",), "settings change of a topic or of a broker, not of both")
        elif self.topic is not None and self.topic not in spec.topics:
            say.unknown_value(("topic",), "the topic", self.topic, spec.topics)
        elif (
            self.broker is not None
            and self.broker not in spec.cluster.broker_ids
            and say.sound(("broker",), cluster=True)
        ):
            say.report(("broker",), missing_broker(spec, self.broker))
        if self.topic is None and spec.backend == "attach":
            say.report((), "settings of brokers that someone else runs are not ours: name a topic", key=True)
        for name, value in self.config.items():
            if self.topic is not None:
                wrong = wrong_topic_setting(name, value, spec)
                if wrong is not None:
                    say.report(("config", name), wrong.message, wrong.nearest, key=wrong.name)
            elif (why := refusal(Scope.BROKER, name)) is not None:
                say.report(("config", name), why, key=True)

    def may_set(self, spec: Surroundings, topic: str) -> Mapping[str, str]:
        """What it sets of this topic, or of brokers unless the topic has a setting of its own."""
        if self.topic is not None:
            return self.config if self.topic == topic else {}
        own = spec.topics[topic].config
        return {name: value for name, value in self.config.items() if name not in own}

    def __str__(self) -> str:
        whose = (
            self.topic
            if self.topic is not None
            else f"broker {self.broker}"
            if self.broker
            else "all brokers"
        )
        return f"{self.kind} {', '.join(f'{name}={value}' for name, value in self.config.items())} of {whose}"

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """A setting of a topic that promises no less than before."""
        topic = draw.other_place().rpartition("/")[0]
        return {"topic": topic, "config": {"flush.messages": str(draw.between(1, 1000))}}

    def not_simulated(self, spec: Surroundings) -> tuple[str, str] | None:
        unknown = sorted(set(self.config) - _SIMULATED)
        if not unknown:
            return None
        known = ", ".join(sorted(_SIMULATED))
        return "config", f"it does not know the setting '{unknown[0]}': it knows {known}"
