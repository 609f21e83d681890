"""The rows of a reader in memory, filled batch by batch, and the thread that turns full buffers into parts."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
from confluent_kafka import Message

from ackproof.clients.memory import FreeMemory
from ackproof.clients.settings import ReaderSettings, installed_library
from ackproof.rundir.outcome import ReadPhase
from ackproof.rundir.part_order import ArrayPool, Column
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.payload import HEADER
from ackproof.rundir.payload_bulk import BulkDecoder

if TYPE_CHECKING:
    from ackproof.rundir.ledger import ConsumedRows

_WAITING_BUFFERS: Final = 4
_milliseconds: Final = itemgetter(1)
_COLUMNS: Final[Mapping[str, npt.DTypeLike]] = {
    "place": np.int32,
    "assignment": np.int32,
    "offset": np.int64,
    "leader_epoch": np.int32,
    "producer": np.int32,
    "seq": np.int64,
    "origin": np.int32,
    "origin_partition": np.int32,
    "intact": np.bool_,
    "read_ns": np.int64,
    "timestamp_ms": np.int64,
}
_PHASES: Final = {
    (False, False): ReadPhase.LIVE,
    (True, False): ReadPhase.FINAL,
    (False, True): ReadPhase.LIVE_COMMITTED,
    (True, True): ReadPhase.FINAL_COMMITTED,
}
"""By whether it is the final read, and whether transactions are read at read_committed."""


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
    """Up to `capacity` rows, and a batch more: one array for each column of the ledger that a batch fills."""

    def __init__(self, capacity: int, batch: int) -> None:
        self.capacity = capacity
        self.used = 0
        self.first_read_seq = 0
        self._columns: dict[str, Column] = {
            name: np.empty(capacity + batch, dtype) for name, dtype in _COLUMNS.items()
        }

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
        rows = slice(self.used, self.used + len(messages))
        decoded = decode(list(map(Message.value, messages)))
        if (decoded.producer < 0).any():
            decoded = decode([_told(message) for message in messages])
        values: dict[str, Column | int] = {
            "place": place,
            "assignment": assignment,
            "offset": offset,
            "leader_epoch": _epochs(messages),
            "producer": decoded.producer,
            "seq": decoded.seq,
            "origin": decoded.origin,
            "origin_partition": decoded.origin_partition,
            "intact": decoded.intact,
            "read_ns": read_ns,
            "timestamp_ms": timestamp_ms,
        }
        for name, value in values.items():
            self._columns[name][rows] = value
        self.used = rows.stop

    def rows(self, settings: ReaderSettings, phase: ReadPhase, origins: Sequence[str]) -> ConsumedRows:
        """The rows as the ledger takes them."""
        from ackproof.rundir.ledger import ConsumedRows

        return ConsumedRows(
            reader=settings.reader,
            phase=phase,
            places=settings.places,
            origins=origins,
            read_seq=np.arange(self.first_read_seq, self.first_read_seq + self.used, dtype=np.int64),
            library=installed_library(),
            **{name: column[: self.used] for name, column in self._columns.items()},
        )


def _told(message: Message) -> bytes | None:
    """The value of a record; of a tombstone what stands for it in a header."""
    value = message.value()
    told = value if value is not None else dict(message.headers() or ()).get(HEADER)
    return told if isinstance(told, bytes) else None


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

    def __init__(self, folder: Path, settings: ReaderSettings, origins: list[str]) -> None:
        self._folder, self._settings, self._origins = folder, settings, origins
        self._phase = _PHASES[settings.ends is not None, settings.committed]
        self._queue: queue.Queue[RowBuffer | None] = queue.Queue(_WAITING_BUFFERS)
        self._written: queue.SimpleQueue[RowBuffer] = queue.SimpleQueue()
        self._error: Exception | None = None
        self._free = FreeMemory()
        self._thread = threading.Thread(target=self._run, name="parts", daemon=True)
        self._thread.start()

    def put(self, buffer: RowBuffer) -> None:
        """Hand over a buffer that is not touched any more. Raises what the thread met before."""
        self._queue.put(buffer)
        if self._error is not None:
            raise self._error

    def empty_buffer(self) -> RowBuffer | None:
        """One that was written, to be filled again: fresh memory costs more than what is put into it."""
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

        number, shelf = self._settings.first_part, ArrayPool()
        while (buffer := self._queue.get()) is not None:
            if self._error is not None:
                continue
            try:
                from ackproof.rundir.ledger import write_consumed

                rows = buffer.rows(self._settings, self._phase, tuple(self._origins))
                write_consumed(self._folder, number, rows, shelf)
                number += 1
                # One is filled, one is written: more there are only behind a backlog.
                if self._written.empty():
                    buffer.used = 0
                    self._written.put(buffer)
                del buffer, rows  # while the next one is awaited
                self._free.give_back()
            except Exception as error:  # noqa: BLE001 - raised in the main thread, which ends the client with it
                self._error = error
