"""Tests of replicas' logs on disk: batches are found, checksums are checked, a cut ends at a batch boundary."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from ackproof.cluster.disks.log import CLEAN_SHUTDOWN, Segment, checkpoint, cut, log_end, segments
from ackproof.network.wire import kafka_python


def batch(first: int, count: int, records: bytes = b"r" * 40) -> bytes:
    """Return the bytes of a record batch (format v2) with `count` offsets from `first` on. `records`: bytes in place of
    its records, which no test decodes."""
    covered = struct.pack(">hiqqqhii", 0, count - 1, 0, 0, -1, -1, -1, count) + records
    body = struct.pack(">ibI", 0, 2, kafka_python("record.util").calc_crc32c(covered)) + covered
    return struct.pack(">qi", first, len(body)) + body


@pytest.fixture
def replica(tmp_path: Path) -> Path:
    """Return the folder of a replica with two segments: offsets 0–9 and 10–19 in the first; 20–29 in the second, then
    half a batch."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(batch(0, 10) + batch(10, 10))
    (folder / f"{20:020}.log").write_bytes(batch(20, 10) + batch(30, 10)[:50])
    for base in (0, 20):
        (folder / f"{base:020}.index").write_bytes(b"")
    (folder / f"{20:020}.snapshot").write_bytes(b"")
    (folder / f"{30:020}.snapshot").write_bytes(b"")
    return folder


def test_whole_batches_are_found_and_torn_ones_are_not(replica: Path) -> None:
    assert [segment.base for segment in segments(replica)] == [0, 20]
    assert [(b.first, b.last) for b in segments(replica)[0].batches()] == [(0, 9), (10, 19)]
    assert log_end(replica) == 30


def test_a_flipped_bit_is_seen(replica: Path) -> None:
    segment = segments(replica)[0]
    second = list(segment.batches())[1]
    assert segment.intact(second)
    data = bytearray(segment.path.read_bytes())
    data[second.position + 70] ^= 1
    segment.path.write_bytes(bytes(data))
    assert not segment.intact(second)
    assert segment.intact(next(iter(segment.batches())))


@pytest.mark.parametrize(
    ("offset", "end", "files"),
    [
        (30, 30, [0, 20]),
        (25, 20, [0, 20]),  # in the middle of a batch: all of it goes
        (20, 20, [0, 20]),
        (15, 10, [0]),
        (0, 0, [0]),
        (1000, 30, [0, 20]),
    ],
)
def test_a_cut_ends_at_a_batch(replica: Path, offset: int, end: int, files: list[int]) -> None:
    assert cut(replica, offset) == end
    assert log_end(replica) == end
    assert [segment.base for segment in segments(replica)] == files
    last = segments(replica)[-1]
    assert last.path.stat().st_size == sum(b.size for b in last.batches()), "no torn batch is left"
    assert not last.path.with_suffix(".index").exists()
    assert all(int(path.stem) <= end for path in replica.glob("*.snapshot"))


def test_a_segment_that_was_cut_to_nothing(tmp_path: Path) -> None:
    file = tmp_path / f"{7:020}.log"
    file.write_bytes(b"")
    assert Segment(file).end() == 7
    assert log_end(tmp_path / "none") == 0


def test_checkpoints_are_read(tmp_path: Path) -> None:
    file = tmp_path / "recovery-point-offset-checkpoint"
    assert checkpoint(tmp_path) == {}
    file.write_text("0\n2\nt 0 17\na.b-c 1 0\n", encoding="utf-8")
    assert checkpoint(tmp_path) == {("t", 0): 17, ("a.b-c", 1): 0}
    file.write_text("0\n2\nt 0\nnonsense\n", encoding="utf-8")
    assert checkpoint(tmp_path) == {}
    assert CLEAN_SHUTDOWN == ".kafka_cleanshutdown"
