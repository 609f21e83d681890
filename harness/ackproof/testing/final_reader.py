"""The final read in this process: every record of some partitions with what it says, for the ledger and for content."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.payload import Identity
from ackproof.testing.book import Content
from ackproof.testing.identity import identity_of
from ackproof.workload.config import reader_config
from ackproof.workload.final_readers import ReadOutcome

_BATCH: Final = 1000
_WAIT_S: Final = 0.05
_IDLE_S: Final = 20.0


@dataclass(frozen=True)
class FinalRecord:
    """One record as it stands in the log at the end."""

    place: int
    offset: int
    leader_epoch: int
    identity: Identity
    content: Content
    read_ns: int
    timestamp_ms: int


class FinalReader:
    """Reads places from offsets to offsets; `records` holds what it found."""

    def __init__(self, places: Sequence[TopicPartition], bootstrap: str, run_id: str, origin_ns: int) -> None:
        self.records: list[FinalRecord] = []
        self._places = tuple(places)
        self._number = {place: number for number, place in enumerate(places)}
        self._run_id = run_id
        self._origin_ns = origin_ns
        self._config = reader_config({}, "read_uncommitted", bootstrap, "f0", final=True)
        self._problems: dict[str, str] = {}

    def read(self, starts: tuple[int, ...], ends: tuple[int, ...]) -> ReadOutcome:
        """Read each place up to its end, or until nothing comes for long. See `final_read.Read`."""
        reached = list(starts)
        try:
            consumer = Consumer({**self._config, "log_level": 0})
        except KafkaException as error:
            return ReadOutcome(starts, {}, [f"the final reader could not start: {error}"])
        try:
            consumer.assign(
                [
                    ClientPartition(place.topic, place.partition, start)
                    for place, start, end in zip(self._places, starts, ends, strict=True)
                    if start < end
                ]
            )
            moved = time.monotonic()
            while any(at < end for at, end in zip(reached, ends, strict=True)):
                before = sum(reached)
                for message in consumer.consume(_BATCH, _WAIT_S):
                    self._take(message, reached)
                now = time.monotonic()
                if sum(reached) != before:
                    moved = now
                elif now - moved > _IDLE_S:
                    break
        finally:
            consumer.close()
        return ReadOutcome(tuple(reached), self._problems, [])

    def _take(self, message: Message, reached: list[int]) -> None:
        place = TopicPartition(message.topic() or "", _number(message.partition()))
        number = self._number[place]
        offset = _number(message.offset())
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                reached[number] = max(reached[number], offset)
            else:
                self._problems[str(place)] = error.str()
            return
        key, value = message.key(), message.value()
        self.records.append(
            FinalRecord(
                number,
                offset,
                _number(message.leader_epoch()),
                identity_of(self._run_id, message.headers(), key, value),  # type: ignore[arg-type]
                Content(place.topic, key, value),
                time.monotonic_ns() - self._origin_ns,
                message.timestamp()[1],
            )
        )
        reached[number] = max(reached[number], offset + 1)


def _number(said: int | None) -> int:
    return -1 if said is None else said
