"""Tests of the exit codes of an audit (docs/architecture.md) over bad, incomplete and good ledgers."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ackproof.rundir.schema import CONSUMED, PRODUCED

from .ledgers import consumed_table, findings_of, produced_table, write_case, write_ledger
from .local import READ, SENT, LocalEdge, audited, incomplete, part, refused
from .rows import read, sent


def test_good(run, ledger) -> None:
    (result,) = run(ledger)
    assert (result.code, result.reasons) == (0, ())
    assert result.file is not None
    assert result.file.complete
    assert sorted(path.name for path in ledger.iterdir()) == [
        "audit.json",
        "findings",
        "ledger",
        "series.parquet",
    ]


# 254 ---------------------------------------------------------------------------------------------------------------


def test_no_directory(run, tmp_path) -> None:
    refused(run, tmp_path / "nowhere", "no such directory")


@pytest.mark.parametrize("kind", ["produced", "consumed"])
def test_no_folder(run, ledger, kind) -> None:
    shutil.rmtree(ledger / "ledger" / kind)
    refused(run, ledger, f"no folder ledger/{kind}")


@pytest.mark.parametrize(
    ("kind", "column"),
    [("produced", name) for name in PRODUCED.names] + [("consumed", name) for name in CONSUMED.names],
)
def test_each_column_missing_mistyped_or_null(ledger, kind, column) -> None:
    def run(*directories):
        return audited(directories)

    path = part(ledger, kind)
    table = pq.read_table(path, partitioning=None)
    number = table.column_names.index(column)
    pq.write_table(table.drop_columns([column]), path)
    refused(run, ledger, path.name, f"column {column} is missing")
    other = pa.int32() if table.schema.field(column).type == pa.int64() else pa.int64()
    wrong = pa.array([0] * len(table), other)
    pq.write_table(table.set_column(number, column, wrong), path)
    refused(run, ledger, f"column {column} is {other}, not")
    holes = pc.if_else(pa.array([n != 3 for n in range(len(table))]), table[column].combine_chunks(), None)
    holed = table.set_column(number, pa.field(column, table.schema.field(column).type), holes)
    pq.write_table(holed, path)
    refused(run, ledger, f"column {column} has 1 null")
    pq.write_table(holed, path, write_statistics=False)
    refused(run, ledger, f"column {column} has a null")


@pytest.mark.parametrize(
    ("column", "type_"),
    [
        ("seq", pa.uint64()),
        ("seq", pa.float64()),
        ("sent_ns", pa.timestamp("ns")),
        ("topic", pa.binary()),
        ("outcome", pa.int16()),
        ("partition", pa.int16()),
    ],
)
def test_a_type_that_only_looks_right(run, ledger, column, type_) -> None:
    path = part(ledger)
    table = pq.read_table(path, partitioning=None)
    pq.write_table(
        table.set_column(
            table.column_names.index(column), column, table[column].combine_chunks().cast(type_)
        ),
        path,
    )
    refused(run, ledger, f"column {column} is {type_}")


def test_one_bad_file_among_many(run, ledger) -> None:
    folder = part(ledger).parent
    table = produced_table([sent(9)])
    pq.write_table(table.drop_columns(["txn"]), folder / "part-9.parquet")
    refused(run, ledger, "part-9.parquet: column txn is missing")


def test_a_column_missing_in_a_file_without_rows(run, ledger) -> None:
    pq.write_table(PRODUCED.empty_table().drop_columns(["seq"]), part(ledger).parent / "part-9.parquet")
    refused(run, ledger, "column seq is missing")


@pytest.mark.parametrize("again", [sent(2, 1), sent(2, 7, partition=1), sent(2, -1, topic="u", outcome=2)])
def test_one_identity_produced_twice(run, ledger, again) -> None:
    pq.write_table(produced_table([again]), part(ledger).parent / "part-9.parquet")
    refused(run, ledger, "producer 0, seq 2 was produced twice")


@pytest.mark.parametrize("first", [0, 65_536])
def test_many_identities_produced_in_two_partitions(run, tmp_path, first) -> None:
    """Both partitions have enough records for bitmaps. The last seq of one is the first of the other."""
    rows = [sent(first + n, n) for n in range(3000)]
    rows += [sent(first + n, n, partition=1) for n in range(2999, 5000)]
    ledger = write_ledger(tmp_path / "case", rows, [read(first, 0)])
    refused(run, ledger, f"producer 0, seq {first + 2999} was produced twice")


def test_a_bitmap_and_a_lone_number(run, tmp_path) -> None:
    rows = [sent(n) for n in range(3000)] + [sent(5, partition=1), sent(65_536 * 7, partition=1)]
    refused(run, write_ledger(tmp_path / "case", rows, [read(0)]), "producer 0, seq 5 was produced twice")


def test_lone_numbers_in_a_block_that_is_a_bitmap(run, tmp_path) -> None:
    """Producer 1 has 3,000 consecutive seqs in one partition and three single ones in another. In the bad ledger seq
    5000 is in two partitions. Producer 0 has rows in the third partition."""
    rows = [sent(seq, seq, producer=0, partition=2) for seq in (1, 2)]
    rows += [sent(n, producer=1) for n in range(3000)]
    rows += [sent(n, producer=1, partition=1) for n in (4000, 4500, 5000)]
    (result,) = run(write_ledger(tmp_path / "good", rows, [read(0, producer=1)]))
    assert (result.code, result.reasons) == (0, ())
    rows.append(sent(5000, producer=1, partition=2))
    refused(run, write_ledger(tmp_path / "bad", rows, [read(0)]), "producer 1, seq 5000 was produced twice")


@pytest.mark.parametrize(
    ("kind", "column", "number"),
    [("produced", "outcome", 3), ("consumed", "phase", 4), ("consumed", "phase", -1)],
)
def test_a_number_that_means_nothing(run, ledger, kind, column, number) -> None:
    path = part(ledger, kind)
    table = pq.read_table(path, partitioning=None)
    wrong = pa.array([number] * len(table), pa.int8())
    pq.write_table(table.set_column(table.column_names.index(column), column, wrong), path)
    refused(run, ledger, f"column {column} holds {number}")


# 2 -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["produced", "consumed"])
@pytest.mark.parametrize("how", ["torn", "empty", "text", "folder", "link"])
def test_an_unreadable_part(run, ledger, kind, how) -> None:
    path = part(ledger, kind).parent / "part-9.parquet"
    if how == "torn":
        path.write_bytes(part(ledger, kind).read_bytes()[:-9])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "text":
        path.write_text("not Parquet at all " * 9)
    elif how == "folder":
        path.mkdir()
    else:
        path.symlink_to("/nowhere")
    file = incomplete(run, ledger, path.name)
    assert file.records.produced == len(SENT)
    assert file.records.consumed_final == len(READ)
    assert set(file.counts.values()) == {0}


@pytest.mark.parametrize("kind", ["produced", "consumed"])
def test_a_part_whose_pages_are_broken_is_not_counted_at_all(run, tmp_path, kind) -> None:
    """The footer and the first row group are good, and a later one cannot be decoded. No row of the part is counted."""
    rows = [sent(n, partition=n % 3) for n in range(3000)]
    reads = [read(n, partition=n % 3) for n in range(3000)]
    ledger = write_ledger(tmp_path / "case", rows[:9], reads[:9])
    path = part(ledger, kind).parent / "part-7.parquet"
    table = produced_table(rows[9:]) if kind == "produced" else consumed_table(reads[9:])
    pq.write_table(table, path, compression="zstd", row_group_size=500)
    column = pq.read_metadata(path).row_group(4).column(1 if kind == "produced" else 6)
    raw = bytearray(path.read_bytes())
    start = (column.dictionary_page_offset or column.data_page_offset) + 20
    raw[start : start + 60] = bytes(60)
    path.write_bytes(raw)
    file = incomplete(run, ledger, "part-7.parquet")
    expected = len(rows[:9]) if kind == "produced" else len(reads[:9])
    assert (file.records.produced if kind == "produced" else file.records.consumed_final) == expected


@pytest.mark.parametrize("empty", [{"produced", "consumed"}, {"produced"}, {"consumed"}])
@pytest.mark.parametrize("with_files", [True, False])
def test_no_rows(run, tmp_path, empty, with_files) -> None:
    ledger = write_ledger(
        tmp_path / "case", [] if "produced" in empty else SENT, [] if "consumed" in empty else READ
    )
    if with_files:
        for kind, schema in (("produced", PRODUCED), ("consumed", CONSUMED)):
            folder = ledger / "ledger" / kind / "client=x"
            folder.mkdir()
            pq.write_table(schema.empty_table(), folder / "part-0.parquet")
    file = incomplete(run, ledger, *(f"ledger/{kind}: no rows" for kind in empty))
    assert file.counts["lost"] == (0 if "produced" in empty else len(SENT))
    assert file.counts["phantom"] == (0 if "consumed" in empty or "produced" not in empty else len(READ))
    assert findings_of(ledger) == [] or empty != {"produced", "consumed"}


def test_a_reader_that_ended_over_an_empty_log(run, tmp_path) -> None:
    ledger = write_ledger(tmp_path / "case", SENT, [])
    folder = ledger / "ledger" / "consumed" / "client=f0"
    folder.mkdir()
    (folder / "END").touch()
    (result,) = run(ledger)
    assert result.code == 0
    assert result.file is not None
    assert result.file.counts["lost"] == len(SENT)


@pytest.mark.parametrize(
    "clients",
    [
        [{"id": "p0", "kind": "producer", "producer": 0}, {"id": "r9", "kind": "reader", "reader": 9}],
        [{"client": "p0"}, {"client": "r9"}],
        ["p0", "r9"],
        {"p0": {"producer": 0}, "r9": {}},
        {"p0": 0, "r9": None},
    ],
)
def test_a_missing_end(run, ledger, clients) -> None:
    write_case(ledger, clients, ended=["consumed/r9"])
    reads = [read(7, 7), read(8, 8, producer=3)]
    pq.write_table(consumed_table(reads), part(ledger, "consumed").parent / "part-9.parquet")
    file = incomplete(run, ledger, "ledger/produced/client=p0: no _END")
    assert (file.unledgered, file.counts["phantom"]) == (1, 1)
    write_case(ledger, clients, ended=["produced/p0"])
    (result,) = run(ledger)
    assert result.code == 0
    assert result.file is not None
    assert (result.file.unledgered, result.file.counts["phantom"]) == (0, 2)


def test_a_missing_end_of_a_client_that_nobody_listed(run, ledger) -> None:
    write_case(ledger, [], ended=["consumed/r9"])
    file = incomplete(run, ledger, "ledger/produced/client=p0: no _END")
    assert file.unledgered == 0


def test_a_listed_client_without_a_folder(run, ledger) -> None:
    write_case(ledger, [{"id": "p7", "producer": 7}], ended=["consumed/r9", "produced/p0"])
    pq.write_table(
        consumed_table([read(0, 9, producer=7)]), part(ledger, "consumed").parent / "part-9.parquet"
    )
    file = incomplete(run, ledger, "client p7: listed in case.json")
    assert (file.unledgered, file.counts["phantom"]) == (1, 0)


@pytest.mark.parametrize("text", ["{", "[]", '{"clients": 3}', '{"clients": [{"kind": "producer"}]}', "\0"])
def test_a_case_file_that_makes_no_sense(run, ledger, text) -> None:
    write_case(ledger, [], ended=["consumed/r9", "produced/p0"])
    (ledger / "case.json").write_text(text)
    incomplete(run, ledger, "case.json")


def test_a_journal_that_nobody_turned_into_parquet(run, ledger) -> None:
    (ledger / "journal").mkdir()
    (result,) = run(ledger)
    assert result.code == 0
    (ledger / "journal" / "p0.bin").touch()
    incomplete(run, ledger, "journal")


@pytest.mark.parametrize(
    "where", ["part.parquet", "client=p0/0.parquet", "p0/part-0.parquet", "client=p0/x/part-0.parquet"]
)
def test_a_parquet_file_that_stands_elsewhere_is_named(run, ledger, where) -> None:
    stray = ledger / "ledger" / "produced" / where
    stray.parent.mkdir(exist_ok=True)
    pq.write_table(produced_table([sent(99)]), stray)
    file = incomplete(run, ledger, where)
    assert file.records.produced == len(SENT)


@pytest.mark.parametrize(
    "name", [".part-1.parquet", "part-1.parquet.tmp", ".part-1.parquet.77.tmp", "_metadata", "notes"]
)
def test_what_is_no_part(run, ledger, name) -> None:
    (part(ledger).parent / name).write_bytes(b"half")
    (result,) = run(ledger)
    assert result.code == 0


class Vanishing(LocalEdge):
    """Edge that calls `happens` once, before it runs the first job."""

    def __init__(self, happens) -> None:
        self._happens = [happens]

    def __call__(self, job) -> list:
        if self._happens:
            self._happens.pop()()
        return super().__call__(job)


def test_a_directory_that_disappears_while_it_is_read(run, tmp_path) -> None:
    gone, stays = (write_ledger(tmp_path / name, SENT, READ) for name in ("gone", "stays"))
    edge = Vanishing(lambda: shutil.rmtree(gone))
    results = run(gone, stays, edges=lambda: edge)
    assert [result.code for result in results] == [2, 0]
    assert "disappeared" in results[0].reasons[0]
    assert not gone.exists()


def test_a_file_that_disappears_while_it_is_read(run, ledger) -> None:
    extra = part(ledger, "consumed").parent / "part-9.parquet"
    pq.write_table(consumed_table([read(77)]), extra)
    edge = Vanishing(extra.unlink)
    (result,) = run(ledger, edges=lambda: edge)
    assert result.code == 2
    assert "part-9.parquet" in result.reasons[0]
    assert result.file is not None
    assert result.file.counts["phantom"] == 0
    assert result.file.records.consumed_final == len(READ)


def test_a_directory_that_cannot_be_written(run, ledger, monkeypatch) -> None:
    def denied(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("ackproof.rundir.storage.create_parquet", denied)
    (result,) = run(ledger)
    assert (result.code, result.file) == (2, None)
    assert "Permission denied" in result.reasons[0]


# several ------------------------------------------------------------------------------------------------------------
