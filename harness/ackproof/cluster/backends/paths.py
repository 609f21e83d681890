"""What stands between the nodes of a cluster of our own, and between clients and nodes: only what faults ask for."""

from __future__ import annotations

from collections.abc import Callable, Set
from pathlib import Path
from typing import Final

from ackproof.base.processes import RunTag
from ackproof.cluster.backends.links import wire, wire_requests
from ackproof.cluster.layout import Layout
from ackproof.cluster.protocol import NodeEvent, OnNodeEvent
from ackproof.experiment.backends import LINKS, REQUESTS, Need
from ackproof.network.mesh import LinkError
from ackproof.network.meshes import ProxiedMesh, Wiring
from ackproof.network.requests.links import RequestLinks, RequestWiring
from ackproof.rundir.timeline import ProxyDied

CLIENTS_BY_PROXY: Final = frozenset({Need.CLIENT_LINKS, Need.CLIENT_REQUESTS})
"""Needs for which clients are sent to proxies in front of the brokers."""


class Paths:
    """The mesh, and the links whose requests can be touched; each None where no fault needs it."""

    def __init__(
        self,
        make_mesh: Callable[[Wiring], ProxiedMesh],
        make_requests: Callable[[RequestWiring], RequestLinks],
        on_event: OnNodeEvent,
    ) -> None:
        self.mesh: ProxiedMesh | None = None
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
        """Start what the needs speak of, before any node. `pid` tells the process of a node. Raises `LinkError`."""
        if needs & REQUESTS.keys():
            self.requests = self._make_requests(wire_requests(layout, needs, nodes_dir, tag, pid))
            self.requests.start(lease_descriptor, self._died)
        if needs & LINKS:
            self.mesh = self._make_mesh(wire(layout, needs, nodes_dir, tag, pid))
            self.mesh.start(lease_descriptor)

    def _died(self, why: str) -> None:
        self._on_event(NodeEvent(None, ProxyDied(why=why)))

    def route(self, viewer: int, peer: int) -> str | None:
        """Where a node must look for a peer; None: where the peer is."""
        routes = (laid.route(viewer, peer) for laid in (self.mesh, self.requests) if laid is not None)
        return next((route for route in routes if route is not None), None)

    def renew(self, node: int) -> None:
        """A node was started. What goes wrong is told by `check`: a node's start must not fail half way."""
        for laid in (self.requests, self.mesh):  # what breaks a link comes before what touches its requests
            if laid is not None:
                try:
                    laid.renew(node)
                except LinkError as error:
                    self._trouble = error

    def check(self) -> None:
        """Raises `LinkError` when anything of it has ended by itself that was not replaced."""
        if self._trouble is not None:
            raise self._trouble
        if self.mesh is not None:
            self.mesh.check()

    def end(self) -> None:
        """End all of it. May be called again."""
        try:
            if self.mesh is not None:
                self.mesh.end()
        finally:
            if self.requests is not None:
                self.requests.end()
