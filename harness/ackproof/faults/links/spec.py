"""Base class of link faults: which links a fault affects, what it does to them, and the probe that confirms it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

from ackproof.base.errors import FaultNotConfirmed
from ackproof.base.wait import wait_until
from ackproof.experiment.backends import LINKS, Ability
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.fault import FaultSpec, Grip
from ackproof.experiment.roles import Role
from ackproof.experiment.spec import ClusterSpec
from ackproof.network.mesh import CLIENTS as CLIENTS
from ackproof.network.mesh import BlackHole, Cut, Effect, Link, Mesh, Reset

SILENT: Final = (Cut, BlackHole, Reset)
"""Effects under which nothing passes. If another fault silenced the link before, or holds its end, only continued
silence can be observed."""
ANSWERS_WITHIN_S: Final = 2.0
"""Maximum seconds for the answer to a probe. A healthy node takes 5 ms."""
SILENT_FOR_S: Final = 0.8
"""Seconds without an answer to a probe after which a link counts as silent."""
STANDS_STILL_S: Final = 0.3
"""Seconds over which the kernel's counters are compared, to see that a link carries nothing."""
_WAYS: Final = {Cut: ("refused", "reset", "closed"), Reset: ("reset", "closed"), BlackHole: ("silent",)}
"""Effect → results of a probe (`ProbeAnswer.how`) that show it."""
Holders: TypeAlias = Mapping[Role, Sequence[int]]
"""Ids of the nodes that held each role of the fault when it was due."""


@dataclass(frozen=True)
class LinkObservation:
    """Observation of a link at one moment. `passes`: True if requests are answered. `value`: the measured number, in a
    unit that depends on the kind of fault, such as seconds, bytes, packets per answer. `words`: the observation in
    words."""

    passes: bool
    value: float
    words: str

    def __str__(self) -> str:
        return self.words


class LinkFault(FaultSpec):
    """Base of faults of network links. A link is one direction, from the node or client that connects to the
    node that accepts."""

    HEALING = "mend"
    IN_FORCE_S = 5.0
    HOLD_KEY = "for"
    ASKS = frozenset({Ability.LINKS})
    NEEDS = LINKS

    EFFECT: ClassVar[Effect]
    """What a fault of this kind imposes on each of its links; not set if that depends on the fault's fields."""

    def effect(self) -> Effect:
        """Return what the fault imposes on each of its links: a cut, a delay, a loss, …"""
        return self.EFFECT

    def links(self, holders: Holders, spec: ClusterSpec) -> Iterator[Link]:
        """Yield the links between the nodes that the fault is aimed at. Links over which no node ever connects are
        yielded too; `links_there` leaves them out.

        `holders`: ids of the nodes that hold each role of the fault.
        """
        raise NotImplementedError

    def links_there(self, holders: Holders, spec: ClusterSpec) -> tuple[Link, ...]:
        """Return the links that exist, sorted. `holders`: ids of the nodes that hold each role of the fault. Raises
        `FaultNotConfirmed` if no link exists, or if a node is in two groups of a split or bridge."""
        return existing_links(self, self.links(holders, spec), spec)

    @property
    def in_silence(self) -> bool:
        """Return True if nothing passes and connections stay open, so that neither side notices at once."""
        return isinstance(self.effect(), BlackHole)

    @property
    def keeps_silent(self) -> bool:
        """Return True if nothing passes over the links during the whole fault."""
        return isinstance(self.effect(), SILENT)

    def at_odds(self, first: FaultSpec, spec: ExperimentSpec) -> str:
        """Return why this fault's effect cannot be observed while `first` is in force; '' if it can, or if that is
        uncertain.

        Most effects show only if something passes. They cannot be observed if `first` silences all these links, or
        keeps nodes at their ends down or stopped. A fault that itself only silences links has no such conflict. Raises
        `FaultNotConfirmed` if none of its links exists.
        """
        if isinstance(self.effect(), SILENT) or not (links := self.sure_links(spec)):
            return ""
        silent = first.sure_links(spec) if isinstance(first, LinkFault) and first.keeps_silent else ()
        nodes, least = first.reach(spec)
        away = least == len(nodes) and first.keeps(spec) in {Grip.DOWN, Grip.STILL}
        nothing = all(link in silent or (away and nodes & {*link}) for link in links)
        return f"lets nothing pass over {names(links)}" if nothing else ""

    def sure_links(self, spec: ExperimentSpec) -> tuple[Link, ...]:
        """Return the links of the fault if its fields alone determine the nodes, as `broker(1)` does; () if they do
        not, as `leader(orders/0)`.

        Raises `FaultNotConfirmed` if none of these links exists, or if a node is in two groups of a split or bridge.
        """
        cluster = spec.cluster
        held = {role: role.reach(cluster.members) for role in self.targets}
        if any(least < len(nodes) for nodes, least in held.values()):
            return ()
        return self.links_there({role: tuple(nodes) for role, (nodes, _) in held.items()}, cluster)

    # -- witness: it never asks what was imposed; a look raises `LinkError` if it is not possible -----------------

    def look(self, mesh: Mesh, link: Link) -> LinkObservation:
        """Probe the link now for the fault's effect, and return what was seen. This may take seconds. Here: look for
        silence; kinds with an effect other than those in `SILENT` override this method. Raises `LinkError` if the link
        cannot be probed."""
        return look_for_silence(mesh, link, _WAYS[type(self.effect())])

    def first_look(self, mesh: Mesh, link: Link) -> LinkObservation:
        """Probe the link before the fault, and return what was seen. Here: by one `look`. A kind whose effect resembles
        that of a busy machine overrides this method, and returns the fastest of several looks. Raises `LinkError` if
        the link cannot be probed."""
        return self.look(mesh, link)

    def shows(self, before: LinkObservation, now: LinkObservation) -> bool:
        """Return True if the observation `now`, compared with the observation `before` the fault, shows the fault's
        effect. Here: the link was passing before, and is not passing now."""
        return before.passes and not now.passes

    def is_mended(self, before: LinkObservation, now: LinkObservation) -> bool:
        """Return True if the observation `now`, compared with the observation `before` the fault, shows none of its
        effect any more. Here: the link is passing now."""
        return now.passes


def existing_links(fault: FaultSpec, links: Iterable[Link], spec: ClusterSpec) -> tuple[Link, ...]:
    """Return those of `links` that exist in the cluster, sorted, each once. Raises `FaultNotConfirmed` if none of them
    exists."""
    found = tuple(sorted(link for link in set(links) if exists(spec, link)))
    if not found:
        raise FaultNotConfirmed(f"aimed at nothing: {fault} names no link that there is")
    return found


def exists(spec: ClusterSpec, link: Link) -> bool:
    """Return True if a fault can concern this link: its source connects to its target. Clients connect to brokers only,
    and controllers that are not brokers to controllers only. Links from ZooKeeper servers, also to one another, count
    as missing, because they cannot be broken. So does a link from a node to itself."""
    source, target = link
    brokers, controllers = spec.broker_ids, spec.controller_ids
    if source == target:
        return False
    if source == CLIENTS:
        return target in brokers
    if spec.metadata.broker_controls and source not in brokers:
        return False
    return target in controllers or (source in brokers and target in brokers)


def names(links: Sequence[Link]) -> str:
    """Return the links as comma-separated text, such as `2→1, 3→1`."""
    return ", ".join(map(str, links))


def look_for_silence(
    mesh: Mesh, link: Link, ways: Sequence[str] = ("refused", "reset", "closed", "silent")
) -> LinkObservation:
    """Probe a link over which nothing should pass. `ways`: results of a probe (`ProbeAnswer.how`) that count as
    silence.

    In the result `passes` is False if the probe ended in one of `ways`, and the source received no byte in the next
    `STANDS_STILL_S` seconds. `value`: number of bytes received in these seconds. If the probe was answered, they are
    not counted, and `value` is 0. Raises `LinkError` if the link cannot be probed.
    """
    answer = mesh.probe(link, timeout_s=SILENT_FOR_S)
    if answer.passed:
        return LinkObservation(True, 0.0, f"probe {answer}")
    first = mesh.traffic(link)
    until = time.monotonic() + STANDS_STILL_S
    wait_until(
        lambda: time.monotonic() >= until, what="a measurement", timeout_s=5, interval_s=STANDS_STILL_S
    )
    later = mesh.traffic(link)
    came = later.received_since(first)
    words = f"probe {answer}, {came} bytes came back over {len(later.flows)} connections"
    return LinkObservation(came > 0 or answer.how not in ways, float(came), words)
