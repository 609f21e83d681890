"""Faults of links: cut, black_hole, reset, throttle, delay, loss, drop_large, slow_close, flap; isolate, split, bridge.

A link `A -> B` is every connection that A opens to B, with what flows over it in both directions: `cut` keeps A from
asking B, while B may still ask A. `both_ways` breaks the connections that B opens to A too. What is broken stays so
`for` the time given, without it until the end of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema, model_validator

from ackproof.cluster.network.mesh import (
    CLIENTS,
    BlackHole,
    Cut,
    Delay,
    DropLarge,
    Effect,
    Link,
    Loss,
    Reset,
    SlowClose,
    Throttle,
)
from ackproof.experiment.backends import Ability
from ackproof.experiment.base import Flag
from ackproof.experiment.fault import FaultSpec, HoldKey
from ackproof.experiment.incidents import LAG, NOTHING, Incidents
from ackproof.experiment.links import GroupField, LinkField, between
from ackproof.experiment.needs import LINKS, Need
from ackproof.experiment.quantities import ByteRate, Duration, Share, Size, wrong
from ackproof.experiment.roles import Role, RoleField, RoleKind
from ackproof.faults.links.aims import From, apart, members, sides_apart

if TYPE_CHECKING:
    from ackproof.experiment.drawing import Draw
    from ackproof.experiment.incidents import Exposure
    from ackproof.experiment.nodes import Data
    from ackproof.experiment.spec import ClusterSpec
    from ackproof.faults.links.aims import Holders

_METADATA_ROLES: Final = frozenset({RoleKind.CONTROLLER, RoleKind.CONTROLLERS, RoleKind.ZOOKEEPER})
_CONTROLLERS: Final = Role(RoleKind.CONTROLLERS)
_BROKERS: Final = Role(RoleKind.BROKERS)


class OfLinks(FaultSpec):
    """What all of them have in common."""

    UNPREDICTABLE: ClassVar[str] = ""

    HEALING: ClassVar[str] = "mend"
    HOLD_KEY: ClassVar[HoldKey | None] = "for"
    ASKS: ClassVar[frozenset[Ability]] = frozenset({Ability.LINKS})

    def effect(self) -> Effect:
        """What it does to each of its links."""
        raise NotImplementedError

    def links(self, holders: Holders, spec: ClusterSpec) -> Iterator[Link]:
        """Those between the nodes that it is aimed at; some of them may not exist."""
        raise NotImplementedError


class LinkFault(OfLinks):
    """A fault of links that are named by their ends."""

    SHORT: ClassVar[tuple[str, ...]] = ("link",)

    link: LinkField
    both_ways: Flag = Field(False, description="Break the connections of the other direction too.")

    @property
    def targets(self) -> tuple[Role, ...]:
        """The roles at the ends."""
        return self.link.roles

    @property
    def needs(self) -> frozenset[Need]:
        """The class of the links."""
        return self.link.needs(both_ways=self.both_ways)

    @model_validator(mode="after")
    def _clients_are_called_by_nobody(self) -> LinkFault:
        if self.both_ways and self.link.source is None:
            raise wrong("brokers open no connections to clients: leave both_ways out")
        return self

    def __str__(self) -> str:
        return f"{self.kind} {self.link}" + (" both ways" if self.both_ways else "")

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """A link that carries something."""
        return {"link": draw.link()}

    def planned(self, exposure: Exposure) -> Incidents:
        source, target = self.link.source, self.link.target
        if source is None:
            return NOTHING
        ends = (source, target)
        others = [role for role in ends if role.kind not in _METADATA_ROLES]
        if len(others) < len(ends):
            return exposure.noticed(self, min(sum(map(exposure.brokers, others)), exposure.replicas))
        if not exposure.lasts(self, LAG):
            return NOTHING
        return Incidents(shrinks=min(max(map(exposure.brokers, ends)), exposure.replicas - 1))

    def links(self, holders: Holders, spec: ClusterSpec) -> Iterator[Link]:
        del spec
        source = self.link.source
        froms = [CLIENTS] if source is None else holders[source]
        for target in holders[self.link.target]:
            for start in froms:
                yield Link(start, target)
                if self.both_ways:
                    yield Link(target, start)


class CutFault(LinkFault):
    """Connections are closed and new ones refused: the caller knows at once."""

    KIND: ClassVar[str] = "cut"
    SUMMARY: ClassVar[str] = "Close the connections of a link and refuse new ones."

    def effect(self) -> Effect:
        return Cut()


class BlackHoleFault(LinkFault):
    """Connections stay open and nothing arrives: the caller knows after a time-out."""

    KIND: ClassVar[str] = "black_hole"
    SUMMARY: ClassVar[str] = "Let nothing through a link, in silence; its connections stay open."

    def effect(self) -> Effect:
        return BlackHole()


class ResetFault(LinkFault):
    """Connections are made, and reset as soon as they carry something."""

    KIND: ClassVar[str] = "reset"
    SUMMARY: ClassVar[str] = "Reset every connection of a link as soon as it carries something."

    def effect(self) -> Effect:
        return Reset()


class ThrottleFault(LinkFault):
    """A thin line: each connection carries at most `rate` in each direction."""

    KIND: ClassVar[str] = "throttle"
    SUMMARY: ClassVar[str] = "Let at most so much through each connection of a link, per direction."

    rate: ByteRate = Field(ge=1024, le=1 << 30, description="Bytes per second.")

    def __str__(self) -> str:
        return f"{super().__str__()} to {self.rate / 1024:g}KB/s"

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Less than a follower of a busy partition needs."""
        return {"link": draw.link(), "rate": f"{draw.between(8, 64)}KB/s"}

    def effect(self) -> Effect:
        return Throttle(self.rate)


class DelayFault(LinkFault):
    """A long line: what is sent arrives later, in each direction, so that a round trip takes twice `latency`."""

    KIND: ClassVar[str] = "delay"
    SUMMARY: ClassVar[str] = "Let everything arrive later, in each direction of a link."

    latency: Duration = Field(ge=0.001, le=600, description="How much later, one way.")
    jitter: Duration = Field(0.0, ge=0, le=600, description="Give or take so much, evenly drawn.")

    @model_validator(mode="after")
    def _jitter_is_less(self) -> DelayFault:
        if self.jitter > self.latency:
            raise wrong("the jitter is more than the latency; nothing arrives before it was sent")
        return self

    def __str__(self) -> str:
        return f"{super().__str__()} by {self.latency * 1000:g}ms"

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Long enough to be told from a busy machine."""
        return {"link": draw.link(), "latency": f"{draw.between(50, 150)}ms"}

    def effect(self) -> Effect:
        return Delay(self.latency, self.jitter)


class LossFault(LinkFault):
    """Packets are lost, in each direction; TCP sends them again, later and later."""

    KIND: ClassVar[str] = "loss"
    SUMMARY: ClassVar[str] = "Lose a share of a link's packets, in each direction (needs root)."

    share: Share = Field(gt=0, le=1, description="How many of them.")

    @property
    def needs(self) -> frozenset[Need]:
        """Packets too."""
        return super().needs | {Need.PACKETS}

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Few enough that connections live."""
        return {"link": draw.link(), "share": f"{draw.between(5, 25)}%"}

    def effect(self) -> Effect:
        return Loss(self.share)


class DropLargeFault(LinkFault):
    """Large packets are lost and nobody is told: connections are made, questions pass, data does not."""

    KIND: ClassVar[str] = "drop_large"
    SUMMARY: ClassVar[str] = "Lose a link's large packets in silence, as an MTU black hole does (needs root)."

    above: Size = Field(
        ge=576, le=60_000, description="Packets of more bytes are lost (576 at least: RFC 791)."
    )

    @property
    def needs(self) -> frozenset[Need]:
        """Packets too."""
        return super().needs | {Need.PACKETS}

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Between the smallest that must pass and what an Ethernet carries."""
        return {"link": draw.link(), "above": f"{draw.between(576, 1500)}B"}

    def effect(self) -> Effect:
        return DropLarge(self.above)


class SlowCloseFault(LinkFault):
    """The end of a connection arrives late: the other side holds on to it meanwhile."""

    KIND: ClassVar[str] = "slow_close"
    SUMMARY: ClassVar[str] = "Let the end of a connection arrive late."

    delay: Duration = Field(ge=0.01, le=600, description="How late.")

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Long enough to be told from a busy machine."""
        return {"link": draw.link(), "delay": f"{draw.between(200, 1000)}ms"}

    def effect(self) -> Effect:
        return SlowClose(self.delay)


class FlapFault(LinkFault):
    """The link goes down and comes up, again and again."""

    KIND: ClassVar[str] = "flap"
    SUMMARY: ClassVar[str] = "Cut a link and mend it, again and again."

    down: Duration = Field(ge=0.05, le=600, description="How long it is cut each time.")
    up: Duration = Field(ge=0.05, le=600, description="How long it is whole in between.")

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """A few times in the time that it is held."""
        return {
            "link": draw.link(),
            "down": f"{draw.between(200, 800)}ms",
            "up": f"{draw.between(200, 800)}ms",
        }

    def effect(self) -> Effect:
        return Cut()


def _one_or_many(value: object) -> object:
    return (value,) if isinstance(value, str) else value


FromField: TypeAlias = Annotated[
    tuple[From, ...],
    BeforeValidator(_one_or_many),
    PlainSerializer(list, return_type=list[str]),
    WithJsonSchema(
        {
            "title": "From",
            "description": "From whom: peers (nodes of its kind), brokers, controllers, clients, all.",
            "anyOf": [
                {"enum": ["peers", "brokers", "controllers", "clients", "all"]},
                {
                    "type": "array",
                    "minItems": 1,
                    "items": {"enum": ["peers", "brokers", "controllers", "clients", "all"]},
                },
            ],
        }
    ),
]


class IsolateFault(OfLinks):
    """Each node that holds the role is cut off, in both directions, from those that `from` names."""

    KIND: ClassVar[str] = "isolate"
    SUMMARY: ClassVar[str] = "Cut nodes off from their peers, brokers, controllers, clients, or all."
    SHORT: ClassVar[tuple[str, ...]] = ("target",)
    model_config = ConfigDict(populate_by_name=True)

    target: RoleField
    away_from: FromField = Field(("all",), alias="from", min_length=1, max_length=5)
    silent: Flag = Field(False, description="Let nothing through instead of refusing connections.")

    @property
    def targets(self) -> tuple[Role, ...]:
        """The one role."""
        return (self.target,)

    @property
    def needs(self) -> frozenset[Need]:
        """The classes of the links."""
        found: frozenset[Need] = frozenset()
        for away in self.away_from:
            found |= self._needs_from(away)
        return found

    def _needs_from(self, away: From) -> frozenset[Need]:
        target = self.target
        of_controllers = target.kind in (RoleKind.CONTROLLER, RoleKind.CONTROLLERS)
        match away:
            case "clients":
                return frozenset({Need.CLIENT_LINKS})
            case "peers":
                return between(target, _CONTROLLERS if of_controllers else target)
            case "controllers":
                return between(target, _CONTROLLERS)
            case "brokers":
                return between(_BROKERS, target) | between(target, _BROKERS)
            case _:
                return LINKS

    def __str__(self) -> str:
        return f"{self.kind} {self.target} from {', '.join(self.away_from)}"

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """One of the storm's roles, from all nodes or from those of its kind, in silence or not."""
        target = draw.more.choice(list(draw.roles))
        lone = target.startswith("controller") and len(draw.experiment.cluster.controller_ids) < 2
        away = "all" if lone else draw.more.choice(("all", "peers"))
        return {"target": target, "from": [away], "silent": draw.more.random() < 0.5}

    def planned(self, exposure: Exposure) -> Incidents:
        nodes, away = exposure.aimed_at(self), set(self.away_from)
        if away & {"controllers", "all"}:
            return exposure.noticed(self, nodes)
        # A leader that is cut off drops every follower.
        dropped = exposure.replicas - 1 if nodes else 0
        return Incidents(shrinks=dropped) if away - {"clients"} and exposure.lasts(self, LAG) else NOTHING

    def effect(self) -> Effect:
        return BlackHole() if self.silent else Cut()

    def links(self, holders: Holders, spec: ClusterSpec) -> Iterator[Link]:
        for away in self.away_from:
            yield from apart(holders[self.target], away, spec)


class _OfGroups(OfLinks):
    silent: Flag = Field(False, description="Let nothing through instead of refusing connections.")

    @property
    def needs(self) -> frozenset[Need]:
        """All links of nodes: groups may hold any of them."""

        return frozenset({Need.BROKER_LINKS, Need.CONTROLLER_LINKS})

    def planned(self, exposure: Exposure) -> Incidents:
        return exposure.noticed(self, max(1, exposure.replicas - 1))

    def effect(self) -> Effect:
        return BlackHole() if self.silent else Cut()


class SplitFault(_OfGroups):
    """Nodes of different groups cannot reach one another; who is in no group reaches everybody."""

    KIND: ClassVar[str] = "split"
    SUMMARY: ClassVar[str] = "Split nodes into groups that cannot reach one another."
    SHORT: ClassVar[tuple[str, ...]] = ("groups",)

    groups: tuple[GroupField, ...] = Field(
        min_length=2, max_length=20, description="The groups: nodes' numbers, roles, or lists of these."
    )

    @property
    def targets(self) -> tuple[Role, ...]:
        """Every role of every group."""
        return tuple(dict.fromkeys(role for group in self.groups for role in group.roles))

    @model_validator(mode="after")
    def _each_in_one(self) -> SplitFault:
        roles = [role for group in self.groups for role in group.roles]
        twice = next((role for role in roles if roles.count(role) > 1), None)
        if twice is not None:
            raise wrong(f"{twice} is in two groups; each node is on one side")
        return self

    def __str__(self) -> str:
        return f"{self.kind} {' | '.join(map(str, self.groups))}"

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Fewer than half of the brokers from the others."""
        if draw.experiment.cluster.brokers < 3:
            return None
        return {"groups": [["minority"], ["majority"]], "silent": draw.more.random() < 0.5}

    def links(self, holders: Holders, spec: ClusterSpec) -> Iterator[Link]:
        del spec
        return sides_apart([members(group, holders) for group in self.groups])


class BridgeFault(_OfGroups):
    """Two groups that only one node connects: each of them believes that the cluster is larger than it is."""

    KIND: ClassVar[str] = "bridge"
    SUMMARY: ClassVar[str] = "Split nodes into two groups that only one node connects."
    SHORT: ClassVar[tuple[str, ...]] = ("groups", "over")

    groups: tuple[GroupField, GroupField] = Field(description="The two groups.")
    over: RoleField

    @property
    def targets(self) -> tuple[Role, ...]:
        """Every role of the groups, and the bridge."""
        return tuple(dict.fromkeys((*(role for group in self.groups for role in group.roles), self.over)))

    @model_validator(mode="after")
    def _bridge_stands_apart(self) -> BridgeFault:
        if any(self.over in group.roles for group in self.groups):
            raise wrong(f"the bridge {self.over} is in a group; it stands between them")
        return self

    def __str__(self) -> str:
        return f"{self.kind} {self.groups[0]} | {self.over} | {self.groups[1]}"

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Two brokers that only a third connects."""
        brokers = list(draw.experiment.cluster.broker_ids)
        if len(brokers) < 3:
            return None
        one, other, over = draw.more.sample(brokers, 3)
        return {"groups": [[one], [other]], "over": f"broker({over})"}

    def links(self, holders: Holders, spec: ClusterSpec) -> Iterator[Link]:
        del spec
        bridge = set(holders[self.over])
        return sides_apart([members(group, holders) - bridge for group in self.groups])
