"""What a partition needs of the cluster around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ackproof_reference.messages import AlterPartition, Produce
from ackproof_simulator.clock import Clock
from ackproof_simulator.disks import Disks
from ackproof_simulator.network import Network
from ackproof_simulator.timing import Timing

P = TypeVar("P")
"""The partition that calls, as whoever is called knows it."""


@dataclass
class Surroundings(Generic[P]):
    """What a partition needs of the cluster around it."""

    clock: Clock
    network: Network
    disks: Disks
    timing: Timing
    record_bytes: int
    alter: Callable[[P, int, AlterPartition], None]
    learned: Callable[[P, int], None]
    advanced: Callable[[P, int], None] | None = None
    verified: Callable[[P, Produce], bool] = lambda partition, request: True
    """Whether the transaction coordinator knows of the transaction that a batch would open in a log (KIP-890)."""
