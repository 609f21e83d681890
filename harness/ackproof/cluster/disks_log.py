"""A replica's log as it lies on disk: segments, record batches (format v2) and the checkpoints beside them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

RECOVERY_POINT: Final = "recovery-point-offset-checkpoint"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
_HEADER: Final = struct.Struct(">qiibIhi")
"""Base offset, length of what follows, leader epoch, magic, CRC-32C, attributes, last offset delta."""
_BEFORE_LENGTH: Final = 12
_CRC_FROM: Final = 21
"""The CRC covers all from the attributes on."""
_SMALLEST: Final = 61


def _table() -> tuple[int, ...]:
    rows = []
    for row in range(256):
        value = row
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        rows.append(value)
    return tuple(rows)


_CRC_TABLE: Final = _table()


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli). Slow (5 MB/s): for single batches."""
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ _CRC_TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


class Batch(NamedTuple):
    """A record batch: where it lies in its file, in bytes, and what offsets it holds."""

    position: int
    size: int
    first: int
    last: int

    @property
    def end(self) -> int:
        """Where the next one begins."""
        return self.position + self.size


@dataclass(frozen=True)
class Segment:
    """One `.log` file. Its name is its base offset."""

    path: Path

    @property
    def base(self) -> int:
        """The offset that it begins with."""
        return int(self.path.stem)

    def size(self) -> int:
        """Its length in bytes, as the file system says."""
        return self.path.stat().st_size

    def batches(self) -> Iterator[Batch]:
        """All whole batches, in order; it ends where no further one can be read. Only headers are read."""
        with self.path.open("rb") as file:
            length = self.path.stat().st_size
            position = 0
            while (batch := _batch_at(file, position, length)) is not None:
                yield batch
                position = batch.end

    def intact(self, batch: Batch) -> bool:
        """Whether the batch's checksum holds now, read anew from the file."""
        with self.path.open("rb") as file:
            file.seek(batch.position)
            data = file.read(batch.size)
        if len(data) < batch.size:
            return False
        said: int = _HEADER.unpack_from(data)[4]
        return crc32c(data[_CRC_FROM:]) == said

    def end(self) -> int:
        """The offset behind its last whole batch."""
        last = self.base - 1
        for batch in self.batches():
            last = batch.last
        return last + 1

    @property
    def companions(self) -> tuple[Path, ...]:
        """Its indexes, which Kafka makes anew where they lack."""
        return tuple(self.path.with_suffix(end) for end in (".index", ".timeindex", ".txnindex"))


def _batch_at(file: BinaryIO, position: int, length: int) -> Batch | None:
    if position + _SMALLEST > length:
        return None
    file.seek(position)
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    first, follows, _epoch, magic, _crc, _attributes, delta = _HEADER.unpack(header)
    size = _BEFORE_LENGTH + follows
    if magic != 2 or size < _SMALLEST or delta < 0 or position + size > length:
        return None
    return Batch(position, size, first, first + delta)


def segments(replica: Path) -> list[Segment]:
    """The segments of a replica by base offset; the last one is active."""
    return sorted((Segment(path) for path in replica.glob("[0-9]*.log")), key=lambda segment: segment.base)


def log_end(replica: Path) -> int:
    """The log end offset of a replica on disk; 0 where there is no log at all."""
    found = segments(replica)
    return found[-1].end() if found else 0


def checkpoint(log_dir: Path, name: str = RECOVERY_POINT) -> dict[tuple[str, int], int]:
    """An offset checkpoint of a log dir. Empty where there is none; lines that are no entry are passed over."""
    try:
        lines = (log_dir / name).read_text(encoding="utf-8").splitlines()[2:]
    except OSError:
        return {}
    found: dict[tuple[str, int], int] = {}
    for line in lines:
        topic, _, rest = line.partition(" ")
        number, _, offset = rest.partition(" ")
        if number.isdigit() and offset.lstrip("-").isdigit():
            found[topic, int(number)] = int(offset)
    return found


def cut(replica: Path, offset: int) -> int:
    """Cut a replica's log so that nothing at or after `offset` is left, at a batch boundary; its new log end.

    A batch that `offset` falls into goes as a whole. The broker must not run. Indexes of the segment that is cut
    and producer snapshots behind the cut go too: on its next start the broker makes them from the log, as it does
    after a power loss.
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
        for path in segment.companions:
            path.unlink(missing_ok=True)
        if segment.base > kept.base:
            segment.path.unlink()
    with kept.path.open("r+b") as file:
        file.truncate(length)
    for snapshot in replica.glob("[0-9]*.snapshot"):
        if snapshot.stem.isdigit() and int(snapshot.stem) > end:
            snapshot.unlink()
    return end
