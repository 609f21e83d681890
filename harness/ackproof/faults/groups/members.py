"""Members of a consumer group that join, leave, are replaced one by one, or change to the other rebalance protocol."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from ackproof.base.units import Duration
from ackproof.experiment.base import Whole
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.fault import Complaints, FaultSpec
from ackproof.experiment.group import GroupProtocol
from ackproof.experiment.kafka import numbers
from ackproof.faults.context import FaultContext
from ackproof.faults.groups.views import CONSUMER_SINCE, GroupFault, GroupInjection, whole_or
from ackproof.faults.injection import Aim, injects


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
    """Members leave a consumer group by a clean stop: they commit what their mode commits, and leave. Healing starts a
    member in place of each."""

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
    """Each member of a group is stopped cleanly and replaced, one after the other, as a rolling deployment does it."""

    KIND = "bounce_members"
    DONE = "replaced one by one"
    SUMMARY = "Stop and replace the members of a consumer group, one after the other."
    IN_FORCE_S = 60.0

    rest: Duration = Field(0.0, le=600, description="Time for which each runs before the next one's turn.")


class MigrateGroup(GroupFault):
    """A rolling replacement of members by members of the other rebalance protocol, while the group works.

    Brokers convert the group (group.consumer.migration.policy: bidirectional, their default).
    """

    KIND = "migrate_group"
    DONE = "replaced one by one"
    SUMMARY = (
        "Replace the members of a group, one after the other, by members of the other rebalance protocol."
    )
    IN_FORCE_S = 60.0

    to: GroupProtocol = Field(description="Protocol of the new members: classic, or consumer (KIP-848).")
    rest: Duration = Field(0.0, le=600, description="Time for which each runs before the next one's turn.")

    def check(self, spec: ExperimentSpec, say: Complaints) -> None:
        super().check(spec, say)
        group = spec.workload.groups.get(self.group)
        earlier = [
            fault for fault in spec.faults if isinstance(fault, MigrateGroup) and fault.number < self.number
        ]
        if group is None or not say.sound(("to",), cluster=True):
            return
        if numbers(spec.cluster.kafka.version)[:2] < CONSUMER_SINCE:
            say.report(("to",), f"Kafka {spec.cluster.kafka} has no protocol consumer; it came with 4.0")
        elif group.protocol == self.to and not any(fault.group == self.group for fault in earlier):
            say.report(("to",), f"{self.group} has the protocol {self.to} already")

    def __str__(self) -> str:
        return f"{self.kind} {self.group} to {self.to}"


@injects(JoinGroup)
class _JoinInjection(GroupInjection[JoinGroup]):
    """Start members, and stop them."""

    def __init__(self, fault: JoinGroup, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._joined: list[str] = []
        self._left: list[str] = []

    def inject(self) -> str:
        for _ in range(self.fault.count):
            self._joined.append(self.groups.start_member(self.fault.group))
        return f"started {', '.join(self._joined)}"

    @property
    def clients(self) -> Sequence[str]:
        return self._joined

    def confirm(self) -> str:
        return self.await_listed(there=self._joined)

    def heal(self) -> str:
        now = {self.groups.successor(name) for name in self._joined}
        leaving = {name: process for name, process in self.running().items() if name in now}
        self.stop(leaving)
        self._left = list(leaving)
        return f"stopped {', '.join(leaving) or 'none: they have ended'}"

    def confirm_healed(self) -> str:
        return f"/proc: {', '.join(self._left) or 'none'} ended; {self.await_listed(gone=self._left)}"


@injects(LeaveGroup)
class _LeaveInjection(GroupInjection[LeaveGroup]):
    """Stop members cleanly, and start others in their places."""

    def __init__(self, fault: LeaveGroup, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._left: list[str] = []
        self._others: list[str] = []

    def inject(self) -> str:
        running = self.running()
        self.require_some(running)
        seed = 0 if self.context.case is None else self.context.case.seed
        order = random.Random(f"{seed}/leave/{self.fault.number}").sample(list(running), len(running))
        count = len(order) if self.fault.count == "all" else self.fault.count
        leaving = {name: running[name] for name in order[:count]}
        self._left = list(leaving)
        self.stop(leaving)
        return f"stopped {', '.join(leaving)} of {self.fault.group}"

    @property
    def clients(self) -> Sequence[str]:
        return self._left

    def confirm(self) -> str:
        return f"/proc: {', '.join(self._left)} ended; {self.await_listed(gone=self._left)}"

    def heal(self) -> str:
        alone = (name for name in self._left if self.groups.successor(name) in (None, name))
        self._others = [self.groups.replace(name) for name in alone]
        return f"started {', '.join(self._others) or 'none'}"

    def confirm_healed(self) -> str:
        return self.await_listed(there=self._others)


RollingT = TypeVar("RollingT", bound=BounceMembers | MigrateGroup)


@injects(BounceMembers, MigrateGroup)
class _RollingInjection(GroupInjection[RollingT]):
    """Replace members one by one. The first one is the injection; the others are part of the healing."""

    def __init__(self, fault: RollingT, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._protocol = fault.to if isinstance(fault, MigrateGroup) else ""
        self._replaced: dict[str, str] = {}
        self._order: list[str] = []

    def inject(self) -> str:
        running = self.running()
        self.require_some(running)
        if isinstance(self.fault, MigrateGroup):
            self.groups.use_protocol(self.fault.group, self.fault.to)
        self._order = list(running)
        self._replace(self._order[0])
        return f"stopped {self._order[0]} of {len(running)} members, and started {self._text}"

    @property
    def clients(self) -> Sequence[str]:
        return [*self._replaced, *self._replaced.values()]

    def _replace(self, name: str) -> None:
        running = self.running()
        if name in running:  # else another fault has ended it, and starts its successor
            self.stop({name: running[name]})
            self._replaced[name] = self.groups.replace(name)

    @property
    def _text(self) -> str:
        return ", ".join(f"{new} for {old}" for old, new in self._replaced.items()) or "none"

    def confirm(self) -> str:
        return self._await_replaced()

    def heal(self) -> str:
        for name in self._order:
            if name not in self._replaced:
                self._await_replaced()
                self.rest(self.fault.rest)
                self._replace(name)
        return f"started {self._text}"

    def confirm_healed(self) -> str:
        return self._await_replaced()

    def _await_replaced(self) -> str:
        ended = ", ".join(self._replaced) or "none"
        said = self.await_listed(self._replaced.values(), self._replaced, protocol=self._protocol)
        return f"/proc: {ended} ended; {said}"
