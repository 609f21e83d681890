"""Who the nodes of a cluster are, and where they listen."""

from __future__ import annotations

from dataclasses import dataclass

from ackproof.cluster.addresses import Address, Addresses
from ackproof.experiment.spec import ClusterSpec


@dataclass(frozen=True)
class Layout:
    """Who the nodes of a cluster are and where they listen: all that rendering needs beside the experiment."""

    spec: ClusterSpec
    addresses: Addresses
    clients_by_proxy: bool = False
    """Whether clients are sent to proxies in front of the brokers."""

    def advertised(self, broker: int) -> Address:
        """Where clients are told that a broker is."""
        return self.addresses.for_clients(broker) if self.clients_by_proxy else self.addresses.client(broker)

    @property
    def node_ids(self) -> tuple[int, ...]:
        """Brokers, then isolated controllers."""
        return tuple(dict.fromkeys((*self.spec.broker_ids, *self.spec.controller_ids)))

    @property
    def isolated_controllers(self) -> tuple[int, ...]:
        """Nodes that vote and hold no partitions."""
        return tuple(node for node in self.spec.controller_ids if node not in self.spec.broker_ids)

    def exporters(self) -> dict[int, Address]:
        """Where each of Kafka's own nodes would tell its metrics."""
        return {node: self.addresses.exporter(node) for node in self.spec.kafka_ids}

    def listens(self, node_id: int) -> Address:
        """Where a node is asked: a broker as by clients."""
        where = self.addresses.client if self.is_broker(node_id) else self.addresses.controller
        return where(node_id)

    def is_broker(self, node_id: int) -> bool:
        """Whether the node holds partitions."""
        return node_id in self.spec.broker_ids

    def is_controller(self, node_id: int) -> bool:
        """Whether the node votes, or is a ZooKeeper server."""
        return node_id in self.spec.controller_ids

    def title(self, node_id: int) -> str:
        """What a node is, in a word."""
        return "broker" if self.is_broker(node_id) else self.spec.metadata.server
