"""The rows of a reader in memory, filled batch by batch, and the thread that turns full buffers into parts."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
from confluent_kafka import Message

from ackproof.rundir.outcome import ReadPhase
from ackproof.rundir.part_order import Shelf
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.payload_bulk import BulkDecoder

if TYPE_CHECKING:
    from ackproof.rundir.ledger import ConsumedRows

_WAITING_BUFFERS: Final = 4
_milliseconds: Final = itemgetter(1)


class PartitionIndex:
    """From what a message says of its place to an index into the places of a reader."""

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

    def of(self, messages: Sequence[Message]) -> npt.NDArray[np.int32]:
        """The index of each message's place."""
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


class RowBuffer:
    """Up to `capacity` rows, and a batch more."""

    def __init__(self, capacity: int, batch: int) -> None:
        room = capacity + batch
        self.capacity = capacity
        self.used = 0
        self.first_read_seq = 0
        self.place = np.empty(room, np.int32)
        self.assignment = np.empty(room, np.int32)
        self.offset = np.empty(room, np.int64)
        self.leader_epoch = np.empty(room, np.int32)
        self.producer = np.empty(room, np.int32)
        self.seq = np.empty(room, np.int64)
        self.origin = np.empty(room, np.int32)
        self.origin_partition = np.empty(room, np.int32)
        self.intact = np.empty(room, np.bool_)
        self.read_ns = np.empty(room, np.int64)
        self.timestamp_ms = np.empty(room, np.int64)

    def add(
        self,
        messages: Sequence[Message],
        place: npt.NDArray[np.int32],
        offset: npt.NDArray[np.int64],
        timestamp_ms: npt.NDArray[np.int64],
        assignment: int,
        read_ns: int,
        decode: BulkDecoder,
    ) -> None:
        """Append records that were handed over at `read_ns` (from the run's start)."""
        count = len(messages)
        rows = slice(self.used, self.used + count)
        decoded = decode(list(map(Message.value, messages)))
        self.place[rows] = place
        self.assignment[rows] = assignment
        self.offset[rows] = offset
        self.leader_epoch[rows] = _epochs(messages)
        self.producer[rows] = decoded.producer
        self.seq[rows] = decoded.seq
        self.origin[rows] = decoded.origin
        self.origin_partition[rows] = decoded.origin_partition
        self.intact[rows] = decoded.intact
        self.read_ns[rows] = read_ns
        self.timestamp_ms[rows] = timestamp_ms
        self.used += count

    def rows(
        self, reader: int, phase: ReadPhase, places: Sequence[TopicPartition], origins: Sequence[str]
    ) -> ConsumedRows:
        """The rows as the ledger takes them."""
        from ackproof.rundir.ledger import ConsumedRows

        used = slice(0, self.used)
        return ConsumedRows(
            reader=reader,
            phase=phase,
            places=places,
            origins=origins,
            place=self.place[used],
            assignment=self.assignment[used],
            read_seq=np.arange(self.first_read_seq, self.first_read_seq + self.used, dtype=np.int64),
            offset=self.offset[used],
            leader_epoch=self.leader_epoch[used],
            producer=self.producer[used],
            seq=self.seq[used],
            origin=self.origin[used],
            origin_partition=self.origin_partition[used],
            intact=self.intact[used],
            read_ns=self.read_ns[used],
            timestamp_ms=self.timestamp_ms[used],
        )


def timestamps_ms(messages: Sequence[Message]) -> npt.NDArray[np.int64]:
    """The time of each record in milliseconds; -1 of a record without one, and of an error that stands for one."""
    return np.fromiter(map(_milliseconds, map(Message.timestamp, messages)), np.int64, len(messages))


def _epochs(messages: Sequence[Message]) -> npt.NDArray[np.int32]:
    count = len(messages)
    try:
        return np.fromiter(map(Message.leader_epoch, messages), np.int32, count)
    except TypeError:  # a broker that does not say
        epochs = (message.leader_epoch() for message in messages)
        return np.fromiter((-1 if epoch is None else epoch for epoch in epochs), np.int32, count)


class PartWriter:
    """Writes buffers as parts, in a thread of its own. At most a few buffers wait; then `put` does."""

    def __init__(
        self,
        folder: Path,
        reader: int,
        phase: ReadPhase,
        places: Sequence[TopicPartition],
        origins: list[str],
        first_part: int = 0,
    ) -> None:
        self._folder, self._first_part = folder, first_part
        self._reader, self._phase, self._places, self._origins = reader, phase, places, origins
        self._queue: queue.Queue[RowBuffer | None] = queue.Queue(_WAITING_BUFFERS)
        self._written: queue.SimpleQueue[RowBuffer] = queue.SimpleQueue()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="parts", daemon=True)
        self._thread.start()

    def put(self, buffer: RowBuffer) -> None:
        """Hand over a buffer that is not touched any more. Raises what the thread met before."""
        self._queue.put(buffer)
        if self._error is not None:
            raise self._error

    def empty_buffer(self) -> RowBuffer | None:
        """A buffer that was written, to be filled again: fresh memory costs more than what is put into it."""
        try:
            return self._written.get_nowait()
        except queue.Empty:
            return None

    def finish(self) -> None:
        """Wait until all is written. Raises what the thread met."""
        self._queue.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        import ackproof.rundir.ledger  # noqa: F401  - while the client connects, not when the first part is due

        number, shelf = self._first_part, Shelf()
        while (buffer := self._queue.get()) is not None:
            if self._error is not None:
                continue
            try:
                from ackproof.rundir.ledger import write_consumed

                rows = buffer.rows(self._reader, self._phase, self._places, tuple(self._origins))
                write_consumed(self._folder, number, rows, shelf)
                number += 1
                buffer.used = 0
                self._written.put(buffer)
            except Exception as error:  # noqa: BLE001 - raised in the main thread, which ends the client with it
                self._error = error
