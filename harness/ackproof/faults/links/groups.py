"""Faults of many links at once: isolated and detached nodes, splits, bridges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Annotated, Final, Literal, TypeAlias, get_args

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema, model_validator

from ackproof.base.errors import FaultNotConfirmed
from ackproof.base.units import wrong
from ackproof.experiment.backends import LINKS, Need
from ackproof.experiment.base import Flag
from ackproof.experiment.exposure import LAG, NOTHING, Draw, Exposure, Incidents
from ackproof.experiment.fault import NodeFault
from ackproof.experiment.links import OF_CONTROLLERS, GroupField, between
from ackproof.experiment.problems import Data
from ackproof.experiment.roles import Role, RoleField, RoleKind
from ackproof.experiment.spec import ClusterSpec
from ackproof.faults.links.spec import Holders, LinkFault
from ackproof.network.mesh import CLIENTS, BlackHole, Cut, Effect, Link

_CONTROLLERS: Final = Role(RoleKind.CONTROLLERS)
_BROKERS: Final = Role(RoleKind.BROKERS)
From: TypeAlias = Literal["peers", "brokers", "controllers", "clients", "all"]
_FROM: Final = list(get_args(From))


def links_between(nodes: Iterable[int], away: From, spec: ClusterSpec) -> Iterator[Link]:
    """Yield the links between each of these nodes and the other nodes that `away` names, in both directions. Of links
    with clients, yield only those from the clients. A link may come twice.

    `away`: `clients`, `brokers`, `controllers`, `peers` (nodes of the same kind), or `all` of these.
    """
    for node in nodes:
        if away in ("clients", "all"):
            yield Link(CLIENTS, node)
        for other in _others(spec, node, away):
            yield Link(node, other)
            yield Link(other, node)


def _others(spec: ClusterSpec, node: int, away: From) -> set[int]:
    brokers, controllers = set(spec.broker_ids), set(spec.controller_ids)
    of_a_kind = [kind for kind in (brokers, controllers) if node in kind]
    found: dict[str, set[int]] = {
        "all": brokers | controllers,
        "peers": set().union(*of_a_kind),
        "brokers": brokers,
        "controllers": controllers,
    }
    return found.get(away, set()) - {node}


def _members(group: tuple[Role, ...], holders: Holders) -> set[int]:
    return {node for role in group for node in holders[role]}


def _group_text(group: tuple[Role, ...]) -> str:
    return " + ".join(map(str, group))


def _sides_apart(sides: Iterable[set[int]]) -> Iterator[Link]:
    """Yield all links between nodes of different groups. `sides`: the nodes of each group. Raises `FaultNotConfirmed`
    if a node is in two groups."""
    for side, other in combinations(sides, 2):
        if both := side & other:
            raise FaultNotConfirmed(f"node {min(both)} holds roles of two groups; each node is on one side")
        for a in side:
            for b in other:
                yield Link(a, b)
                yield Link(b, a)


FromField: TypeAlias = Annotated[
    tuple[From, ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    PlainSerializer(list, return_type=list[str]),
    WithJsonSchema(
        {
            "title": "From",
            "description": "From whom: peers (nodes of its kind), brokers, controllers, clients, all.",
            "anyOf": [
                {"enum": _FROM},
                {
                    "type": "array",
                    "minItems": 1,
                    "items": {"enum": _FROM},
                },
            ],
        }
    ),
]


class IsolateFault(LinkFault, NodeFault):
    """Each node that holds the role `target` is cut off, in both directions, from the nodes or clients that `away_from`
    names (in a file: `from`)."""

    KIND = "isolate"
    DONE = "isolated"
    SUMMARY = "Cut nodes off from their peers, brokers, controllers, clients, or all."
    model_config = ConfigDict(populate_by_name=True)

    away_from: FromField = Field(("all",), alias="from", min_length=1, max_length=5)
    silent: Flag = Field(False, description="Let nothing through instead of refusing connections.")

    @property
    def needs(self) -> frozenset[Need]:
        found: frozenset[Need] = frozenset()
        for away in self.away_from:
            found |= self._needs_from(away)
        return found

    def _needs_from(self, away: From) -> frozenset[Need]:
        target = self.target
        match away:
            case "clients":
                return frozenset({Need.CLIENT_LINKS})
            case "peers":
                peers = (_CONTROLLERS if role.kind in OF_CONTROLLERS else role for role in target.roles)
                return frozenset[Need]().union(*map(between, target.roles, peers))
            case "controllers":
                return between(target, _CONTROLLERS)
            case "brokers":
                return between(_BROKERS, target) | between(target, _BROKERS)
            case _:
                return LINKS

    def __str__(self) -> str:
        return f"{self.kind} {self.target} from {', '.join(self.away_from)}"

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        target = draw.more.choice(list(draw.roles))
        lone = target.startswith("controller") and len(draw.experiment.cluster.controller_ids) < 2
        away = "all" if lone else draw.more.choice(("all", "peers"))
        return {"target": target, "from": [away], "silent": draw.more.random() < 0.5}

    def planned(self, exposure: Exposure) -> Incidents:
        nodes, away = exposure.aimed_at(self.targets), set(self.away_from)
        if away & {"controllers", "all"}:
            return exposure.noticed(self.hold, nodes)
        # An isolated leader drops every follower.
        dropped = exposure.replicas - 1 if nodes else 0
        return (
            Incidents(shrinks=dropped) if away - {"clients"} and exposure.lasts(self.hold, LAG) else NOTHING
        )

    def effect(self) -> Effect:
        return BlackHole() if self.silent else Cut()

    def links(self, holders: Holders, spec: ClusterSpec) -> Iterator[Link]:
        for away in self.away_from:
            yield from links_between(holders[self.target], away, spec)


class _GroupFault(LinkFault):
    """Base of `split` and `bridge`, which keep groups of nodes apart."""

    silent: Flag = Field(False, description="Let nothing through instead of refusing connections.")

    NEEDS = frozenset({Need.BROKER_LINKS, Need.CONTROLLER_LINKS})

    def planned(self, exposure: Exposure) -> Incidents:
        return exposure.noticed(self.hold, max(1, exposure.replicas - 1))

    def effect(self) -> Effect:
        return BlackHole() if self.silent else Cut()


class SplitFault(_GroupFault):
    """Nodes of different groups cannot reach one another; a node in no group reaches all others."""

    KIND = "split"
    SUMMARY = "Split nodes into groups that cannot reach one another."
    SHORT = ("groups",)

    groups: tuple[GroupField, ...] = Field(
        min_length=2, max_length=20, description="Groups: node numbers, roles, or lists of these."
    )

    @property
    def targets(self) -> tuple[Role, ...]:
        return tuple(dict.fromkeys(role for group in self.groups for role in group))

    @model_validator(mode="after")
    def _each_in_one(self) -> SplitFault:
        roles = [role for group in self.groups for role in group]
        twice = next((role for role in roles if roles.count(role) > 1), None)
        if twice is not None:
            raise wrong(f"{twice} is in two groups", "each node is on one side")
        return self

    def __str__(self) -> str:
        return f"{self.kind} {' | '.join(map(_group_text, self.groups))}"

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Draw the fields of a split between fewer than half of the brokers and the others, silent or not.

        Return None with fewer than three brokers.
        """
        if draw.experiment.cluster.brokers < 3:
            return None
        return {"groups": [["minority"], ["majority"]], "silent": draw.more.random() < 0.5}

    def links(self, holders: Holders, spec: ClusterSpec) -> Iterator[Link]:
        return _sides_apart([_members(group, holders) for group in self.groups])


class BridgeFault(_GroupFault):
    """No link between two `groups`: each can still reach the holders of the role `over`, and every node that is in
    neither group."""

    KIND = "bridge"
    SUMMARY = "Split nodes into two groups that only one node connects."
    SHORT = ("groups", "over")

    groups: tuple[GroupField, GroupField] = Field(description="The two groups.")
    over: RoleField

    @property
    def targets(self) -> tuple[Role, ...]:
        return tuple(dict.fromkeys((*(role for group in self.groups for role in group), self.over)))

    @model_validator(mode="after")
    def _bridge_stands_apart(self) -> BridgeFault:
        if any(self.over in group for group in self.groups):
            raise wrong(f"the bridge {self.over} is in a group: it stands between them")
        return self

    def __str__(self) -> str:
        return f"{self.kind} {_group_text(self.groups[0])} | {self.over} | {_group_text(self.groups[1])}"

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        brokers = list(draw.experiment.cluster.broker_ids)
        if len(brokers) < 3:
            return None
        first, other, over = draw.more.sample(brokers, 3)
        return {"groups": [[first], [other]], "over": f"broker({over})"}

    def links(self, holders: Holders, spec: ClusterSpec) -> Iterator[Link]:
        bridge = set(holders[self.over])
        return _sides_apart([_members(group, holders) - bridge for group in self.groups])


class Detach(LinkFault, NodeFault):
    """The network card of each node that holds the role is gone: no packet passes, and no connection is closed."""

    KIND = "detach"
    DONE = "detached from the network"
    SUMMARY = "Remove a node's network card: all its links and clients at once, in silence."
    HEALING = "attach again"
    EFFECT = BlackHole()

    def links(self, holders: Holders, spec: ClusterSpec) -> Iterator[Link]:
        return links_between(holders[self.target], "all", spec)

    def planned(self, exposure: Exposure) -> Incidents:
        return exposure.noticed(self.hold, exposure.aimed_at(self.targets))
