"""What the triggers of faults look at while a run goes on."""

from __future__ import annotations

from typing import Protocol

from ackproof.observe.sampler import Sampler
from ackproof.observe.scraper import Scraper
from ackproof.rundir.metrics import METRICS


class Counting(Protocol):
    """Clients that say what they have done so far: in all, of a topic, of a partition."""

    def acked(self, topic: str | None, partition: int | None) -> int:
        """Records acknowledged."""

    def read(self, topic: str | None, partition: int | None) -> int:
        """Records handed to live readers."""


class Gauges:
    """The gauges of triggers, from the clients' counters, the sampler, and who scrapes metrics, if anybody does."""

    def __init__(self, clients: Counting, sampler: Sampler, scraper: Scraper | None = None) -> None:
        self.acked = clients.acked
        self.read = clients.read
        self.look = sampler.fresh
        self._scraper = scraper

    def metric(self, name: str, node: int | None) -> float | None:
        """What the newest scrape told."""
        return None if self._scraper is None else self._scraper.fresh(METRICS[name], node)
