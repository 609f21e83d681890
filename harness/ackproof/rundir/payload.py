"""Value and key of every record that ackproof writes. A value holds the producer, seq, destination and a checksum.
`rundir.payload_bulk` sums such identities, by which a log is compared with a read of it.

Layout of a value, big-endian::

    magic      4 B   b"AKP1"
    run        8 B   the run's id, to distinguish records of another run
    producer   i32
    seq        i64
    partition  i32   destination of the record
    topic_len  u16
    topic      topic_len bytes, UTF-8
    padding    zero bytes up to the requested size
    crc        u32   little-endian CRC-32 (IEEE) of all bytes before it

If a message is followed by its own CRC-32 (little-endian), the CRC of the whole is a constant. So one call of
`zlib.crc32` checks a record, without slicing it.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, overload

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAGIC: Final = b"AKP1"
_HEADER: Final = struct.Struct(">4s8siqiH")
_CRC: Final = struct.Struct("<I")
RESIDUE: Final = zlib.crc32(_CRC.pack(zlib.crc32(b"")))
"""CRC-32 of any message followed by its own CRC-32 (little-endian)."""

HEADER_SIZE: Final = _HEADER.size
RUN_ID_SIZE: Final = 8
SEQ: Final = slice(16, 24)
"""Bytes of the seq in a record's value, big-endian."""


class Identity(NamedTuple):
    """The identity of a record, as its value states it. `origin_…`: the partition that it was produced to.
    `intact`: the checksum matches.

    If the value cannot be decoded, `producer` and `seq` are -1 and the origin is ('', -1).
    """

    producer: int
    seq: int
    origin_topic: str
    origin_partition: int
    intact: bool


NOBODY: Final = Identity(-1, -1, "", -1, False)
FOREIGN: Final = Identity(-1, -1, "", -1, True)
"""Identity that `decode` returns for an intact value of another run."""


def run_bytes(run_id: str) -> bytes:
    """Return the run's id as the eight bytes in its records' values. `run_id`: 16 hex digits; raises ValueError for
    another form."""
    raw = bytes.fromhex(run_id)
    if len(raw) != RUN_ID_SIZE:
        raise ValueError(f"a run id is {RUN_ID_SIZE * 2} hex digits, not {run_id!r}")
    return raw


def smallest_size(topic: str) -> int:
    """Return the smallest possible size of a record's value for `topic`, in bytes."""
    return HEADER_SIZE + len(topic.encode()) + _CRC.size


def encoder(run_id: str, producer: int, topic: str, partition: int, size: int) -> Callable[[int], bytes]:
    """Return a function that encodes the value of each seq, for one (producer, topic, partition).

    `size`: length of the values in bytes. Raises ValueError if `size` is below `smallest_size(topic)`, or if `run_id`
    is not 16 hex digits.
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


JSON_FRONT: Final = b'{"ackproof":"'
"""Beginning of a value that is a JSON document. A value in the layout of this module follows in base64, then fields for
a service under test (`wrap`)."""


def unwrap(value: bytes | None) -> bytes | None:
    """Return the value that `wrap` put into a JSON document; any other value unchanged. Never raises."""
    if value is None or not value.startswith(JSON_FRONT):
        return value
    try:
        return base64.b64decode(value[len(JSON_FRONT) : value.index(b'"', len(JSON_FRONT))], validate=True)
    except ValueError:
        return value


def wrap(value: bytes, pointer: str, text: str) -> bytes:
    """Return a JSON document that contains `value` in base64, and `text` at the JSON pointer `pointer` (`/order/id`).
    `text` and `pointer` must have no character that JSON or a pointer escapes. `unwrap` extracts the value."""
    *outer, last = pointer.split("/")[1:]
    fields = "".join(f'"{name}":{{' for name in outer) + f'"{last}":"{text}"' + "}" * len(outer)
    return JSON_FRONT + base64.b64encode(value) + f'",{fields}}}'.encode()


def identity_text(producer: int, seq: int) -> str:
    """Return a record's identity as text, in the form in which a service under test keeps it: `0-17` for producer 0,
    seq 17."""
    return f"{producer}-{seq}"


def decode(run_id: str, value: bytes | None) -> Identity:
    """Return the identity in a record's value, which may be any bytes. `NOBODY` stands for a value that cannot be
    decoded, `FOREIGN` for an intact value of another run. Raises ValueError if `run_id` is not 16 hex digits.

    A value with this run's header but a broken checksum keeps the identity that it claims, with `intact`
    False, if that identity can be read at all.
    """
    value = unwrap(value)
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


HEADER: Final = "ackproof"
"""Name of a record header. A tombstone, which has no value, carries there what would be its value. For a service under
test with `identity: header`, each record carries its identity there as text (`identity_text`)."""
_Numbers: TypeAlias = "npt.NDArray[np.int64]"


@dataclass(frozen=True)
class Keys:
    """The keys of a producer's records: `count` different keys in turn. Every `tombstone_every`-th record of a key is a
    tombstone (0: none)."""

    count: int
    tombstone_every: int = 0

    def record_key(self, producer: int, seq: int) -> bytes:
        return b"%d-%d" % (producer, seq % self.count)

    @overload
    def deletes(self, seq: int) -> bool: ...
    @overload
    def deletes(self, seq: _Numbers) -> npt.NDArray[np.bool_]: ...
    def deletes(self, seq: int | _Numbers) -> bool | npt.NDArray[np.bool_]:
        every = self.tombstone_every
        return (every > 0) & (seq // self.count % max(every, 1) == every - 1)


UNKNOWN_CONTENT: Final = -1
"""Value for a batch whose content sum is not known (`payload_bulk.content_sum`), such as a damaged one."""
ABORT_MARKER: Final = 0
COMMIT_MARKER: Final = 1
"""Content sums that stand for a batch with a transaction marker (ControlRecordType): abort (0) or commit (1)."""
