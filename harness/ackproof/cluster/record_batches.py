"""Record batches (format v2) as they lie in a log segment: headers at the speed of a scan, records where wanted.

Source: org.apache.kafka.common.record.DefaultRecordBatch and DefaultRecord.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length of what follows, partition leader epoch, magic, CRC-32C, attributes, last offset delta, base and
max timestamp (ms), producer id, producer epoch, base sequence, count of records."""
SMALLEST: Final = _HEADER.size
CRC_FROM: Final = 21
"""The CRC covers all from the attributes on."""
_BEFORE_LENGTH: Final = 12
_MAGIC: Final = 2
_COMPRESSION, _TRANSACTIONAL, _CONTROL = 0x07, 0x10, 0x20


class Batch(NamedTuple):
    """The header of a record batch, and where it lies in its file (bytes)."""

    position: int
    size: int
    first: int
    last: int
    epoch: int
    """The leader epoch in which a leader appended it."""
    crc: int
    """CRC-32C as the header says; it covers all from the attributes on, not the epoch."""
    attributes: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int
    """How many it says it has; compaction leaves fewer than `last - first + 1`."""

    @property
    def end(self) -> int:
        """Where the next one begins in the file."""
        return self.position + self.size

    @property
    def codec(self) -> int:
        """How its records are compressed; 0: not at all."""
        return self.attributes & _COMPRESSION

    @property
    def control(self) -> bool:
        """Whether it holds a marker (of a transaction, of a leader change) and nothing that a reader is handed."""
        return bool(self.attributes & _CONTROL)

    @property
    def transactional(self) -> bool:
        """Whether its records, or its marker, belong to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)


class Scan(NamedTuple):
    """What a segment holds. `rest`: bytes behind the last whole batch, which no broker reads."""

    batches: tuple[Batch, ...]
    rest: int


def scan(path: Path) -> Scan:
    """All whole batches of a segment, in order, by their headers alone. Raises OSError."""
    batches: list[Batch] = []
    with path.open("rb") as file:
        length = path.stat().st_size
        if length == 0:  # which cannot be mapped
            return Scan((), 0)
        with mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ) as data:
            position = 0
            while (batch := batch_at(data, position, length)) is not None:
                batches.append(batch)
                position = batch.end
            # A segment that is written to is as long as its index planned, the end of it zeros.
            rest = 0 if not any(data[position : position + SMALLEST]) else length - position
    return Scan(tuple(batches), rest)


def batch_at(data: bytes | mmap.mmap, position: int, length: int) -> Batch | None:
    """The batch that begins there; None where no whole one does."""
    if position + SMALLEST > length:
        return None
    first, follows, epoch, magic, crc, attributes, delta, *others = _HEADER.unpack_from(data, position)
    size = _BEFORE_LENGTH + follows
    if magic != _MAGIC or size < SMALLEST or delta < 0 or position + size > length:
        return None
    return Batch(position, size, first, first + delta, epoch, crc, attributes, *others)


class Record(NamedTuple):
    """One record of an uncompressed batch."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def records(path: Path, batch: Batch) -> Iterator[Record]:
    """The records of a batch. Raises ValueError for a compressed one and for what is no record."""
    if batch.codec:
        raise ValueError(f"{path}: the batch at offset {batch.first} is compressed")
    with path.open("rb") as file:
        file.seek(batch.position + SMALLEST)
        body = file.read(batch.size - SMALLEST)
    at = 0
    for _ in range(batch.records):
        size, at = varint(body, at)
        end = at + size
        if size < 0 or end > len(body):
            raise ValueError(f"{path}: a record of the batch at offset {batch.first} reaches beyond it")
        later, at = varint(body, at + 1)  # a byte of attributes, unused
        delta, at = varint(body, at)
        key, at = _bytes(body, at)
        value, at = _bytes(body, at)
        yield Record(batch.first + delta, batch.base_timestamp_ms + later, key, value)
        at = end  # headers are passed over


def _bytes(body: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = varint(body, at)
    if size < 0:
        return None, at
    if at + size > len(body):
        raise ValueError("a field reaches beyond its record")
    return body[at : at + size], at + size


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A signed (zigzag) number of variable length, and where it ends. Raises ValueError."""
    raw, at = unsigned_varint(data, at)
    return (raw >> 1) ^ -(raw & 1), at


def unsigned_varint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned number of variable length, and where it ends. Raises ValueError."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a number has no end")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
