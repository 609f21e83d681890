"""What keeps a cluster's metadata, as a backend sees it: `Metadata` before it runs, `MetadataQuorum` while it does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from ackproof.cluster.protocol import PartitionState
from ackproof.network.addresses import Address, Layout
from ackproof.network.mesh import Link
from ackproof.network.probe import ProbeProtocol
from ackproof.network.wire import Access, Connection
from ackproof.rundir.metadata import MetadataRecord
from ackproof.rundir.partition import TopicPartition

ASK_S: Final = 1.0
"""How long one look at one node may take."""

Runs = Callable[[int], bool]
"""Whether the process of a node runs (not paused)."""


class NotDecoded(ValueError):
    """A record is not what its decoder knows. The text says where and what."""


class MetadataQuorum(Protocol):
    """The servers that keep the metadata (`ClusterSpec.controller_ids`), looked at from outside."""

    def serves(self, node_id: int) -> bool:
        """Whether this server takes part and knows who leads the servers. Raises `WireError` without an answer."""

    def controller(self) -> int | None:
        """The active controller, None while nobody says that it is."""

    def partitions(self, topics: Iterable[str]) -> dict[TopicPartition, PartitionState]:
        """What the servers themselves hold of these topics; empty where brokers must be asked."""

    def registered(self) -> frozenset[int] | None:
        """Brokers that are registered with the servers; None where brokers must be asked. Raises `Unreachable`."""

    def bars(self, broker: int) -> bool:
        """Whether a process of this broker that has ended still keeps another one from starting."""

    def close(self) -> None:
        """Give back connections. May be called again."""


class Metadata(Protocol):
    """What follows for the nodes of a cluster from who keeps its metadata."""

    @property
    def access(self) -> Access:
        """The dialect in which its brokers are spoken to."""

    def main(self, *, broker: bool) -> str:
        """The class that the JVM of a broker, or of another node, runs."""

    def settings(
        self, layout: Layout, node_id: int, data: str, asked: Mapping[str, str]
    ) -> Mapping[str, str]:
        """All settings of a node: those that are `asked` for, and the necessities. `data`: its folder."""

    def lay_data(self, layout: Layout, node_id: int, data: Path, checkpoint: Path, cluster_id: str) -> None:
        """Write what a node's empty data folders must hold for it to start in this cluster."""

    def ports(self, layout: Layout, link: Link) -> tuple[int, ...]:
        """The ports of another node to which a node connects, the most used first; empty for no such link."""

    def speech(self, layout: Layout, node_id: int) -> ProbeProtocol:
        """What a node answers that is asked whether it is there."""

    def quorum(self, addresses: Mapping[int, Address], runs: Runs) -> MetadataQuorum:
        """The servers at these addresses."""

    def told_controller(self, broker: Connection) -> int | None:
        """The active controller as this broker tells. Raises `WireError`."""

    def decode(self, folders: Sequence[Path]) -> Iterator[MetadataRecord]:
        """What a majority of the servers wrote, from their data folders. Raises `NotDecoded` and OSError."""


def committed(ends: Sequence[int]) -> int:
    """What a majority of the servers have, by their log ends (their logs agree up to there): 0 for no server.

    A quorum's high watermark is at least this once the voters are at rest.
    """
    return sorted(ends, reverse=True)[len(ends) // 2] if ends else 0
