"""What all parts of a simulated run have around them; requests that wait at a broker: who sent them, and when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from ackproof_reference.messages import AlterPartition, Fetch, Produce
from ackproof_simulator.clock import Clock
from ackproof_simulator.disks import Disks
from ackproof_simulator.network import Connection, Network
from ackproof_simulator.timing import Timing

if TYPE_CHECKING:
    from ackproof_simulator.partition import PartitionRun
    from ackproof_simulator.producers import ClientBatch, Producer


@dataclass
class Scene:
    """What all parts of a simulated run have around them; the controller and the clients are put into it last."""

    clock: Clock
    network: Network
    disks: Disks
    timing: Timing
    random: Random
    record_bytes: int
    alter: Callable[[PartitionRun, int, AlterPartition], None] = field(init=False)
    learned: Callable[[PartitionRun], None] = field(init=False)
    advanced: Callable[[PartitionRun, int], None] | None = None
    verified: Callable[[PartitionRun, Produce], bool] = lambda partition, request: True
    """Whether the transaction coordinator knows of the transaction that a batch would open in a log (KIP-890)."""


class Asked(NamedTuple):
    """A produce request at its leader: who sent it, over which connection, for which of its attempts."""

    client: Producer
    connection: Connection
    generation: int
    attempt: ClientBatch
    since: int
    request_timeout: int


class Parked(NamedTuple):
    """A fetch that waits at its leader."""

    request: Fetch
    connection: Connection
    token: int


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
