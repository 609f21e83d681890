"""The links of a cluster of containers: among nodes by packet rules in their namespaces, from clients by proxies."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Set
from pathlib import Path
from typing import Final

from ackproof.base.errors import BadInput, MissingTool
from ackproof.base.processes import RunTag
from ackproof.cluster.addresses import Address
from ackproof.cluster.backends.process.links import NodesView, ports, ways_of
from ackproof.cluster.layout import Layout
from ackproof.cluster.network.joined import JoinedMesh
from ackproof.cluster.network.kernel import KernelMesh
from ackproof.cluster.network.mesh import CLIENTS, Link
from ackproof.cluster.network.packets import PacketRules, table_of
from ackproof.cluster.network.proxied import ProxiedMesh
from ackproof.cluster.network.server import ProxyServer
from ackproof.experiment.needs import LINKS, Need
from ackproof.provision.nft import find_nft
from ackproof.provision.progress import ProgressSink, ignore
from ackproof.provision.toxiproxy import toxiproxy_server

_INSTALL: Final = "apt-get install util-linux"


def require(needs: Set[Need], progress: ProgressSink = ignore) -> None:
    """Find or make what these needs take of this machine, before anything is started. Raises `BadInput`."""
    if not needs & LINKS:
        return
    if os.geteuid() != 0:
        raise BadInput(
            "faults of links on the backend docker are not possible without root: packet rules are laid from outside, "
            "in the network namespaces of the containers"
        )
    find_nft()
    if shutil.which("nsenter") is None:
        raise MissingTool("nsenter", "it enters the containers' network namespaces", _INSTALL)
    toxiproxy_server(progress)


class ContainerLinks:
    """What breaks the links of one cluster. `pid`: the first process of a node's container, None while there is none.

    `gateway`: this machine's address in the cluster's network. Raises `MissingTool` when there is no Toxiproxy server.
    """

    def __init__(
        self,
        layout: Layout,
        needs: Set[Need],
        nodes_dir: Path,
        tag: RunTag,
        pid: Callable[[int], int | None],
        gateway: str,
    ) -> None:
        self._layout = layout
        view = ContainersView(layout, nodes_dir, pid)
        table = table_of(tag.run_id)
        self._server = ProxyServer(
            toxiproxy_server(), *layout.addresses.proxies, folder=nodes_dir.parent / "links", tag=tag
        )
        clients = {link: ways for link, ways in ways_of(layout, needs).items() if link.source == CLIENTS}
        self._proxied = ProxiedMesh(self._server, clients, view, PacketRules(table))
        self._kernel = KernelMesh(view, table, self._server, gateway)
        self.mesh = JoinedMesh((self._proxied, self._kernel))

    def start(self, lease_descriptor: int) -> None:
        self._server.start(lease_descriptor=lease_descriptor)
        self._proxied.open()

    def route(self, viewer: int, peer: int) -> str:
        """Past all proxies: links among nodes are broken by rules."""
        return self._layout.addresses.direct(viewer, peer)

    def renew(self, node: int) -> None:
        """A node that is started again has a new namespace, in which its links are whole."""
        self._kernel.renew(node)

    def end(self) -> None:
        try:
            self._kernel.end()
            self._proxied.end()
        finally:
            self._server.end()


class ContainersView(NodesView):
    """How nodes in containers see their peers."""

    def links(self) -> frozenset[Link]:
        """Every link among nodes."""
        nodes = self._layout.node_ids
        pairs = (Link(source, target) for source in nodes for target in nodes)
        return frozenset(link for link in pairs if ports(self._layout, link))

    def listens(self, link: Link) -> tuple[tuple[str, int], ...]:
        """The container's address in the cluster's network."""
        host = self._layout.addresses.node(link.target)
        return tuple(Address(host, port) for port in ports(self._layout, link))
