"""Fields of request faults: an API on a link, and which of its requests are hit."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from ackproof.base.advice import expected
from ackproof.base.units import Share, unknown, wrong
from ackproof.experiment.backends import REQUESTS, Ability, Need
from ackproof.experiment.base import PartitionField, Whole
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.exposure import LAG, NOTHING, Draw, Exposure, Incidents
from ackproof.experiment.fault import Complaints, FaultSpec, Grip
from ackproof.experiment.links import APIS, Api, Flow, LinkField, flows_of
from ackproof.experiment.problems import Data
from ackproof.experiment.roles import SEVERAL, Role
from ackproof.network.requests.contents import NAMING
from ackproof.network.requests.rules import EVERY_API, Rule

if TYPE_CHECKING:  # reading an experiment file imports no proxy
    from ackproof.faults.requests.injection import RequestWitness

SideWord: TypeAlias = Literal["request", "response"]


def _read_api(value: object) -> object:
    if not isinstance(value, str):
        raise wrong(expected("the name of one of Kafka's APIs, such as Produce"))
    if value not in APIS:
        raise unknown("API", list(APIS), value)
    return value


ApiField: TypeAlias = Annotated[
    str,
    BeforeValidator(_read_api),
    WithJsonSchema({"type": "string", "title": "API", "enum": list(APIS)}),
]


class RequestFault(FaultSpec):
    """Base of faults that hit requests, or their responses, on a link. They concern the requests of one API (`api`
    None: of every API) that fit `client_id`, `topic` or `partition`. Of these the fault takes every Nth (`every`), then
    a random `share`, and hits at most `times`."""

    HEALING = "let all pass again"
    IN_FORCE_S = 5.0
    HOLD_KEY = "for"
    ASKS = frozenset({Ability.REQUESTS})
    NEEDS = frozenset(REQUESTS)
    OVER = frozenset({Grip.SLOW})
    NOT_SIMULATED = "the model has no proxy between client and server"
    NOT_IN = MappingProxyType({"zookeeper": "which requests are sent where is known of KRaft alone"})

    STOPS_ANSWERS: ClassVar[bool] = True
    """True if requests that are hit get no usual answer: another fault of the same requests cannot be observed then."""
    NEEDS_API: ClassVar[bool] = False
    """True if the field `api` is required, because the fault cannot hit every API of a client."""

    link: LinkField
    api: ApiField | None = Field(
        None,
        title="API",
        description="API whose requests or responses are hit. With `client_id` it may be left out: every API.",
    )
    side: SideWord = Field("request", description="Side that is hit: requests or responses.")
    times: Whole | None = Field(
        None, ge=1, le=1_000_000, description="Largest number of requests that are hit; default: no limit."
    )
    every: Whole = Field(1, ge=1, le=1_000_000, description="Apply to every Nth matching request.")
    share: Share | None = Field(None, gt=0, le=1, description="Apply to this share of them, drawn at random.")
    topic: str | None = Field(
        None, strict=True, description="Apply only to requests that name a partition of this topic."
    )
    partition: PartitionField | None = Field(
        None, title="Partition", description="Apply only to requests that name this partition."
    )

    client_id: str | None = Field(
        None,
        strict=True,
        min_length=1,
        description="Apply only to requests with this client.id; those of the workload are ackproof-p0, ackproof-r0, …",
    )

    @model_validator(mode="after")
    def _names_what_is_hit(self) -> Self:
        if self.topic is not None and self.partition is not None:
            raise wrong("a topic or a partition, not both")
        if self.api is None and (self.NEEDS_API or self.client_id is None):
            every = "" if self.NEEDS_API else ", or a client_id, whose requests of every API are hit"
            raise wrong(f"name an api{every}")
        if self.api is None and self.place is not None:
            raise wrong("name an api whose requests name partitions")
        return self

    @property
    def probe_api(self) -> Api:
        """Return the API of the witness's probe requests: the fault's API; ApiVersions if the fault hits every API."""
        return APIS[self.api or "ApiVersions"]

    @property
    def api_name(self) -> str:
        """Return a word for the requests that the fault hits, for messages: the name of the API. It is `client` if the
        fault hits all APIs of a client id."""
        return self.api or "client"

    @property
    def targets(self) -> tuple[Role, ...]:
        return self.link.roles

    @property
    def needs(self) -> frozenset[Need]:
        links = self.link.needs()
        return frozenset(need for need, of_links in REQUESTS.items() if of_links in links)

    def check(self, spec: ExperimentSpec, say: Complaints) -> None:
        if not say.sound(("link",), ("api",), cluster=True):
            return
        api, flows = self.probe_api, flows_of(self.link, spec.cluster)
        mixed = [role for role in self.link.roles if len(role.sides()) > 1 and not spec.cluster.combined]
        if mixed:
            why = "has brokers and controllers, and each kind has requests of its own"
            say.report(("link",), f"{mixed[0]} {why}: list nodes of one kind, such as {SEVERAL}")
        elif self.api is None and self.link.source is not None:
            say.report(("api",), "name an API: every API of one client_id is hit on links of clients alone")
        elif not flows:
            say.report(("link",), "controllers that are not brokers open no connections to brokers")
        elif not flows & api.flows:
            there = ", ".join(name for name, other in APIS.items() if other.flows & flows)
            sent = " and ".join(sorted(api.flows))
            say.report(("api",), f"{api.name} is sent from {sent}, and not over this link", f"there: {there}")
        elif not api.sent_in(spec.cluster.kafka.version):
            say.report(
                ("api",), f"Kafka {spec.cluster.kafka} sends no {api.name}", f"it came with {api.since}"
            )
        elif self.side == "response" and api.name == "Produce" and spec.workload.producers.acks == "0":
            say.report(("side",), "with acks=0 no Produce request is answered")
        else:
            self.check_more(spec, say)

    @property
    def place(self) -> tuple[str, int] | None:
        """Return topic and partition of the requests that are hit (-1: any partition); None: all requests."""
        if self.partition is not None:
            return self.partition.topic, self.partition.partition
        return None if self.topic is None else (self.topic, -1)

    def rule(self, ways: tuple[str, ...]) -> Rule:
        """Return the fault's rule for the request proxy. `ways`: names of the proxy's routes (one for each link and
        port) on which the rule acts.

        The rule does not limit partitions: the caller sets `places` of the rule from `place`, for which it needs the
        topic's id.
        """
        raise NotImplementedError

    @property
    def must_name_partition(self) -> bool:
        """Return True if probe requests must name a partition although the fault hits requests for all
        partitions."""
        return False

    def witness(self) -> RequestWitness:
        """Return the outcome of a probe request that proves this fault."""
        raise NotImplementedError

    def _rule(self, kind: str, ways: tuple[str, ...], **more: object) -> Rule:
        return Rule.of_json(
            {
                "name": f"fault-{self.number}",
                "kind": kind,
                "side": self.side,
                "api": EVERY_API if self.api is None else APIS[self.api].key,
                "ways": list(ways),
                "times": self.times,
                "every": self.every,
                "share": 1.0 if self.share is None else self.share,
                "seed": self.number,
                "client": self.client_id or "",
                **more,
            }
        )

    def check_more(self, spec: ExperimentSpec, say: Complaints) -> None:
        api, flows = self.probe_api, flows_of(self.link, spec.cluster)
        if self.place is not None and api.name not in NAMING:
            there = ", ".join(NAMING)
            say.report((self._where,), f"{api.name} names no partitions of topics", f"these do: {there}")
        elif self.place is not None and not flows & api.flows - _OF_THE_LOG and api.name == "Fetch":
            say.report((self._where,), "what is fetched from controllers is the metadata log, and no topic")
        elif self.topic is not None and self.topic not in spec.topics:
            say.unknown_value(("topic",), "the topic", self.topic, spec.topics)

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Draw the fields of a random fault: `link`, an `api` that it carries continuously, and `side` (request or
        response)."""
        link, api = draw.request()
        return {"link": link, "api": api, "side": draw.more.choice(("request", "response"))}

    @property
    def _where(self) -> str:
        return "topic" if self.topic is not None else "partition"

    def at_odds(self, first: FaultSpec, spec: ExperimentSpec) -> str:
        """Return why this fault cannot be observed while `first` is in force; '' if that is not certain.

        One reason is that `first` stops all answers of the same API on the same links, so that no request is left to
        hit. The other reasons are those of `FaultSpec.at_odds`.
        """
        same = isinstance(first, RequestFault) and (first.link, first.api) == (self.link, self.api)
        if same and isinstance(first, RequestFault) and first.STOPS_ANSWERS:
            return f"leaves no {self.api_name} over {self.link}"
        return super().at_odds(first, spec)

    def planned(self, exposure: Exposure) -> Incidents:
        """Return the incidents that the fault may cause, as for a fault of links. Brokers that miss
        heartbeats or metadata are fenced, and followers that miss fetches leave the ISR. Other APIs cause
        none."""
        source, target = self.link.source, self.link.target
        flows = flows_of(self.link, exposure.experiment.cluster) & self.probe_api.flows
        if source is None:
            return NOTHING
        count = NOTHING
        if Flow.CONTROLLERS in flows and self.api in _KEEPS_ALIVE:
            count = exposure.noticed(self.hold, exposure.brokers(source))
        if Flow.BROKERS in flows and self.api in _REPLICATES and exposure.lasts(self.hold, LAG):
            most = min(max(map(exposure.brokers, (source, target))), exposure.replicas - 1)
            count = count.most(Incidents(shrinks=most))
        return count

    def disturbs(self, producer: int) -> bool:
        """Return True if the fault may disturb this producer: only links of clients carry records of producers. There a
        connection may be lost with records in flight."""
        del producer
        return self.link.source is None

    def __str__(self) -> str:
        of = f" of {self.partition or self.topic}" if self.place is not None else ""
        every = f"every {self.side} of {self.client_id}"
        what = every if self.api is None else f"{self.api} {self.side}s{of}"
        few = f", {self.times} at most" if self.times is not None else ""
        return f"{self.kind} {self.link} ({what}{few})"


_OF_THE_LOG: Final = frozenset({Flow.CONTROLLERS, Flow.QUORUM})
"""Connections on which Fetch reads the metadata log."""
_KEEPS_ALIVE: Final = frozenset(
    {"BrokerHeartbeat", "BrokerRegistration", "Fetch", "FetchSnapshot", "ApiVersions"}
)
"""APIs without which a broker is fenced, or gets no newer metadata."""
_REPLICATES: Final = frozenset({"Fetch", "OffsetForLeaderEpoch", "ListOffsets", "ApiVersions"})
"""APIs without which a follower falls behind."""
