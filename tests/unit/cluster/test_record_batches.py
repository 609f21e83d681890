"""Tests of record batches on disk: headers of batches that another library built, torn ends, varints."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.cluster.disks.log import SMALLEST, records, scan, unsigned_varint, varint
from broker_files import batch


def test_headers_of_a_segment(tmp_path: Path) -> None:
    segment = tmp_path / "00000000000000000010.log"
    parts = [batch(10, [b"a", b"b"], epoch=3), batch(12, [b"c" * 500] * 9, epoch=4, codec=1, pid=5, txn=True)]
    segment.write_bytes(b"".join(parts))
    found, rest = scan(segment)
    assert rest == 0
    assert [(one.first, one.last, one.epoch, one.records) for one in found] == [
        (10, 11, 3, 2),
        (12, 20, 4, 9),
    ]
    assert [(one.producer_id, one.producer_epoch, one.base_sequence) for one in found] == [
        (-1, -1, -1),
        (5, 7, 40),
    ]
    assert [one.transactional for one in found] == [False, True]
    assert [one.position for one in found] == [0, len(parts[0])]
    assert found[0].crc == int.from_bytes(parts[0][17:21], "big")
    assert (found[1].base_timestamp_ms, found[1].max_timestamp_ms) == (1000, 1008)


def test_records_of_a_batch(tmp_path: Path) -> None:
    segment = tmp_path / "0.log"
    segment.write_bytes(batch(10, [b"a", b"b" * 300]))
    ((one,), _) = scan(segment)
    assert [(r.offset, r.timestamp_ms, r.key, r.value) for r in records(segment, one)] == [
        (10, 1000, b"k", b"a"),
        (11, 1001, b"k", b"b" * 300),
    ]


def test_a_compressed_batch_is_not_read(tmp_path: Path) -> None:
    segment = tmp_path / "0.log"
    segment.write_bytes(batch(0, [b"x" * 1000], codec=1))
    ((one,), _) = scan(segment)
    with pytest.raises(ValueError, match="compressed"):
        list(records(segment, one))


def test_a_torn_end_is_counted_and_not_read(tmp_path: Path) -> None:
    whole = batch(0, [b"a"])
    segment = tmp_path / "0.log"
    for kept in (20, SMALLEST - 1, SMALLEST, len(whole) - 1):
        segment.write_bytes(whole + batch(1, [b"b"])[:kept])
        found, rest = scan(segment)
        assert ([one.last for one in found], rest) == ([0], kept)


def test_a_preallocated_end_is_no_garbage(tmp_path: Path) -> None:
    segment = tmp_path / "0.log"
    segment.write_bytes(batch(0, [b"a"]) + bytes(4096))
    assert scan(segment)[1] == 0
    segment.write_bytes(b"")
    assert scan(segment) == ((), 0)


@pytest.mark.parametrize(
    ("data", "value"), [(b"\x00", 0), (b"\x01", -1), (b"\x02", 1), (b"\xac\x02", 150), (b"\x7f", -64)]
)
def test_numbers_of_variable_length(data: bytes, value: int) -> None:
    assert varint(data, 0) == (value, len(data))


def test_a_number_without_an_end() -> None:
    for data in (b"", b"\x80", b"\xff" * 12):
        with pytest.raises(ValueError, match="no end"):
            unsigned_varint(data, 0)
