"""Kinds of faults of consumer groups: members join, leave, are replaced one by one, or change to the other rebalance
protocol. Or an operator commits offsets for a group, as `kafka-consumer-groups --reset-offsets` does.

Kafka refuses the commit of an operator while the group has members (UNKNOWN_MEMBER_ID). The witness of the commit is
the coordinator's answer to OffsetFetch. The timeline has the offsets before and after (`OffsetsReset`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Final, Literal

from pydantic import Field

from ackproof.base.errors import FaultNotConfirmed, Interrupted, WaitTimeout
from ackproof.base.units import Duration
from ackproof.base.wait import wait_until
from ackproof.cluster.groups import commit_as_operator
from ackproof.experiment.base import Flag, Whole
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.exposure import Draw
from ackproof.experiment.fault import Complaints, FaultSpec
from ackproof.experiment.group import GroupProtocol
from ackproof.experiment.kafka import numbers
from ackproof.experiment.problems import Data
from ackproof.faults.groups.views import CONSUMER_SINCE, GroupFault, GroupInjection, whole_or
from ackproof.faults.injection import SEEN_WITHIN_S, injects
from ackproof.network.wire import Refused, WireError
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import OffsetsReset

_UNKNOWN_MEMBER_ID: Final = 25


class JoinGroup(GroupFault):
    """Further members join a consumer group, which rebalances. Healing lets them leave."""

    KIND = "join_group"
    DONE = "joined"
    SUMMARY = "Start further members of a consumer group; later they leave."
    HEALING = "let them leave"
    HOLD_KEY = "for"
    IN_FORCE_S = 60.0

    count: Whole = Field(1, ge=1, le=50, description="How many join.")


class LeaveGroup(GroupFault):
    """Members leave a consumer group by a clean stop: they commit as the group's field `commit` says, and leave.
    Healing starts a member in place of each."""

    KIND = "leave_group"
    DONE = "left"
    SUMMARY = "Let members leave a consumer group by a clean stop; later others take their places."
    HEALING = "start others"
    HOLD_KEY = "for"
    IN_FORCE_S = 60.0

    count: Annotated[int | Literal["all"], whole_or("all", least=1)] = Field(
        1, description="How many leave, drawn; or all."
    )

    def at_odds(self, first: FaultSpec, spec: ExperimentSpec) -> str:
        same = isinstance(first, LeaveGroup) and first.group == self.group and first.count == "all"
        return f"has stopped all members of {self.group}" if same else super().at_odds(first, spec)


class BounceMembers(GroupFault):
    """Each member of a group is stopped cleanly and replaced, one after the other, as a rolling deployment does it.
    `rest`: seconds from the confirmation of one replacement to the stop of the next member."""

    KIND = "bounce_members"
    DONE = "replaced one by one"
    SUMMARY = "Stop and replace the members of a consumer group, one after the other."
    IN_FORCE_S = 60.0

    rest: Duration = Field(0.0, le=600, description="Time for which each runs before the next one's turn.")


class MigrateGroup(BounceMembers):
    """A rolling replacement of members by members of the other rebalance protocol (`to`: classic or consumer), while
    the group works.

    Brokers convert the group (group.consumer.migration.policy: bidirectional, their default).
    """

    KIND = "migrate_group"
    SUMMARY = (
        "Replace the members of a group, one after the other, by members of the other rebalance protocol."
    )

    to: GroupProtocol = Field(description="Protocol of the new members: classic, or consumer (KIP-848).")

    def check(self, spec: ExperimentSpec, say: Complaints) -> None:
        super().check(spec, say)
        group = spec.workload.groups.get(self.group)
        earlier = [
            fault for fault in spec.faults if isinstance(fault, MigrateGroup) and fault.number < self.number
        ]
        if group is None or not say.sound(("to",), cluster=True):
            return
        if numbers(spec.cluster.kafka.version)[:2] < CONSUMER_SINCE:
            say.report(("to",), f"Kafka {spec.cluster.kafka} has no protocol consumer", "it came with 4.0")
        elif group.protocol == self.to and not any(fault.group == self.group for fault in earlier):
            say.report(("to",), f"{self.group} has the protocol {self.to} already")

    def __str__(self) -> str:
        return f"{self.kind} {self.group} to {self.to}"


@injects(JoinGroup)
class _JoinInjection(GroupInjection[JoinGroup]):
    """Start additional members of the group. Confirmed when the coordinator lists them. Healing stops them, or the
    members that replaced them; it is confirmed when the coordinator no longer lists these."""

    def inject(self) -> str:
        for _ in range(self.fault.count):
            self.started.append(self.groups.start_member(self.fault.group))
        return f"started {', '.join(self.started)}"

    def confirm(self) -> str:
        return self.await_listed(self.started)

    def heal(self) -> str:
        now = {self.groups.successor(name) for name in self.started}
        self.stop({name: process for name, process in self.running().items() if name in now})
        return f"stopped {', '.join(self.stopped) or 'none: they have ended'}"

    def confirm_healed(self) -> str:
        return self.await_listed(gone=self.stopped)


@injects(LeaveGroup)
class _LeaveInjection(GroupInjection[LeaveGroup]):
    """Stop members cleanly. Confirmed when the coordinator no longer lists them. Raises `FaultNotConfirmed` if no
    member runs. Healing starts a new member in place of each that no other fault replaced."""

    def inject(self) -> str:
        running = self.running_or_fail()
        seed = 0 if self.context.case is None else self.context.case.seed
        order = random.Random(f"{seed}/leave/{self.fault.number}").sample(list(running), len(running))
        count = len(order) if self.fault.count == "all" else self.fault.count
        self.stop({name: running[name] for name in order[:count]})
        return f"stopped {', '.join(self.stopped)} of {self.fault.group}"

    def confirm(self) -> str:
        return self.await_listed(gone=self.stopped)

    def heal(self) -> str:
        return self.replace_stopped()

    def confirm_healed(self) -> str:
        return self.await_listed(self.started)


@injects(BounceMembers)
class _RollingInjection(GroupInjection[BounceMembers]):
    """Replace members one by one. The first replacement is the injection; the others are part of the healing.

    Each replacement is confirmed when the coordinator lists the new member and no longer the old one. For a migration,
    the new member must have the new protocol. A member that another fault has ended is left out.
    """

    _order: Sequence[str] = ()
    """Ids of the members, in the order of their replacement."""

    def inject(self) -> str:
        self._order = list(self.running_or_fail())
        if isinstance(self.fault, MigrateGroup):
            self.groups.use_protocol(self.fault.group, self.fault.to)
        self._replace(self._order[0])
        return f"stopped {self._order[0]} of {len(self._order)} members, and started {self._pairs}"

    def _replace(self, name: str) -> None:
        running = self.running()
        if name in running:  # else another fault has ended it, and starts its successor
            self.stop({name: running[name]})
            self.started.append(self.groups.replace(name))

    @property
    def _pairs(self) -> str:
        pairs = zip(self.started, self.stopped, strict=False)
        return ", ".join(f"{new} for {old}" for new, old in pairs) or "none"

    def confirm(self) -> str:
        protocol = self.fault.to if isinstance(self.fault, MigrateGroup) else ""
        return self.await_listed(self.started, self.stopped, protocol=protocol)

    def heal(self) -> str:
        for name in self._order:
            if name not in self.stopped:
                self.confirm()
                with suppress(WaitTimeout, Interrupted):
                    wait_until(
                        lambda: False, what="its rest", timeout_s=self.fault.rest, stop=self.context.stop
                    )
                self._replace(name)
        return f"started {self._pairs}"

    def confirm_healed(self) -> str:
        return self.confirm()


class ResetOffsets(GroupFault):
    """An operator sets the committed offsets of a group. The verdict excuses records that members then skip or process
    again."""

    KIND = "reset_offsets"
    SUMMARY = "Set the committed offsets of a consumer group, as an operator does it."
    IN_FORCE_S = 60.0

    to: Annotated[int | Literal["earliest", "latest"], whole_or("earliest", "latest", least=0)] = Field(
        description="Offset: beginning or end of each log, or a number (limited to what the log has)."
    )
    topic: str | None = Field(
        None, strict=True, description="Partitions of this topic; those of all its topics by default."
    )
    stop_members: Flag = Field(
        False,
        description="Stop all members before, and start others afterwards. Kafka refuses the reset of a group with "
        "members.",
    )

    def topics(self, spec: ExperimentSpec) -> tuple[str, ...]:
        """Return the topics whose offsets are reset: the field `topic`, or all topics that the group reads."""
        return spec.input_of(self.group) if self.topic is None else (self.topic,)

    def check(self, spec: ExperimentSpec, say: Complaints) -> None:
        super().check(spec, say)
        if self.topic is not None and self.topic not in spec.topics:
            say.unknown_value(("topic",), "the topic", self.topic, spec.topics)

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        group = super().draw_fields(draw)
        to = draw.more.choice(("earliest", "latest"))
        return None if group is None else {**group, "to": to, "stop_members": True}

    def __str__(self) -> str:
        return f"{self.kind} {self.group} to {self.to}" + (f" of {self.topic}" if self.topic else "")


@injects(ResetOffsets)
class _ResetInjection(GroupInjection[ResetOffsets]):
    """Stop the group's members if `stop_members` is set, and commit the offsets. Healing starts members in place of
    those that were stopped.

    Confirmed when OffsetFetch returns the offsets. Raises `FaultNotConfirmed` if the group still has members."""

    _offsets: Mapping[TopicPartition, int] = {}

    def inject(self) -> str:
        timeline = self.context.timeline
        if self.context.case is None or timeline is None:
            raise self.not_confirmed("no experiment of ours runs here")
        if self.fault.stop_members:
            self.stop(self.running())
            self.await_listed(gone=self.stopped)
        self._offsets = self._find_targets(self.fault.topics(self.context.case.experiment))
        before, begun_ns = self._committed(), timeline.clock.now()
        try:
            broker = self.wait_for(self._commit, f"the coordinator of {self.fault.group} to take offsets")
        except Refused as error:
            alive = "; the group has members: write stop_members: true"
            raise self.not_confirmed(f"{error}{alive if error.code == _UNKNOWN_MEMBER_ID else ''}") from error
        rows = tuple(
            (*place, before.get(place, -1), offset) for place, offset in sorted(self._offsets.items())
        )
        timeline.add(
            OffsetsReset(group=self.fault.group, begun_ns=begun_ns, offsets=rows), fault=self.fault.number
        )
        text = ", ".join(f"{topic}/{number} {old} → {new}" for topic, number, old, new in rows)
        return f"committed at broker {broker} for {self.fault.group}: {text}"

    def _find_targets(self, topics: tuple[str, ...]) -> dict[TopicPartition, int]:
        """Return the offset to commit for each partition of the topics: the fault's `to`. It is limited to the range
        from the log start offset to the high watermark. Raises `FaultNotConfirmed` if a leader does not answer."""
        count = len(self.context.cluster.topic_state(topics))
        ends = self.wait_for(
            lambda: ends if len(ends := self.context.cluster.partition_ends(topics)) >= count > 0 else None,
            f"the leaders of {', '.join(topics)} to answer",
        )
        to = self.fault.to
        offset = 0 if to == "earliest" else 1 << 63 if to == "latest" else int(to)
        return {place: min(max(offset, end.start), end.high_watermark) for place, end in ends.items()}

    def _commit(self) -> int | None:
        """Commit the offsets; return the broker that took them. None: no broker takes them now, try again. Raises
        `Refused` if the group still has members."""
        try:
            return commit_as_operator(self.context.cluster.running_links(), self.fault.group, self._offsets)
        except Refused as error:
            if error.code == _UNKNOWN_MEMBER_ID:
                raise
            return None
        except WireError:
            return None

    def _committed(self) -> dict[TopicPartition, int]:
        from ackproof.observe.committed import ask_coordinator  # Arrow, which checking a file does without

        answer = ask_coordinator(self.context.cluster, self.fault.group, self.context.stop)
        if answer.reason:
            raise FaultNotConfirmed(f"{self.fault.kind}: committed offsets are unknown: {answer.reason}")
        return answer.of_partition

    def confirm(self) -> str:
        found = self.wait_for_good(
            self._committed,
            lambda said: all(said.get(place) == offset for place, offset in self._offsets.items()),
            f"OffsetFetch to say what was committed for {self.fault.group}",
            SEEN_WITHIN_S,
        )
        said = ", ".join(f"{place}: {found[place]}" for place in sorted(self._offsets))
        return f"OffsetFetch of {self.fault.group}: {said}"

    def heal(self) -> str:
        return self.replace_stopped() if self.stopped else "nothing to undo"

    def confirm_healed(self) -> str:
        return self.await_listed(self.started)
