"""Converts batches of confluent-kafka messages into arrays (partitions, offsets, leader epochs, timestamps,
identities). Finds the offset at which a reader starts, or resumes when its position left the log."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from operator import itemgetter
from threading import Event
from typing import Final

import numpy as np
import numpy.typing as npt
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from ackproof.clients.parts import Column
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.payload import HEADER
from ackproof.rundir.payload_bulk import BulkDecoder

_milliseconds: Final = itemgetter(1)
_ASK_S: Final = 0.5
_WAIT_S: Final = 0.05
_CUT_AT: Final = re.compile(r"broker end offset is (\d+)")
"""Pattern for the text of librdkafka's error. Only the text has the offset of a truncation: the offset field of the
error has the reader's position."""


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
        """Return for each message the index of its partition in `places`. Every partition must be in `places`, which is
        not checked."""
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
    """Return the ledger columns that are decoded from the payloads of records: producer, seq, origin, origin_partition,
    intact.

    The payload of a record is its value; that of a tombstone is the header `HEADER`. A record without a payload of this
    run gets producer -1 and seq -1. `intact` is True for each payload whose checksum holds, also of another run.
    `origin`: index in `decode.origins`. `decode` decodes many payloads at once.
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
    """Return the offset of each record in its partition, in the order of the messages. None of them may be an error."""
    return np.fromiter(map(Message.offset, messages), np.int64, len(messages))


def timestamps_ms(messages: Sequence[Message]) -> npt.NDArray[np.int64]:
    """Return the timestamp of each record in milliseconds; -1 for an error event and for a record that has none."""
    return np.fromiter(map(_milliseconds, map(Message.timestamp, messages)), np.int64, len(messages))


def leader_epochs(messages: Sequence[Message]) -> npt.NDArray[np.int32]:
    """Return the leader epoch of each record, in the order of the messages; -1 if the broker did not send it."""
    count = len(messages)
    try:
        return np.fromiter(map(Message.leader_epoch, messages), np.int32, count)
    except TypeError:
        epochs = (message.leader_epoch() for message in messages)
        return np.fromiter((-1 if epoch is None else epoch for epoch in epochs), np.int32, count)


def committed_offsets(client: Consumer, places: Sequence[TopicPartition], stop: Event) -> list[int] | None:
    """Return the committed offset of the client's group for each of `places`, -1 where it has none.

    Asks until the group coordinator answers for all of them, or until `stop` is set; then the result is None.
    """
    wanted = [ClientPartition(*place) for place in places]
    while not stop.is_set():
        try:
            found = client.committed(wanted, _ASK_S)
        except KafkaException:
            found = []
        offsets = {(one.topic, one.partition): one.offset for one in found if not one.error}
        if len(offsets) == len(wanted):
            return [max(-1, offsets[place]) for place in places]
        stop.wait(_WAIT_S)
    return None


def log_bounds(
    client: Consumer, places: Sequence[TopicPartition], timeout_s: float
) -> npt.NDArray[np.int64] | None:
    """Return low and high watermark of each of `places`, as an array (2, partitions); None if a leader did not answer.

    Each leader gets two requests, one after the other, for all of its partitions; `timeout_s` holds for each.
    `get_watermark_offsets` asks for a single partition, and waits up to fetch.wait.max.ms behind a Fetch of the client.
    """
    bounds = []
    for which in (OFFSET_BEGINNING, OFFSET_END):
        try:
            answers = client.offsets_for_times(
                [ClientPartition(*place, which) for place in places], timeout_s
            )
        except KafkaException:
            return None
        if any(answer.error for answer in answers):
            return None
        bounds.append([answer.offset for answer in answers])
    return np.array(bounds, np.int64)


def truncation_offset(text: str) -> int | None:
    """Return the offset at which the reader's last leader epoch ends in the leader's log (KIP-320); None if unknown.

    `text`: message of librdkafka's error.
    """
    match = _CUT_AT.search(text)
    return int(match[1]) if match else None


def resume_offset(position: int, low: int, high: int, cut: int | None) -> int:
    """Return the offset at which a reader resumes after its `position` has left the log [low, high).

    If the position is below `low`, this is `low`. Otherwise the log was truncated, and the result is `cut`, the offset
    of the truncation, limited to `low` … `high`. With `cut` None (unknown) it is `low`, so that the whole log is read
    again. Resuming at `high` would skip records that were written after the truncation.
    """
    if position < low:
        return low
    return low if cut is None else max(low, min(high, cut))


def show_error(error: KafkaError) -> None:
    """Write an error of librdkafka to standard error, as `NAME: text`."""
    sys.stderr.write(f"{error.name()}: {error.str()}\n")
    sys.stderr.flush()
