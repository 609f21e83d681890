"""What the triggers of faults look at while a run goes on."""

from __future__ import annotations

from typing import Protocol

from ackproof.observe.sampler import Sampler


class Counting(Protocol):
    """Clients that say what they have done so far: in all, of a topic, of a partition."""

    def acked(self, topic: str | None, partition: int | None) -> int:
        """Records acknowledged."""

    def read(self, topic: str | None, partition: int | None) -> int:
        """Records handed to live readers."""


class Gauges:
    """The gauges of triggers, from the clients' counters and the sampler."""

    def __init__(self, clients: Counting, sampler: Sampler) -> None:
        self.acked = clients.acked
        self.read = clients.read
        self.look = sampler.fresh
