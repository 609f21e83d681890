"""How the nodes of a cluster are spoken to: over which line, and in which dialect of the protocol."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from ackproof.cluster.addresses import Address

Opener: TypeAlias = Callable[[Address, float], socket.socket]
"""`opener(address, seconds)`: a blocking line on which the protocol can be spoken. Raises OSError."""


def plain(address: Address, timeout_s: float) -> socket.socket:
    """TCP, without encryption or credentials."""
    line = socket.create_connection(address, timeout=timeout_s)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return line


@dataclass(frozen=True)
class Access:
    """`connect_s`: how long somebody who looks many times a second tries to open a line.

    `describes_partitions`: whether DescribeTopicPartitions is understood. In ZooKeeper mode it is not: Metadata
    says the same, but for eligible leader replicas, which there are none of.
    """

    opener: Opener = plain
    describes_partitions: bool = True
    connect_s: float = 0.02


KRAFT: Final = Access()
"""A KRaft cluster on this machine: a listener accepts at once, even one whose process is paused."""
ZOOKEEPER: Final = Access(describes_partitions=False)
"""A cluster in ZooKeeper mode on this machine."""
