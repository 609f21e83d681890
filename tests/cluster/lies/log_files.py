"""Finds and truncates record batches (v2, DefaultRecordBatch.java) in a broker's partition on disk."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

_HEAD = struct.Struct(">qiib")
"""Fields of a batch header: baseOffset, length of the rest, partitionLeaderEpoch, magic."""
_LAST_OFFSET_DELTA = struct.Struct(">i")
_BEFORE_LENGTH_ENDS = 12
_AT_LAST_OFFSET_DELTA = 23


@dataclass(frozen=True)
class Batch:
    """Position in bytes of a batch in its file, and its first and last offset."""

    position: int
    base_offset: int
    last_offset: int


def batches(log: Path) -> list[Batch]:
    """Return the batches of a segment, up to its end, to trailing zeroes or to an incomplete batch."""
    raw = log.read_bytes()
    found: list[Batch] = []
    position = 0
    while position + _HEAD.size <= len(raw):
        base, length, _, magic = _HEAD.unpack_from(raw, position)
        if length <= 0 or position + _BEFORE_LENGTH_ENDS + length > len(raw):
            break
        assert magic == 2, f"{log}: magic {magic} at {position}"
        (delta,) = _LAST_OFFSET_DELTA.unpack_from(raw, position + _AT_LAST_OFFSET_DELTA)
        found.append(Batch(position, base, base + delta))
        position += _BEFORE_LENGTH_ENDS + length
    return found


def cut_tail(data: Path, place: str, at_least: int) -> tuple[int, int]:
    """Cut the last batches, with at least `at_least` records, off the newest segment of a partition. `place`: its
    folder below `data`, such as "orders-0".

    Removes the indexes and producer snapshots, which Kafka rebuilds. Returns the new log end and the number of records
    cut off. The broker must not run."""
    folder = data / place
    log = sorted(folder.glob("*.log"))[-1]
    there = batches(log)
    end = there[-1].last_offset + 1
    first_cut = next(batch for batch in reversed(there) if end - batch.base_offset >= at_least)
    with log.open("r+b") as file:
        file.truncate(first_cut.position)
    for derived in (*folder.glob(f"{log.stem}.*index"), *folder.glob("*.snapshot")):
        derived.unlink()
    return first_cut.base_offset, end - first_cut.base_offset
