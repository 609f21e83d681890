"""Target of a fault: a role, resolved when the fault is due.

::

    leader(orders/0)            the leader of that partition
    preferred_leader(orders/0)  the first of its assigned replicas
    followers(orders/0)         its replicas but for the leader, in sync or not
    follower(orders/0)          one of these, drawn beforehand
    isr(orders/0)               its in-sync replicas, the leader among them
    coordinator(billing)        the coordinator of that consumer group: leader of a partition of __consumer_offsets
    controller                  the active controller      controller(101)  that one
    controllers                 all controllers (KRaft; in ZooKeeper mode the controller is a broker)
    broker                      one broker, drawn          broker(2)        that one
    brokers                     all brokers
    zookeeper                   all ZooKeeper servers      zookeeper(101)   that one
    minority                    fewer than half of the brokers (as many as that allows), drawn
    majority                    the other brokers
    rack(a)                     all nodes in that rack: brokers, and controllers or ZooKeeper servers
    rack(leader(orders/0))      all nodes in the rack of that role's holder
    [broker(1), rack(a)]        all who hold one of these roles
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final, TypeAlias

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from ackproof.base.advice import Advice, expected
from ackproof.base.units import wrong
from ackproof.experiment.problems import unknown_name
from ackproof.rundir.partition import TopicPartition


class RoleKind(StrEnum):
    """Kinds of roles by which a fault names its target nodes, such as the leader of a partition."""

    LEADER = "leader"
    FOLLOWERS = "followers"
    """All replicas of a partition but its leader."""
    FOLLOWER = "follower"
    """One follower of a partition, drawn."""
    ISR = "isr"
    PREFERRED_LEADER = "preferred_leader"
    """The first replica of a partition's assignment."""
    COORDINATOR = "coordinator"
    """The leader of the partition of `__consumer_offsets` that a consumer group belongs to."""
    CONTROLLER = "controller"
    """The active controller."""
    CONTROLLERS = "controllers"
    BROKER = "broker"
    BROKERS = "brokers"
    MINORITY = "minority"
    """The largest number of brokers that is less than half of them, drawn."""
    MAJORITY = "majority"
    """The brokers that are not in the minority of the same draw."""
    ZOOKEEPER = "zookeeper"
    RACK = "rack"
    LIST = "list"
    """Several roles; a file writes them in brackets."""


OF_PARTITION: Final = frozenset(
    {RoleKind.LEADER, RoleKind.FOLLOWERS, RoleKind.FOLLOWER, RoleKind.ISR, RoleKind.PREFERRED_LEADER}
)
"""Roles of a partition. They need its topic and number."""
OF_METADATA: Final = frozenset({RoleKind.CONTROLLER, RoleKind.CONTROLLERS, RoleKind.ZOOKEEPER})
FIRST_CONTROLLER: Final = 101
"""Id of the first isolated controller. Brokers count from 1."""
MAY_NAME_NODE: Final = frozenset({RoleKind.CONTROLLER, RoleKind.BROKER, RoleKind.ZOOKEEPER})
DRAWN: Final = frozenset({RoleKind.FOLLOWER, RoleKind.BROKER, RoleKind.MINORITY, RoleKind.MAJORITY})
"""Roles whose nodes are drawn from several. The case's seed decides which nodes."""

HELD_BY_ONE: Final = frozenset(
    {
        RoleKind.LEADER,
        RoleKind.FOLLOWER,
        RoleKind.PREFERRED_LEADER,
        RoleKind.COORDINATOR,
        RoleKind.CONTROLLER,
        RoleKind.BROKER,
    }
)
_WORDS: Final = [kind for kind in RoleKind if kind is not RoleKind.LIST]

GROUP_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,200}\Z")
_ROLE: Final = re.compile(r"([A-Za-z_-]+)(?:\(([^()]*)\))?\Z")
_RACK: Final = re.compile(r"rack(?:\(([^,\[\]]*)\))?\Z")
_LOOSE: Final = re.compile(r"([a-z]+)[ _-]?([0-9]+)\Z")
_SIMPLE: Final = (
    r"(leader|followers|follower|isr|preferred_leader)\([A-Za-z0-9._-]+/[0-9]+\)"
    r"|coordinator\([A-Za-z0-9._-]+\)|(controller|broker|zookeeper)(\([0-9]+\))?|controllers|brokers|minority|majority"
)
_ONE: Final = rf"({_SIMPLE}|rack\(({_SIMPLE}|[^(),\[\]]+)\))"
ROLE_PATTERN: Final = f"^{_ONE}$"
TARGET_PATTERN: Final = rf"^({_ONE}|\[ *{_ONE}( *, *{_ONE})* *\])$"
"""Pattern of a role, or of several roles in brackets."""
SEVERAL: Final = "[broker(1), broker(4)]"


@dataclass(frozen=True)
class Members:
    """The nodes of a cluster at one moment. A role, such as `leader(orders/0)`, is resolved to some of them. -1: there
    is no such node, or it is unknown. `leader`, `replicas` and `isr` are those of the partition in the role."""

    brokers: tuple[int, ...]
    controllers: tuple[int, ...] = ()
    active_controller: int = -1
    leader: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    racks: Mapping[int, str] = field(default_factory=dict)
    """Rack of each node that has one."""

    @classmethod
    def in_racks(
        cls, brokers: Sequence[int], controllers: Sequence[int], racks: Sequence[str], own: Sequence[str]
    ) -> Members:
        """Return members with these ids of `brokers` and `controllers`. `racks` are assigned round-robin to the
        brokers, and again to the controllers. `own`: racks of the controllers; empty: the same as brokers."""
        by_node: dict[int, str] = {}
        # A combined node gets its rack as a broker.
        for nodes, names in ((controllers, own or racks), (brokers, racks)):
            by_node |= {node: names[at % len(names)] for at, node in enumerate(nodes) if names}
        return cls(tuple(brokers), tuple(controllers), racks=by_node)

    @property
    def nodes_by_rack(self) -> dict[str, tuple[int, ...]]:
        """The nodes of each rack, by ascending id."""
        found: dict[str, tuple[int, ...]] = {}
        for node, rack in sorted(self.racks.items()):
            found[rack] = (*found.get(rack, ()), node)
        return found

    @property
    def rack_text(self) -> str:
        """The racks with their nodes in words, such as `a: 1, 3; b: 2`; '' without racks."""
        return "; ".join(
            f"{rack}: {', '.join(map(str, nodes))}" for rack, nodes in self.nodes_by_rack.items()
        )


@dataclass(frozen=True)
class Role:
    """Target of a fault: one role, or a list of roles (`parts`). `topic` and `partition` are set for roles of one
    partition, `node` or `rack` if one is named, `group` for a consumer group's coordinator."""

    kind: RoleKind
    topic: str | None = None
    partition: int | None = None
    node: int | None = None
    rack: str | None = None
    parts: tuple[Role, ...] = ()
    """For a list: its roles. For `rack(role)`: that role."""
    group: str | None = None

    @classmethod
    def of_node(cls, node: int) -> Role:
        """Return the role that names a node by its number: an isolated controller from 101 on, else a broker."""
        return cls(RoleKind.CONTROLLER if node >= FIRST_CONTROLLER else RoleKind.BROKER, node=node)

    @classmethod
    def parse(cls, text: str) -> Role:
        """Parse a role such as `leader(orders/0)`, or several in brackets.

        Raises ValueError, with the message to show, for any other text.
        """
        bare = text.strip()
        if bare.startswith("[") and bare.endswith("]"):
            return cls.list_of(map(cls.parse, bare[1:-1].split(",")))
        if rack := _RACK.match(bare):
            return cls._parse_rack((rack[1] or "").strip())
        match = _ROLE.match(bare)
        if match is None:
            loose = _LOOSE.match(bare)
            meant = f"write {loose[1]}({loose[2]})" if loose and loose[1] in MAY_NAME_NODE else ""
            meant = f"write several in brackets: {SEVERAL}" if "," in bare else meant
            fact = f"expected a role such as leader(orders/0) or broker(1), not '{text[:60]}'"
            raise ValueError(Advice(fact, meant))
        name, inside = match[1], match[2]
        if name not in _WORDS:
            raise ValueError(unknown_name(f"unknown role '{name[:60]}'", name, _WORDS, "roles are"))
        kind = RoleKind(name)
        if kind in OF_PARTITION:
            if not inside:
                raise ValueError(f"the role {kind} needs a partition: {kind}(orders/0)")
            topic, partition = TopicPartition.parse(inside.strip())
            return cls(kind, topic, partition)
        if kind is RoleKind.COORDINATOR:
            if not inside or not GROUP_ID.match(inside.strip()):
                raise ValueError(f"the role {kind} needs a consumer group: {kind}(billing)")
            return cls(kind, group=inside.strip())
        if inside is None:
            return cls(kind)
        if kind not in MAY_NAME_NODE:
            raise ValueError(f"the role {kind} takes nothing in brackets")
        if not re.fullmatch(r" *[0-9]{1,9} *", inside):
            raise ValueError(f"expected a node's number, as in {kind}(2), not '{inside[:60]}'")
        return cls(kind, node=int(inside))

    @classmethod
    def _parse_rack(cls, inside: str) -> Role:
        if not inside:
            raise ValueError("which rack? Write rack(a), or rack(leader(orders/0)) for the leader's")
        if inside not in _WORDS and not set(inside) & {"(", ")"}:
            return cls(RoleKind.RACK, rack=inside)
        if (role := cls.parse(inside)).kind is RoleKind.RACK:
            raise ValueError(f"rack({role}) is {role}")
        return cls(RoleKind.RACK, parts=(role,))

    @classmethod
    def list_of(cls, roles: Iterable[Role]) -> Role:
        """Return all roles as one target; a single role stays as it is. Raises ValueError for none, or for a
        duplicate."""
        flat = tuple(part for role in roles for part in role.roles)
        if not flat:
            raise ValueError(expected(f"a role in the list, such as {SEVERAL}"))
        if twice := [role for role in flat if flat.count(role) > 1]:
            raise ValueError(f"{twice[0]} is listed twice")
        if len(flat) == 1:
            return flat[0]
        places = {(role.topic, role.partition) for role in flat}
        topic, partition = places.pop() if len(places) == 1 else (None, None)
        return cls(RoleKind.LIST, topic, partition, parts=flat)

    def __str__(self) -> str:
        if self.kind is RoleKind.LIST:
            return f"[{', '.join(map(str, self.parts))}]"
        if self.kind is RoleKind.RACK:
            return f"rack({self.rack or self.parts[0]})"
        if self.group is not None:
            return f"{self.kind}({self.group})"
        if self.topic is not None:
            return f"{self.kind}({self.topic}/{self.partition})"
        return str(self.kind) if self.node is None else f"{self.kind}({self.node})"

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles of a list; for any other role, only the role itself."""
        return self.parts if self.kind is RoleKind.LIST else (self,)

    def walk(self) -> Iterator[Role]:
        """Yield every role within this role: the roles of a list (not the list itself), and for `rack(role)` also the
        inner role."""
        for role in self.roles:
            yield role
            if role.kind is RoleKind.RACK:
                yield from role.parts

    def sides(self) -> frozenset[bool]:
        """Return the kinds of nodes that may hold the role: False for brokers, True for metadata nodes (controllers,
        ZooKeeper servers). The role `controller` has True even in ZooKeeper mode, where a broker holds it."""
        racks = {True, False} if any(role.kind is RoleKind.RACK for role in self.roles) else set()
        return frozenset(
            racks | {role.kind in OF_METADATA for role in self.roles if role.kind is not RoleKind.RACK}
        )

    def find_nodes(self, find: Callable[[Role], Iterable[int]], racks: Mapping[int, str]) -> tuple[int, ...]:
        """Return the nodes that hold the role, ascending; empty if no node holds it, or a list contains a
        role that no node holds.

        `find` returns the holders of a role that is neither a rack nor a list. `racks`: rack of each node that has one.
        """
        each: list[set[int]] = []
        for role in self.roles:
            if role.kind is RoleKind.RACK:
                names = {racks.get(node) for part in role.parts for node in find(part)} - {None}
                each.append({node for node, rack in racks.items() if rack == role.rack or rack in names})
            else:
                each.append(set(find(role)))
        return tuple(sorted(set[int]().union(*each))) if all(each) else ()

    def resolve(self, members: Members, order: Sequence[int]) -> tuple[int, ...]:
        """Return the nodes that hold this role now, ascending; empty if no node holds it.

        `members` must describe the partition that the role names (of a coordinator, the group's partition of
        `__consumer_offsets`). A node that the role itself names counts as its holder. `order`: all brokers in the
        fault's random order (`Case.orders`); a role such as `broker` takes the first that qualify.
        """
        if self.kind in (RoleKind.RACK, RoleKind.LIST):
            return self.find_nodes(lambda role: role.resolve(members, order), members.racks)
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
            RoleKind.COORDINATOR: (members.leader,),
            RoleKind.CONTROLLER: (members.active_controller,),
            RoleKind.CONTROLLERS: members.controllers,
            RoleKind.ZOOKEEPER: members.controllers,
            RoleKind.BROKER: [node for node in order if node in members.brokers][:1],
            RoleKind.BROKERS: members.brokers,
            RoleKind.MINORITY: order[:few],
            RoleKind.MAJORITY: order[few:],
        }
        return tuple(sorted({node for node in holders[self.kind] if node >= 0}))

    def reach(self, members: Members) -> tuple[frozenset[int], int]:
        """Return the nodes that may hold the role, and a lower bound of the number of holders. Any broker may lead, and
        the case's seed may draw any nodes for a role such as `follower` (`DRAWN`)."""
        brokers, controllers = members.brokers, members.controllers
        few = minority_of(len(brokers))
        if self.kind is RoleKind.LIST:
            each = [role.reach(members) for role in self.parts]
            nodes = frozenset[int]().union(*(found for found, _ in each))
            sure = all(least == len(found) for found, least in each)
            return nodes, len(nodes) if sure else max(least for _, least in each)
        if self.kind is RoleKind.RACK:
            inner = [role.reach(members) for role in self.parts]
            names = {self.rack, *(members.racks.get(node) for nodes, _ in inner for node in nodes)} - {None}
            within = frozenset(node for node, rack in members.racks.items() if rack in names)
            held = self.rack is not None or any(least for _, least in inner)
            return within, len(within) if held and len(names) == 1 else 0
        if self.node is not None:
            return frozenset({self.node}), 1
        if self.kind in {RoleKind.CONTROLLERS, RoleKind.ZOOKEEPER}:
            return frozenset(controllers), len(controllers)
        if self.kind is RoleKind.CONTROLLER:
            return frozenset(controllers).union(brokers), 0
        least = {RoleKind.BROKER: 1, RoleKind.BROKERS: len(brokers), RoleKind.MINORITY: few}
        least[RoleKind.MAJORITY] = len(brokers) - few
        return frozenset(brokers), least.get(self.kind, 0)


def refuse_racks(target: Role, why: str) -> Role:
    """Return the target. Raises `PydanticCustomError` if it names a rack, because a rack may hold controllers.

    `why`: says in the message why controllers do not fit, such as "holds no partitions".
    """
    for role in target.roles:
        if role.kind is RoleKind.RACK:
            raise wrong(
                f"{role} has controllers too, and a controller {why}: list brokers, such as {SEVERAL}"
            )
    return target


def refuse_controllers(target: Role, why: str) -> Role:
    """Return the target. Raises `PydanticCustomError` if it names controllers, ZooKeeper servers or a rack.

    `why`: says in the message why controllers do not fit, such as "holds no partitions".
    """
    for role in refuse_racks(target, why).roles:
        if role.kind in OF_METADATA:
            raise wrong(f"{role} {why}: aim at brokers")
    return target


def minority_of(brokers: int) -> int:
    """Return the largest number of brokers that is less than half of `brokers` (of 5: 2)."""
    return max(0, (brokers - 1) // 2)


def _read_target(value: object) -> object:
    try:
        if isinstance(value, (list, tuple)):
            return Role.list_of(_read_role(item) for item in value)
        return _read_role(value)
    except ValueError as error:
        raise wrong(error) from error


def _read_role(value: object) -> Role:
    if isinstance(value, Role):
        return value
    if not isinstance(value, str):
        raise ValueError(expected(f"a role such as leader(orders/0) or broker(1), or several: {SEVERAL}"))
    return Role.parse(value)


RoleField: TypeAlias = Annotated[
    Role,
    BeforeValidator(_read_target),
    PlainSerializer(str, return_type=str),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": TARGET_PATTERN},
                {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": ROLE_PATTERN}},
            ],
            "title": "Role",
            "description": "Whom: leader(t/p), followers(t/p), follower(t/p), isr(t/p), preferred_leader(t/p), "
            "coordinator(GROUP), controller, controllers, broker, broker(N), brokers, minority, majority, zookeeper, "
            "rack(NAME), rack(ROLE); or a list of these.",
            "examples": ["leader(orders/0)", "followers(orders/0)", "controller", "rack(a)"],
        }
    ),
]
