"""The record header `ackproof`: who wrote a record and what it was then, beside a value that stays untouched.

Layout, big-endian::

    magic      4 B   b"AKH1"
    run        8 B   the run's id, so that records of another run are told apart
    producer   i32
    seq        i64
    partition  i32   where it was meant to go, -1 where a partitioner chose
    topic_len  u16
    topic      topic_len bytes, UTF-8
    crc        u32   CRC-32 of all before it, the key and the value, each behind its length (-1: none)
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from ackproof.rundir.payload import FOREIGN, NOBODY, Identity, run_bytes

HEADER: Final = "ackproof"
_MAGIC: Final = b"AKH1"
_FRONT: Final = struct.Struct(">4s8siqiH")
_LENGTH: Final = struct.Struct(">q")
_CRC: Final = struct.Struct(">I")

HeaderValue: TypeAlias = str | bytes | None
Headers: TypeAlias = "Mapping[str, HeaderValue] | Iterable[tuple[str, HeaderValue]] | None"


def encode(
    run_id: str, producer: int, seq: int, topic: str, partition: int, key: bytes | None, value: bytes | None
) -> bytes:
    """The header's value for one record."""
    name = topic.encode()
    front = _FRONT.pack(_MAGIC, run_bytes(run_id), producer, seq, partition, len(name)) + name
    return front + _CRC.pack(_checksum(front, key, value))


def decode(run_id: str, header: bytes, key: bytes | None, value: bytes | None) -> Identity:
    """Who wrote a record with this header. A header that cannot be read is `NOBODY`, another run's `FOREIGN`."""
    if len(header) < _FRONT.size + _CRC.size:
        return NOBODY
    magic, run, producer, seq, partition, length = _FRONT.unpack_from(header)
    end = _FRONT.size + length
    if magic != _MAGIC or len(header) != end + _CRC.size:
        return NOBODY
    intact = _CRC.unpack_from(header, end)[0] == _checksum(header[:end], key, value)
    if run != run_bytes(run_id):
        return FOREIGN if intact else NOBODY
    try:
        topic = header[_FRONT.size : end].decode()
    except UnicodeDecodeError:
        return NOBODY
    if producer < 0 or seq < 0:
        return NOBODY
    return Identity(producer, seq, topic, partition, intact)


def identity_of(
    run_id: str, headers: list[tuple[str, HeaderValue]] | None, key: bytes | None, value: bytes | None
) -> Identity:
    """Who wrote a record with these headers. A record without ours is somebody else's: `FOREIGN`."""
    for name, header in headers or ():
        if name == HEADER:
            return decode(run_id, header, key, value) if isinstance(header, bytes) else NOBODY
    return FOREIGN


def others(headers: Headers) -> list[tuple[str, HeaderValue]]:
    """Headers but for ours: a record that is passed on has an identity of its own."""
    if headers is None:
        return []
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, value) for name, value in pairs if name != HEADER]


def _checksum(front: bytes, key: bytes | None, value: bytes | None) -> int:
    crc = zlib.crc32(front)
    for part in (key, value):
        crc = zlib.crc32(_LENGTH.pack(-1 if part is None else len(part)), crc)
        crc = zlib.crc32(part or b"", crc)
    return crc
