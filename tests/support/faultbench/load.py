"""A small load in the background: without records, no follower ever leaves the ISR."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException, Message, Producer

from ackproof.cluster.protocol import Cluster
from ackproof.experiment.spec import TopicSpec

PERIOD_S = 0.1
"""Seconds between two batches; a batch costs three brokers more than its records do."""


class Load:
    """Sends `rate` records per second with acks=1 to all partitions in turn, from a thread of its own."""

    def __init__(self, cluster: Cluster, topics: Mapping[str, TopicSpec], rate: float = 300.0) -> None:
        self._places = [
            (name, number) for name, topic in topics.items() for number in range(topic.partitions)
        ]
        self._acked = dict.fromkeys(self._places, 0)
        self._burst = max(1, round(rate * PERIOD_S))
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": "1",
                "linger.ms": 5,
                "log_level": 0,
                "message.timeout.ms": 20_000,
                "topic.metadata.refresh.interval.ms": 100,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self._thread = threading.Thread(target=self._run, name="bench-load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.purge()
        self._producer.flush(1.0)

    def acked(self, topic: str | None, partition: int | None) -> int:
        """Return the number of acknowledged records so far. `topic`, `partition` None: of all topics, of all
        partitions."""
        return sum(
            count
            for (name, number), count in self._acked.items()
            if topic in (None, name) and partition in (None, number)
        )

    def read(self, topic: str | None, partition: int | None) -> int:
        """Return 0: the load has no reader."""
        return 0

    def _run(self) -> None:
        at = 0
        value = b"x" * 100
        while not self._stop.wait(PERIOD_S):
            for _ in range(self._burst):
                topic, partition = self._places[at % len(self._places)]
                at += 1
                try:
                    self._producer.produce(topic, value, partition=partition, on_delivery=self._on_delivery)
                except (BufferError, KafkaException):
                    break  # the queue is full, or the topic is gone for now
            self._producer.poll(0)

    def _on_delivery(self, error: object, message: Message) -> None:
        topic, partition = message.topic(), message.partition()
        if error is None and topic is not None and partition is not None:
            self._acked[topic, partition] += 1
