"""Converts batches of confluent-kafka's messages into arrays: partitions, offsets, leader epochs, timestamps,
identities."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Final

import numpy as np
import numpy.typing as npt
from confluent_kafka import Message

from ackproof.clients.parts import Column
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.payload import HEADER
from ackproof.rundir.payload_bulk import BulkDecoder

_milliseconds: Final = itemgetter(1)


class PartitionIndex:
    """Table from a message's topic and partition to its index in a reader's `places`."""

    def __init__(self, places: Sequence[TopicPartition]) -> None:
        self.places = tuple(places)
        self._base: dict[str, int] = {}
        self._index: list[npt.NDArray[np.int32]] = []
        for topic in dict.fromkeys(place.topic for place in places):
            own = [place.partition for place in places if place.topic == topic]
            index = np.full(max(own) + 1, -1, np.int32)
            for number, place in enumerate(places):
                if place.topic == topic:
                    index[place.partition] = number
            self._base[topic] = len(self._index)
            self._index.append(index)

    def find(self, messages: Sequence[Message]) -> npt.NDArray[np.int32]:
        """Return for each message the index of its partition in `places`. Every partition must be in `places`."""
        count = len(messages)
        partition = np.fromiter(map(Message.partition, messages), np.int32, count)
        if len(self._index) == 1:
            return self._index[0][partition]
        topic = np.fromiter(map(self._base.__getitem__, map(Message.topic, messages)), np.intp, count)  # type: ignore[arg-type]
        place = np.empty(count, np.int32)
        for number in np.unique(topic).tolist():
            there = topic == number
            place[there] = self._index[number][partition[there]]
        return place


def identities(messages: Sequence[Message], decode: BulkDecoder) -> dict[str, Column]:
    """Return the ledger columns that are decoded from the records' values: producer, seq, origin, origin_partition,
    intact.

    If a value holds no identity, the header `HEADER` of tombstones is decoded too. `decode` decodes many values at
    once.
    """
    decoded = decode(list(map(Message.value, messages)))
    if (decoded.producer < 0).any():
        decoded = decode([_payload(message) for message in messages])
    return {
        "producer": decoded.producer,
        "seq": decoded.seq,
        "origin": decoded.origin,
        "origin_partition": decoded.origin_partition,
        "intact": decoded.intact,
    }


def _payload(message: Message) -> bytes | None:
    """Return the bytes that hold a record's identity: its value or, for a tombstone, the header `HEADER`; None if there
    are none."""
    value = message.value()
    payload = value if value is not None else dict(message.headers() or ()).get(HEADER)
    return payload if isinstance(payload, bytes) else None


def offsets(messages: Sequence[Message]) -> npt.NDArray[np.int64]:
    """Return the offset of each record in its partition, in the order of the messages."""
    return np.fromiter(map(Message.offset, messages), np.int64, len(messages))


def timestamps_ms(messages: Sequence[Message]) -> npt.NDArray[np.int64]:
    """Return the timestamp of each record in milliseconds; -1 for an error event and for a record that has none."""
    return np.fromiter(map(_milliseconds, map(Message.timestamp, messages)), np.int64, len(messages))


def leader_epochs(messages: Sequence[Message]) -> npt.NDArray[np.int32]:
    """Return the leader epoch of each record, -1 if the broker did not send it."""
    count = len(messages)
    try:
        return np.fromiter(map(Message.leader_epoch, messages), np.int32, count)
    except TypeError:
        epochs = (message.leader_epoch() for message in messages)
        return np.fromiter((-1 if epoch is None else epoch for epoch in epochs), np.int32, count)
