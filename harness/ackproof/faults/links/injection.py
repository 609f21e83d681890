"""Injection of link faults: an effect is imposed on every link that the fault names, and lifted.

One witness is a probe: the harness connects as the link's source would, to the address that the source's own files give
for the target. The other is the kernel's counters of the source's connections.

A link with an end that does not run is broken too, but not probed. Nothing passes over it, as a fault that silences
links wants it. If another fault is known to hold that end, the link is probed once the node is back. At least one link
must have worked before, or be silent because of another fault.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from ackproof.base.errors import FaultNotConfirmed, WaitTimeout
from ackproof.cluster.protocol import NodeState
from ackproof.faults.context import FREE_WITHIN_S, FaultContext
from ackproof.faults.injection import Aim, Injection, injects
from ackproof.faults.links.spec import SILENT, LinkFault, LinkObservation, look_for_silence, names
from ackproof.network.mesh import CLIENTS, Imposed, Link, LinkError, Mesh
from ackproof.network.probe import Traffic
from ackproof.rundir.timeline import fault_name

BITES_WITHIN_S: Final = 10.0
MENDED_WITHIN_S: Final = 20.0
AT_ONCE: Final = 8
"""Number of links that are probed in parallel."""
T = TypeVar("T")
LinksT = TypeVar("LinksT", bound=LinkFault)


@injects(LinkFault)
class LinksInjection(Injection[LinksT]):
    """Impose one effect on all links of a fault. Several faults may affect one link: each is confirmed against the
    state that it found, and lifts only its own effect."""

    def __init__(self, fault: LinksT, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        mesh = context.cluster.mesh
        if mesh is None:
            raise FaultNotConfirmed(f"{fault.kind}: the links of this cluster were not laid to be broken")
        self.mesh: Mesh = mesh
        self.links = fault.links_there(aim.numbers, context.cluster.spec)
        self.effect = fault.effect()
        self._owner = _owner_name(fault.number)
        self._before: dict[Link, LinkObservation] = {}
        self._unobserved: dict[Link, str] = {}
        self._vouched: list[Link] = []
        self._below: dict[Link, frozenset[Imposed]] = {}
        self._silent: dict[Link, Traffic] = {}
        self._bitten: tuple[Link, ...] = ()

    def inject(self) -> str:
        self._look_before()
        self._impose()
        return f"{self.effect} on {names(self.links)}"

    def confirm(self) -> str:
        """Confirm the effect on every link that worked before; return what the probes saw, in words.

        A link that another fault had silenced must stay silent if its ends run. Raises `FaultNotConfirmed` for a link
        without the effect, unless another fault holds an end of it.
        """
        seen = on_each(tuple(self._before), self._await_effect) | self._look_at_silent()
        if isinstance(self.effect, SILENT):
            mute = [link for link, look in seen.items() if not look.passes]
            self._silent = on_each(mute, self.mesh.traffic)
        else:
            self._bitten = tuple(seen)
        return self._describe(seen)

    def heal(self) -> str:
        """Lift the effect from all links, and return what was done and seen, in words.

        First confirm that the effect lasted. A link that another fault had silenced before is probed if its ends run
        now: it must still carry nothing. Raises `FaultNotConfirmed`, after the attempt to lift, if one of these checks
        fails, or if a link cannot be mended.
        """
        try:
            lasted = self._confirm_lasting()
            there = [link for link in self._vouched if not self._is_away(link)]
            back = on_each(there, self._await_silence)
        finally:
            self._lift()
        return f"mended {names(self.links)}{lasted}{describe_looks(back)}"

    def confirm_healed(self) -> str:
        """Confirm that the broken links work again, and that the nodes at their ends answer, registered and unfenced.

        Links and nodes that another fault still affects are left out. Return what the probes saw, in words. Raises
        `FaultNotConfirmed` if a link does not work, or a node does not answer, in time.
        """
        links = self._await_a_look()
        seen = on_each(links, self._await_mending)
        self._await_ready()
        unseen = "".join(f"; {link} was not looked at again" for link in self._broken if link not in seen)
        return f"{self._describe(seen)}{unseen}; the nodes at their ends answer, registered and unfenced"

    # -- within -------------------------------------------------------------------------------------------------

    @property
    def _broken(self) -> tuple[Link, ...]:
        return (*self._before, *self._vouched)

    def _look_at_silent(self) -> dict[Link, LinkObservation]:
        ends_run = [link for link in self._vouched if not self._not_running(link)]
        return on_each(ends_run, self._await_silence)

    def _confirm_lasting(self) -> str:
        """Confirm that the effect lasted until now; return what was seen, as the end of a sentence. Raises
        `FaultNotConfirmed` if it did not last.

        Silent links must have carried no byte by the kernel's counters. Without silent links, each link is probed
        again, and must show the effect. Left out are links with an end that is away, and links on which other faults
        have begun or ended an effect since.
        """
        came = on_each(tuple(self._silent), self._count_bytes)
        for link, bytes_ in came.items():
            if bytes_:
                raise self.not_confirmed(
                    f"{link} carried {bytes_} bytes before it was mended ({self.effect})"
                )
        if self._silent:
            return "; until then no byte came back" + "".join(
                f"; whether anything came over {link} is unknown"
                for link, bytes_ in came.items()
                if bytes_ is None
            )
        comparable = [
            link
            for link in self._bitten
            if not self._excuse(link) and self._others(link) == self._below[link]
        ]
        return describe_looks(on_each(comparable, self._await_effect))

    def _count_bytes(self, link: Link) -> int | None:
        """Return the bytes that arrived at the source of a silent link since the fault was confirmed, by the kernel's
        counters. None if they cannot be read because an end of the link does not run. Raises `LinkError` if they cannot
        be read although both ends run."""
        try:
            return self.mesh.traffic(link).received_since(self._silent[link])
        except LinkError:
            if self._not_running(link):
                return None
            raise

    def _await_a_look(self) -> tuple[Link, ...]:
        """Wait until at least one of the links that this fault broke can be probed. Return all that can, or () if the
        fault never began.

        The wait lasts as long as another fault prevents probes, and `BITES_WITHIN_S` more. Raises `FaultNotConfirmed`
        after that.
        """
        if not self._broken:
            return ()  # the fault never began
        hindered_at = time.monotonic()

        def look() -> tuple[Link, ...] | None:
            nonlocal hindered_at
            if any(
                map(self._is_hindered, self._broken)
            ):  # before the look: a hindrance that ends meanwhile is no excuse
                hindered_at = time.monotonic()
            if links := tuple(link for link in self._broken if not self._excuse(link)):
                return links
            if time.monotonic() - hindered_at > BITES_WITHIN_S:
                raise self.not_confirmed(f"nothing can be seen of its healing: {self._excuses(self._broken)}")
            return None

        what = f"one of {names(self._broken)} to be looked at again"
        return self.wait_for(
            look, what, FREE_WITHIN_S, state=lambda: self._excuses(self._broken), interval_s=0.2
        )

    def _is_hindered(self, link: Link) -> bool:
        """Return True if the link cannot be judged for now: another fault holds an end or affects the link, or an end
        is coming back."""
        if self._holding_faults(link) or any(self.holds.returns(end) for end in link if end != CLIENTS):
            return True
        over = {"", *map(_owner_name, self.holds.over)}
        return any(other.owner not in over for other in self._others(link))

    def _excuses(self, links: Iterable[Link]) -> str:
        return "; ".join(f"{link} {self._excuse(link)}" for link in links)

    def _look_before(self) -> None:
        """Probe each link before the fault, for comparison at its confirmation and healing. Raises `FaultNotConfirmed`
        if no link can be broken, or if a link is broken though both ends run and no other fault is the cause."""
        self._below = {link: frozenset(self.mesh.imposed(link)) for link in self.links}
        looks = on_each(self.links, self._first_look)
        self._before = {link: look for link, look in looks.items() if look.passes}
        self._unobserved = {link: look.words for link, look in looks.items() if not look.passes}
        self._vouched = [link for link in self._unobserved if self._is_vouched_for(link)]
        if not self._before and not self._vouched:
            raise self.not_confirmed(
                "nothing to break: " + "; ".join(f"{link} {why}" for link, why in self._unobserved.items())
            )

    def _first_look(self, link: Link) -> LinkObservation:
        if why := self._not_running(link):
            return LinkObservation(False, 0.0, why)
        answer = None
        for _ in range(3):
            look = self._look(link, first=True)
            if look.passes:
                return look
            answer = look.words
            self._below[link] |= self._others(
                link
            )  # a flapping effect may show in one probe and not in the next
        if why := self._is_away(link) or _broken_by(self._below[link]):
            return LinkObservation(False, 0.0, why)
        raise self.not_confirmed(f"{link} was broken before the fault: {answer}")

    def _look(self, link: Link, *, first: bool = False) -> LinkObservation:
        """Probe a link and return what was seen. `first`: True before the fault begins; then use `first_look` of the
        fault, else its `look`.

        If the fault silences the link, and another fault had an effect on it before, look only for silence of any kind.
        If no probe is possible because an end does not run, the result says that the link does not pass.
        """
        stacked = self._below.get(link) and isinstance(self.effect, SILENT)
        try:
            if stacked:
                return look_for_silence(self.mesh, link)
            return (self.fault.first_look if first else self.fault.look)(self.mesh, link)
        except LinkError as error:
            if why := self._not_running(link):  # in containers no probe can start at a dead node
                return LinkObservation(False, 0.0, f"{error} {why}")
            raise

    def _is_vouched_for(self, link: Link) -> bool:
        """Return True if this fault silences its links, and another fault explains why this link is silent already.
        That fault keeps an end of the link from running, or has an effect on the link."""
        cause = self._holding_faults(link) if self._not_running(link) else self._below[link]
        return isinstance(self.effect, SILENT) and bool(cause)

    def _not_running(self, link: Link) -> str:
        """Return, in words, the first end of a link that does not run, with its state and the other faults that hold
        it. Return '' if both ends run."""
        for end in link:
            if end != CLIENTS and (state := self.context.cluster.node(end).state()) is not NodeState.RUNNING:
                others = self.holds.others(end, self.fault.number)
                by = f", held by fault {', '.join(map(fault_name, others))}" if others else ""
                return f"(node {end} is {state.value}{by})"
        return ""

    def _holding_faults(self, link: Link) -> tuple[int, ...]:
        return tuple(
            fault for end in link if end != CLIENTS for fault in self.holds.others(end, self.fault.number)
        )

    def _excuse(self, link: Link) -> str:
        """Return in words why a link cannot be judged now; '' if it can. One reason is that an end does not run, or is
        coming back. Another is an effect that another fault has put on the link since this fault began. For a link that
        was silent before, the effects from before count too."""
        below = frozenset[Imposed]() if link in self._vouched else self._below.get(link, frozenset())
        return self._is_away(link) or _broken_by(self._others(link) - below)

    def _is_away(self, link: Link) -> str:
        if why := self._not_running(link):
            return why
        back = (end for end in link if end != CLIENTS and self._is_coming_back(end))
        return next((f"(node {end} was started again a moment ago)" for end in back), "")

    def _others(self, link: Link) -> frozenset[Imposed]:
        return frozenset(one for one in self.mesh.imposed(link) if one.owner != self._owner)

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
            raise self.not_confirmed(f"could not mend: {'; '.join(failed)}")

    def _await_effect(self, link: Link) -> LinkObservation:
        before = self._before[link]
        return self.wait_for_good(
            partial(self._look, link),
            lambda now: self.fault.shows(before, now) or bool(self._holding_faults(link)),
            f"{self.effect} to show on {link}",
            BITES_WITHIN_S,
        )

    def _await_silence(self, link: Link) -> LinkObservation:
        return self.wait_for_good(
            partial(self._look, link),
            lambda now: not now.passes or bool(self._is_away(link)),
            f"{link} to carry nothing, as before",
            BITES_WITHIN_S,
        )

    def _await_mending(self, link: Link) -> LinkObservation:
        before = self._before.get(link)

        def is_mended(now: LinkObservation) -> bool:
            # A link that was silent before has no earlier look to compare with.
            healed = now.passes if before is None else self.fault.is_mended(before, now)
            return healed or bool(self._excuse(link))

        return self.wait_for_good(
            partial(self._look, link), is_mended, f"{link} to be whole", MENDED_WITHIN_S
        )

    def _await_ready(self) -> None:
        for end in nodes_of(self.links):
            while not self._is_elsewhere_held(end):
                seen = self.holds.changes(end)
                try:
                    self.await_ready(self.context.cluster.node(end))
                    break
                except FaultNotConfirmed:
                    if self.holds.changes(end) == seen and not self._is_elsewhere_held(end):
                        raise

    def _is_elsewhere_held(self, end: int) -> bool:
        """Return True if a node need not answer: it does not run, or any fault still has an effect on a link of the
        node."""
        running = self.context.cluster.node(end).state() is NodeState.RUNNING
        return not running or has_effects(self.mesh, end)

    def _describe(self, seen: dict[Link, LinkObservation]) -> str:
        words = [f"{link}: {look}" for link, look in seen.items()]
        words += [f"{link} was not looked at {why}" for link, why in self._unobserved.items()]
        return "; ".join(words)


def on_each(links: Sequence[Link], act: Callable[[Link], T]) -> dict[Link, T]:
    """Call `act` for each link, `AT_ONCE` links in parallel. Return the results by link.

    Raises the exception of the first link whose call raises; calls that have not begun by then are dropped.
    """
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="links") as pool:
        return dict(zip(links, pool.map(act, links), strict=True))


def nodes_of(links: Iterable[Link]) -> list[int]:
    """Return the ids of the nodes at the ends of these links, ascending."""
    return sorted({end for link in links for end in link if end != CLIENTS})


def has_effects(mesh: Mesh, node: int) -> bool:
    """Return True if some link of the node has an effect of any fault. Raises `LinkError` if the effects cannot be
    read."""
    return any(mesh.imposed(link) for link in mesh.links() if node in link)


def describe_looks(looks: Mapping[Link, LinkObservation]) -> str:
    """Return the last observations before the healing as the end of a sentence: `; LINK until then: OBSERVATION` for
    each link."""
    return "".join(f"; {link} until then: {look}" for link, look in looks.items())


def _broken_by(others: Iterable[Imposed]) -> str:
    return f"(broken already: {', '.join(sorted(other.text for other in others))})" if others else ""


def _owner_name(fault: int) -> str:
    return f"fault-{fault}"
