"""What a partition needs of the cluster around it, and what its leader remembers of followers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ackproof.model.simulate.clock import Clock
from ackproof.model.simulate.disks import Disks
from ackproof.model.simulate.network import Network
from ackproof.model.simulate.timing import Timing
from ackproof_reference.messages import AlterPartition, Produce

if TYPE_CHECKING:
    from ackproof.model.simulate.partition import PartitionRun


@dataclass
class Caught:
    """What a leader remembers of a follower's fetches, to tell whether it lags (kafka.cluster.Replica)."""

    caught_up: int
    fetched: int
    end_then: int

    def note(self, offset: int, end: int, now: int) -> None:
        """A fetch from an offset of a log that ends there; `now` by the leader's clock (Replica.updateFetchState)."""
        if offset >= end:
            self.caught_up = max(self.caught_up, now)
        elif offset >= self.end_then:
            self.caught_up = max(self.caught_up, self.fetched)
        self.fetched, self.end_then = now, end


@dataclass
class Surroundings:
    """What a partition needs of the cluster around it."""

    clock: Clock
    network: Network
    disks: Disks
    timing: Timing
    record_bytes: int
    alter: Callable[[PartitionRun, int, AlterPartition], None]
    learned: Callable[[PartitionRun, int], None]
    advanced: Callable[[PartitionRun, int], None] | None = None
    verified: Callable[[PartitionRun, Produce], bool] = lambda partition, request: True
    """Whether the transaction coordinator knows of the transaction that a batch would open in a log (KIP-890)."""
