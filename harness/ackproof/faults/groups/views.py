"""The coordinator's description of a consumer group, and the base of faults of groups.

The witnesses are the coordinator and the kernel. The coordinator (ConsumerGroupDescribe, DescribeGroups) knows members
by their `client.id`. The kernel shows that the process of a member has ended, or that another one runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pydantic import BeforeValidator, Field

from ackproof.base.advice import expected
from ackproof.base.processes import ClientProcess, is_alive, process_state
from ackproof.base.units import wrong
from ackproof.cluster.groups import GroupDescription, GroupMember, describe_group
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.exposure import NOTHING, Draw
from ackproof.experiment.fault import Complaints, FaultSpec
from ackproof.experiment.group import GroupName
from ackproof.experiment.kafka import numbers
from ackproof.experiment.problems import Data
from ackproof.faults.context import FaultContext
from ackproof.faults.injection import READY_WITHIN_S, Aim, Injection

if TYPE_CHECKING:  # a fault is read without any client library
    from ackproof.clients.groups import Groups

CONSUMER_SINCE = (4, 0)
"""First release with the protocol `consumer`."""
LEFT_WITHIN_S = 60.0
"""Seconds until a member is no longer listed. A static member that stopped stays until its session times out."""


def whole_or(*words: str, least: int) -> BeforeValidator:
    """Return a pydantic validator for a field that takes a whole number of at least `least`, or one of `words`."""

    def read(value: object) -> object:
        is_number = isinstance(value, int) and not isinstance(value, bool) and value >= least
        if not is_number and value not in words:
            raise wrong(expected(f"{' or '.join(words)}, or a number of at least {least}"))
        return value

    return BeforeValidator(read)


def describe(context: FaultContext, group: str) -> GroupDescription | None:
    """Return the description of a group by its coordinator; None if no running broker answers for it."""
    release = numbers(context.cluster.spec.kafka.version)[:2]
    return describe_group(context.cluster.running_links(), group, consumer=release >= CONSUMER_SINCE)


def client_of(member: GroupMember, groups: Groups) -> str:
    """Return the id of the client that is this group member, such as `g0` for the `client.id` `ackproof-g0`.

    If a member takes over the `group.instance.id` of its predecessor, a classic coordinator keeps the predecessor's
    `client.id`. Then the successor's id is returned once it has its assignment.
    """
    name = member.client_id.removeprefix("ackproof-")
    later = groups.successor(name) if member.instance.startswith("ackproof-") else None
    return later if later is not None and groups.at_work(later) else name


class GroupFault(FaultSpec):
    """Base of faults of a whole consumer group. Such faults affect no broker and no producer."""

    PER_NODE = NOTHING
    SHORT = ("group",)
    NOT_SIMULATED = "it has no groups"

    group: GroupName = Field(description="The consumer group, of `workload.groups`.")

    def check(self, spec: ExperimentSpec, say: Complaints) -> None:
        if self.group not in spec.workload.groups:
            say.unknown_value(("group",), "the consumer group", self.group, spec.workload.groups)

    def disturbs(self, producer: int) -> bool:
        del producer
        return False

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        groups = sorted(draw.experiment.workload.groups)
        return {"group": draw.more.choice(groups)} if groups else None

    def __str__(self) -> str:
        return f"{self.kind} {self.group}"


GroupT = TypeVar("GroupT", bound=GroupFault)


class GroupInjection(Injection[GroupT]):
    """Base of injections of group faults, which start and stop members. They wait until the coordinator lists the
    change, and until the kernel shows that the processes of stopped members have ended."""

    def __init__(self, fault: GroupT, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self.stopped: list[str] = []
        """Ids of the members that this injection stopped, in this order."""
        self.started: list[str] = []
        """Ids of the members that this injection started, in this order."""

    @property
    def clients(self) -> Sequence[str]:
        return [*self.stopped, *self.started]

    def running(self) -> dict[str, ClientProcess]:
        """Return the members of the group that run, by id, in the order of their start."""
        return {
            name: process
            for name, process in self.groups.running().items()
            if self.groups.group_of(name) == self.fault.group
        }

    def running_or_fail(self) -> dict[str, ClientProcess]:
        """Return the members of the group that run, by id, in the order of their start. Raises `FaultNotConfirmed` if
        no member runs."""
        if running := self.running():
            return running
        raise self.not_confirmed(f"no member of {self.fault.group} runs")

    def stop(self, members: Mapping[str, ClientProcess]) -> None:
        """Add these members to `stopped`, ask them to leave, and wait until their processes have ended. Raises
        `FaultNotConfirmed` if a process does not end within `LEFT_WITHIN_S` seconds."""
        self.stopped += members
        for name in members:
            self.groups.stop_member(name)
        for name, process in members.items():
            self.wait_for(
                lambda process=process: not is_alive(process.pid, process.started),  # type: ignore[misc]
                f"member {name} (pid {process.pid}) to leave and end",
                LEFT_WITHIN_S,
                state=partial(process_state, process.pid, process.started),
            )

    def replace_stopped(self) -> str:
        """Start a member in place of each that this fault stopped and no other fault replaced. Return in words the ids
        of the members that this fault started."""
        alone = (name for name in self.stopped if self.groups.find(name).successor is None)
        self.started += [self.groups.replace(name) for name in alone]
        return f"started {', '.join(self.started) or 'none'}"

    def await_listed(self, there: Sequence[str] = (), gone: Sequence[str] = (), *, protocol: str = "") -> str:
        """Wait until the coordinator lists the members `there` and none of `gone`, which have ended; return the
        observation in words.

        The replacement of a member counts as the member; a member that another fault stopped does not count.
        `protocol`: required rebalance protocol of all members `there`; '': any. Raises `FaultNotConfirmed` after a
        minute.
        """
        last: GroupDescription | None = None

        def look() -> GroupDescription | None:
            nonlocal last
            last = describe(self.context, self.fault.group)
            if last is None:
                return None
            listed = {client_of(member, self.groups): member.protocol for member in last.members}
            wanted = {self.groups.successor(name) for name in there} & self.groups.running().keys()
            fits = wanted <= listed.keys() and not set(gone) & listed.keys()
            return (
                last if fits and all(listed[name or ""] == protocol for name in wanted if protocol) else None
            )

        what = [f"list {', '.join(there)}"] if there else []
        what += [f"no longer list {', '.join(gone)}"] if gone else []
        found = self.wait_for(
            look,
            f"the coordinator of {self.fault.group} to {' and '.join(what) or 'answer'}",
            max(READY_WITHIN_S, LEFT_WITHIN_S),
            state=lambda: "no broker answers for the group" if last is None else str(last),
            interval_s=0.1,
        )
        return (f"/proc: {', '.join(gone)} ended; " if gone else "") + f"coordinator: {found}"
