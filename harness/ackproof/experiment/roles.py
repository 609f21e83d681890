"""Whom a fault is aimed at: a role, resolved when the fault is due.

::

    leader(orders/0)            the leader of that partition
    preferred_leader(orders/0)  the first of its assigned replicas
    followers(orders/0)         its replicas but for the leader, in sync or not
    follower(orders/0)          one of these, drawn beforehand
    isr(orders/0)               its in-sync replicas, the leader among them
    controller                  the active controller      controller(101)  that one
    controllers                 all controllers (KRaft; in ZooKeeper mode the controller is a broker)
    broker                      one broker, drawn          broker(2)        that one
    brokers                     all brokers
    zookeeper                   all ZooKeeper servers      zookeeper(101)   that one
    minority                    fewer than half of the brokers (as many as that allows), drawn
    majority                    the other brokers
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, TypeAlias

from pydantic import WithJsonSchema

from ackproof.experiment.base import text_field
from ackproof.experiment.problems import hint
from ackproof.rundir.partition import TopicPartition


class RoleKind(StrEnum):
    """Every role."""

    LEADER = "leader"
    FOLLOWERS = "followers"
    FOLLOWER = "follower"
    ISR = "isr"
    PREFERRED_LEADER = "preferred_leader"
    CONTROLLER = "controller"
    CONTROLLERS = "controllers"
    BROKER = "broker"
    BROKERS = "brokers"
    MINORITY = "minority"
    MAJORITY = "majority"
    ZOOKEEPER = "zookeeper"


OF_PARTITION: Final = frozenset(
    {RoleKind.LEADER, RoleKind.FOLLOWERS, RoleKind.FOLLOWER, RoleKind.ISR, RoleKind.PREFERRED_LEADER}
)
"""Roles that need a topic and a partition."""
OF_METADATA: Final = frozenset({RoleKind.CONTROLLER, RoleKind.CONTROLLERS, RoleKind.ZOOKEEPER})
FIRST_CONTROLLER: Final = 101
"""Id of the first isolated controller; brokers count from 1."""
MAY_NAME_NODE: Final = frozenset({RoleKind.CONTROLLER, RoleKind.BROKER, RoleKind.ZOOKEEPER})
DRAWN: Final = frozenset({RoleKind.FOLLOWER, RoleKind.BROKER, RoleKind.MINORITY, RoleKind.MAJORITY})
"""Roles that take one of several nodes; which one comes from the case's seed."""

_ROLE: Final = re.compile(r"([A-Za-z_-]+)(?:\(([^()]*)\))?\Z")
_LOOSE: Final = re.compile(r"([a-z]+)[ _-]?([0-9]+)\Z")
ROLE_PATTERN: Final = (
    r"^((leader|followers|follower|isr|preferred_leader)\([A-Za-z0-9._-]+/[0-9]+\)"
    r"|(controller|broker|zookeeper)(\([0-9]+\))?|controllers|brokers|minority|majority)$"
)


@dataclass(frozen=True)
class Members:
    """Who is what at one moment. The partition's fields are those of the role's own partition."""

    brokers: tuple[int, ...]
    controllers: tuple[int, ...] = ()
    active_controller: int = -1
    leader: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()


@dataclass(frozen=True)
class Role:
    """One role. `topic` and `partition` are set for the roles of a partition, `node` where a node is named."""

    kind: RoleKind
    topic: str | None = None
    partition: int | None = None
    node: int | None = None

    @classmethod
    def of_node(cls, node: int) -> Role:
        """What a bare number means: an isolated controller, or a broker."""
        return cls(RoleKind.CONTROLLER if node >= FIRST_CONTROLLER else RoleKind.BROKER, node=node)

    @classmethod
    def parse(cls, text: str) -> Role:
        """Read a role. Raises ValueError with a sentence that says what was expected."""
        match = _ROLE.match(text.strip())
        if match is None:
            loose = _LOOSE.match(text.strip())
            meant = f"; write {loose[1]}({loose[2]})" if loose and loose[1] in MAY_NAME_NODE else ""
            raise ValueError(
                f"expected a role such as leader(orders/0) or broker(1), not '{text[:60]}'{meant}"
            )
        name, inside = match[1], match[2]
        if name not in set(RoleKind):
            raise ValueError(f"unknown role '{name[:60]}'{hint(name, list(RoleKind), 'roles are')}")
        kind = RoleKind(name)
        if kind in OF_PARTITION:
            if not inside:
                raise ValueError(f"the role {kind} needs a partition: {kind}(orders/0)")
            topic, partition = TopicPartition.parse(inside.strip())
            return cls(kind, topic, partition)
        if inside is None:
            return cls(kind)
        if kind not in MAY_NAME_NODE:
            raise ValueError(f"the role {kind} takes nothing in brackets")
        if not re.fullmatch(r" *[0-9]{1,9} *", inside):
            raise ValueError(f"expected a node's number, as in {kind}(2), not '{inside[:60]}'")
        return cls(kind, node=int(inside))

    def __str__(self) -> str:
        if self.topic is not None:
            return f"{self.kind}({self.topic}/{self.partition})"
        return str(self.kind) if self.node is None else f"{self.kind}({self.node})"

    def resolve(self, members: Members, order: Sequence[int]) -> tuple[int, ...]:
        """The nodes that hold this role now, ascending; empty when nobody does.

        `order` is this fault's draw (`Case.order`): all brokers in a random order. A drawn role takes the first of
        them that qualify.
        """
        if self.node is not None:
            return (self.node,)
        followers = tuple(node for node in members.replicas if node != members.leader)
        few = minority_of(len(order))
        holders: dict[RoleKind, Sequence[int]] = {
            RoleKind.LEADER: (members.leader,),
            RoleKind.FOLLOWERS: followers,
            RoleKind.FOLLOWER: [node for node in order if node in followers][:1],
            RoleKind.ISR: members.isr,
            RoleKind.PREFERRED_LEADER: members.replicas[:1],
            RoleKind.CONTROLLER: (members.active_controller,),
            RoleKind.CONTROLLERS: members.controllers,
            RoleKind.ZOOKEEPER: members.controllers,
            RoleKind.BROKER: [node for node in order if node in members.brokers][:1],
            RoleKind.BROKERS: members.brokers,
            RoleKind.MINORITY: order[:few],
            RoleKind.MAJORITY: order[few:],
        }
        return tuple(sorted({node for node in holders[self.kind] if node >= 0}))

    def reach(self, brokers: Sequence[int], controllers: Sequence[int]) -> tuple[frozenset[int], int]:
        """The nodes that may hold it, and how many of them do at least, whoever leads and whatever is drawn."""
        few = minority_of(len(brokers))
        if self.node is not None:
            return frozenset({self.node}), 1
        if self.kind in {RoleKind.CONTROLLERS, RoleKind.ZOOKEEPER}:
            return frozenset(controllers), len(controllers)
        if self.kind is RoleKind.CONTROLLER:
            return frozenset(controllers).union(brokers), 0
        least = {RoleKind.BROKER: 1, RoleKind.BROKERS: len(brokers), RoleKind.MINORITY: few}
        least[RoleKind.MAJORITY] = len(brokers) - few
        return frozenset(brokers), least.get(self.kind, 0)


def minority_of(brokers: int) -> int:
    """The most brokers that are fewer than half of `brokers`."""
    return max(0, (brokers - 1) // 2)


PartitionField: TypeAlias = Annotated[
    TopicPartition,
    *text_field(TopicPartition.parse, TopicPartition, "a partition such as orders/0"),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^[A-Za-z0-9._-]+/[0-9]+$",
            "title": "Partition",
            "description": "One partition, such as orders/0.",
        }
    ),
]
RoleField: TypeAlias = Annotated[
    Role,
    *text_field(Role.parse, Role, "a role such as leader(orders/0) or broker(1)"),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": ROLE_PATTERN,
            "title": "Role",
            "description": "Whom: leader(t/p), followers(t/p), follower(t/p), isr(t/p), preferred_leader(t/p), "
            "controller, controllers, broker, broker(N), brokers, minority, majority, zookeeper.",
            "examples": ["leader(orders/0)", "followers(orders/0)", "controller", "minority"],
        }
    ),
]
