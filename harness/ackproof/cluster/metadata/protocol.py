"""Interfaces of a metadata mode (KRaft or ZooKeeper). A backend uses `Metadata` to set up nodes, and `MetadataQuorum`
to ask the running servers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from ackproof.cluster.queries import PartitionState
from ackproof.network.addresses import Address, Layout, node_name
from ackproof.network.mesh import Link
from ackproof.network.wire import Access, Connection
from ackproof.rundir.metadata import MetadataRecord
from ackproof.rundir.partition import TopicPartition

ASK_S: Final = 1.0
"""Time-out in seconds of one request to one node."""

Runs = Callable[[int], bool]
"""Function that returns True if the process of a node runs and is not paused."""


class NotDecoded(ValueError):
    """A metadata log, or a record in it, has a form that the decoder does not know. The text says where and why."""


class BodyReader:
    """Reader of an encoded record, which reads `data` forward from position `at`. Its methods raise ValueError or
    struct.error beyond the end of the data."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def number(self, form: str) -> int:
        """Read a big-endian number of struct type `b`, `h`, `i` or `q`."""
        (value,) = struct.unpack_from(f">{form}", self.data, self.at)
        self.at += struct.calcsize(form)
        return int(value)

    def flag(self) -> bool:
        return self.number("b") != 0

    def take(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise ValueError("a field reaches beyond its record")
        self.at += size
        return self.data[self.at - size : self.at]


class MetadataQuorum(Protocol):
    """The servers that keep the cluster's metadata (`ClusterSpec.controller_ids`: KRaft voters or ZooKeeper servers),
    seen from outside."""

    def serves(self, node_id: int) -> bool:
        """Return True if this KRaft voter knows the quorum's leader, or this ZooKeeper server serves clients. Raises
        `WireError` if it does not answer."""

    def controller(self) -> int | None:
        """Return the id of the active controller; None while none is known, or if no server answers."""

    def partitions(self, topics: Iterable[str]) -> dict[TopicPartition, PartitionState]:
        """Return the state of these topics' partitions according to the ZooKeeper servers. Empty if no server
        answers. Always empty with KRaft, where brokers must be asked instead."""
        return {}

    def registered(self) -> frozenset[int] | None:
        """Return the brokers that are registered with the ZooKeeper servers. Raises `Unreachable` if ZooKeeper does not
        answer. Always None with KRaft, where the brokers' own metadata has the registrations."""
        return None

    def bars(self, broker: int) -> bool:
        """Return True if a new process of this broker cannot start yet, because the session of its ended process is
        still open.

        False also if ZooKeeper does not answer. Always False with KRaft: there a new process waits by itself until
        the old session has ended.
        """
        return False

    def close(self) -> None:
        """Close the connections. May be called again."""


class Metadata(Protocol):
    """A metadata mode: KRaft or ZooKeeper. The main classes, settings, data folders and ports of nodes depend on it."""

    @property
    def access(self) -> Access:
        """Return how to connect to the brokers of this mode, and which API versions they understand."""

    def main(self, *, broker: bool) -> str:
        """Return the Java main class of a broker, or of a controller or ZooKeeper server (`broker` False)."""

    def settings(
        self, layout: Layout, node_id: int, data: str, wanted: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Return all settings of a node by name. A broker or controller has the `wanted` settings and those of the
        harness, which override `wanted`. A ZooKeeper server has the harness's settings only. `data`: the node's data
        folder."""

    def lay_data(self, layout: Layout, node_id: int, data: Path, checkpoint: Path, cluster_id: str) -> None:
        """Format a node's empty data folders for this cluster. `checkpoint`: the metadata snapshot that a new
        controller begins with; used only in KRaft mode."""

    def ports(self, layout: Layout, link: Link) -> tuple[int, ...]:
        """Return the target's ports to which the link's source connects, the most used first; empty if there are
        none.
        """

    def quorum(self, addresses: Mapping[int, Address], runs: Runs) -> MetadataQuorum:
        """Return a client of the KRaft voters or ZooKeeper servers at these addresses. `runs(node)` is True if the
        node's process runs and is not paused."""

    def controller_seen_by(self, broker: Connection) -> int | None:
        """Return the active controller according to this broker; None if the broker knows none. Raises `WireError` if
        the broker gives no usable answer."""

    def decode(self, folders: Sequence[Path]) -> Iterator[MetadataRecord]:
        """Decode the metadata changes that a majority of the servers have logged. `folders`: the metadata log folder of
        each server (`NodeDisk.metadata_dir`).

        Raises `NotDecoded` for records in an unknown form, ValueError for compressed or invalid records, OSError if a
        file cannot be read.
        """


def listener_settings(layout: Layout, node_id: int, *, controller: bool) -> dict[str, str]:
    """Return the settings for the listeners of a Kafka node: INTERNAL and EXTERNAL for a broker, and
    CONTROLLER if `controller` is True."""
    addresses, own, name = layout.addresses, layout.addresses.node(node_id), node_name(node_id)
    rows: list[tuple[str, object, object]] = []
    if layout.is_broker(node_id):
        port = addresses.internal_port
        rows.append(("INTERNAL", f"{own}:{port}", f"{name}:{port}"))
        rows.append(("EXTERNAL", addresses.listens(node_id), layout.advertised(node_id)))
    if controller:
        port = addresses.controller_port
        rows.append(("CONTROLLER", f"{own}:{port}", f"{name}:{port}"))
    values = {
        "listeners": ",".join(f"{listener}://{bound}" for listener, bound, _ in rows),
        "advertised.listeners": ",".join(f"{listener}://{advertised}" for listener, _, advertised in rows),
    }
    return values | ({"inter.broker.listener.name": "INTERNAL"} if layout.is_broker(node_id) else {})


def committed(ends: Sequence[int]) -> int:
    """Return the highest log end that a majority of the servers have reached; 0 for no server. `ends`: log end of each
    server (with ZooKeeper: its last zxid).

    In a quorum at rest, without an append or election under way, this is the high watermark.
    """
    return sorted(ends, reverse=True)[len(ends) // 2] if ends else 0
