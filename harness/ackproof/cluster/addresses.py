"""Who listens where. A cluster has the block 127.C.x.y of the loopback network to itself (`lease`)::

127.C.1.i        node i: its INTERNAL and CONTROLLER listeners, known to the other nodes as node-i.test; its exporter
127.C.2.i        node i for clients (EXTERNAL), known by this literal
127.C.(50+i).j   where node i reaches node j when that directed link goes through a proxy
127.C.50.j       where clients reach broker j when these links go through proxies
127.C.4.1        the server of the proxies
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

LARGEST_NODE: Final = 204
"""Node ids that fit the scheme: 50 + id and id must be octets."""


class Address(NamedTuple):
    """Where a node listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Addresses:
    """The addresses of one cluster. `block` is C; the four ports are the same on every node."""

    block: int
    base_port: int

    def node(self, node_id: int) -> str:
        """Where node `node_id` itself listens for its peers."""
        return f"127.{self.block}.1.{node_id}"

    def client(self, node_id: int) -> Address:
        """Where clients reach broker `node_id`."""
        return Address(f"127.{self.block}.2.{node_id}", self.external_port)

    def listens(self, node_id: int) -> Address:
        """Where broker `node_id` itself listens for clients."""
        return self.client(node_id)

    def link(self, viewer: int, peer: int) -> str:
        """Where a proxy for the directed link from `viewer` to `peer` would listen."""
        return f"127.{self.block}.{50 + viewer}.{peer}"

    def for_clients(self, node_id: int) -> Address:
        """Where a proxy for the link from clients to broker `node_id` would listen."""
        return Address(self.link(0, node_id), self.external_port)

    @property
    def proxies(self) -> Address:
        """Where the server of the proxies takes orders."""
        return Address(f"127.{self.block}.4.1", self.base_port)

    def controller(self, node_id: int) -> Address:
        """Where controller `node_id` answers requests about the quorum."""
        return Address(self.node(node_id), self.controller_port)

    def exporter(self, node_id: int) -> Address:
        """Where node `node_id` tells its metrics, if it does."""
        return Address(self.node(node_id), self.exporter_port)

    @property
    def internal_port(self) -> int:
        """Replication and forwarded requests between brokers."""
        return self.base_port

    @property
    def controller_port(self) -> int:
        """The quorum."""
        return self.base_port + 1

    @property
    def external_port(self) -> int:
        """Clients."""
        return self.base_port + 2

    @property
    def exporter_port(self) -> int:
        """The nodes' own metrics."""
        return self.base_port + 3

    def listening(self, node_ids: Iterable[int]) -> list[Address]:
        """Every address that nodes with these ids may listen at."""
        return [
            address
            for node_id in node_ids
            for address in (
                Address(self.node(node_id), self.internal_port),
                Address(self.node(node_id), self.controller_port),
                self.client(node_id),
                self.exporter(node_id),
            )
        ]


def node_name(node_id: int) -> str:
    """The name by which peers know a node. `.test` is reserved (RFC 6761): no resolver knows it."""
    return f"node-{node_id}.test"


def hosts_file(viewer: int, own_address: str, peers: Mapping[int, str]) -> str:
    """The text of `viewer`'s hosts file (`-Djdk.net.hosts.file`), which replaces the resolver of its JVM.

    It names localhost, the machine (a JVM asks for it), the node itself at its real address, and each peer at the
    address where this node shall look for it.
    """
    lines = ["127.0.0.1 localhost"]
    machine = socket.gethostname()
    if machine != "localhost":
        lines.append(f"{own_address} {machine}")
    lines.append(f"{own_address} {node_name(viewer)}")
    lines += [f"{address} {node_name(peer)}" for peer, address in peers.items()]
    return "\n".join(lines) + "\n"
