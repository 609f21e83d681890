"""What the triggers of faults look at while a run goes on."""

from __future__ import annotations

from ackproof.observe.sampler import Sampler
from ackproof.workload.clients import Workload


class Gauges:
    """The gauges of triggers, from the clients' counters and the sampler."""

    def __init__(self, workload: Workload, sampler: Sampler) -> None:
        self._workload = workload
        self._sampler = sampler

    def acked(self, topic: str | None, partition: int | None) -> int:
        return self._workload.acked(topic, partition)

    def read(self, topic: str | None, partition: int | None) -> int:
        return self._workload.read(topic, partition)

    def isr_size(self, topic: str, partition: int) -> int | None:
        return self._sampler.isr_size(topic, partition)

    def lag(self, topic: str, partition: int) -> int | None:
        return self._sampler.lag(topic, partition)
