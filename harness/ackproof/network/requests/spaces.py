"""Links whose requests can be touched, of nodes that have network namespaces of their own (containers).

The proxy listens for nodes on a host that all of them reach. In the namespace of a link's source new connections to the
target are redirected there; packet rules of the mesh see them as before, and a relay of the mesh leads there, too.
Links from clients, who are on this machine, go through the proxy as they do on processes.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ackproof.cluster.addresses import Address
from ackproof.cluster.lease import is_free
from ackproof.network.kernel import Spaces
from ackproof.network.mesh import CLIENTS, Link, LinkError
from ackproof.network.requests.asking import Here
from ackproof.network.requests.links import RequestLinks, RequestWiring
from ackproof.network.sockets import Flow, flows

_PORTS: Final = range(9_000, 10_240)


class InSpaces(Here):
    """Who asks is in one namespace, who is asked in another."""

    def __init__(self, pid: int, spaces: Spaces, link: Link) -> None:
        super().__init__(pid)
        self._spaces = spaces
        self._link = link

    def connect(self, address: Address, timeout_s: float) -> socket.socket:
        connect = super().connect
        if self._link.source == CLIENTS:
            return connect(address, timeout_s)
        return self._spaces.within(self._link.source, lambda: connect(address, timeout_s))

    def flows(self) -> list[Flow]:
        return self._spaces.within(self._link.target, flows)


class SpacesRequestLinks(RequestLinks):
    """`host`: where the proxy listens for nodes."""

    def __init__(self, wiring: RequestWiring, spaces: Spaces, host: str) -> None:
        free = _free(host)
        ways = {
            link: of_link
            if link.source == CLIENTS
            else tuple(replace(one, way=one.way._replace(listen=next(free))) for one in of_link)
            for link, of_link in wiring.ways.items()
        }
        super().__init__(replace(wiring, ways=ways))
        self._spaces = spaces

    def route(self, viewer: int, peer: int) -> str | None:
        """Nodes find their peers where these are."""
        return super().route(viewer, peer) if viewer == CLIENTS else None

    def renew(self, node: int) -> None:
        for link, ways in self._ways.items():
            if link.source != node:
                continue
            if (rules := self._spaces.rules(node)) is None:
                raise LinkError(f"node {node} has no process, and so no namespace")
            for one in ways:
                rules.redirect(f"requests {link}", one.way.upstream, one.way.listen)

    def taken(self, link: Link, address: Address) -> Address | None:
        """Where the proxy takes connections of this link that are meant for `address`; None: it does not."""
        ways = (one.way for one in self._ways.get(link, ()))
        return next((way.listen for way in ways if way.upstream == address), None)

    def end(self) -> None:
        try:
            self._spaces.end()
        finally:
            super().end()

    def _where(self, link: Link, pid: int) -> Here:
        return InSpaces(pid, self._spaces, link)


def _free(host: str) -> Iterator[Address]:
    """Addresses at which nobody listens. Raises `LinkError` when there is none left."""
    yield from (at for port in _PORTS if is_free(at := Address(host, port)))
    raise LinkError(f"too few ports of {host} are free between {_PORTS[0]} and {_PORTS[-1]}")
