"""What readers hand over becomes rows, whatever lengths values have and wherever a slate ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ackproof.rundir.ledger import parts, read_parts
from ackproof.rundir.outcome import ReadPhase
from ackproof.rundir.payload import decode, encoder
from ackproof.rundir.payload_bulk import BulkDecoder
from ackproof.rundir.schema import CONSUMED
from ackproof.workload import rows
from ackproof.workload.rows import PartWriter, RowBuffer
from ackproof.workload.settings import Place

RUN = "00112233aabbccdd"
PLACES = (Place("orders", 0), Place("orders", 1))

kinds = st.sampled_from(
    ["of 100", "of 100", "of 100", "of 140", "elsewhere", "none", "short", "long", "damaged"]
)


def value(kind: str, seq: int) -> bytes | None:
    """A record's value."""
    if kind == "none":
        return None
    if kind == "short":
        return b"short"
    if kind == "long":
        return encoder(RUN, 1, "orders", 0, 5000)(seq)
    if kind == "elsewhere":
        return encoder(RUN, 1, "elsewhere", 3, 100)(seq)
    good = encoder(RUN, 1, "orders", seq % 2, 140 if kind == "of 140" else 100)(seq)
    return good if kind != "damaged" else good[:-1] + bytes([good[-1] ^ 1])


def written(folder: Path, batches: list[list[bytes | None]], flush_after: int) -> list[tuple[object, ...]]:
    """What the ledger says of these values, in order of reading; a part after so many batches."""
    writer = PartWriter(folder, 0, ReadPhase.LIVE, PLACES, BulkDecoder(RUN, ("orders",)))
    buffer, seen = RowBuffer(4000, 1000), 0
    for number, values in enumerate(batches, 1):
        begin, count = buffer.used, len(values)
        span = slice(begin, begin + count)
        buffer.place[span] = np.arange(seen, seen + count) % 2
        for column in (buffer.assignment, buffer.leader_epoch, buffer.read_ns, buffer.timestamp_ms):
            column[span] = 0
        buffer.offset[span] = np.arange(seen, seen + count)
        buffer.used += count
        seen += count
        writer.decode(values, buffer, begin)
        if number % flush_after == 0 or number == len(batches):
            writer.put(buffer)
            buffer = writer.empty_buffer() or RowBuffer(4000, 1000)
            buffer.first_read_seq = seen
    writer.finish()
    table = read_parts(folder, CONSUMED).sort_by("read_seq").to_pylist()
    assert [row["read_seq"] for row in table] == [row["offset"] for row in table] == list(range(seen))
    names = ("producer", "seq", "origin_topic", "origin_partition", "intact")
    return [tuple(row[name] for name in names) for row in table]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(kinds, min_size=1, max_size=30), min_size=1, max_size=12), st.integers(1, 5))
def test_every_value_is_decoded_into_its_own_row(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[list[str]], flush_after: int
) -> None:
    patch = pytest.MonkeyPatch()
    patch.setattr(rows, "_SLATE", 4096)  # forty values of 100 bytes; one of 5,000 has no room
    seqs = iter(range(10**6))
    batches = [[value(kind, next(seqs)) for kind in batch] for batch in drawn]
    try:
        found = written(tmp_path_factory.mktemp("ledger"), batches, flush_after)
    finally:
        patch.undo()
    expected = [decode(RUN, one) for batch in batches for one in batch]
    assert found == [
        (one.producer, one.seq, one.origin_topic, one.origin_partition, one.intact) for one in expected
    ]


def test_batches_of_one_length_are_decoded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together: list[int] = []
    honest = BulkDecoder.packed

    def packed(decoder: BulkDecoder, raw: bytes | memoryview, size: int, into: rows.Decoded) -> None:
        together.append(len(into.seq))
        honest(decoder, raw, size, into)

    monkeypatch.setattr(BulkDecoder, "packed", packed)
    batches = [[value("of 100", seq) for seq in range(at, at + 500)] for at in range(0, 4000, 500)]
    found = written(tmp_path, batches, flush_after=8)
    assert together == [4000]
    assert [row[1] for row in found] == list(range(4000))


def test_what_the_thread_meets_is_raised_where_values_come_from(tmp_path: Path) -> None:
    writer = PartWriter(tmp_path, 0, ReadPhase.LIVE, PLACES, BulkDecoder(RUN, ("orders",)))
    buffer = RowBuffer(4000, 1000)
    buffer.used = 10
    buffer.place[:10] = 7  # no such place
    writer.put(buffer)
    with pytest.raises(IndexError):
        writer.finish()
    assert parts(tmp_path) == []
