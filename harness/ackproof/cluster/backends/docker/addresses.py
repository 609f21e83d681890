"""Who listens where when nodes are containers. A cluster leases a block C, as on the process backend::

10.213.C.i                  node i, all listeners; 10.213.C.254 is this machine
127.0.0.1:P                 where clients reach a broker, and the harness a controller or an exporter: ports published
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ackproof.base.errors import BadInput
from ackproof.cluster.addresses import Address, Addresses
from ackproof.cluster.lease import is_free

HOST: Final = "127.0.0.1"
_FIRST_PORT: Final = 10_240
_PORTS_OF_A_BLOCK: Final = 80
"""254 blocks of them end below the ephemeral range. Two a node: a cluster of forty; three with exporters."""
_IN_CONTAINER: Final = 9092


def subnet(block: int) -> str:
    """The first three numbers of every address in the network of a cluster."""
    return f"10.213.{block}"


@dataclass(frozen=True)
class DockerAddresses(Addresses):
    """The addresses of one cluster of containers. `clients`, `controllers`, `exporters`: published ports by node."""

    clients: Mapping[int, int] = field(default_factory=dict)
    controllers: Mapping[int, int] = field(default_factory=dict)
    exporters: Mapping[int, int] = field(default_factory=dict)

    def node(self, node_id: int) -> str:
        """The container's address in its network."""
        return f"{subnet(self.block)}.{node_id}"

    def client(self, node_id: int) -> Address:
        """The published port of a broker."""
        return Address(HOST, self.clients[node_id])

    def listens(self, node_id: int) -> Address:
        return Address(self.node(node_id), self.external_port)

    def controller(self, node_id: int) -> Address:
        """The published port of a controller."""
        return Address(HOST, self.controllers[node_id])

    def exporter(self, node_id: int) -> Address:
        """The published port of a node's exporter."""
        return Address(HOST, self.exporters[node_id])


def docker_addresses(
    block: int, brokers: Iterable[int], controllers: Iterable[int], exporters: Iterable[int] = ()
) -> DockerAddresses:
    """Addresses with ports of this block that nobody listens at. Raises `BadInput` when too few are free."""
    first = _FIRST_PORT + _PORTS_OF_A_BLOCK * (block - 1)
    free = (port for port in range(first, first + _PORTS_OF_A_BLOCK) if is_free(Address(HOST, port)))
    try:
        return DockerAddresses(
            block,
            _IN_CONTAINER,
            {node: next(free) for node in brokers},
            {node: next(free) for node in controllers},
            {node: next(free) for node in exporters},
        )
    except RuntimeError as error:
        last = first + _PORTS_OF_A_BLOCK - 1
        raise BadInput(f"too few ports of {HOST} are free between {first} and {last}") from error
