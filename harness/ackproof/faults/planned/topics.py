"""Planned work on topics and settings: dynamic changes of settings, and topics that are deleted and created again.

The witnesses of a change are the running brokers that it concerns, which report the values in force. The
first witness of a deletion is another broker than the requested one: it does not know the topic any more.
Then each leader's new log begins at offset 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pydantic import Field

from ackproof.base.errors import FaultNotConfirmed, WaitTimeout
from ackproof.cluster import admin, queries
from ackproof.cluster.admin import Owner, ResourceType, Setting
from ackproof.cluster.queries import PartitionEnds
from ackproof.experiment.backends import Ability
from ackproof.experiment.base import Config
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.exposure import NOTHING, Draw
from ackproof.experiment.fault import WHERE_IT_RUNS, Complaints, FaultSpec
from ackproof.experiment.problems import Data
from ackproof.experiment.roles import Role, RoleKind
from ackproof.experiment.settings import Scope, refusal, wrong_topic_setting
from ackproof.experiment.spec import TopicSpec
from ackproof.faults.injection import SEEN_WITHIN_S, Injection, injects
from ackproof.faults.planned.partitions import UNCLEAN, BrokerId, missing_broker
from ackproof.faults.planned.views import BACK_WITHIN_S, T, ask, ask_for_one, find_views, put_back, views
from ackproof.network.wire import Connection, WireError
from ackproof.rundir.partition import TopicPartition

_SIMULATED: Final = frozenset(
    {
        "min.insync.replicas",
        UNCLEAN,
        "flush.messages",
        "log.flush.interval.messages",
    }
)
"""Settings that the model can change while brokers run. Any other change would have no effect there."""


class SetConfig(FaultSpec):
    """A dynamic change of settings (IncrementalAlterConfigs) of a topic, a broker, or all brokers.

    Healing restores them. A run is judged by the weakest promise that was in force at any time.
    """

    KIND = "set"
    PER_NODE = NOTHING
    SUMMARY = "Change settings of a topic, a broker or (with neither) all brokers while they run."
    HEALING = "restore the settings"
    HOLD_KEY = "for"
    OVER = WHERE_IT_RUNS
    IN_FORCE_S = 5.0

    topic: str | None = Field(None, strict=True, description="The topic whose settings change.")
    broker: BrokerId | None = Field(None, description="The broker whose settings change.")
    config: Config = Field(
        description="Settings and their new values, such as min.insync.replicas: 1.", min_length=1
    )

    def check(self, spec: ExperimentSpec, say: Complaints) -> None:
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
                    say.report(("config", name), wrong[0], key=wrong[1])
            elif (why := refusal(Scope.BROKER, name)) is not None:
                say.report(("config", name), why, key=True)

    def reach(self, spec: ExperimentSpec) -> tuple[frozenset[int], int]:
        """Return the nodes that the fault may hit, and the minimum number of nodes that it hits.

        For settings of one broker: this broker and 1, because only this broker accepts the change. For settings of a
        topic or of all brokers: no node and 0, because any live broker accepts the change.
        """
        return (frozenset(), 0) if self.broker is None else (frozenset({self.broker}), 1)

    def at_odds(self, first: FaultSpec, spec: ExperimentSpec) -> str:
        """Return why this change conflicts with `first`; '' if it does not. A broker that `first` keeps down or stopped
        takes no change.

        Two changes conflict if they change the same setting of one topic or broker: each would restore the
        other's value. A change for all brokers also conflicts with a change `first` for a single broker,
        because that broker keeps its own value.
        """
        both: set[str] = set()
        if isinstance(first, SetConfig) and self.topic == first.topic and self.broker in (None, first.broker):
            both = self.config.keys() & first.config.keys()
        return super().at_odds(first, spec) or (f"has changed {min(both)}" if both else "")

    def may_set(self, spec: ExperimentSpec, topic: str) -> Mapping[str, str]:
        """Return the settings that this fault may change for `topic`, by their names in the fault. For a fault on
        brokers these are broker settings, without those that the topic itself sets under the same name."""
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
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Draw the fields of a random fault: `topic`, and a value from 1 to 1000 of flush.messages, which weakens no
        promise."""
        topic = draw.other_place().rpartition("/")[0]
        return {"topic": topic, "config": {"flush.messages": str(draw.between(1, 1000))}}

    def not_simulated(self, spec: ExperimentSpec) -> tuple[str, str] | None:
        unknown = sorted(set(self.config) - _SIMULATED)
        if not unknown:
            return None
        known = ", ".join(sorted(_SIMULATED))
        return "config", f"it does not know the setting '{unknown[0]}': it knows {known}"


@injects(SetConfig)
class ConfigChange(Injection[SetConfig]):
    """Change settings while nodes run; healing restores them. Confirmed when all running brokers that answer and whose
    settings the change concerns report the new values. Raises `FaultNotConfirmed` if all of them report these values
    before the change. The healing is confirmed when no such broker reports all of the new values any more."""

    _before: dict[str, Setting] | None = None
    _is_back = False

    @property
    def owner(self) -> Owner:
        if self.fault.topic is not None:
            return Owner(ResourceType.TOPIC, self.fault.topic)
        return Owner(ResourceType.BROKER, "" if self.fault.broker is None else str(self.fault.broker))

    def _ask(self, do: Callable[[Connection], T], within_s: float = SEEN_WITHIN_S) -> tuple[int, T]:
        """Send the request `do` to the broker whose settings change or, for other settings, to any live broker; return
        its id and the result. Raises `FaultNotConfirmed` if that broker does not run or no live broker answers. Raises
        `WireError` if the broker whose settings change does not answer, `Refused` for Kafka's errors."""
        if self.fault.broker is None:
            return ask(self.context, do, within_s)
        link = self.context.cluster.running_links().get(self.fault.broker)
        if link is None:
            raise FaultNotConfirmed(
                f"broker {self.fault.broker} does not run, and it alone takes changes of its settings"
            )
        return self.fault.broker, do(link)

    def inject(self) -> str:
        names = list(self.fault.config)
        _, before = self._ask(lambda link: admin.describe_config(link, self.owner, names))
        in_force = self._in_force()
        if in_force and all(said == self.fault.config for said in in_force.values()):
            raise FaultNotConfirmed(f"{self._text(self.fault.config)} of {self.owner} is in force already")
        self._before = before
        asked, _ = self._ask(lambda link: admin.alter_config(link, {self.owner: dict(self.fault.config)}))
        return f"asked broker {asked} for {self._text(self.fault.config)} of {self.owner}"

    def confirm(self) -> str:
        return self._await(lambda said: said == self.fault.config, self._text(self.fault.config))

    def put_back(self) -> str:
        return "" if self._before is None or self._is_back else self.heal()

    def heal(self) -> str:
        if self._before is None:
            return "nothing to undo"
        own = {
            name: setting.value if (setting := self._before.get(name)) is not None and setting.own else None
            for name in self.fault.config
        }
        change = {self.owner: own}
        if self.fault.broker is None:
            asked, _ = put_back(self.context, lambda link: admin.alter_config(link, change))
        else:
            asked, _ = self._ask(lambda link: admin.alter_config(link, change))
        self._is_back = True
        back = ", ".join(f"{name} {'inherited' if value is None else value}" for name, value in own.items())
        return f"asked broker {asked} to put {self.owner} back: {back}"

    def confirm_healed(self) -> str:
        if self._before is None:
            return "nothing was asked for"
        return self._await(lambda said: said != self.fault.config, "what was in force before", BACK_WITHIN_S)

    def _await(
        self, fits: Callable[[dict[str, str]], bool], what: str, within_s: float = SEEN_WITHIN_S
    ) -> str:
        def look() -> dict[int, dict[str, str]] | None:
            said = self._in_force()
            return said if all(fits(values) for values in said.values()) else None

        # Report the values that matched, not those of a later answer.
        said = self.wait_for(
            look,
            f"every broker to say that {what} is in force for {self.owner}",
            within_s,
            state=lambda: "; ".join(
                f"broker {i}: {self._text(said)}" for i, said in self._in_force().items()
            ),
        )
        return "DescribeConfigs at " + "; ".join(
            f"broker {i}: {self._text(values)}" for i, values in said.items()
        )

    def _in_force(self) -> dict[int, dict[str, str]]:
        """Return the values in force of the settings that the fault changes, by broker. Each running broker that the
        change concerns is asked: for the topic's values if the fault changes a topic, else for its own. Brokers that do
        not answer are missing."""
        found: dict[int, dict[str, str]] = {}
        for broker, link in self.context.cluster.running_links().items():
            if self.fault.broker not in (None, broker):
                continue
            owner = self.owner if self.fault.topic is not None else Owner(ResourceType.BROKER, str(broker))
            try:
                said = admin.describe_config(link, owner, list(self.fault.config))
            except WireError:
                continue
            found[broker] = {name: setting.value for name, setting in said.items()}
        return found

    @staticmethod
    def _text(values: dict[str, str]) -> str:
        return ", ".join(f"{name}={value}" for name, value in values.items())


DELETE_S: Final = 10.0
_UNKNOWN_TOPIC: Final = 3
CREATED_WITHIN_S: Final = 60.0


class Recreate(FaultSpec):
    """A topic is deleted and created again under the same name while clients write to it and read from it.

    Records acknowledged until then are deleted on purpose: they count as `deleted`, not as lost.
    """

    KIND = "recreate"
    PER_NODE = NOTHING
    SUMMARY = "Delete a topic and create it again; its records count as deleted."
    ASKS = frozenset({Ability.DELETION})

    topic: str = Field(strict=True, description="The topic.")

    @property
    def targets(self) -> tuple[Role, ...]:
        """Return the role of the preferred leader of partition 0, which has a holder as long as the topic exists."""
        return (Role(RoleKind.PREFERRED_LEADER, self.topic, 0),)

    def drops(self, topic: str) -> bool:
        return topic == self.topic

    def check(self, spec: ExperimentSpec, say: Complaints) -> None:
        if self.topic not in spec.topics:
            say.unknown_value(("topic",), "the topic", self.topic, spec.topics)

    def __str__(self) -> str:
        return f"{self.kind} {self.topic}"


@injects(Recreate)
class _Recreation(Injection[Recreate]):
    """Delete the topic. Confirmed when another broker shows no such topic. Healing creates it again, and is confirmed
    when the leaders of all partitions answer with logs that begin at offset 0. Raises `FaultNotConfirmed` if a
    partition has no leader that answers before the deletion."""

    _deleted = False

    @property
    def spec(self) -> TopicSpec:
        """Specification of the topic in the experiment. Raises `FaultNotConfirmed` if the run has no experiment with
        this topic."""
        case = self.context.case
        if case is None or self.fault.topic not in case.experiment.topics:
            raise FaultNotConfirmed(f"no experiment says how to create {self.fault.topic} again")
        return case.experiment.topics[self.fault.topic]

    def inject(self) -> str:
        partitions = self.spec.partitions
        before = self.context.cluster.partition_ends([self.fault.topic])
        if len(before) < partitions:
            raise FaultNotConfirmed(f"{self.fault.topic} is not there, or lacks leaders: nothing to delete")
        self._deleted = True
        asked = ask_for_one(
            self.context,
            lambda link: queries.delete_topics(link, [self.fault.topic], DELETE_S),
            _UNKNOWN_TOPIC,
        )
        ends = ", ".join(f"{place}: {ends.log_end}" for place, ends in sorted(before.items()))
        return f"asked broker {asked} to delete {self.fault.topic}, whose logs ended at {ends}"

    def confirm(self) -> str:
        def is_gone() -> bool:
            look = find_views(self.context)
            try:
                return look is not None and not queries.partitions(look.witness_link, [self.fault.topic])
            except WireError:
                return False

        self.wait_for(is_gone, f"another broker to show no topic {self.fault.topic}")
        return f"metadata of {views(self.context).name}: no topic {self.fault.topic}"

    def heal(self) -> str:
        """Create the topic again, as the experiment describes it; return what was done, in words. Raises
        `FaultNotConfirmed` if it is not there in time, `BadInput` if it exists already."""
        if not self._deleted:
            return "nothing to undo"
        try:
            self.context.cluster.create_topics({self.fault.topic: self.spec}, CREATED_WITHIN_S)
        except WaitTimeout as error:
            raise self.not_confirmed(error) from error
        return f"created {self.fault.topic} again"

    def confirm_healed(self) -> str:
        after = self.wait_for(self._all_ends, f"every leader of {self.fault.topic} to answer")
        for place, ends in after.items():
            if ends.start > 0:
                raise FaultNotConfirmed(f"the log of {place} does not begin at offset 0: {ends}")
        said = ", ".join(f"{place}: {ends.start} to {ends.log_end}" for place, ends in sorted(after.items()))
        return f"protocol: leaders answer with new logs, {said}"

    def _all_ends(self) -> dict[TopicPartition, PartitionEnds] | None:
        ends = self.context.cluster.partition_ends([self.fault.topic])
        return ends if len(ends) == self.spec.partitions else None
