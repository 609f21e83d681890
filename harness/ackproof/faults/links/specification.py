"""Faults of links: cut, black_hole, reset, throttle, delay, loss, drop_large, slow_close, flap.

A link `A -> B` is every connection that A opens to B, with what flows over it in both directions: `cut` keeps A from
asking B, while B may still ask A. `both_ways` breaks the connections that B opens to A too. What is broken stays so
`for` the time given, without it until the end of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from pydantic import Field, model_validator

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
from ackproof.experiment.links import LinkField
from ackproof.experiment.needs import Need
from ackproof.experiment.quantities import ByteRate, Duration, Share, Size, wrong
from ackproof.experiment.roles import Role, RoleKind

if TYPE_CHECKING:
    from ackproof.experiment.drawing import Draw
    from ackproof.experiment.incidents import Exposure
    from ackproof.experiment.nodes import Data
    from ackproof.experiment.spec import ClusterSpec
    from ackproof.faults.links.aims import Holders

_METADATA_ROLES: Final = frozenset({RoleKind.CONTROLLER, RoleKind.CONTROLLERS, RoleKind.ZOOKEEPER})


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
