"""Replica logs on disk: record batches (format v2) in segments, offset checkpoints, and cutting a log.

Source: org.apache.kafka.common.record.DefaultRecordBatch and DefaultRecord.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

from ackproof.rundir.partition import TopicPartition

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""Header of a record batch: base offset, length of what follows, partition leader epoch, magic, CRC-32C, attributes,
last offset delta, base and max timestamp (ms), producer id and epoch, base sequence, count of records."""
SMALLEST: Final = _HEADER.size
CRC_FROM: Final = 21
"""Position in a batch, in bytes, of the attributes. The batch's CRC covers everything from there on."""
_BEFORE_LENGTH: Final = 12
_MAGIC: Final = 2
_COMPRESSION, _APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20


class Batch(NamedTuple):
    """The header of a record batch (DefaultRecordBatch). `position`, `size`: start and length in the segment file, in
    bytes. `first`, `last`: offsets of its first and last record when it was appended. Producer fields are -1 without
    idempotence."""

    position: int
    size: int
    first: int
    last: int
    epoch: int
    """Leader epoch of the leader that appended the batch."""
    crc: int
    """CRC-32C from the header. It covers the batch from the attributes on, so not the leader epoch."""
    attributes: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int
    """Number of records in the header; after compaction it can be below `last - first + 1`."""

    @property
    def end(self) -> int:
        """Position of the next batch in the file, in bytes."""
        return self.position + self.size

    @property
    def codec(self) -> int:
        """Code of the records' compression: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & _COMPRESSION

    @property
    def append_time(self) -> bool:
        """True if `max_timestamp_ms` is the broker's time of the append (LogAppendTime), False if records keep the
        timestamps of their producer."""
        return bool(self.attributes & _APPEND_TIME)

    @property
    def control(self) -> bool:
        """True for a control batch (such as a transaction marker or leader change), which consumers never return."""
        return bool(self.attributes & _CONTROL)

    @property
    def transactional(self) -> bool:
        """True if the batch belongs to a transaction: its records, or its transaction marker."""
        return bool(self.attributes & _TRANSACTIONAL)


def scan(path: Path) -> tuple[tuple[Batch, ...], int]:
    """Return the complete batches of a segment in order, and the number of bytes after them. Checksums are not checked.

    The number is 0 if these bytes begin with zeros as long as a header, as in a preallocated segment. Raises OSError if
    the file cannot be read.
    """
    batches: list[Batch] = []
    with path.open("rb") as file:
        length = path.stat().st_size
        if length == 0:  # which cannot be mapped
            return (), 0
        with mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ) as data:
            position = 0
            while (batch := batch_at(data, position, length)) is not None:
                batches.append(batch)
                position = batch.end
            # A preallocated segment ends in zeros, which are no damage.
            rest = 0 if not any(data[position : position + SMALLEST]) else length - position
    return tuple(batches), rest


def batch_at(data: bytes | mmap.mmap, position: int, length: int) -> Batch | None:
    """Return the batch that begins at a position of a segment's bytes; None if no complete batch (format v2) does.

    `length`: number of bytes in `data`.
    """
    if position + SMALLEST > length:
        return None
    first, follows, epoch, magic, crc, attributes, delta, *others = _HEADER.unpack_from(data, position)
    size = _BEFORE_LENGTH + follows
    if magic != _MAGIC or size < SMALLEST or delta < 0 or position + size > length:
        return None
    return Batch(position, size, first, first + delta, epoch, crc, attributes, *others)


class Record(NamedTuple):
    """One record of a batch, decoded. `timestamp_ms`: the producer's timestamp, which does not count if the batch has
    `append_time`."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def records(path: Path, batch: Batch) -> Iterator[Record]:
    """Yield the records of a batch of the segment file `path`. Raises OSError if the file cannot be read,
    ValueError for a compressed batch and for invalid records."""
    if batch.codec:
        raise ValueError(f"{path}: the batch at offset {batch.first} is compressed")
    with path.open("rb") as file:
        file.seek(batch.position + SMALLEST)
        body = file.read(batch.size - SMALLEST)
    yield from parse_records(path, batch, body)


def parse_records(path: Path, batch: Batch, body: bytes) -> Iterator[Record]:
    """Yield the records of a batch. `body`: the bytes after the batch header, decompressed. `path`: the file's name in
    messages. Raises ValueError for invalid records."""
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
    """Return the signed (zigzag) varint at position `at`, and the position after it. Raises ValueError for broken
    data."""
    raw, at = unsigned_varint(data, at)
    return (raw >> 1) ^ -(raw & 1), at


def unsigned_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned varint at position `at`, and the position after it. Raises ValueError for broken data."""
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


RECOVERY_POINT: Final = "recovery-point-offset-checkpoint"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"


@dataclass(frozen=True)
class Segment:
    """One `.log` file of a replica. The file name is its base offset. Methods raise OSError if the file cannot be
    read."""

    path: Path

    @property
    def base(self) -> int:
        """Base offset of the segment, from the file name."""
        return int(self.path.stem)

    def size(self) -> int:
        """Length of the segment file in bytes."""
        return self.path.stat().st_size

    def batches(self) -> Iterator[Batch]:
        """Yield the headers of the complete batches in order, up to the first one that is invalid or cut off."""
        return iter(scan(self.path)[0])

    def intact(self, batch: Batch) -> bool:
        """Read the batch from the file again, and return True if its checksum holds."""
        with self.path.open("rb") as file:
            file.seek(batch.position)
            data = file.read(batch.size)
        return len(data) == batch.size and crc32c(data[CRC_FROM:]) == batch.crc

    def end(self) -> int:
        """Return the offset after the last complete batch; the base offset if the segment has no complete batch."""
        return self.complete()[0]

    def complete(self) -> tuple[int, int]:
        """Return the offset after the last complete batch, and the bytes up to its end: (`base`, 0) if there is none. A
        process that was killed while it wrote may have left a part of a batch after them."""
        batches, _ = scan(self.path)
        return (batches[-1].last + 1, batches[-1].end) if batches else (self.base, 0)


def segments(replica: Path) -> list[Segment]:
    """Return the segments of a replica by base offset; the last segment is active."""
    return sorted((Segment(path) for path in replica.glob("[0-9]*.log")), key=lambda segment: segment.base)


def log_end(replica: Path) -> int:
    """Return the log end offset of a replica on disk, 0 without a log. Raises OSError if it cannot be read."""
    found = segments(replica)
    return found[-1].end() if found else 0


def checkpoint(log_dir: Path, name: str = RECOVERY_POINT) -> dict[TopicPartition, int]:
    """Return the offsets in the offset checkpoint file `name` of a log dir, by partition; empty if it cannot be read or
    does not exist.

    Invalid lines are skipped.
    """
    try:
        lines = (log_dir / name).read_text(encoding="utf-8").splitlines()[2:]
    except OSError:
        return {}
    found: dict[TopicPartition, int] = {}
    for line in lines:
        topic, _, rest = line.partition(" ")
        number, _, offset = rest.partition(" ")
        if number.isdigit() and offset.lstrip("-").isdigit():
            found[TopicPartition(topic, int(number))] = int(offset)
    return found


def cut(replica: Path, offset: int) -> int:
    """Cut a replica's log before `offset`, at a batch boundary: a batch that contains `offset` is removed whole. Return
    the new log end; 0 without a log.

    The broker must not run. Later segments, the indexes from there on and later producer snapshots are removed too;
    the broker rebuilds indexes and snapshots from the log, as after a power loss. Raises OSError if a file cannot be
    changed.
    """
    found = segments(replica)
    if not found:
        return 0
    kept = next((segment for segment in reversed(found) if segment.base <= offset), found[0])
    end = kept.base
    length = 0
    for batch in kept.batches():
        if batch.last >= offset:
            break
        end, length = batch.last + 1, batch.end
    for segment in found:
        if segment.base < kept.base:
            continue
        for suffix in (".index", ".timeindex", ".txnindex"):
            segment.path.with_suffix(suffix).unlink(missing_ok=True)
        if segment.base > kept.base:
            segment.path.unlink()
    with kept.path.open("r+b") as file:
        file.truncate(length)
    for snapshot in replica.glob("[0-9]*.snapshot"):
        if snapshot.stem.isdigit() and int(snapshot.stem) > end:
            snapshot.unlink()
    return end
