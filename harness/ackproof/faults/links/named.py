"""Faults of links that are named by their ends, over which nothing passes: cut, black_hole, reset, flap.

A link `A -> B` is every connection that A opens to B, with its traffic in both directions. `cut` stops A from sending
requests to B, while B may still send requests to A. `both_ways` also breaks the connections that B opens to A. The
fault lasts for the time `for`, or without it until the end of the run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

from pydantic import Field, model_validator

from ackproof.base.errors import FaultNotConfirmed
from ackproof.base.units import Duration, wrong
from ackproof.experiment.backends import LINKS, Need
from ackproof.experiment.base import Flag
from ackproof.experiment.exposure import LAG, NOTHING, Draw, Exposure, Incidents
from ackproof.experiment.links import LinkField
from ackproof.experiment.problems import Data
from ackproof.experiment.roles import Role
from ackproof.experiment.spec import ClusterSpec
from ackproof.faults.context import FaultContext
from ackproof.faults.injection import Aim, injects
from ackproof.faults.links.injection import BITES_WITHIN_S, LinksInjection, describe_looks, on_each
from ackproof.faults.links.spec import ANSWERS_WITHIN_S, Holders, LinkFault, LinkObservation, names
from ackproof.network.mesh import CLIENTS, BlackHole, Cut, Link, LinkError, Reset


class NamedLinkFault(LinkFault):
    """Base of faults of the links from one end to another (`link`), such as `follower(t/0) -> leader(t/0)`: every link
    from a holder of the first role to a holder of the second one. `both_ways`: the links back, too. A subclass gives
    the effect on each link."""

    SHORT = ("link",)

    link: LinkField
    both_ways: Flag = Field(False, description="Break the connections of the other direction too.")

    @property
    def targets(self) -> tuple[Role, ...]:
        return self.link.roles

    @property
    def needs(self) -> frozenset[Need]:
        return self.link.needs(both_ways=self.both_ways) | (self.NEEDS - LINKS)

    @model_validator(mode="after")
    def _clients_take_no_connections(self) -> NamedLinkFault:
        if self.both_ways and self.link.source is None:
            raise wrong("brokers open no connections to clients: leave both_ways out")
        return self

    def __str__(self) -> str:
        return f"{self.kind} {self.link}" + (" both ways" if self.both_ways else "")

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        return {"link": draw.link()}

    def planned(self, exposure: Exposure) -> Incidents:
        source, target = self.link.source, self.link.target
        if source is None:
            return NOTHING
        ends = (source, target)
        # `sides`: False stands for brokers, True for controllers and ZooKeeper servers.
        others = [role for role in ends if False in role.sides()]
        count = NOTHING
        if any(True in role.sides() for role in ends):
            count = exposure.noticed(self.hold, exposure.aimed_at(others))
        if len(others) == len(ends) and exposure.lasts(self.hold, LAG):
            shrinks = min(max(map(exposure.brokers, ends)), exposure.replicas - 1)
            count = count.most(Incidents(shrinks=shrinks))
        return count

    def links(self, holders: Holders, spec: ClusterSpec) -> Iterator[Link]:
        source = self.link.source
        froms = [CLIENTS] if source is None else holders[source]
        for target in holders[self.link.target]:
            for start in froms:
                yield Link(start, target)
                if self.both_ways:
                    yield Link(target, start)


class CutFault(NamedLinkFault):
    """Connections are closed and new connections are refused: the connecting side notices at once."""

    KIND = "cut"
    SUMMARY = "Close the connections of a link and refuse new ones."
    EFFECT = Cut()


class BlackHoleFault(NamedLinkFault):
    """Connections stay open and nothing arrives: the connecting side notices only after a time-out."""

    KIND = "black_hole"
    SUMMARY = "Let nothing through a link; its connections stay open (a black hole)."
    EFFECT = BlackHole()


class ResetFault(NamedLinkFault):
    """Connections are accepted, and reset as soon as they carry data."""

    KIND = "reset"
    SUMMARY = "Reset every connection of a link as soon as it carries something."
    EFFECT = Reset()


class FlapFault(NamedLinkFault):
    """Cut a link for `down` seconds and mend it for `up` seconds, in turn, until the fault ends."""

    KIND = "flap"
    SUMMARY = "Cut a link and mend it, again and again."
    EFFECT = Cut()

    down: Duration = Field(ge=0.05, le=600, description="Time for which it is cut each time.")
    up: Duration = Field(ge=0.05, le=600, description="Time for which it is whole in between.")

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        return {
            "link": draw.link(),
            "down": f"{draw.between(200, 800)}ms",
            "up": f"{draw.between(200, 800)}ms",
        }

    @property
    def keeps_silent(self) -> bool:
        return False


@injects(FlapFault)
class _FlapInjection(LinksInjection[FlapFault]):
    """Cut and mend every link of the fault in turn, on a separate thread.

    The fault is confirmed when every link that worked before it was seen down and then up, or another fault hinders it
    from being up. A link that another fault had silenced need only carry nothing at the confirmation. If that other
    fault is over when `heal` is called, `heal` waits until the link was seen down and up.
    """

    def __init__(self, fault: FlapFault, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._enough = threading.Event()
        self._trouble = ""
        self._times = 0
        self._thread = threading.Thread(target=self._flap, name=f"flap-{fault.number}", daemon=True)

    def inject(self) -> str:
        self._look_before()
        self._thread.start()
        return f"cut for {self.fault.down:g} s, whole for {self.fault.up:g} s: {names(self.links)}"

    def confirm(self) -> str:
        seen = on_each(tuple(self._before), self._await_flap) | self._look_at_silent()
        return self._describe(seen)

    def heal(self) -> str:
        """End the flapping and mend the links; return what was done, in words.

        First, each link that was silent before the fault and that no other fault silences any more must be seen down
        and up. Raises `FaultNotConfirmed` if it is not, if a link cannot be mended, or if the thread that cuts and
        mends had failed.
        """
        flaps = self._thread.ident is not None
        try:
            free = [link for link in self._vouched if flaps and not self._excuse(link)]
            back = on_each(free, self._await_flap)
        finally:
            self._enough.set()
            if flaps:
                self._thread.join()
            self._lift()
        if self._trouble:
            raise self.not_confirmed(f"{self._trouble}")
        return f"mended {names(self.links)} after {self._times} cuts{describe_looks(back)}"

    def _flap(self) -> None:
        try:
            while not self._enough.is_set():
                self._impose()
                self._times += 1
                self._enough.wait(self.fault.down)
                self._lift()
                self._enough.wait(self.fault.up)
        except (LinkError, FaultNotConfirmed) as error:
            self._trouble = str(error)

    def _await_flap(self, link: Link) -> LinkObservation:
        within_s = BITES_WITHIN_S + 2 * (self.fault.down + self.fault.up)
        told = []
        for passes, word in ((False, "down"), (True, "up")):
            told.append(
                self.wait_for(
                    lambda passes=passes, word=word: self._see_link(link, passes, word),  # type: ignore[misc]
                    f"{link} to be seen {word}",
                    within_s,
                    interval_s=0.01,
                    state=lambda: self._trouble or "it flaps",
                )
            )
        return LinkObservation(True, 0.0, ", ".join(told))

    def _see_link(self, link: Link, passes: bool, word: str) -> str:
        """Probe a link. `passes`: True if the probe should pass. `word`: the expected state of the link, `up` or
        `down`.

        Return `seen WORD` if the probe ends as expected. Return `not seen WORD` and the reason if it should pass, but
        another fault hinders it. In all other cases return '': the caller looks again.
        """
        if self.mesh.probe(link, timeout_s=ANSWERS_WITHIN_S).passed is passes:
            return f"seen {word}"
        why = self._excuse(link) if passes and self._is_hindered(link) else ""
        return why and f"not seen {word} {why}"
