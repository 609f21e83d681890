"""One mesh made of several, each of which can break links of its own."""

from __future__ import annotations

from collections.abc import Sequence

from ackproof.cluster.network.failure import LinkError
from ackproof.cluster.network.mesh import Effect, Link, Mesh
from ackproof.cluster.network.probe import Answer
from ackproof.cluster.network.sockets import Traffic


class JoinedMesh:
    """Each link belongs to the first of `meshes` that knows it."""

    def __init__(self, meshes: Sequence[Mesh]) -> None:
        self._meshes = tuple(meshes)

    def links(self) -> frozenset[Link]:
        """The links that can be broken here."""
        return frozenset().union(*(mesh.links() for mesh in self._meshes))

    def impose(self, owner: str, link: Link, effect: Effect) -> None:
        """Lay an effect on a link. Raises `LinkError`."""
        self._of(link).impose(owner, link, effect)

    def lift(self, owner: str, link: Link) -> None:
        """Take this owner's effect from a link. Raises `LinkError`."""
        self._of(link).lift(owner, link)

    def imposed(self, link: Link) -> tuple[str, ...]:
        return self._of(link).imposed(link)

    def probe(self, link: Link, *, timeout_s: float = 1.0, size: int = 0, asks: int = 1) -> Answer:
        """Connect as `source` would, and ask."""
        return self._of(link).probe(link, timeout_s=timeout_s, size=size, asks=asks)

    def closing(self, link: Link, *, timeout_s: float) -> float | None:
        """Seconds from the end of a probe's sending until the node's end arrives; None: not within `timeout_s`."""
        return self._of(link).closing(link, timeout_s=timeout_s)

    def traffic(self, link: Link) -> Traffic:
        """The kernel's counters of all connections that `source` now has to `target`."""
        return self._of(link).traffic(link)

    def check(self) -> None:
        """Raises `LinkError` when what serves the links has ended by itself."""
        for mesh in self._meshes:
            mesh.check()

    def _of(self, link: Link) -> Mesh:
        for mesh in self._meshes:
            if link in mesh.links():
                return mesh
        raise LinkError(f"the link {link} was not laid so that it can be broken")
