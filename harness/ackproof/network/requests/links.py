"""The links of a cluster whose requests can be touched: their ways, rules on them, and the witness's questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ackproof.cluster.addresses import Address
from ackproof.experiment.links import APIS, Api, Flow
from ackproof.network.mesh import Link, LinkError
from ackproof.network.proxied import Sight
from ackproof.network.requests.asking import Asked, Asking, Here, ask
from ackproof.network.requests.proxy import RequestProxy
from ackproof.network.requests.rules import Counted, Rule
from ackproof.network.toxiproxy import Way

_CONTROLS: Final = ("ApiVersions", "Metadata", "ListOffsets", "AllocateProducerIds", "Vote")
"""Other APIs, of which there is one on every kind of connection, whatever the first is."""


@dataclass(frozen=True)
class RequestWay:
    """A way through the proxy, and the kinds of connections that go it."""

    way: Way
    flows: frozenset[Flow]


@dataclass(frozen=True)
class RequestWiring:
    """What they are made from. `ways`: by the link, in the order of the target's ports."""

    proxy: RequestProxy
    ways: Mapping[Link, tuple[RequestWay, ...]]
    sight: Sight


class RequestLinks:
    """Of nodes on this machine."""

    def __init__(self, wiring: RequestWiring) -> None:
        self.proxy = wiring.proxy
        self._ways = dict(wiring.ways)
        self._sight = wiring.sight

    def start(self, lease_descriptor: int, on_death: Callable[[str], None]) -> None:
        """Lay what must be there before any node. `on_death` hears of a proxy that ends by itself.

        Raises `LinkError`.
        """
        self.proxy.start(lease_descriptor=lease_descriptor)
        self.proxy.add(one.way for ways in self._ways.values() for one in ways)
        self.proxy.keep(on_death)

    def renew(self, node: int) -> None:
        """A node was started: lead its connections here anew, where they must be led. Raises `LinkError`."""

    def route(self, viewer: int, peer: int) -> str | None:
        """Where a node must look for a peer so that its requests can be touched; None: where the peer is."""
        ways = self._ways.get(Link(viewer, peer))
        return ways[0].way.listen.host if ways else None

    def ways(self, link: Link, api: Api) -> tuple[str, ...]:
        """The names of the ways on which this API is sent over a link. Raises `LinkError` where none was laid."""
        return tuple(one.way.name for one in self._carrying(link, api))

    def lay(self, rule: Rule) -> None:
        """Do so from the next frame on. Raises `LinkError`."""
        self.proxy.lay(rule)

    def lift(self, name: str) -> Counted:
        """Do so no more; what was counted. Raises `LinkError`."""
        self.check()
        return self.proxy.lift(name)

    def ask(self, link: Link, api: Api, asking: Asking) -> tuple[Asked, Asked]:
        """What comes of a question of this API that changes nothing, and of one beside it: of another API, or where
        the question names a partition, of another partition. Both are asked where the source's own files say that its
        peer is. Raises `LinkError`."""
        pid = self._sight.pid(link.target)
        if pid is None:
            raise LinkError(f"node {link.target} has no process")
        (way, *_) = self._carrying(link, api)
        address, where = self._address(link, way), self._where(link, pid)
        other = next(name for name in _CONTROLS if name != api.name and APIS[name].flows & way.flows)
        control = Asking(timeout_s=asking.timeout_s)
        if asking.elsewhere is not None:
            other, control = api.name, replace(control, named=asking.elsewhere)
        return ask(where, address, api.name, asking), ask(where, address, other, control)

    def _address(self, link: Link, way: RequestWay) -> Address:
        """Where the source's own files say that its peer is."""
        place, addresses = self._ways[link].index(way), self._sight.reaches(link)
        if len(addresses) <= place:
            raise LinkError(f"nobody knows where {link} leads")
        return addresses[place]

    def _where(self, link: Link, pid: int) -> Here:
        """Who asks, and whose process is asked."""
        del link
        return Here(pid)

    def end(self) -> None:
        """End what `start` began."""
        self.proxy.end()

    def check(self) -> None:
        """Raises `LinkError` when the proxy has ended by itself since the start, and all rules with it."""
        if self.proxy.died:
            raise LinkError(self.proxy.died)

    def _carrying(self, link: Link, api: Api) -> tuple[RequestWay, ...]:
        found = tuple(one for one in self._ways.get(link, ()) if one.flows & api.flows)
        if not found:
            raise LinkError(f"{link} was not laid so that {api.name} can be touched on it")
        return found
