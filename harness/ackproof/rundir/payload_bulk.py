"""The payload codec of `ackproof.rundir.payload` for many records at once, in numpy, with the same results.

CRC-32 is affine over GF(2): each changed bit of a message changes its CRC by the exclusive or with a constant. So the
checksums of records that differ only in seq and partition need twelve table look-ups each, whatever the size of the
value.

An intact record, with its checksum, has a CRC that depends on its length alone. So intact records of one length, one
after another, have the CRC of as many copies of any intact record, and one call checks a batch. (A single damaged
record always changes that CRC; several cancel each other with a probability of 2⁻³².)
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32  # zlib's checksum, ten times as fast

from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.payload import (
    HEADER_SIZE,
    JSON_FRONT,
    MAGIC,
    RESIDUE,
    decode,
    encoder,
    run_bytes,
    unwrap,
)

_SEQ_AT: Final = 16
_SEQ_SIZE: Final = 8
_SHORT: Final = 1 << 15
_VARIABLE: Final = 12
"""Number of bytes that differ among the values of one (run, producer, topic, size): seq and partition. The
checksum comes on top.
"""
_CRC_SIZE: Final = 4
_SMALLEST: Final = HEADER_SIZE + _CRC_SIZE
"""Smallest size of a value that can be decoded, in bytes. Shorter values have no identity."""
_FEW: Final = 30
"""Number of values of one length from which decoding them together is faster."""

Bytes = npt.NDArray[np.uint8]


class BulkEncoder:
    """Encodes values of one producer in bulk. The producer sends to the n partitions `places` round-robin: seq goes to
    `places[(seq + first) % n]`.

    `size`: length of every value in bytes. Raises ValueError if `size` is too small for one of the topics, or if
    `run_id` is not 16 hex digits.
    """

    def __init__(
        self, run_id: str, producer: int, places: Sequence[TopicPartition], first: int, size: int
    ) -> None:
        topics = list(dict.fromkeys(topic for topic, _ in places))
        blanks = [encoder(run_id, producer, topic, 0, size)(0) for topic in topics]
        self._size = size
        self._first = first
        self._template = np.frombuffer(b"".join(blanks), np.uint8).reshape(len(topics), size)
        self._topic = np.array([topics.index(topic) for topic, _ in places], np.intp)
        self._partition = np.array([partition for _, partition in places], ">i4")
        tables = _crc_tables(blanks[0])
        self._of_seq = tables[:_SEQ_SIZE]
        # these depend on the partition alone: its topic's record, and the bytes of its number
        crcs = np.array([zlib.crc32(blank[:-_CRC_SIZE]) for blank in blanks], np.uint32)
        self._crcs = crcs[self._topic]
        for table, byte in zip(tables[_SEQ_SIZE:], _bytes_of(self._partition).T, strict=True):
            self._crcs ^= table[byte]

    def values(self, seq: int, count: int) -> list[bytes]:
        """Return the values of `count` records (at least 1), beginning with `seq`."""
        seqs = np.arange(seq, seq + count, dtype=np.int64)
        place = (seqs + self._first) % len(self._topic)
        numbers = _bytes_of(seqs.astype(">i8"))
        crc = self._crcs[place]
        *high, low = zip(self._of_seq, numbers.T, strict=True)
        crc ^= low[0][low[1]]
        for table, byte in high:
            # in a short run of consecutive numbers, a high byte with equal first and last value is constant
            constant = byte[0] == byte[-1] and count <= _SHORT
            crc ^= table[byte[0]] if constant else table[byte]
        block = self._template[self._topic[place]]
        block[:, _SEQ_AT : _SEQ_AT + _SEQ_SIZE] = numbers
        block[:, _SEQ_AT + _SEQ_SIZE : _SEQ_AT + _VARIABLE] = _bytes_of(self._partition[place])
        block[:, -_CRC_SIZE:] = _bytes_of(crc.astype("<u4"))
        raw, size = block.tobytes(), self._size
        return [raw[at : at + size] for at in range(0, count * size, size)]


def _bytes_of(numbers: npt.NDArray[np.number]) -> Bytes:
    """Return the bytes of each number, one row of the result per number. Their order is that of the dtype, such as
    `>i8` for big-endian."""
    return numbers.view(np.uint8).reshape(len(numbers), numbers.itemsize)


def _crc_tables(blank: bytes) -> list[npt.NDArray[np.uint32]]:
    """Return a table for each byte of seq and partition, in the order of the value. Element b of a table is the change
    (by exclusive or) of the value's CRC if that byte is b instead of 0. `blank`: a value of the same size with seq 0
    and partition 0."""
    body = bytearray(blank[:-_CRC_SIZE])
    zero = zlib.crc32(body)
    tables = []
    for at in range(_SEQ_AT, _SEQ_AT + _VARIABLE):
        table = np.zeros(256, np.uint32)
        for bit in range(8):
            body[at] = 1 << bit
            contribution = zlib.crc32(body) ^ zero
            table[(np.arange(256) >> bit) & 1 == 1] ^= np.uint32(contribution)
        body[at] = 0
        tables.append(table)
    return tables


@dataclass(frozen=True)
class Decoded:
    """Identities of several values, as arrays with one element per value (`payload.Identity`).

    `origin`: index of the topic in the decoder's `origins`; 0 stands for ''.
    """

    producer: npt.NDArray[np.int32]
    seq: npt.NDArray[np.int64]
    origin: npt.NDArray[np.int32]
    origin_partition: npt.NDArray[np.int32]
    intact: npt.NDArray[np.bool_]

    def numbers(self) -> tuple[npt.NDArray[np.signedinteger], ...]:
        """Return the columns producer, seq and origin_partition. They have -1 for a value without an identity. A value
        that ackproof wrote never has a negative number there."""
        return (self.producer, self.seq, self.origin_partition)


class BulkDecoder:
    """Decodes lists of values of one run, with the same result as `payload.decode` for every value.

    `topics`: names of topics that values are likely to state; these are decoded fast. `origins`: '', these names, and
    other names seen so far. Raises ValueError if `run_id` is not 16 hex digits.
    """

    def __init__(self, run_id: str, topics: Sequence[str] = ()) -> None:
        self._run_id = run_id
        self._run = int.from_bytes(run_bytes(run_id), "big")
        self._magic = int.from_bytes(MAGIC, "big")
        self._front = MAGIC + run_bytes(run_id)
        self.origins: list[str] = ["", *dict.fromkeys(topics)]
        self._intact_size = 0
        self._intact_record = b""
        self._crcs = [0]
        self._code = {name: number for number, name in enumerate(self.origins)}
        self._names = [
            (number, np.frombuffer(name.encode(), np.uint8))
            for number, name in enumerate(self.origins)
            if number
        ]

    def __call__(self, values: Sequence[bytes | None]) -> Decoded:
        """Return the identities of these values. Values of the same length are decoded together in numpy, and one by
        one if there are few of them."""
        if next((value for value in values if value is not None), b"").startswith(JSON_FRONT):
            values = list(map(unwrap, values))
        decoded = self._decode(values)
        unknown = (values[at] for at in np.flatnonzero(decoded.producer < 0).tolist())
        if any(value.startswith(JSON_FRONT) for value in unknown if value is not None):
            return self._decode(list(map(unwrap, values)))
        return decoded

    def _decode(self, values: Sequence[bytes | None]) -> Decoded:
        count = len(values)
        try:
            sizes = set(map(len, values))  # type: ignore[arg-type]
        except TypeError:  # a None among them
            return self._by_length([b"" if value is None else value for value in values])
        if len(sizes) == 1 and (size := sizes.pop()) >= _SMALLEST:
            return self._at_once(values, b"".join(values), count, size)  # type: ignore[arg-type]
        return self._by_length(values)

    def _by_length(self, values: Sequence[bytes | None]) -> Decoded:
        """Return the identities of values of any lengths (no None). Values shorter than `_SMALLEST` get no identity: -1
        in all numbers, and not intact."""
        every = len(values)
        decoded = Decoded(
            producer=np.full(every, -1, np.int32),
            seq=np.full(every, -1, np.int64),
            origin=np.zeros(every, np.int32),
            origin_partition=np.full(every, -1, np.int32),
            intact=np.zeros(every, np.bool_),
        )
        length = np.fromiter(map(len, values), np.int64, every)  # type: ignore[arg-type]
        sizes, counts = np.unique(length, return_counts=True)
        for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
            if size < _SMALLEST:
                continue
            which = np.flatnonzero(length == size)
            if count < _FEW:
                self._replace(decoded, values, which.tolist())
                continue
            own = [values[at] for at in which.tolist()]
            part = self._at_once(own, b"".join(own), count, size)  # type: ignore[arg-type]
            for name, column in vars(part).items():
                getattr(decoded, name)[which] = column
        return decoded

    def _at_once(self, values: Sequence[bytes | None], raw: bytes, count: int, size: int) -> Decoded:
        rows = np.frombuffer(raw, _layout(size), count)
        block = np.frombuffer(raw, np.uint8).reshape(count, size)
        ours = block[:, : len(self._front)].tobytes() == self._front * count
        decoded = Decoded(
            producer=rows["producer"].astype(np.int32),
            seq=rows["seq"].astype(np.int64),
            origin=self._origin(block, rows["topic_len"]),
            origin_partition=rows["partition"].astype(np.int32),
            intact=self._intact(values, raw, count, size),
        )
        if ours and decoded.origin.all() and min(int(column.min()) for column in decoded.numbers()) >= 0:
            return decoded
        of_this_run = rows["run"] == self._run
        well_formed = (rows["magic"] == self._magic) & (rows["topic_len"] <= size - _SMALLEST)
        negative = (decoded.producer < 0) | (decoded.seq < 0) | (decoded.origin_partition < 0)
        identified = well_formed & of_this_run & ~negative
        # Intact values of another run are foreign; any other value without an identity is not intact.
        decoded.intact[~(identified | (well_formed & ~of_this_run))] = False
        for column in decoded.numbers():
            column[~identified] = -1
        decoded.origin[~identified] = 0
        self._replace(decoded, values, np.flatnonzero(identified & (decoded.origin == 0)).tolist())
        return decoded

    def _intact(
        self, values: Sequence[bytes | None], raw: bytes, count: int, size: int
    ) -> npt.NDArray[np.bool_]:
        if crc32(raw) == self._crc_of_intact(count, size):
            return np.ones(count, np.bool_)
        crc = np.fromiter(map(crc32, values), np.uint32, count)
        intact: npt.NDArray[np.bool_] = crc == RESIDUE
        return intact

    def _crc_of_intact(self, count: int, size: int) -> int:
        """Return the CRC of `count` concatenated intact records of `size` bytes. It does not depend on their
        content."""
        if size != self._intact_size:
            blank = bytes(size - _CRC_SIZE)
            self._intact_record = blank + zlib.crc32(blank).to_bytes(_CRC_SIZE, "little")
            self._intact_size, self._crcs = size, [0]
        while len(self._crcs) <= count:
            self._crcs.append(zlib.crc32(self._intact_record, self._crcs[-1]))
        return self._crcs[count]

    def _origin(self, block: Bytes, lengths: npt.NDArray[np.uint16]) -> npt.NDArray[np.int32]:
        """Return for each value the index in `origins` of the topic that it states; 0 unless the constructor got that
        topic. `block`: the values, one a row. `lengths`: the topic length that each value states."""
        origin = np.zeros(len(block), np.int32)
        room = block.shape[1] - HEADER_SIZE - _CRC_SIZE
        for number, name in self._names:
            if len(name) > room:
                continue
            named = len(name).to_bytes(2, "big") + name.tobytes()  # length and name as consecutive bytes
            begin = HEADER_SIZE - 2
            if block[:, begin : begin + len(named)].tobytes() == named * len(block):
                origin[:] = number
                break
            there = block[:, HEADER_SIZE : HEADER_SIZE + len(name)]
            same = (lengths == len(name)) & (there == name).all(axis=1)
            origin[same] = number
        return origin

    def _replace(self, decoded: Decoded, values: Sequence[bytes | None], which: Sequence[int]) -> None:
        for at in which:
            identity = decode(self._run_id, values[at])
            code = self._code.get(identity.origin_topic)
            if code is None:
                code = self._code[identity.origin_topic] = len(self.origins)
                self.origins.append(identity.origin_topic)
            decoded.producer[at] = identity.producer
            decoded.seq[at] = identity.seq
            decoded.origin[at] = code
            decoded.origin_partition[at] = identity.origin_partition
            decoded.intact[at] = identity.intact


@lru_cache(maxsize=16)
def _layout(size: int) -> np.dtype[np.void]:
    return np.dtype(
        {
            "names": ["magic", "run", "producer", "seq", "partition", "topic_len"],
            "formats": [">u4", ">u8", ">i4", ">i8", ">i4", ">u2"],
            "offsets": [0, 4, 12, 16, 24, 28],
            "itemsize": size,
        }
    )


_OFFSET, _PRODUCER, _SEQ = map(np.uint64, (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9))
_INTACT, _MIX = map(np.uint64, (0x27D4EB2F165667C5, 0xFF51AFD7ED558CCD))
"""Factors of `content_hashes`: one for each hashed column, and `_MIX` for the step after their sum. None is even, so
that a multiplication modulo 2⁶⁴ loses nothing."""
_HALF: Final = np.uint64(32)
_BLOCK: Final = 1 << 16


def content_hashes(
    offset: npt.NDArray[np.int64],
    producer: npt.NDArray[np.signedinteger],
    seq: npt.NDArray[np.signedinteger],
    intact: npt.NDArray[np.bool_],
) -> npt.NDArray[np.uint64]:
    """Return a hash of each record's offset, producer, seq and `intact`. The arrays have one element per record.
    Content sums add such hashes modulo 2⁶⁴."""
    mixed = offset.astype(np.uint64) * _OFFSET
    mixed += producer.astype(np.int64).view(np.uint64) * _PRODUCER
    mixed += seq.astype(np.int64).view(np.uint64) * _SEQ
    mixed += intact.astype(np.uint64) * _INTACT
    mixed ^= mixed >> _HALF
    mixed *= _MIX
    mixed ^= mixed >> _HALF
    return mixed


def content_sum(
    offset: npt.NDArray[np.int64],
    producer: npt.NDArray[np.signedinteger],
    seq: npt.NDArray[np.signedinteger],
    intact: npt.NDArray[np.bool_],
) -> int:
    """Return the content sum of records: the sum of their hashes modulo 2⁶⁴, which does not depend on their
    order. The arrays have one element per record."""
    found = 0
    for at in range(0, len(offset), _BLOCK):
        block = slice(at, at + _BLOCK)
        hashes = content_hashes(offset[block], producer[block], seq[block], intact[block])
        found += int(hashes.sum(dtype=np.uint64))
    return found % (1 << 64)


def as_int64(found: int) -> int:
    """Return a content sum (0 … 2⁶⁴ - 1) as the signed number with the same bits, for int64 columns."""
    return found - (1 << 64) if found >= 1 << 63 else found
