"""The network of one cluster: a bridge of its own with a fixed subnet, so that a node keeps its address."""

from __future__ import annotations

from typing import Final

from docker.types import IPAMConfig, IPAMPool
from testcontainers.core.network import Network

from ackproof.base.processes import RunTag
from ackproof.cluster.containers.engine import EngineFailed, spoken
from ackproof.cluster.containers.labels import labels

_TAKEN: Final = ("overlaps", "already exists", "conflicts with")


class SubnetTaken(EngineFailed):
    """Another network has (part of) the subnet."""


class Bridge:
    """A bridge network with the subnet `PREFIX.0/24`; the machine itself has the address `PREFIX.254` in it."""

    def __init__(self, name: str, prefix: str, tag: RunTag) -> None:
        self.gateway = f"{prefix}.254"
        pool = IPAMPool(subnet=f"{prefix}.0/24", gateway=self.gateway)
        self.network = Network(
            docker_network_kw={
                "driver": "bridge",
                "ipam": IPAMConfig(pool_configs=[pool]),
                "labels": labels(tag, "network"),
            }
        )
        self.network.name = name

    @property
    def name(self) -> str:
        return self.network.name

    def create(self) -> None:
        """Make it. Raises `SubnetTaken`, `EngineFailed`."""
        try:
            spoken(self.network.create)()
        except EngineFailed as error:
            if any(word in str(error).lower() for word in _TAKEN):
                raise SubnetTaken(str(error)) from error
            raise

    def close(self) -> None:
        """Give back the connection to the engine; the network stays."""
        self.network._docker.client.close()  # there is no other way to it
