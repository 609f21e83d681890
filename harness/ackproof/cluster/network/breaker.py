"""What breaks the links of a cluster of our own, through the life of that cluster."""

from __future__ import annotations

from typing import Protocol

from ackproof.cluster.network.mesh import Mesh


class LinkBreaker(Protocol):
    """What breaks the links of one cluster."""

    @property
    def mesh(self) -> Mesh:
        """The links."""

    def route(self, viewer: int, peer: int) -> str:
        """Where a node reaches a peer."""

    def start(self, lease_descriptor: int) -> None:
        """Lay what must be there before any node. Raises `LinkError`."""

    def renew(self, node: int) -> None:
        """A node was started: break anew what is broken on its links. Raises `LinkError`."""

    def end(self) -> None:
        """Mend everything, and end what `start` began."""
