"""Tests of the files of the table of transactions: which files are read, and the reasons for missing ones."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from .ledgers import write_case, write_ledger
from .local import audited
from .rows import committed, read, sent, transaction

COMMITTED, ABORTED = 0, 1
THREE = [sent(n, txn=0) for n in range(3)]
ALL = [read(n) for n in range(3)]
AT_THE_END = [committed(n, read_ns=9) for n in range(3)]
NO_READ = (
    "ledger/consumed: transactions, and no final read at read_committed, so torn ones cannot be detected"
)


def file_of(directory):
    (result,) = audited([directory])
    assert result.file is not None, result.reasons
    return result


def test_no_table_where_only_one_of_two_writes_in_transactions(tmp_path) -> None:
    produced = [sent(9, 0, producer=0, partition=1), *(row._replace(producer=1) for row in THREE)]
    reads = [read(9, 0, partition=1), *(row._replace(producer=1) for row in [*ALL, *AT_THE_END])]
    result = file_of(write_ledger(tmp_path / "case", produced, reads))
    assert result.reasons == ("ledger/transactions: lacks the transactions of 3 produced rows",)


@pytest.mark.parametrize(
    "spoil",
    [lambda raw: raw[:60], lambda raw: raw[:4] + bytes(60) + raw[64:]],
    ids=["no footer", "broken pages"],
)
def test_behind_a_torn_part_the_others_are_read(tmp_path, spoil) -> None:
    produced = [*THREE, *(sent(n, n + 3, producer=1, txn=0) for n in range(3))]
    own = [read(n, n + 3, producer=1) for n in range(3)]
    reads = [*ALL, *own, *AT_THE_END, *(committed(n, n + 3, producer=1, read_ns=9) for n in range(3))]
    table = [transaction(0, COMMITTED), transaction(0, COMMITTED, producer=1)]
    directory = write_ledger(tmp_path / "case", produced, reads, table)
    path = directory / "ledger" / "transactions" / "client=p0" / "part-0.parquet"
    path.write_bytes(spoil(path.read_bytes()))
    result = file_of(directory)
    assert "client=p0/part-0.parquet: torn or unreadable" in result.reasons[0]
    assert result.reasons[1:] == ("ledger/transactions: lacks the transactions of 3 produced rows",)


@pytest.mark.parametrize(
    ("final", "ended", "said"),
    [
        ([], ["consumed/r9"], True),
        (
            [{"id": "f1", "kind": "final", "isolation": "read_committed"}],
            ["consumed/f1", "consumed/r9"],
            False,
        ),
        ([{"id": "f1", "kind": "final", "isolation": "read_committed"}], ["consumed/r9"], True),
        ([{"id": "f1", "kind": "final"}], ["consumed/f1", "consumed/r9"], True),
    ],
)
def test_who_has_read_at_read_committed_without_being_handed_anything(tmp_path, final, ended, said) -> None:
    directory = write_ledger(tmp_path / "case", THREE, ALL, [transaction(0, COMMITTED)])
    write_case(directory, [{"id": "p0"}, {"id": "r9"}, *final], ended=["produced/p0", *ended])
    assert (NO_READ in file_of(directory).reasons) is said


@pytest.mark.parametrize("write_statistics", [True, False])
def test_a_reader_of_both_isolations_in_one_file(tmp_path, write_statistics) -> None:
    reads = [*ALL, *(row._replace(reader=9) for row in AT_THE_END)]
    directory = write_ledger(
        tmp_path / "case", THREE, reads, [transaction(0, COMMITTED)],
        row_group_size=2, write_statistics=write_statistics,
    )  # fmt: skip
    assert file_of(directory).reasons == ()


@pytest.mark.parametrize("write_statistics", [True, False])
def test_no_table_for_one_partition_of_a_file_and_none_needed_for_another(tmp_path, write_statistics) -> None:
    produced = [*THREE, sent(7, 0, partition=1), sent(8, 1, partition=1), sent(9, 0, producer=1, partition=2)]
    reads = [*ALL, read(7, 0, partition=1), read(8, 1, partition=1), read(9, 0, producer=1, partition=2)]
    directory = write_ledger(
        tmp_path / "case", produced, [*reads, *AT_THE_END], write_statistics=write_statistics
    )
    assert file_of(directory).reasons == ("ledger/transactions: lacks the transactions of 3 produced rows",)


def test_a_table_in_any_order_with_a_part_without_rows(tmp_path) -> None:
    produced = [sent(n, txn=n) for n in range(3)]
    table = [transaction(2, ABORTED), transaction(0, COMMITTED), transaction(1, ABORTED)]
    directory = write_ledger(tmp_path / "case", produced, [*ALL, *AT_THE_END], table)
    path = directory / "ledger" / "transactions" / "client=p0" / "part-0.parquet"
    pq.write_table(pq.read_schema(path).empty_table(), path.with_name("part-1.parquet"))
    result = file_of(directory)
    assert result.reasons == ()
    assert result.file.counts["aborted-read"] == 2


def test_one_outcome_among_good_ones_that_means_nothing(tmp_path) -> None:
    table = [transaction(0, COMMITTED), transaction(1, 4)]
    directory = write_ledger(tmp_path / "case", THREE, [*ALL, *AT_THE_END], table)
    (result,) = audited([directory])
    assert result.code == 254
    assert "column outcome holds 4" in result.reasons[0]
