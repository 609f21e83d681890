"""What names requests of an API on a link, in a file."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema

from ackproof.base.errors import FaultNotConfirmed
from ackproof.base.units import unknown, wrong
from ackproof.cluster.protocol import Cluster
from ackproof.experiment.backends import REQUESTS, Ability, Need
from ackproof.experiment.fault import Complaints, FaultSpec, Grip
from ackproof.experiment.links import APIS, LinkField, flows_of
from ackproof.experiment.roles import SEVERAL, Role
from ackproof.experiment.spec import SystemUnderTest
from ackproof.faults.injection import Aim
from ackproof.faults.links.of_links import exists
from ackproof.network.mesh import CLIENTS, Link

if TYPE_CHECKING:  # files are checked without what runs proxies
    from ackproof.network.requests.links import RequestLinks

SideWord: TypeAlias = Literal["request", "response"]


def _read_api(value: object) -> object:
    if not isinstance(value, str):
        raise wrong("expected the name of one of Kafka's APIs, such as Produce")
    if value not in APIS:
        raise unknown("API", list(APIS), value)
    return value


ApiField: TypeAlias = Annotated[
    str,
    BeforeValidator(_read_api),
    WithJsonSchema({"type": "string", "title": "API", "enum": list(APIS)}),
]


class OnLink(FaultSpec):
    """What names requests of an API on a link."""

    ASKS = frozenset({Ability.REQUESTS})
    NEEDS = frozenset(REQUESTS)
    OVER = frozenset({Grip.SLOW})
    NOT_SIMULATED = "in the model nothing stands between those who ask and those who answer"
    NOT_IN = MappingProxyType({"zookeeper": "which requests are sent where is known of KRaft alone"})

    link: LinkField
    api: ApiField = Field(description="The API whose requests or responses it befalls.")
    side: SideWord = Field("request", description="What asks, or what answers.")

    @property
    def targets(self) -> tuple[Role, ...]:
        return self.link.roles

    @property
    def needs(self) -> frozenset[Need]:
        links = self.link.needs()
        return frozenset(need for need, of_links in REQUESTS.items() if of_links in links)

    def check(self, spec: SystemUnderTest, say: Complaints) -> None:
        if not say.sound(("link",), ("api",), cluster=True):
            return
        api, flows = APIS[self.api], flows_of(self.link, spec.cluster)
        mixed = [role for role in self.link.roles if len(role.sides()) > 1 and not spec.cluster.combined]
        if mixed:
            why = "has brokers and controllers, and each kind has requests of its own"
            say.report(("link",), f"{mixed[0]} {why}: list nodes of one kind, such as {SEVERAL}")
        elif not flows:
            say.report(("link",), "controllers that are not brokers open no connections to brokers")
        elif not flows & api.flows:
            there = ", ".join(name for name, other in APIS.items() if other.flows & flows)
            sent = " and ".join(sorted(api.flows))
            say.report(("api",), f"{api.name} is sent from {sent}, and not over this link; there: {there}")
        elif not api.sent_in(spec.cluster.kafka.version):
            say.report(("api",), f"Kafka {spec.cluster.kafka} sends no {api.name}; it came with {api.since}")
        elif self.side == "response" and api.name == "Produce" and spec.workload.producers.acks == "0":
            say.report(("side",), "with acks=0 no Produce request is answered")
        else:
            self.check_more(spec, say)

    def check_more(self, spec: SystemUnderTest, say: Complaints) -> None:
        """Say what else does not fit, where these requests are sent."""

    def ends(self, aim: Aim, cluster: Cluster) -> tuple[Link, ...]:
        """The links that it names, as roles are held now. Raises `FaultNotConfirmed` for none."""
        source = self.link.source
        starts = [CLIENTS] if source is None else aim.numbers[source]
        every = (Link(start, end) for start in starts for end in aim.numbers[self.link.target])
        links = tuple(sorted(link for link in set(every) if exists(cluster.spec, link)))
        if not links:
            raise FaultNotConfirmed(f"aimed at nothing: {self} names no link that there is")
        return links

    def laid(self, cluster: Cluster) -> RequestLinks:
        """What touches requests there. Raises `FaultNotConfirmed` for nothing."""
        if cluster.requests is None:
            raise FaultNotConfirmed(f"{self.kind}: the links of this cluster were not laid for it")
        return cluster.requests
