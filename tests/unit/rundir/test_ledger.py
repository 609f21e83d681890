"""Tests of ledger parts: their schema, their order, one row group per partition, and no incomplete part."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.dataset as dataset
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ackproof.rundir.ledger import (
    ConsumedRows,
    ProducedRows,
    parts,
    read_parts,
    remove_unfinished,
    write_consumed,
    write_produced,
)
from ackproof.rundir.parts import ClientLibrary, has_end, mark_end, read_end
from ackproof.rundir.schema import CONSUMED, PRODUCED

PLACES = (("b", 1), ("a", 10), ("b", 0), ("a", 9))


def produced(count: int, places: tuple[tuple[str, int], ...] = PLACES) -> ProducedRows:
    seq = np.arange(count, dtype=np.int64)
    return ProducedRows(
        producer=3,
        places=places,
        place=seq % len(places),
        seq=seq,
        outcome=(seq % 3).astype(np.int8),
        error=-(seq % 200).astype(np.int16),
        offset=np.where(seq % 3 == 0, seq + 2**53, -1),
        sent_ns=seq * 10,
        done_ns=seq * 10 + 5,
    )


def consumed(count: int) -> ConsumedRows:
    seq = np.arange(count, dtype=np.int64)
    return ConsumedRows(
        reader=1,
        phase=0,
        places=PLACES,
        origins=("", "a", "b"),
        place=(seq[::-1] % len(PLACES)).astype(np.int32),
        assignment=np.zeros(count, np.int32),
        read_seq=seq + 7,
        offset=seq,
        leader_epoch=np.full(count, -1, np.int32),
        producer=np.zeros(count, np.int32),
        seq=seq,
        origin=(seq % 3).astype(np.int32),
        origin_partition=np.zeros(count, np.int32),
        intact=seq % 2 == 0,
        read_ns=seq,
        timestamp_ms=seq,
    )


@pytest.mark.parametrize("count", [1, 3, 4, 1000, 20_000])
def test_produced_round_trip(tmp_path: Path, count: int) -> None:
    path = write_produced(tmp_path, 0, produced(count))
    table = pq.read_table(path, partitioning=None)
    assert table.schema.equals(PRODUCED)
    assert all(table[name].null_count == 0 for name in PRODUCED.names)
    rows = table.to_pylist()
    assert rows == sorted(rows, key=lambda row: (row["topic"], row["partition"], row["seq"]))
    for row in rows:
        seq = row["seq"]
        assert (row["topic"], row["partition"]) == PLACES[seq % 4]
        assert (row["producer"], row["txn"]) == (3, -1)
        assert row["outcome"] == seq % 3
        assert row["error"] == -(seq % 200)
        assert row["offset"] == (seq + 2**53 if seq % 3 == 0 else -1)
    assert sorted(row["seq"] for row in rows) == list(range(count))


@pytest.mark.parametrize("count", [1, 5000])
def test_consumed_round_trip(tmp_path: Path, count: int) -> None:
    write_consumed(tmp_path, 0, consumed(count))
    table = read_parts(tmp_path, CONSUMED)
    assert table.schema.equals(CONSUMED)
    rows = table.to_pylist()
    assert rows == sorted(rows, key=lambda row: (row["topic"], row["partition"], row["read_seq"]))
    for row in rows:
        seq = row["seq"]
        assert row["read_seq"] == seq + 7
        assert row["origin_topic"] == ("", "a", "b")[seq % 3]
        assert row["intact"] is (seq % 2 == 0)


def test_a_row_group_holds_one_partition_when_there_are_enough_rows(tmp_path: Path) -> None:
    file = pq.ParquetFile(write_produced(tmp_path, 0, produced(20_000)))
    assert file.num_row_groups == 4
    column = PRODUCED.names.index("partition")
    for group in range(4):
        statistics = file.metadata.row_group(group).column(column).statistics
        assert statistics.min == statistics.max
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_few_rows_in_many_partitions_share_groups(tmp_path: Path) -> None:
    places = tuple(("t", partition) for partition in range(500))
    file = pq.ParquetFile(write_produced(tmp_path, 0, produced(2000, places)))
    assert file.num_row_groups == 2


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 3000), min_size=1, max_size=6))
def test_parts_add_up(tmp_path_factory: pytest.TempPathFactory, counts: list[int]) -> None:
    folder = tmp_path_factory.mktemp("ledger")
    for number, count in enumerate(counts):
        write_produced(folder / "client=p0", number, produced(count))
    assert read_parts(folder, PRODUCED).num_rows == sum(counts)
    assert len(parts(folder)) == len(counts)


def test_a_footer_names_the_client_library_where_the_writer_said_it(tmp_path: Path) -> None:
    library = ClientLibrary("librdkafka", "2.16.0")
    named = write_produced(tmp_path, 0, replace(produced(10), library=library))
    unnamed = write_produced(tmp_path, 1, produced(10))
    assert ClientLibrary.read(pq.read_metadata(named)) == library
    assert ClientLibrary.read(pq.read_metadata(unnamed)) is None
    assert read_parts(tmp_path, PRODUCED).num_rows == 20


def test_an_unfinished_part_is_no_part(tmp_path: Path) -> None:
    write_produced(tmp_path, 0, produced(10))
    (tmp_path / ".part-000001.parquet.123.tmp").write_bytes(b"PAR1")
    assert len(parts(tmp_path)) == 1
    assert remove_unfinished(tmp_path) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["part-000000.parquet"]


def test_a_failed_write_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", fail)
    with pytest.raises(OSError, match="disk full"):
        write_produced(tmp_path, 0, produced(10))
    assert parts(tmp_path) == []


def test_writing_does_not_load_pandas(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, numpy as np\n"
        "from ackproof.rundir.ledger import ProducedRows, write_produced\n"
        "one, small = np.zeros(3, np.int64), np.zeros(3, np.int8)\n"
        "rows = ProducedRows(0, (('a', 0),), one, one, small, np.zeros(3, np.int16), one, one, one)\n"
        f"write_produced(pathlib.Path({str(tmp_path)!r}), 0, rows)\n"
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_end(tmp_path: Path) -> None:
    folder = tmp_path / "client=p0"
    assert not has_end(folder)
    mark_end(folder)
    assert has_end(folder)
    assert read_end(folder) == ()
    assert read_parts(tmp_path, PRODUCED).num_rows == 0


def test_a_ledger_opens_as_a_data_set_as_it_lies(tmp_path: Path) -> None:
    for client in ("p0", "p1"):
        write_produced(tmp_path / f"client={client}", 0, produced(40))
        mark_end(tmp_path / f"client={client}")
        assert has_end(tmp_path / f"client={client}")
    assert dataset.dataset(tmp_path, format="parquet").count_rows() == 80
    assert dataset.dataset(tmp_path, format="parquet", partitioning="hive").to_table()[
        "client"
    ].unique().to_pylist() == ["p0", "p1"]


def test_an_end_of_earlier_versions_is_read(tmp_path: Path) -> None:
    write_produced(tmp_path, 0, produced(40))
    mark_end(tmp_path)
    told = read_end(tmp_path)
    (tmp_path / "_END").rename(tmp_path / "END")
    assert has_end(tmp_path)
    assert told
    assert read_end(tmp_path) == told
    (tmp_path / "END").unlink()
    assert not has_end(tmp_path)
    assert read_end(tmp_path) is None


in_turn = st.tuples(st.permutations(range(4)), st.integers(1, 40)).map(
    lambda drawn: [drawn[0][number % 4] for number in range(drawn[1])]
)
in_runs = st.lists(st.tuples(st.integers(0, 3), st.integers(20, 90)), min_size=1, max_size=8).map(
    lambda runs: [place for place, length in runs for _ in range(length)]
)
anyhow = st.lists(st.integers(0, 3), min_size=1, max_size=60)


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
@settings(deadline=None, max_examples=50)
@given(drawn=st.one_of(in_turn, in_runs, anyhow))
def test_the_order_is_that_of_a_stable_sort(
    tmp_path_factory: pytest.TempPathFactory, index_type: type[np.signedinteger], drawn: list[int]
) -> None:
    count, place = len(drawn), np.array(drawn, index_type)
    rows = replace(produced(count), place=place, txn=np.arange(count) * 7)
    path = write_produced(tmp_path_factory.mktemp("part"), 0, rows)
    found = zip(
        *(pq.read_table(path)[name].to_pylist() for name in ("topic", "partition", "seq", "txn")), strict=True
    )
    expected = sorted(range(count), key=lambda row: PLACES[drawn[row]])
    assert list(found) == [(*PLACES[drawn[row]], row, row * 7) for row in expected]


@pytest.mark.parametrize(("rows", "groups"), [(1024, [1024] * 4), (1023, [2046, 2046]), (3000, [3000] * 4)])
def test_groups_begin_as_soon_as_there_are_enough_rows(tmp_path: Path, rows: int, groups: list[int]) -> None:
    place = np.repeat([3, 1, 2, 0], rows)
    file = pq.ParquetFile(write_produced(tmp_path, 0, replace(produced(4 * rows), place=place)))
    metadata = file.metadata
    assert [metadata.row_group(number).num_rows for number in range(file.num_row_groups)] == groups
