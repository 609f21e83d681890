"""Which leader epochs a producer's client has seen, and when: whether a partition changed leader meanwhile.

With retries=0 librdkafka still sends a record again after NOT_LEADER_OR_FOLLOWER and its like (`config`). Kafka gives
such an answer after an append only when the partition has got another leader, and with it another leader epoch, and
the client sends again only to a leader that it has learned of. So a record whose partition had one and the same epoch
before its send and after its report was appended by none of the sends before the one that was answered.

The epochs come with librdkafka's statistics; they never go down.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ackproof.rundir.partition import TopicPartition


@dataclass
class _Span:
    """One epoch, from when to when it was seen, in CLOCK_MONOTONIC ns."""

    epoch: int
    first_ns: int
    last_ns: int


class Epochs:
    """The spans of every place."""

    def __init__(self, places: Sequence[TopicPartition]) -> None:
        self._index = {place: number for number, place in enumerate(places)}
        self._spans: list[list[_Span]] = [[] for _ in places]

    def take(self, statistics: str) -> int:
        """Take note of one emission of statistics; when it was made, in CLOCK_MONOTONIC ns."""
        said = json.loads(statistics)
        at_ns = int(said["ts"]) * 1000
        for topic, about in said["topics"].items():
            for partition, state in about["partitions"].items():
                number = self._index.get(TopicPartition(topic, int(partition)))
                if number is not None and state["leader_epoch"] >= 0:
                    self._see(self._spans[number], state["leader_epoch"], at_ns)
        return at_ns

    def _see(self, spans: list[_Span], epoch: int, at_ns: int) -> None:
        if spans and spans[-1].epoch == epoch:
            spans[-1].last_ns = at_ns
        else:
            spans.append(_Span(epoch, at_ns, at_ns))

    def unchanged(
        self, place: npt.NDArray[np.int64], sent_ns: npt.NDArray[np.int64], done_ns: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """For each record, whether its place had one epoch from before `sent_ns` until after `done_ns`."""
        same = np.zeros(len(place), np.bool_)
        for number in np.unique(place).tolist():
            here = place == number
            for span in self._spans[number]:
                same |= here & (sent_ns > span.first_ns) & (done_ns < span.last_ns)
        return same
