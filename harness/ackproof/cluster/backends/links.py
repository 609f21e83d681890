"""Links between nodes, and from clients to nodes, in a cluster that ackproof starts: which of them go through proxies.

Up to two proxies are in a row on a link. Toxiproxy comes first: it breaks or slows the link. The request proxy comes
second: it changes single requests and responses. A node or client connects to the address of the first proxy of its
link (`listen`); a proxy connects to its `upstream`, the second proxy or the node itself. If a link has both, the second
one listens at `Addresses.behind` of the first. Between containers, packet rules of the kernel break links; Toxiproxy
only slows them.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ackproof.base.errors import BadInput, MissingTool
from ackproof.base.processes import RunTag
from ackproof.cluster.metadata import metadata_of
from ackproof.cluster.protocol import NodeEvent, OnNodeEvent
from ackproof.experiment.backends import LINKS, REQUESTS, Need
from ackproof.experiment.links import Flow
from ackproof.network.addresses import Address, Layout, node_name
from ackproof.network.kernel import table_name
from ackproof.network.mesh import CLIENTS, Link, LinkError
from ackproof.network.meshes import MeshWiring, ProxyMesh
from ackproof.network.requests.links import RequestLinks, RequestProxy, RequestWiring
from ackproof.network.toxiproxy import ProxyRoute, ProxyServer
from ackproof.provision.tools import find_nft, locate_toxiproxy, toxiproxy_server
from ackproof.rundir.timeline import ProxyDied

_EXTERNAL: Final = re.compile(r"^advertised\.listeners=.*EXTERNAL://([^:,\s]+):([0-9]+)", re.MULTILINE)


def find_tools(needs: Set[Need], *, containers: bool) -> str:
    """Check that the tools and rights for these needs (preparations that faults require) are there; build nothing.
    Return in words where Toxiproxy is, or how it will be built.

    Toxiproxy is the TCP proxy through which links go that faults break. The result is '' if no need is for such links
    (`LINKS`). `containers`: True if the nodes are containers, whose links need root, nsenter and nft. Raises `BadInput`
    if a tool or right is missing.
    """
    if containers and needs & (LINKS | REQUESTS.keys()):
        if os.geteuid() != 0:
            raise BadInput(
                "faults of links and requests on the backend docker are not possible without root: packet rules "
                "are set in the network namespaces of the containers"
            )
        if shutil.which("nsenter") is None:
            raise MissingTool(
                "nsenter", "it enters the containers' network namespaces", "apt-get install util-linux"
            )
    if Need.PACKETS in needs or (containers and needs & (LINKS | REQUESTS.keys())):
        find_nft()
    return locate_toxiproxy() if needs & LINKS else ""


@dataclass(frozen=True)
class _NodesSight:
    """The addresses at which nodes look for their peers (a `PeerView`), read from the nodes' own files below
    `nodes_dir`. By these addresses, probes of a link go where the source's own traffic goes. `pid` returns the process
    id of a node; None while it has no process."""

    layout: Layout
    nodes_dir: Path
    pid: Callable[[int], int | None]

    def links(self) -> frozenset[Link]:
        nodes = self.layout.node_ids
        pairs = (Link(source, target) for source in nodes for target in nodes)
        return frozenset(link for link in pairs if _ports(self.layout, link))

    def reaches(self, link: Link) -> tuple[Address, ...]:
        """Return the addresses to which the link's source connects: from the source's hosts file, or for clients from
        the advertised listener of the target. Empty if the file names none."""
        if link.source == CLIENTS:
            match = _EXTERNAL.search(self._read(link.target, "server.properties"))
            return (Address(match[1], int(match[2])),) if match else ()
        name = node_name(link.target)
        hosts = [line.split() for line in self._read(link.source, "hosts").splitlines()]
        address = next((words[0] for words in hosts if len(words) > 1 and name in words[1:]), None)
        return () if address is None else _addresses(address, self.layout, link)

    def listens(self, link: Link) -> tuple[Address, ...]:
        return _addresses(self.layout.addresses.node(link.target), self.layout, link)

    def is_zookeeper(self, link: Link) -> bool:
        return self.layout.spec.mode == "zookeeper" and not self.layout.is_broker(link.target)

    def _read(self, node: int, file: str) -> str:
        try:
            return (self.nodes_dir / str(node) / file).read_text(encoding="utf-8")
        except OSError:
            return ""


def wire(
    layout: Layout, needs: Set[Need], nodes_dir: Path, tag: RunTag, pid: Callable[[int], int | None]
) -> MeshWiring:
    """Return the wiring of the mesh: a Toxiproxy server with a route for every link that a fault can break.

    `needs`: preparations that faults require. `nodes_dir`: folder of the nodes' folders; the proxy's files go into
    `links` next to it. `pid` returns the process id of a node; None while it has no process. Raises `MissingTool` or
    `ProvisionFailed` if there is no Toxiproxy server and it cannot be built.
    """
    folder = nodes_dir.parent / "links"
    server = ProxyServer(toxiproxy_server(), layout.addresses.proxies, folder=folder, tag=tag)
    behind = frozenset(_requested(layout, needs))
    ways = {
        link: tuple(
            way._replace(upstream=layout.addresses.behind(way.listen)) if link in behind else way
            for way in _ways(layout, link)
        )
        for link in _named_links(layout, needs)
    }
    return MeshWiring(server, ways, _NodesSight(layout, nodes_dir, pid), table_name(tag.run_id))


def wire_requests(
    layout: Layout, needs: Set[Need], nodes_dir: Path, tag: RunTag, pid: Callable[[int], int | None]
) -> RequestWiring:
    """Return the wiring of the request proxy: a route for every link whose requests a fault can change. Parameters: as
    of `wire`."""
    proxy = RequestProxy(layout.addresses.requests, folder=nodes_dir.parent / "links", tag=tag)
    broken = frozenset(_named_links(layout, needs))
    ways = {
        link: tuple(
            way._replace(
                listen=layout.addresses.behind(way.listen) if link in broken else way.listen,
                flows=_flows(layout, link, way.upstream.port),
            )
            for way in _ways(layout, link)
        )
        for link in _requested(layout, needs)
    }
    return RequestWiring(proxy, ways, _NodesSight(layout, nodes_dir, pid))


def _requested(layout: Layout, needs: Set[Need]) -> Iterator[Link]:
    return _named_links(layout, {REQUESTS[need] for need in REQUESTS.keys() & needs})


def _flows(layout: Layout, link: Link, port: int) -> frozenset[Flow]:
    if link.source == CLIENTS:
        return frozenset({Flow.CLIENTS})
    if port == layout.addresses.internal_port:
        return frozenset({Flow.BROKERS})
    ends = {Flow.CONTROLLERS: layout.is_broker(link.source), Flow.QUORUM: layout.is_controller(link.source)}
    return frozenset(flow for flow, there in ends.items() if there)


def _ways(layout: Layout, link: Link) -> tuple[ProxyRoute, ...]:
    addresses = layout.addresses
    source, target = link
    if source == CLIENTS:
        return (ProxyRoute(f"clients-{target}", addresses.for_clients(target), addresses.client(target)),)
    listen = _addresses(addresses.link(source, target), layout, link)
    upstream = _addresses(addresses.node(target), layout, link)
    return tuple(
        ProxyRoute(f"{source}-{target}-{at.port}", at, to) for at, to in zip(listen, upstream, strict=True)
    )


def _addresses(host: str, layout: Layout, link: Link) -> tuple[Address, ...]:
    return tuple(Address(host, port) for port in _ports(layout, link))


def _ports(layout: Layout, link: Link) -> tuple[int, ...]:
    """Return the ports of the target to which the source of a link between nodes connects, the most used first; empty
    if there is no such link. Not for links from clients."""
    return () if link.source == link.target else metadata_of(layout.spec).ports(layout, link)


def _named_links(layout: Layout, needs: Set[Need]) -> Iterator[Link]:
    """Yield the links that faults with these needs can affect. `BROKER_LINKS` stands for all links among brokers and
    from brokers to controllers, `CONTROLLER_LINKS` for those among controllers, `CLIENT_LINKS` for those from clients
    to brokers.

    A fault may affect one role, such as a leader, but any node may hold this role: so all links of a class are
    included. If the controller is a broker (ZooKeeper), its links are those of a broker.
    """
    wanted = {Need.BROKER_LINKS}
    if layout.spec.metadata.broker_controls:
        wanted.add(Need.CONTROLLER_LINKS)  # the controller is a broker: its links are those of a broker
    for target in layout.node_ids:
        if Need.CLIENT_LINKS in needs and layout.is_broker(target):
            yield Link(CLIENTS, target)
        for source in layout.node_ids:
            link = Link(source, target)
            if not _ports(layout, link):
                continue
            between_brokers = layout.is_broker(source) and bool(wanted & needs)
            between_controllers = (
                layout.is_controller(source)
                and layout.is_controller(target)
                and Need.CONTROLLER_LINKS in needs
            )
            if between_brokers or between_controllers:
                yield link


CLIENTS_BY_PROXY: Final = frozenset({Need.CLIENT_LINKS, Need.CLIENT_REQUESTS})
"""Needs that put a proxy in front of each broker for clients."""


class Paths:
    """Proxies of a cluster's links: the mesh, which breaks links, and the request proxy. Each is None if no fault needs
    it.

    `make_mesh` and `make_requests` create them from their wiring, as the backend requires. `on_event` gets an event if
    the request proxy dies.
    """

    def __init__(
        self,
        make_mesh: Callable[[MeshWiring], ProxyMesh],
        make_requests: Callable[[RequestWiring], RequestLinks],
        on_event: OnNodeEvent,
    ) -> None:
        self.mesh: ProxyMesh | None = None
        self.requests: RequestLinks | None = None
        self._make_mesh = make_mesh
        self._make_requests = make_requests
        self._on_event = on_event
        self._trouble: LinkError | None = None

    def lay(
        self,
        layout: Layout,
        needs: Set[Need],
        nodes_dir: Path,
        tag: RunTag,
        pid: Callable[[int], int | None],
        lease_descriptor: int,
    ) -> None:
        """Start the proxies that these needs require, before any node starts. Raises `LinkError` if a proxy does
        not answer in time, `MissingTool` or `ProvisionFailed` without a Toxiproxy server.

        `pid` returns the process id of a node; None while it has no process. `lease_descriptor`: descriptor of the lock
        on the cluster's addresses, which the proxies keep open.
        """
        if needs & REQUESTS.keys():
            self.requests = self._make_requests(wire_requests(layout, needs, nodes_dir, tag, pid))
            self.requests.start(
                lease_descriptor, lambda why: self._on_event(NodeEvent(None, ProxyDied(why=why)))
            )
        if needs & LINKS:
            self.mesh = self._make_mesh(wire(layout, needs, nodes_dir, tag, pid))
            self.mesh.start(lease_descriptor)

    def route(self, viewer: int, peer: int) -> str | None:
        """Return the host of the proxy at which node `viewer` must connect to node `peer`; None if it connects to the
        host of `peer` itself."""
        routes = (laid.route(viewer, peer) for laid in (self.mesh, self.requests) if laid is not None)
        return next((route for route in routes if route is not None), None)

    def renew(self, node: int) -> None:
        """Set packet rules and redirections for a container that has started, whose new namespace has none. A
        `LinkError` is not raised here, because a start must not fail half way; `check` raises it."""
        for laid in (
            self.requests,
            self.mesh,
        ):  # the mesh comes last: rules laid later act first
            if laid is not None:
                try:
                    laid.renew(node)
                except LinkError as error:
                    self._trouble = error

    def check(self) -> None:
        """Raise `LinkError` if an earlier `renew` failed, or if the mesh's proxy has ended by itself. The request proxy
        is not checked: it is replaced when it ends.
        """
        if self._trouble is not None:
            raise self._trouble
        if self.mesh is not None:
            self.mesh.check()

    def end(self) -> None:
        """End all proxies. May be called again after they have ended."""
        try:
            if self.mesh is not None:
                self.mesh.end()
        finally:
            if self.requests is not None:
                self.requests.end()
