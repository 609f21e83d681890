"""What the record batches of a log hold: whether their checksums hold, and whose records they are, as a digest each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from ackproof.cluster.record_batches import CRC_FROM, SMALLEST, Batch, records, varint
from ackproof.rundir.payload import ABORTED, COMMITTED, MAGIC, UNKNOWN, run_bytes, signed, total
from ackproof.rundir.payload_bulk import BulkDecoder

_CODECS: Final = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
"""By the number in a batch's attributes (org.apache.kafka.common.record.CompressionType)."""


class Contents:
    """Looks into the batches of one run's logs. Copies of a batch, equal in offsets and checksum, are read once."""

    def __init__(self, run_id: str, topics: Sequence[str]) -> None:
        # No key (length -1, which is written as 1) or a short one, the value's length, the value: so ours begin.
        front = re.escape(MAGIC + run_bytes(run_id))
        self._record = re.compile(
            rb"(?:\x01|[\x02-\x7e][0-9-]{3,30})(?=[\x80-\xff]{0,4}[\x00-\x7f]" + front + b")"
        )
        self._decode = BulkDecoder(run_id, topics)
        self._digests: dict[tuple[int, int, int], int] = {}

    def of(self, path: Path, batches: Sequence[Batch]) -> tuple[list[bool], list[int]]:
        """Of each batch of a segment: whether its CRC-32C, computed anew, is that of its header; its `content`.

        The content is `UNKNOWN` of a batch that is damaged, that compaction went through, or that has records of
        somebody else's. Raises OSError.
        """
        sound, digests = [], []
        with path.open("rb") as file:
            for batch in batches:
                file.seek(batch.position)
                data = file.read(batch.size)
                sound.append(crc32c(data[CRC_FROM:]) == batch.crc)
                key = (batch.first, batch.last, batch.crc)
                if sound[-1] and key not in self._digests:
                    self._digests[key] = _marker(path, batch) if batch.control else self._digest(data, batch)
                digests.append(self._digests[key] if sound[-1] else UNKNOWN)
        return sound, digests

    def _digest(self, data: bytes, batch: Batch) -> int:
        try:
            body = _plain(data[SMALLEST:], batch.codec)
        except (KeyError, ValueError, OSError):  # ArrowInvalid is a ValueError
            return UNKNOWN
        values = []
        for found in self._record.finditer(body):
            size, at = varint(body, found.end())
            values.append(body[at : at + size])
        if not len(values) == batch.records == batch.last - batch.first + 1:
            return UNKNOWN
        who = self._decode(values)
        offsets = np.arange(batch.first, batch.last + 1, dtype=np.int64)
        return signed(total(offsets, who.producer, who.seq, who.intact))


def _marker(path: Path, batch: Batch) -> int:
    """Which of a transaction's markers it is (org.apache.kafka.common.record.ControlRecordType)."""
    try:
        keys = [record.key for record in records(path, batch)]
    except ValueError:
        return UNKNOWN
    kind = int.from_bytes(keys[0][2:4], "big") if len(keys) == 1 and keys[0] is not None else UNKNOWN
    return kind if kind in (ABORTED, COMMITTED) else UNKNOWN


def _plain(body: bytes, codec: int) -> bytes:
    """The records of a batch as they were before compression."""
    if codec == 0:
        return body
    name = _CODECS[codec]
    if name != "snappy":
        return pa.input_stream(pa.BufferReader(body), compression=name).read()  # type: ignore[no-any-return]
    if not body.startswith(_XERIAL):
        return _snappy(body)
    blocks, at = [], len(_XERIAL) + 8  # two versions
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "big")
        blocks.append(_snappy(body[at + 4 : at + 4 + size]))
        at += 4 + size
    return b"".join(blocks)


_XERIAL: Final = b"\x82SNAPPY\x00"
"""So Java's streams of snappy begin; librdkafka writes one bare block."""


def _snappy(block: bytes) -> bytes:
    size = 0
    for number, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            break
    return pa.decompress(block, size, codec="snappy", asbytes=True)  # type: ignore[no-any-return]
