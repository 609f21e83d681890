"""The links of a cluster whose requests can be touched: their ways, rules on them, and the witness's questions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ackproof.cluster.network.mesh import Link, LinkError
from ackproof.cluster.network.proxied import Sight
from ackproof.cluster.network.requests.asking import Asked, ask
from ackproof.cluster.network.requests.proxy import RequestProxy
from ackproof.cluster.network.requests.rules import Counted, Rule
from ackproof.cluster.network.toxiproxy import Way
from ackproof.experiment.apis import APIS, Api, Flow

_CONTROLS: Final = ("ApiVersions", "Metadata", "ListOffsets", "AllocateProducerIds", "Vote")
"""Other APIs, of which there is one on every kind of connection, whatever the first is."""


@dataclass(frozen=True)
class RequestWay:
    """A way through the proxy, and the kinds of connections that go it."""

    way: Way
    flows: frozenset[Flow]


class RequestLinks:
    """`ways`: by the link, in the order of the target's ports."""

    def __init__(
        self, proxy: RequestProxy, ways: Mapping[Link, tuple[RequestWay, ...]], sight: Sight
    ) -> None:
        self.proxy = proxy
        self._ways = dict(ways)
        self._sight = sight

    def start(self, lease_descriptor: int) -> None:
        """Lay what must be there before any node. Raises `LinkError`."""
        self.proxy.start(lease_descriptor=lease_descriptor)
        self.proxy.add(one.way for ways in self._ways.values() for one in ways)

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
        return self.proxy.lift(name)

    def ask(
        self, link: Link, api: Api, *, timeout_s: float, look_after_s: float | None = None, wanted: int = 1
    ) -> tuple[Asked, Asked]:
        """What comes of a question of this API that changes nothing, and of one of another API beside it, both asked
        where the source's own files say that its peer is. Raises `LinkError`."""
        pid = self._sight.pid(link.target)
        if pid is None:
            raise LinkError(f"node {link.target} has no process")
        (way, *_) = self._carrying(link, api)
        place = self._ways[link].index(way)
        addresses = self._sight.reaches(link)
        if len(addresses) <= place:
            raise LinkError(f"nobody knows where {link} leads")
        address = addresses[place]
        other = next(name for name in _CONTROLS if name != api.name and _sent(name, way.flows))
        return (
            ask(address, pid, api.name, timeout_s=timeout_s, look_after_s=look_after_s, wanted=wanted),
            ask(address, pid, other, timeout_s=timeout_s),
        )

    def end(self) -> None:
        """End what `start` began."""
        self.proxy.end()

    def check(self) -> None:
        """Raises `LinkError` when the proxy has ended by itself."""
        self.proxy.check()

    def _carrying(self, link: Link, api: Api) -> tuple[RequestWay, ...]:
        found = tuple(one for one in self._ways.get(link, ()) if one.flows & api.flows)
        if not found:
            raise LinkError(f"{link} was not laid so that {api.name} can be touched on it")
        return found


def _sent(name: str, flows: frozenset[Flow]) -> bool:
    return bool(APIS[name].flows & flows)
