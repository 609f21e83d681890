"""The value of every record that ackproof writes: who wrote it, what it is, where it was meant to go, a checksum.

Layout, big-endian::

    magic      4 B   b"AKP1"
    run        8 B   the run's id, so that records of another run are told apart
    producer   i32
    seq        i64
    partition  i32   where the record was meant to go
    topic_len  u16
    topic      topic_len bytes, UTF-8
    padding    zero bytes up to the wished size
    crc        u32   little-endian CRC-32 (IEEE) of all before it

A CRC-32 appended little-endian to its own message gives a constant CRC over the whole, which makes the check of a
record one call of `zlib.crc32` without slicing it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Final, NamedTuple

MAGIC: Final = b"AKP1"
_HEADER: Final = struct.Struct(">4s8siqiH")
_CRC: Final = struct.Struct("<I")
RESIDUE: Final = zlib.crc32(_CRC.pack(zlib.crc32(b"")))
"""CRC-32 of any message that is followed by its own CRC-32, little-endian."""

HEADER_SIZE: Final = _HEADER.size
RUN_ID_SIZE: Final = 8
SEQ: Final = slice(16, 24)
"""Where a value has its seq, big-endian."""


class Identity(NamedTuple):
    """What a payload says of itself. `producer`, `seq` are -1 and the origin ('', -1) when nothing can be decoded."""

    producer: int
    seq: int
    origin_topic: str
    origin_partition: int
    intact: bool


NOBODY: Final = Identity(-1, -1, "", -1, False)
FOREIGN: Final = Identity(-1, -1, "", -1, True)
"""An intact payload of another run."""


def run_bytes(run_id: str) -> bytes:
    """The eight bytes that stand for a run in its payloads. `run_id` is 16 hex digits."""
    raw = bytes.fromhex(run_id)
    if len(raw) != RUN_ID_SIZE:
        raise ValueError(f"a run id is {RUN_ID_SIZE * 2} hex digits, not {run_id!r}")
    return raw


def smallest_size(topic: str) -> int:
    """The fewest bytes that a value for `topic` can have."""
    return HEADER_SIZE + len(topic.encode()) + _CRC.size


def encoder(run_id: str, producer: int, topic: str, partition: int, size: int) -> Callable[[int], bytes]:
    """A function from seq to the value for one (producer, topic, partition).

    `size` is the value's length in bytes. Raises ValueError if it is below `smallest_size(topic)`.
    """
    smallest = smallest_size(topic)
    if size < smallest:
        raise ValueError(f"a value for topic {topic!r} needs at least {smallest} bytes, not {size}")
    name = topic.encode()
    run, padding = run_bytes(run_id), bytes(size - smallest)

    def encode(seq: int) -> bytes:
        body = _HEADER.pack(MAGIC, run, producer, seq, partition, len(name)) + name + padding
        return body + _CRC.pack(zlib.crc32(body))

    return encode


def decode(run_id: str, value: bytes | None) -> Identity:
    """What one value says. Never raises: what cannot be decoded is `NOBODY`, another run's intact one `FOREIGN`.

    A value that still has this run's header but a broken checksum keeps the identity that it claims, with
    `intact` False, if that identity can be read at all.
    """
    if value is None or len(value) < HEADER_SIZE + _CRC.size:
        return NOBODY
    magic, run, producer, seq, partition, topic_len = _HEADER.unpack_from(value)
    if magic != MAGIC or HEADER_SIZE + topic_len + _CRC.size > len(value):
        return NOBODY
    intact = zlib.crc32(value) == RESIDUE
    if run != run_bytes(run_id):
        return FOREIGN if intact else NOBODY
    try:
        topic = value[HEADER_SIZE : HEADER_SIZE + topic_len].decode()
    except UnicodeDecodeError:
        return NOBODY
    if producer < 0 or seq < 0 or partition < 0:
        return NOBODY
    return Identity(producer, seq, topic, partition, intact)
