"""What all faults of requests have in common: a rule for one API, laid on every link that the fault names, and lifted.

The proxy is not asked whether it bites. A question of that API, as the link's source would ask it and that changes
nothing, goes over the link, and one of another API beside it: the first must show what is done, the second must not.
The kernel counts whether the first arrived at the node, so that a request that was lost is told from an answer. The
questions are not counted among the frames that `times`, `every` and `share` speak of. Whether anything but questions
was hit is the proxy's to count: where nothing was, the fault did not bite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final, Self, TypeVar

from pydantic import Field, model_validator

from ackproof.base.errors import FaultNotConfirmed, WaitTimeout
from ackproof.base.units import Share, wrong
from ackproof.cluster import queries
from ackproof.cluster.protocol import NodeState
from ackproof.experiment.base import Whole
from ackproof.experiment.exposure import LAG, NOTHING, Draw, Exposure, Incidents
from ackproof.experiment.fault import Complaints, FaultSpec
from ackproof.experiment.links import APIS, Api, Flow, flows_of
from ackproof.experiment.problems import Data
from ackproof.experiment.roles import PartitionField
from ackproof.experiment.spec import SystemUnderTest
from ackproof.faults.injection import Aim, FaultContext, Injection, injects
from ackproof.faults.links.breaking import AT_ONCE
from ackproof.faults.links.of_links import names
from ackproof.faults.requests.on_link import OnLink
from ackproof.faults.requests.witnesses import Look, Witness
from ackproof.network.mesh import CLIENTS, Link, LinkError
from ackproof.network.requests.contents import NAMING
from ackproof.network.requests.questions import NOWHERE, Asking, Named
from ackproof.network.requests.rules import Counted, Rule
from ackproof.network.wire import WireError

if TYPE_CHECKING:  # files are checked without what runs proxies
    pass

BITES_WITHIN_S: Final = 10.0
MENDED_WITHIN_S: Final = 20.0
RUNS_WITHIN_S: Final = 1.0
READY_WITHIN_S: Final = 60.0
T = TypeVar("T")


class OfRequests(OnLink):
    """What all of them have in common that last."""

    HEALING = "let all pass again"
    IN_FORCE_S = 5.0
    HOLD_KEY = "for"

    ENDS_THEM: ClassVar[bool] = True
    """Whether a question does not come to the node and back as long as it lasts."""

    times: Whole | None = Field(None, ge=1, le=1_000_000, description="At most so many; without it all.")
    every: Whole = Field(1, ge=1, le=1_000_000, description="Apply to every Nth matching request.")
    share: Share | None = Field(None, gt=0, le=1, description="Only so many of them, drawn.")
    topic: str | None = Field(
        None, strict=True, description="Only those that name a partition of this topic."
    )
    partition: PartitionField | None = Field(
        None, title="Partition", description="Only those that name this partition."
    )

    @model_validator(mode="after")
    def _topic_or_partition(self) -> Self:
        if self.topic is not None and self.partition is not None:
            raise wrong("a topic or a partition, not both")
        return self

    @property
    def place(self) -> tuple[str, int] | None:
        """The topic and the partition of which it speaks, -1 for any; None: of all requests."""
        if self.partition is not None:
            return self.partition.topic, self.partition.partition
        return None if self.topic is None else (self.topic, -1)

    def rule(self, ways: tuple[str, ...]) -> Rule:
        """What the proxy is told to do on these ways, whatever partitions are named."""
        raise NotImplementedError

    @property
    def names_nobody(self) -> bool:
        """Whether its witness must see what befalls a partition although it speaks of all."""
        return False

    def witness(self) -> Witness:
        """Who sees it."""
        raise NotImplementedError

    def _rule(self, kind: str, ways: tuple[str, ...], **more: object) -> Rule:
        return Rule.of_json(
            {
                "name": f"fault-{self.number}",
                "kind": kind,
                "side": self.side,
                "api": APIS[self.api].key,
                "ways": list(ways),
                "times": self.times,
                "every": self.every,
                "share": 1.0 if self.share is None else self.share,
                "seed": self.number,
                **more,
            }
        )

    def check_more(self, spec: SystemUnderTest, say: Complaints) -> None:
        api, flows = APIS[self.api], flows_of(self.link, spec.cluster)
        if self.place is not None and api.name not in NAMING:
            there = ", ".join(NAMING)
            say.report((self._where,), f"{api.name} names no partitions of topics; these do: {there}")
        elif self.place is not None and not flows & api.flows - _OF_THE_LOG and api.name == "Fetch":
            say.report((self._where,), "what is fetched from controllers is the metadata log, and no topic")
        elif self.topic is not None and self.topic not in spec.topics:
            say.unknown_value(("topic",), "the topic", self.topic, spec.topics)

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Requests that are sent all the time, or their responses."""
        link, api = draw.request()
        return {"link": link, "api": api, "side": draw.more.choice(("request", "response"))}

    @property
    def _where(self) -> str:
        """The field that says of which partitions it speaks."""
        return "topic" if self.topic is not None else "partition"

    def at_odds(self, first: FaultSpec, spec: SystemUnderTest) -> str:
        """Nor what another lets not come to the node, or not come back."""
        same = isinstance(first, OfRequests) and (first.link, first.api) == (self.link, self.api)
        if same and isinstance(first, OfRequests) and first.ENDS_THEM:
            return f"leaves no {self.api} over {self.link}"
        return super().at_odds(first, spec)

    def planned(self, exposure: Exposure) -> Incidents:
        """What a broker does not hear of controllers, and a follower not of its leader, as for links; else nothing."""
        source, target = self.link.source, self.link.target
        flows = flows_of(self.link, exposure.experiment.cluster) & APIS[self.api].flows
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
        """What a connection of clients had on its way may be gone with it; other links carry nothing of producers."""
        del producer
        return self.link.source is None

    def __str__(self) -> str:
        of = f" of {self.partition or self.topic}" if self.place is not None else ""
        what = f"{self.api} {self.side}s{of}"
        few = f", {self.times} at most" if self.times is not None else ""
        return f"{self.kind} {self.link} ({what}{few})"


_OF_THE_LOG: Final = frozenset({Flow.CONTROLLERS, Flow.QUORUM})
"""Connections on which Fetch is of the metadata log."""
_KEEPS_ALIVE: Final = frozenset(
    {"BrokerHeartbeat", "BrokerRegistration", "Fetch", "FetchSnapshot", "ApiVersions"}
)
"""Without these a broker is fenced, or knows no newer metadata."""
_REPLICATES: Final = frozenset({"Fetch", "OffsetForLeaderEpoch", "ListOffsets", "ApiVersions"})
"""Without these a follower falls behind."""
SpecT = TypeVar("SpecT", bound=OfRequests)


@injects(OfRequests)
class RequestsInjection(Injection[SpecT]):
    """One rule on all links of a fault."""

    def __init__(self, fault: SpecT, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._laid = laid = fault.laid(context.cluster)
        self._api: Api = APIS[fault.api]
        self._witness = fault.witness()
        self.links = fault.ends(aim, context.cluster)
        self._rule = fault.rule(tuple(way for link in self.links for way in laid.ways(link, self._api)))
        self._named: Named | None = NOWHERE if fault.names_nobody else None
        self._before: dict[Link, Look] = {}
        self._counted: Counted | None = None
        self._is_laid = False
        self._bit = False

    def inject(self) -> str:
        """Lay the rule, after a look at links of which nothing is done yet."""
        if (place := self.fault.place) is not None:
            topic, partition = place
            topic_id = self._topic_id(topic)
            self._named = Named(topic, topic_id, max(0, partition))
            self._rule = replace(self._rule, places=((topic, partition), (topic_id, partition)))
        there = self._links_in_reach()
        self._before = self._on_each(there, lambda link: self._until(link, Witness().sees, "to answer"))
        if not self._before:
            raise self.unseen("nobody is there: " + "; ".join(map(self._away, self.links)))
        self._is_laid = True  # also where the order is not confirmed: it may have come
        self._laid.lay(self._rule)
        return f"{self._witness.word} {self.fault.api} {self.fault.side}s on {names(self.links)}"

    def confirm(self) -> str:
        seen = self._on_each(
            tuple(self._before), lambda link: self._until(link, self._witness.sees, f"{self.fault} to show")
        )
        self._bit = True
        return self._told(seen)

    def check(self) -> None:
        try:
            self._laid.check()
        except LinkError as error:
            raise self.unseen(error) from error

    def heal(self) -> str:
        """Lift the rule, after a look at whether it has lasted."""
        lasted: Mapping[Link, Look] = {}
        try:
            if self._bit:
                there = [link for link in self._before if not self._away(link)]
                lasted = self._on_each(
                    there, lambda link: self._until(link, self._witness.sees, "to last", MENDED_WITHIN_S)
                )
        finally:
            if self._is_laid:
                self._is_laid = False
                self._counted = self._laid.lift(self._rule.name)
        return f"lifted from {names(self.links)}; until then: {self._told(lasted)}{self._sum()}"

    def confirm_healed(self) -> str:
        """Questions pass again; nodes at the ends take part. What was hit must have been more than questions."""
        if not self._before:
            return "no rule was laid"
        links = self.seen(
            lambda: [link for link in self._before if not self._away(link)],
            "somebody to be there who can be asked",
            READY_WITHIN_S,
            state=lambda: "; ".join(filter(None, map(self._away, self._before))),
        )
        seen = self._on_each(
            links, lambda link: self._until(link, Witness().sees, "to pass again", MENDED_WITHIN_S)
        )
        self._until_ready()
        none = ""
        if self._counted is not None and not self._counted.hit:
            counted = self._counted.matched
            why = f"of the {counted} that came by none was drawn" if counted else "none came by"
            none = f"no {self.fault.api} {self.fault.side} was hit on {names(self.links)}: {why}"
            if not self.fault.is_drawn:  # a storm promises nothing of each
                raise self.unseen(none)
        if self._counted is not None and self._counted.trouble:
            raise self.unseen(f"what it was to be done to could not be read: {self._counted.trouble}")
        if self._counted is not None and self._rule.until_held is not None and not self._counted.full:
            raise self.unseen(f"{self._rule.until_held} were to wait together, and never did")
        if trouble := self._laid.proxy.trouble():
            raise self.unseen(f"what went through the proxy was not all Kafka's protocol: {trouble}")
        told = f"{self._told(seen)}; the nodes at their ends answer, registered and unfenced"
        return f"{told}; {none}" if none else told

    # -- within -------------------------------------------------------------------------------------------------

    def _until(
        self, link: Link, sees: Callable[[Look], bool], what: str, within_s: float = BITES_WITHIN_S
    ) -> Look:
        last: list[Look] = []

        def look() -> Look | None:
            last[:] = [self._look(link)]
            return last[0] if sees(last[0]) else None

        return self.seen(
            look,
            f"{self.fault.api} on {link} {what}",
            within_s,
            interval_s=0.05,
            state=lambda: str(last[0]) if last else "nothing",
        )

    def _look(self, link: Link) -> Look:
        witness = self._witness
        self.check()
        asking = Asking(
            timeout_s=witness.timeout_s,
            look_after_s=witness.look_after_s,
            wanted=witness.wanted,
            later_s=witness.later_s,
            named=self._named,
            elsewhere=NOWHERE if self.fault.place is not None else None,
        )
        try:
            asked = self._laid.ask(link, self._api, asking)
        except LinkError as error:
            raise self.unseen(error) from error
        return Look(*asked)

    def _topic_id(self, topic: str) -> str:
        link = self.context.cluster.admin_link()
        if link is None:
            raise self.unseen("no broker is there that could say which topic it is")
        try:
            return queries.topic_id(link, topic)
        except WireError as error:
            raise self.unseen(error) from error

    def _links_in_reach(self) -> list[Link]:
        """Links whose far end runs; a node that is starved of processor time runs now and then."""
        try:
            return self.seen(
                lambda: [link for link in self.links if not self._away(link)],
                "a node to run",
                RUNS_WITHIN_S,
                interval_s=0.01,
            )
        except FaultNotConfirmed:
            return []

    def _away(self, link: Link) -> str:
        """Why nobody can be asked at the end of a link; '' where somebody can."""
        state = self.context.cluster.node(link.target).state()
        return "" if state is NodeState.RUNNING else f"node {link.target} is {state.value}"

    def _until_ready(self) -> None:
        for end in sorted({end for link in self.links for end in link if end != CLIENTS}):
            node = self.context.cluster.node(end)
            if node.state() is NodeState.RUNNING and not self._elsewhere_held(end):
                try:
                    node.await_ready(READY_WITHIN_S)
                except WaitTimeout as error:
                    raise self.unseen(error) from error

    def _elsewhere_held(self, end: int) -> bool:
        """Whether another fault keeps a node from taking part."""
        holds, mesh = self.context.holds, self.context.cluster.mesh
        touching = [link for link in mesh.links() if end in link] if mesh is not None else []
        held = holds is not None and holds.others(end, self.fault.number)
        return bool(held) or any(mesh.imposed(link) for link in touching if mesh is not None)

    def _sum(self) -> str:
        counted = self._counted
        return "" if counted is None else f"; {counted.hit} of {counted.matched} that came by were hit"

    def _told(self, seen: Mapping[Link, Look]) -> str:
        words = [f"{link}: {look}" for link, look in seen.items()]
        words += [f"{link} was not looked at: {why}" for link in self.links if (why := self._away(link))]
        return "; ".join(words)

    @staticmethod
    def _on_each(links: Sequence[Link], act: Callable[[Link], T]) -> dict[Link, T]:
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="requests") as pool:
            return dict(zip(links, pool.map(act, links), strict=True))
