"""Faults of links: an effect is imposed on every link that the fault names, and lifted.

The witnesses are connections that the harness makes as the link's source would, where that source's own files say
that its peer is, and the kernel's counters of the source's own connections (`link_witnesses`). A link of which an end
does not run, or that another fault broke before, is broken too, but nobody can vouch for it; at least one must be
vouched for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from ackproof.base.errors import FaultNotConfirmed, WaitTimeout
from ackproof.base.wait import wait_until
from ackproof.cluster.network.failure import LinkError
from ackproof.cluster.network.mesh import (
    CLIENTS,
    BlackHole,
    Cut,
    Delay,
    DropLarge,
    Effect,
    Link,
    Loss,
    Mesh,
    Reset,
    SlowClose,
    Throttle,
)
from ackproof.cluster.protocol import NodeState
from ackproof.experiment.fault import FaultSpec
from ackproof.faults.injection import Aim, FaultContext, Injection, injects
from ackproof.faults.links import specification as plan
from ackproof.faults.links.aims import links_of
from ackproof.faults.links.witnesses import ANSWERS_WITHIN_S, Look, witness_of

BITES_WITHIN_S: Final = 10.0
MENDED_WITHIN_S: Final = 20.0
READY_WITHIN_S: Final = 60.0
AT_ONCE: Final = 8
"""Links that are looked at in parallel."""

T = TypeVar("T")
LinksT = TypeVar("LinksT", bound=plan.OfLinks)


def effect_of(fault: FaultSpec) -> Effect:
    """What a fault does to each of its links."""
    match fault:
        case plan.CutFault() | plan.FlapFault():
            return Cut()
        case plan.BlackHoleFault():
            return BlackHole()
        case plan.ResetFault():
            return Reset()
        case plan.ThrottleFault():
            return Throttle(fault.rate)
        case plan.DelayFault():
            return Delay(fault.latency, fault.jitter)
        case plan.LossFault():
            return Loss(fault.share)
        case plan.DropLargeFault():
            return DropLarge(fault.above)
        case plan.SlowCloseFault():
            return SlowClose(fault.delay)
        case plan.IsolateFault() | plan.SplitFault() | plan.BridgeFault():
            return BlackHole() if fault.silent else Cut()
        case _:
            raise FaultNotConfirmed(f"{fault.kind} has no effect on links")


@injects(plan.OfLinks)
class LinksInjection(Injection[LinksT]):
    """One effect on all links of a fault."""

    def __init__(self, fault: LinksT, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        mesh = context.cluster.mesh
        if mesh is None:
            raise FaultNotConfirmed(f"{fault.kind}: the links of this cluster were not laid to be broken")
        self.mesh: Mesh = mesh
        self.links = links_of(fault, aim, context.cluster)
        self.effect = effect_of(fault)
        self._owner = f"fault-{fault.number}"
        self._witness = witness_of(self.effect)
        self._before: dict[Link, Look] = {}
        self._unseen: dict[Link, str] = {}

    def inject(self) -> str:
        """Look at each link, then impose the effect on all."""
        self._look_before()
        self._impose()
        return f"{self.effect} on {_names(self.links)}"

    def confirm(self) -> str:
        """Every link of which both ends run shows the effect."""
        seen = self._on_each(tuple(self._before), self._until_bitten)
        return self._told(seen)

    def heal(self) -> str:
        """Lift the effect from all links."""
        self._lift()
        return f"mended {_names(self.links)}"

    def confirm_healed(self) -> str:
        """Links that were seen to break are seen to be whole; nodes whose links are all whole take part again."""
        seen = self._on_each(
            tuple(link for link in self._before if not self._disturbed(link)), self._until_whole
        )
        self._until_ready()
        return self._told(seen) + "; the nodes at their ends answer, registered and unfenced"

    # -- within -------------------------------------------------------------------------------------------------

    def _look_before(self) -> None:
        looks = self._on_each(self.links, self._first_look)
        self._before = {link: look for link, look in looks.items() if look.passes}
        self._unseen = {link: look.words for link, look in looks.items() if not look.passes}
        if not self._before:
            raise FaultNotConfirmed(
                f"{self.fault.kind}: nothing to break: "
                + "; ".join(f"{link} {why}" for link, why in self._unseen.items())
            )

    def _first_look(self, link: Link) -> Look:
        if why := self._disturbed(link):
            return Look(False, 0.0, why)
        answer = None
        for _ in range(3):
            look = self._witness.look(self.mesh, link)
            if look.passes:
                return look
            answer = look.words
        if why := self._disturbed(link):
            return Look(False, 0.0, why)
        raise FaultNotConfirmed(f"{self.fault.kind}: {link} was broken before the fault: {answer}")

    def _disturbed(self, link: Link) -> str:
        """Why nothing can be said of a link: an end that does not run, or another fault; empty when all is well."""
        for end in link:
            if end != CLIENTS and (state := self.context.cluster.node(end).state()) is not NodeState.RUNNING:
                return f"(node {end} is {state.value})"
        if imposed := self.mesh.imposed(link):
            return f"(broken already: {', '.join(imposed)})"
        return ""

    def _impose(self) -> None:
        for link in self.links:
            self.mesh.impose(self._owner, link, self.effect)

    def _lift(self) -> None:
        failed = []
        for link in self.links:
            try:
                self.mesh.lift(self._owner, link)
            except LinkError as error:
                failed.append(str(error))
        if failed:
            raise FaultNotConfirmed(f"{self.fault.kind}: could not mend: {'; '.join(failed)}")

    def _until_bitten(self, link: Link) -> Look:
        what = f"{self.effect} to show on {link}"
        return self._until(link, lambda now: self._witness.bit(self._before[link], now), what, BITES_WITHIN_S)

    def _until_whole(self, link: Link) -> Look:
        what = f"{link} to be whole"
        return self._until(
            link, lambda now: self._witness.whole(self._before[link], now), what, MENDED_WITHIN_S
        )

    def _until(self, link: Link, good: Callable[[Look], bool], what: str, within_s: float) -> Look:
        last: list[Look] = []

        def look() -> Look | None:
            last[:] = [self._witness.look(self.mesh, link)]
            return last[0] if good(last[0]) else None

        try:
            return wait_until(
                look,
                what=what,
                timeout_s=within_s,
                interval_s=0.05,
                state=lambda: last[0].words if last else "nothing",
                stop=self.context.stop,
            )
        except WaitTimeout as error:
            raise FaultNotConfirmed(f"{self.fault.kind}: {error}") from error

    def _until_ready(self) -> None:
        ends = {end for link in self.links for end in link if end != CLIENTS}
        for end in sorted(ends):
            node = self.context.cluster.node(end)
            touching = [link for link in self.mesh.links() if end in link]
            if node.state() is not NodeState.RUNNING or any(map(self.mesh.imposed, touching)):
                continue
            try:
                node.await_ready(READY_WITHIN_S)
            except WaitTimeout as error:
                raise FaultNotConfirmed(f"{self.fault.kind}: healing: {error}") from error

    def _told(self, seen: dict[Link, Look]) -> str:
        words = [f"{link}: {look.words}" for link, look in seen.items()]
        words += [f"{link} was not looked at {why}" for link, why in self._unseen.items()]
        return "; ".join(words)

    @staticmethod
    def _on_each(links: Sequence[Link], act: Callable[[Link], T]) -> dict[Link, T]:
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="links") as pool:
            return dict(zip(links, pool.map(act, links), strict=True))


@injects(plan.FlapFault)
class FlapInjection(LinksInjection[plan.FlapFault]):
    """Cut and mended in turn by a thread of its own. It bit when a link was seen down, and then up again."""

    def __init__(self, fault: plan.FlapFault, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._down, self._up = fault.down, fault.up
        self._enough = threading.Event()
        self._trouble = ""
        self._times = 0
        self._thread = threading.Thread(target=self._flap, name=f"flap-{fault.number}", daemon=True)

    def inject(self) -> str:
        """Begin to flap."""
        self._look_before()
        self._thread.start()
        return f"cut for {self._down:g} s, whole for {self._up:g} s: {_names(self.links)}"

    def confirm(self) -> str:
        """Probes are refused, then answered again."""
        seen = self._on_each(tuple(self._before), self._until_flapped)
        return "; ".join(f"{link}: {words}" for link, words in seen.items())

    def heal(self) -> str:
        """End the flapping, and mend."""
        self._enough.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._lift()
        if self._trouble:
            raise FaultNotConfirmed(f"flap: {self._trouble}")
        return f"mended {_names(self.links)} after {self._times} cuts"

    def _flap(self) -> None:
        try:
            while not self._enough.is_set():
                self._impose()
                self._times += 1
                self._enough.wait(self._down)
                self._lift()
                self._enough.wait(self._up)
        except (LinkError, FaultNotConfirmed) as error:
            self._trouble = str(error)

    def _until_flapped(self, link: Link) -> str:
        within_s = BITES_WITHIN_S + 2 * (self._down + self._up)
        told = []
        for passes, word in ((False, "down"), (True, "up")):
            try:
                wait_until(
                    lambda passes=passes: self._answers(link) is passes,  # type: ignore[misc]
                    what=f"{link} to be seen {word}",
                    timeout_s=within_s,
                    interval_s=0.01,
                    stop=self.context.stop,
                )
            except WaitTimeout as error:
                raise FaultNotConfirmed(f"flap: {error}{self._trouble and '; ' + self._trouble}") from error
            told.append(f"seen {word}")
        return ", ".join(told)

    def _answers(self, link: Link) -> bool:
        return self.mesh.probe(link, timeout_s=ANSWERS_WITHIN_S).passed


def _names(links: Sequence[Link]) -> str:
    return ", ".join(map(str, links))
