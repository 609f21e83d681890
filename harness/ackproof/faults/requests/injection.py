"""Injection of request faults: a rule for one API, imposed on every link that the fault names, and lifted.

The witness does not ask the proxy whether the rule works. It sends a probe request of that API, which changes nothing,
over the link as the link's source would. A control request of another API follows. The first must show the effect, the
second must not. The kernel counts whether the first arrived at the node, which tells a lost request from a lost
response. Probes do not count for `times`, `every` and `share`. The proxy counts whether any other request was hit; if
none was, the fault had no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster import queries
from ackproof.cluster.protocol import NodeState
from ackproof.experiment.links import Api
from ackproof.faults.context import FaultContext
from ackproof.faults.injection import READY_WITHIN_S, Aim, Injection, injects
from ackproof.faults.links.injection import has_effects, nodes_of, on_each
from ackproof.faults.links.spec import existing_links, names
from ackproof.faults.requests.spec import RequestFault
from ackproof.network.mesh import CLIENTS, Link, LinkError
from ackproof.network.requests.questions import NOWHERE, NamedPartition, QuestionPlan
from ackproof.network.requests.rules import RuleCounts
from ackproof.network.wire import WireError

if TYPE_CHECKING:
    from ackproof.network.requests.links import RequestLinks
    from ackproof.network.requests.questions import How, QuestionOutcome

BITES_WITHIN_S: Final = 10.0
MENDED_WITHIN_S: Final = 20.0
RUNS_WITHIN_S: Final = 1.0
T = TypeVar("T")
SpecT = TypeVar("SpecT", bound=RequestFault)
SILENT_FOR_S: Final = 0.8
"""Seconds after which a probe counts as unanswered. A healthy node takes 5 ms."""
ANSWERS_WITHIN_S: Final = 2.0


class RequestObservation(NamedTuple):
    """Outcomes of a probe request (`asked`) and of the control request after it (`control`). The control request is of
    another API. If the fault is limited to a topic or partition, it is of the same API, for another partition."""

    asked: QuestionOutcome
    control: QuestionOutcome

    def __str__(self) -> str:
        error = f" with error {self.asked.error}" if self.asked.error else ""
        return f"a question of it {self.asked}{error}; another {self.control.how}"


@dataclass(frozen=True)
class RequestWitness:
    """Outcome of a probe request that proves a fault, if a control request (of another API or partition) is answered as
    usual.

    The defaults describe a link without a fault: the probe is answered. `word`: the fault's effect, for messages.
    `how`: expected result of the probe. `timeout_s`: seconds after which the probe counts as unanswered.

    Three fields are not checked if they are None. `arrives`: True if the probe must arrive at the node, False if it
    must not. `code`: expected error code in the answer. `least_s`: the probe must take at least this number of seconds,
    and the control request less.

    `wanted`: number of times that the probe must arrive; 1: not checked. `later_s`: for `wanted` above 1, seconds that
    must pass from the sending until all arrivals are seen. `look_after_s`: seconds after the sending at which the count
    of arrivals starts; None: after the answer, or the end of the wait for it.
    """

    word: str = "passes"
    how: How = "answered"
    arrives: bool | None = None
    code: int | None = None
    least_s: float | None = None
    timeout_s: float = ANSWERS_WITHIN_S
    look_after_s: float | None = None
    wanted: int = 1
    later_s: float = 0.0

    def sees(self, look: RequestObservation) -> bool:
        """Return True if the outcomes of a probe and its control show the fault."""
        asked, control = look
        return (
            control.answered
            and asked.how == self.how
            and (self.code is None or asked.error == self.code)
            and (self.arrives is None or bool(asked.arrived) is self.arrives)
            and (self.least_s is None or control.seconds < self.least_s <= asked.seconds)
            and (self.wanted == 1 or (asked.arrived == self.wanted and asked.arrived_s >= self.later_s))
        )


@injects(RequestFault)
class _RequestsInjection(Injection[SpecT]):
    """Impose one rule of the request proxy on all links of a fault. Healing lifts the rule.

    Confirmed when probes show the effect on each link whose target runs. The healing is confirmed only if the rule also
    hit a request other than probes, unless a storm drew the fault."""

    def __init__(self, fault: SpecT, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        laid = context.cluster.requests
        if laid is None:
            raise FaultNotConfirmed(f"{fault.kind}: the links of this cluster were not laid for it")
        self._laid: RequestLinks = laid
        self._api: Api = fault.probe_api
        self._witness = fault.witness()
        source, numbers = fault.link.source, aim.numbers
        starts = [CLIENTS] if source is None else numbers[source]
        every = (Link(start, end) for start in starts for end in numbers[fault.link.target])
        self.links = existing_links(fault, every, context.cluster.spec)
        self._rule = fault.rule(tuple(way for link in self.links for way in laid.ways(link, self._api)))
        self._named: NamedPartition | None = NOWHERE if fault.must_name_partition else None
        self._before: dict[Link, RequestObservation] = {}
        self._counted: RuleCounts | None = None
        self._is_laid = False
        self._bit = False

    def inject(self) -> str:
        if (place := self.fault.place) is not None:
            topic, partition = place
            topic_id = self._topic_id(topic)
            self._named = NamedPartition(topic, topic_id, max(0, partition))
            self._rule = replace(self._rule, places=((topic, partition), (topic_id, partition)))
        there = self._links_in_reach()
        self._before = on_each(there, lambda link: self._until(link, RequestWitness().sees, "to answer"))
        if not self._before:
            raise self.not_confirmed("no node can be asked: " + "; ".join(map(self._why_away, self.links)))
        self._is_laid = True  # even if the request failed, the proxy may have carried it out
        self._laid.lay(self._rule)
        return f"{self._witness.word} {self.fault.api_name} {self.fault.side}s on {names(self.links)}"

    def confirm(self) -> str:
        seen = on_each(
            tuple(self._before), lambda link: self._until(link, self._witness.sees, f"{self.fault} to show")
        )
        self._bit = True
        return self._describe(seen)

    def check(self) -> None:
        try:
            self._laid.check()
        except LinkError as error:
            raise self.not_confirmed(error) from error

    def heal(self) -> str:
        """Confirm that the rule still works, and lift it; return the last observations and the number of requests (or
        responses) hit, in words. Raises `FaultNotConfirmed`, after lifting, if the rule did not work any more."""
        lasted: Mapping[Link, RequestObservation] = {}
        try:
            if self._bit:
                there = [link for link in self._before if not self._why_away(link)]
                lasted = on_each(
                    there, lambda link: self._until(link, self._witness.sees, "to last", MENDED_WITHIN_S)
                )
        finally:
            if self._is_laid:
                self._is_laid = False
                self._counted = self._laid.lift(self._rule.name)
        counted = self._counted
        hits = "" if counted is None else f"; {counted.hit} of {counted.matched} that came by were hit"
        return f"lifted from {names(self.links)}; until then: {self._describe(lasted)}{hits}"

    def confirm_healed(self) -> str:
        """Confirm that probes pass again, that the nodes at the links' ends answer, and that the rule hit
        other requests than probes. Return the observation in words. Raises `FaultNotConfirmed` if this is not
        seen; a fault that a storm drew need not have hit a request. Raises it also if the proxy could not read
        a frame, or if fewer than `until_held` ever waited together."""
        if not self._before:
            return "no rule was laid"
        links = self.wait_for(
            lambda: [link for link in self._before if not self._why_away(link)],
            "a node that can be asked",
            READY_WITHIN_S,
            state=lambda: "; ".join(filter(None, map(self._why_away, self._before))),
        )
        seen = on_each(
            links, lambda link: self._until(link, RequestWitness().sees, "to pass again", MENDED_WITHIN_S)
        )
        self._await_ready()
        short = ""
        if (counted := self._counted) is not None:
            if not counted.hit:
                passed = counted.matched
                why = f"of {passed} that passed none was drawn" if passed else "none passed"
                short = self.fall_short(
                    f"no {self.fault.api_name} {self.fault.side} was hit on {names(self.links)}: {why}"
                )
            if counted.trouble:
                raise self.not_confirmed(f"what it was to be done to could not be read: {counted.trouble}")
            if self._rule.until_held is not None and not counted.full:
                raise self.not_confirmed(f"{self._rule.until_held} were to wait together, and never did")
        if trouble := self._laid.proxy.state().trouble:
            raise self.not_confirmed(f"what went through the proxy was not all Kafka's protocol: {trouble}")
        witness = f"{self._describe(seen)}; the nodes at their ends answer, registered and unfenced"
        return f"{witness}; {short}" if short else witness

    # -- within -------------------------------------------------------------------------------------------------

    def _until(
        self,
        link: Link,
        sees: Callable[[RequestObservation], bool],
        what: str,
        within_s: float = BITES_WITHIN_S,
    ) -> RequestObservation:
        return self.wait_for_good(
            lambda: self._look(link), sees, f"{self._api.name} on {link} {what}", within_s
        )

    def _look(self, link: Link) -> RequestObservation:
        witness = self._witness
        self.check()
        asking = QuestionPlan(
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
            raise self.not_confirmed(error) from error
        return RequestObservation(*asked)

    def _topic_id(self, topic: str) -> str:
        link = self.context.cluster.admin_link()
        if link is None:
            raise self.not_confirmed("no broker could be asked for the topic's id")
        try:
            return queries.topic_id(link, topic)
        except WireError as error:
            raise self.not_confirmed(error) from error

    def _links_in_reach(self) -> list[Link]:
        """Return the links whose target runs, as soon as there is one; [] if none runs within `RUNS_WITHIN_S` seconds.
        The wait is for nodes that another fault starves of processor time: they run only from time to time."""
        try:
            return self.wait_for(
                lambda: [link for link in self.links if not self._why_away(link)],
                "a node to run",
                RUNS_WITHIN_S,
                interval_s=0.01,
            )
        except FaultNotConfirmed:
            return []

    def _why_away(self, link: Link) -> str:
        """Return in words that the target of a link does not run, so that no probe can reach it; '' if it runs."""
        state = self.context.cluster.node(link.target).state()
        return "" if state is NodeState.RUNNING else f"node {link.target} is {state.value}"

    def _await_ready(self) -> None:
        for end in nodes_of(self.links):
            node = self.context.cluster.node(end)
            if node.state() is NodeState.RUNNING and not self._is_held_elsewhere(end):
                self.await_ready(node)

    def _is_held_elsewhere(self, end: int) -> bool:
        """Return True if another fault may keep a node (`end`: its id) from answering or being unfenced. Such a fault
        holds the node, or has an effect on one of its links."""
        mesh = self.context.cluster.mesh
        held = self.holds.others(end, self.fault.number)
        return bool(held) or (mesh is not None and has_effects(mesh, end))

    def _describe(self, seen: Mapping[Link, RequestObservation]) -> str:
        words = [f"{link}: {look}" for link, look in seen.items()]
        words += [f"{link} was not looked at: {why}" for link in self.links if (why := self._why_away(link))]
        return "; ".join(words)
