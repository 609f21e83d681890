"""Tests of audits of several directories, of repeated audits, and of ledgers written by other tools."""

from __future__ import annotations

import random
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ackproof import audit as room
from ackproof.base.processes import here

from .ledgers import consumed_table, findings_of, write_ledger
from .local import READ, SENT, part, refused
from .rows import live, read, sent


def test_every_good_directory_is_audited_and_the_worst_code_wins(run, tmp_path) -> None:
    good, torn, bad = (write_ledger(tmp_path / name, SENT, READ[:-1]) for name in ("good", "torn", "bad"))
    (part(torn).parent / "part-9.parquet").write_bytes(b"")
    shutil.rmtree(bad / "ledger" / "consumed")
    results = run(bad, good, torn, tmp_path / "nowhere", good)
    assert [result.code for result in results] == [254, 0, 2, 254, 0]
    assert [result.directory for result in results] == [bad, good, torn, tmp_path / "nowhere", good]
    for result in (results[1], results[2]):
        assert result.file is not None
        assert result.file.counts["lost"] == 1
    assert room.exit_code(results) == 254
    assert room.exit_code(results[1:3]) == 2
    assert room.exit_code(results[1:2]) == 0
    assert run() == []


def test_auditing_again_replaces(run, ledger) -> None:
    (result,) = run(ledger)
    assert result.file is not None
    assert result.file.counts["lost"] == 0
    path = part(ledger, "consumed")
    pq.write_table(consumed_table([]), path)
    folder = path.parent
    (folder / "END").touch()
    (result,) = run(ledger)
    assert [row["class"] for row in findings_of(ledger)] == ["lost"] * len(SENT)
    shutil.rmtree(ledger / "ledger" / "consumed")
    (result,) = run(ledger)
    assert result.code == 254
    assert sorted(path.name for path in ledger.iterdir()) == ["ledger"]  # nothing that looks like a result


def test_a_folder_of_findings_that_is_not_ours_stays(run, tmp_path) -> None:
    (tmp_path / "findings").mkdir()
    (tmp_path / "findings" / "thesis.txt").touch()
    refused(run, tmp_path, "no folder ledger/produced")
    assert (tmp_path / "findings" / "thesis.txt").exists()


def test_what_a_killed_audit_left_is_swept(run, ledger) -> None:
    left = ledger / f".audit-{here()}-999999999-1-0"
    left.mkdir()
    (result,) = run(ledger)
    assert result.code == 0
    assert not left.exists()


# foreign writers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
@pytest.mark.parametrize(
    "how", [{}, {"use_dictionary": False}, {"write_statistics": False}, {"version": "1.0"}]
)
def test_strings_and_files_of_other_tools(run, ledger, type_, how) -> None:
    for kind in ("produced", "consumed"):
        path = part(ledger, kind)
        table = pq.read_table(path, partitioning=None)
        for name in ("topic", "origin_topic"):
            if name in table.column_names:
                table = table.set_column(table.column_names.index(name), name, table[name].cast(type_))
        table = table.append_column("extra", pa.array([None] * len(table), pa.float64()))
        times = pa.array(range(len(table)), pa.int64()).cast(pa.timestamp("ms"))
        table = table.append_column("when", times).append_column(
            "raw", times.cast(pa.string()).cast(pa.binary())
        )
        order = random.Random(0).sample(table.column_names, len(table.column_names))
        pq.write_table(table.select(order), path, **how)
    (result,) = run(ledger)
    assert (result.code, result.reasons) == (0, ())
    assert result.file is not None
    assert set(result.file.counts.values()) == {0}
    assert result.file.records.consumed_final == len(READ)


def test_statistics_that_lie(run, tmp_path, monkeypatch) -> None:
    """The footers name one partition and one phase per row group, and the row groups have others, too."""
    ledger = write_ledger(
        tmp_path / "case", SENT, [*READ, *(live(n, n // 2, partition=n % 2) for n in range(6))]
    )
    from ackproof.ledgers import directory as module

    honest = module._row_group
    monkeypatch.setattr(
        module, "_row_group", lambda *given: module.RowGroup(given[0], honest(*given).rows, "t", 0, 0)
    )
    (result,) = run(ledger)
    assert result.code == 0
    assert result.file is not None
    assert set(result.file.counts.values()) == {0}
    assert result.file.records.consumed_live == result.file.records.consumed_final == 6


def test_partitions_far_apart_in_one_row_group(run, tmp_path) -> None:
    """The partition numbers are so large that topic and partition together need more than 16 bits."""
    at = [("t", 0), ("u", 70_000), ("t", 131_072), ("u", 0)]
    rows = [sent(n, n // 4, topic=at[n % 4][0], partition=at[n % 4][1]) for n in range(12)]
    reads = [read(n, n // 4, topic=at[n % 4][0], partition=at[n % 4][1]) for n in range(11)]
    (result,) = run(write_ledger(tmp_path / "case", rows, reads))
    assert result.file is not None
    assert {name: count for name, count in result.file.counts.items() if count} == {"lost": 1}
    assert [(row["topic"], row["partition"]) for row in findings_of(tmp_path / "case")] == [("u", 0)]
