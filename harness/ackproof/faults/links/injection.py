"""Faults of links: an effect is imposed on every link that the fault names, and lifted.

The witnesses are connections that the harness makes as the link's source would, where that source's own files say
that its peer is, and the kernel's counters of the source's own connections (`witnesses`). A link of which an end does
not run is broken too, but nobody can vouch for it, unless another fault is known to hold that end: that nothing passes
is then as this fault wants it, and is looked at again once the node is back. At least one link must be vouched for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, Final, TypeVar

from ackproof.base.errors import FaultNotConfirmed, WaitTimeout
from ackproof.base.wait import wait_until
from ackproof.cluster.network.failure import LinkError
from ackproof.cluster.network.mesh import (
    CLIENTS,
    BlackHole,
    Cut,
    Link,
    Mesh,
    Reset,
)
from ackproof.cluster.protocol import NodeState
from ackproof.faults.holds import Holds
from ackproof.faults.injection import Aim, FaultContext, Injection, injects
from ackproof.faults.links import specification as plan
from ackproof.faults.links.aims import links_of
from ackproof.faults.links.witnesses import ANSWERS_WITHIN_S, NOTHING_PASSES, Look, witness_of
from ackproof.rundir.timeline import fault_name

BITES_WITHIN_S: Final = 10.0
MENDED_WITHIN_S: Final = 20.0
READY_WITHIN_S: Final = 60.0
SILENT: Final = (Cut, BlackHole, Reset)
"""Effects under which nothing passes: what another fault had silenced before, or whose end it holds, shows no more
than that it stays so."""
AT_ONCE: Final = 8
"""Links that are looked at in parallel."""

T = TypeVar("T")
LinksT = TypeVar("LinksT", bound=plan.OfLinks)


@injects(plan.OfLinks)
class LinksInjection(Injection[LinksT]):
    """One effect on all links of a fault.

    Several faults may lie on a link: each is confirmed against what it found there, and lifts its own effect alone.
    """

    SILENCES: ClassVar[bool] = True
    """Whether a link that is silent already is as this fault wants it."""

    def __init__(self, fault: LinksT, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        mesh = context.cluster.mesh
        if mesh is None:
            raise FaultNotConfirmed(f"{fault.kind}: the links of this cluster were not laid to be broken")
        self.mesh: Mesh = mesh
        self.links = links_of(fault, aim.numbers, context.cluster.spec)
        self.effect = fault.effect()
        self._owner = f"fault-{fault.number}"
        self._witness = witness_of(self.effect)
        self.holds = context.holds or Holds()
        self._before: dict[Link, Look] = {}
        self._unseen: dict[Link, str] = {}
        self._vouched: list[Link] = []
        self._below: dict[Link, frozenset[str]] = {}

    def inject(self) -> str:
        """Look at each link, then impose the effect on all."""
        self._look_before()
        self._impose()
        return f"{self.effect} on {_names(self.links)}"

    def confirm(self) -> str:
        """Every link of which both ends run shows the effect; what another fault had silenced stays silent."""
        seen = self._on_each(tuple(self._before), self._until_bitten)
        silenced = [link for link in self._vouched if not self._not_running(link)]
        seen |= self._on_each(silenced, self._until_silent)
        return self._told(seen)

    def heal(self) -> str:
        """Lift the effect from all links, after a look at those whose ends have come back since it was imposed."""
        try:
            back = self._on_each(
                [link for link in self._vouched if not self._excuse(link)], self._until_silent
            )
        finally:
            self._lift()
        late = "".join(f"; {link} since its ends are back: {look.words}" for link, look in back.items())
        return f"mended {_names(self.links)}{late}"

    def confirm_healed(self) -> str:
        """Links that were seen to break are seen to be whole; nodes whose links are all whole take part again."""
        seen = self._on_each(
            tuple(link for link in self._before if not self._excuse(link)), self._until_whole
        )
        self._until_ready()
        return self._told(seen) + "; the nodes at their ends answer, registered and unfenced"

    # -- within -------------------------------------------------------------------------------------------------

    def _look_before(self) -> None:
        """What stands below the effect: it is confirmed, and its healing too, against that."""
        self._below = {link: frozenset(self.mesh.imposed(link)) for link in self.links}
        looks = self._on_each(self.links, self._first_look)
        self._before = {link: look for link, look in looks.items() if look.passes}
        self._unseen = {link: look.words for link, look in looks.items() if not look.passes}
        self._vouched = [link for link in self._unseen if self._is_vouched_for(link)]
        if not self._before and not self._vouched:
            raise FaultNotConfirmed(
                f"{self.fault.kind}: nothing to break: "
                + "; ".join(f"{link} {why}" for link, why in self._unseen.items())
            )

    def _first_look(self, link: Link) -> Look:
        if why := self._not_running(link):
            return Look(False, 0.0, why)
        answer = None
        for _ in range(3):
            look = self._look(link)
            if look.passes:
                return look
            answer = look.words
        if why := self._not_running(link) or self._excuse(link, before=True):
            return Look(False, 0.0, why)
        raise FaultNotConfirmed(f"{self.fault.kind}: {link} was broken before the fault: {answer}")

    def _look(self, link: Link) -> Look:
        """In which way nothing passes, a link that had another effect before does not show."""
        stacked = self._below.get(link) and isinstance(self.effect, SILENT)
        return (NOTHING_PASSES if stacked else self._witness).look(self.mesh, link)

    def _is_vouched_for(self, link: Link) -> bool:
        """Whether nothing passes a link as this fault wants it, and another fault is known to be the cause."""
        if not self.SILENCES or not isinstance(self.effect, SILENT):
            return False
        return bool(self._held(link)) if self._not_running(link) else bool(self._below[link])

    def _not_running(self, link: Link) -> str:
        """Which end of a link does not run, and who holds it; empty when both run."""
        for end in link:
            if end != CLIENTS and (state := self.context.cluster.node(end).state()) is not NodeState.RUNNING:
                others = self.holds.others(end, self.fault.number)
                by = f", held by fault {', '.join(map(fault_name, others))}" if others else ""
                return f"(node {end} is {state.value}{by})"
        return ""

    def _held(self, link: Link) -> tuple[int, ...]:
        """The other faults that hold an end of a link."""
        return tuple(
            fault for end in link if end != CLIENTS for fault in self.holds.others(end, self.fault.number)
        )

    def _excuse(self, link: Link, *, before: bool = False) -> str:
        """Why nothing can be said of a link now: an end does not run or is only coming back, or other effects lie on
        it than when this fault came. `before`: any other effect at all."""
        if why := self._not_running(link):
            return why
        for end in link:
            if end != CLIENTS and self._is_coming_back(end):
                return f"(node {end} was started again a moment ago)"
        own = (f"{self._owner}-", f"{self._owner} ")
        others = {words for words in self.mesh.imposed(link) if not f"{words} ".startswith(own)}
        if others - (frozenset() if before else self._below.get(link, frozenset())):
            return f"(broken already: {', '.join(sorted(others))})"
        return ""

    def _is_coming_back(self, end: int) -> bool:
        if not self.holds.returns(end):
            return False
        try:
            self.context.cluster.node(end).await_ready(0.0)
        except WaitTimeout:
            return True
        return False

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
        before = self._before[link]
        return self._until(
            link, lambda now: self._witness.bit(before, now) or bool(self._held(link)), what, BITES_WITHIN_S
        )

    def _until_silent(self, link: Link) -> Look:
        what = f"{link} to carry nothing, as before"
        return self._until(link, lambda now: not now.passes or bool(self._excuse(link)), what, BITES_WITHIN_S)

    def _until_whole(self, link: Link) -> Look:
        what = f"{link} to be whole"
        before = self._before[link]
        return self._until(
            link,
            lambda now: self._witness.whole(before, now) or bool(self._excuse(link)),
            what,
            MENDED_WITHIN_S,
        )

    def _until(self, link: Link, good: Callable[[Look], bool], what: str, within_s: float) -> Look:
        last: list[Look] = []

        def look() -> Look | None:
            last[:] = [self._look(link)]
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
            while not self._is_elsewhere_held(end):
                seen = self.holds.changes(end)
                try:
                    self.context.cluster.node(end).await_ready(READY_WITHIN_S)
                    break
                except WaitTimeout as error:
                    if self.holds.changes(end) == seen and not self._is_elsewhere_held(end):
                        raise FaultNotConfirmed(f"{self.fault.kind}: healing: {error}") from error

    def _is_elsewhere_held(self, end: int) -> bool:
        """Whether a node need not answer: it does not run, or another fault lies on one of its links."""
        touching = [link for link in self.mesh.links() if end in link]
        running = self.context.cluster.node(end).state() is NodeState.RUNNING
        return not running or any(map(self.mesh.imposed, touching))

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

    SILENCES: ClassVar[bool] = False

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
