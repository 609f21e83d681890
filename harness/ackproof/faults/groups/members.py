"""Members of a consumer group that join, leave, are replaced one by one, or change to the other rebalance protocol."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Literal

from pydantic import Field

from ackproof.base.errors import Interrupted, WaitTimeout
from ackproof.base.units import Duration
from ackproof.base.wait import wait_until
from ackproof.experiment.base import Whole
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.fault import Complaints, FaultSpec
from ackproof.experiment.group import GroupProtocol
from ackproof.experiment.kafka import numbers
from ackproof.faults.groups.views import CONSUMER_SINCE, GroupFault, GroupInjection, whole_or
from ackproof.faults.injection import injects


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
            say.report(("to",), f"Kafka {spec.cluster.kafka} has no protocol consumer; it came with 4.0")
        elif group.protocol == self.to and not any(fault.group == self.group for fault in earlier):
            say.report(("to",), f"{self.group} has the protocol {self.to} already")

    def __str__(self) -> str:
        return f"{self.kind} {self.group} to {self.to}"


@injects(JoinGroup)
class _JoinInjection(GroupInjection[JoinGroup]):
    """Start additional members of the group. Healing stops them."""

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
    """Stop members cleanly. Healing starts a new member in place of each."""

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
    """Replace members one by one. The first replacement is the injection; the others are part of the healing."""

    _order: Sequence[str] = ()
    """Members in the order of their replacement."""

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
