"""Builds files as a broker writes them, with another library than the code under test."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's own, as it reads its schemas
    from kafka.record._crc32c import crc
    from kafka.record.default_records import DefaultRecordBatchBuilder


def batch(
    first: int,
    values: Sequence[bytes],
    *,
    epoch: int = 0,
    codec: int = 0,
    pid: int = -1,
    txn: bool = False,
    key: bytes | None = b"k",
) -> bytes:
    """Return a record batch built by kafka-python, with base offset `first` and leader epoch `epoch` set as a broker
    does. Timestamps begin at 1000 ms. `codec`: compression type, 0: none. `pid`: producer id, with producer epoch 7 and
    base sequence 40; -1: none. `txn`: True for a batch of a transaction. `key`: key of each record."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=txn,
        producer_id=pid,
        producer_epoch=7 if pid >= 0 else -1,
        base_sequence=40 if pid >= 0 else -1,
        batch_size=1 << 20,
    )
    for number, value in enumerate(values):
        assert builder.append(number, timestamp=1000 + number, key=key, value=value, headers=[])
    data = bytearray(builder.build())
    data[0:8] = first.to_bytes(8, "big")
    data[12:16] = epoch.to_bytes(4, "big")
    return bytes(data)


def as_control(data: bytes) -> bytes:
    """Return the batch as a control batch, with a matching checksum."""
    return _with_checksum(data[:22] + bytes([data[22] | 0x20]) + data[23:])


def with_append_time(data: bytes) -> bytes:
    """Return the batch as a leader writes it with LogAppendTime, with a matching checksum."""
    return _with_checksum(data[:22] + bytes([data[22] | 0x08]) + data[23:])


def marker(first: int, pid: int, *, commit: bool) -> bytes:
    """Return a transaction marker: a control batch with the key (version, type). `commit`: False for an abort
    marker."""
    key = b"\x00\x00" + commit.to_bytes(2, "big")
    return as_control(batch(first, [b"\x00\x00"], pid=pid, txn=True, key=key))


def compressed(data: bytes, codec: int, body: bytes) -> bytes:
    """Return the batch with this codec and this body in place of its records, with matching length and checksum."""
    attributes = bytes([data[22] | codec])
    return _with_checksum(
        data[:8] + (49 + len(body)).to_bytes(4, "big") + data[12:22] + attributes + data[23:61] + body
    )


def _with_checksum(data: bytes) -> bytes:
    return data[:17] + crc(data[21:]).to_bytes(4, "big") + data[21:]


def cleaned(data: bytes, last_delta: int) -> bytes:
    """Return the batch as the log cleaner leaves it: its last offset, `last_delta` after the first, belongs to a record
    that is gone."""
    return _with_checksum(data[:23] + last_delta.to_bytes(4, "big") + data[27:])
