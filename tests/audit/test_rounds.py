"""Tests of one round of the audit: when Spark starts, the progress lines, the errors and the files left."""

from __future__ import annotations

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ackproof.audit import exit_code, pipeline
from ackproof.audit.outputs import Outputs
from ackproof.audit.pipeline import _conclude, _DirectoryJob, _PlannedDirectory, audit_all
from ackproof.audit.planning import plan_units
from ackproof.audit.series import _latencies
from ackproof.audit.stages import Tally
from ackproof.audit.units import AuditTarget, Limits, Trouble
from ackproof.base.processes import here
from ackproof.ledgers.directory import Ledger
from ackproof.rundir.schema import FINDINGS
from ackproof.spark.workers import extract_cause

from .agreement import DrawnDirectory, agree
from .ledgers import consumed_table, produced_table, write_case, write_ledger
from .local import BUCKETS, READ, SENT, LocalEdge, audited, part, refused
from .rows import committed, live, read, sent, transaction

COMMITTED, ABORTED = 0, 1


def nobody():
    raise AssertionError("Spark was asked for")


def test_without_a_row_spark_is_not_asked_for(tmp_path) -> None:
    for kind in ("produced", "consumed"):
        (tmp_path / "case" / "ledger" / kind).mkdir(parents=True)
    (result,) = audit_all([tmp_path / "case"], nobody, lambda _: None, Limits())
    assert (result.code, exit_code([result])) == (2, 2)
    assert result.reasons[0] == "ledger/produced: no rows"


@pytest.mark.parametrize("txn", [-1, 0])
def test_files_whose_footers_are_true_are_read_once(tmp_path, txn) -> None:
    """The footers are read once if their statistics are right. A wrong doubt would cost a second round."""
    rows = [sent(n, txn=txn) for n in range(6)]
    reads = [read(n) for n in range(6)] + [committed(n, read_ns=9) for n in range(6) if txn == 0]
    table = [transaction(0, COMMITTED, commit_ns=5)] if txn == 0 else []
    ledger = write_ledger(tmp_path / "case", rows, reads, table)
    for limits in (Limits(), BUCKETS):
        said: list[str] = []
        (result,) = audit_all([ledger], LocalEdge, said.append, limits)
        assert (result.code, result.reasons) == (0, ())
        assert [one for one in said if one.startswith("reading")] == ["reading the footers of 1 directory"]


@pytest.mark.parametrize(
    ("task_rows", "jobs"), [(2, ["taking row groups apart", "counting"]), (99_999, ["counting"])]
)
def test_few_mixed_rows_are_taken_apart_before_spark_is_there(tmp_path, task_rows, jobs) -> None:
    """The driver takes few mixed rows apart itself while Spark starts, instead of in a job of their own."""
    asked: list[str] = []
    put_aside: list[bool] = []
    directory = write_ledger(tmp_path / "case", SENT, READ[1:])

    def edges():
        put_aside.append(bool(list(directory.glob(".audit-*/rows/*"))))
        return Noting()

    class Noting(LocalEdge):
        def __call__(self, job):
            asked.append(job.what)
            return super().__call__(job)

    limits = Limits(whole_rows=0, task_rows=task_rows)
    (result,) = audit_all([directory], edges, lambda _: None, limits)
    assert result.file is not None
    assert result.file.counts["lost"] == 1
    assert asked == jobs
    assert put_aside[0] == (jobs == ["counting"])


def test_findings_are_a_table_also_when_there_are_none(run, ledger) -> None:
    (result,) = run(ledger)
    assert result.code == 0
    assert pq.read_table(ledger / "findings").schema.names == FINDINGS.names


def test_findings_that_an_audit_left_without_an_answer_are_replaced(run, ledger) -> None:
    """An audit was killed before audit.json was in place. The next audit removes its findings."""
    (ledger / "findings").mkdir()
    left = ledger / "findings" / f"part-{here()}-4194305-1-0-000000-9.parquet"
    left.write_bytes(b"of a dead audit")
    (result,) = run(ledger)
    assert (result.code, result.reasons) == (0, ())
    assert not left.exists()


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("Outputs.begin", "cannot be read or written (No space left on device)"),
        ("results.publish", "the results cannot be written (No space left on device)"),
    ],
)
@pytest.mark.parametrize("strange", [False, True])
def test_a_full_disk_is_said_in_its_own_words(run, ledger, monkeypatch, where, said, strange) -> None:
    def full(*_: object) -> None:
        raise OSError("no number") if strange else OSError(28, "No space left on device")

    owner, _, name = where.partition(".")
    monkeypatch.setattr(getattr(pipeline, owner), name, full)
    (result,) = run(ledger)
    assert result.code == 2
    said = said.replace("No space left on device", "no number") if strange else said
    assert result.reasons == (f"{ledger}: {said}",)


@pytest.mark.parametrize("gone", [False, True])
def test_what_breaks_beneath_a_task_is_no_count(tmp_path, gone) -> None:
    directory = tmp_path / "case"
    directory.mkdir()
    job = _DirectoryJob(0, directory, Outputs.new(directory), existed=True)
    ledger, target = Ledger(directory), AuditTarget(0, job.outputs, frozenset(), 1)
    ready = _PlannedDirectory(
        job, ledger, target, plan_units(ledger, target, Limits(), frozenset()), Tally(0)
    )
    ready.troubles.append(Trouble(0, OSError("the disk is full")))
    if gone:
        directory.rmdir()
    _conclude(ready)
    assert job.result is not None
    expected = (
        f"{directory}: disappeared during the audit"
        if gone
        else "the results cannot be written: the disk is full"
    )
    assert (job.result.code, job.result.file, job.result.reasons) == (2, None, (expected,))


def test_blank_lines_are_no_cause() -> None:
    assert extract_cause("\n : \njava.lang.Error: it\n") == "java.lang.Error: it"


def test_a_middle_between_four_latencies() -> None:
    found = _latencies(np.zeros(4, np.int64), np.array([0, 10, 20, 100]) * 1_000_000, 1)
    assert found["p50_ms"].tolist() == [15.0]


@pytest.mark.parametrize(("kind", "column"), [("produced", "outcome"), ("consumed", "phase")])
def test_one_bad_value_among_good_ones(run, ledger, kind, column) -> None:
    path = part(ledger, kind)
    table = pq.read_table(path)
    values = table.column(column).to_pylist()
    values[3] = 9
    bad = table.set_column(
        table.schema.get_field_index(column), column, pa.array(values, table.schema.field(column).type)
    )
    pq.write_table(bad, path, write_statistics=False)
    refused(run, ledger, f"column {column} holds 9, which is unknown")


def one_file(directory, kind, table, **options):
    folder = directory / "ledger" / kind / "client=x"
    folder.mkdir(parents=True)
    pq.write_table(table, folder / "part-0.parquet", **options)


def check(tmp_path, produced, reads):
    """Write one file per ledger in the given row order, and compare the audit with the plain one in three ways."""
    drawn = DrawnDirectory(tuple(produced), tuple(reads), None, ())
    directory = tmp_path / "case"
    for each in (Limits(), BUCKETS, Limits(whole_rows=0, range_rows=2, slice_rows=1)):
        shutil.rmtree(directory, ignore_errors=True)
        one_file(directory, "produced", produced_table(produced), write_statistics=False)
        one_file(directory, "consumed", consumed_table(reads), write_statistics=False)
        (result,) = audited([directory], limits=each)
        agree(drawn, directory, result)


def test_another_topic_in_the_middle_of_a_file(tmp_path) -> None:
    produced = [sent(0, topic="a"), sent(1, 0, topic="b"), sent(2, 1, topic="a")]
    reads = [read(0, topic="a"), read(2, 1, topic="a")]
    check(tmp_path, produced, reads)


def test_partitions_whose_numbers_are_equal_in_sixteen_bits(tmp_path) -> None:
    numbers = (0, 4464, 4464 + (1 << 16))
    produced = [sent(n, 0, partition=at) for n, at in enumerate(numbers)]
    reads = [read(n, 0, partition=at) for n, at in enumerate(numbers) if n != 1]
    check(tmp_path, produced, reads)


def test_several_records_at_one_offset_of_which_the_later_is_read_first(tmp_path) -> None:
    """The log was rewritten between two reads, so that copies at one offset come in different orders."""
    produced = [sent(n, n % 3, producer=p) for p in (0, 1) for n in range(6)]
    reads = [read(n, 5 - n, producer=p) for n in range(6) for p in (1, 0)]
    reads += [live(n, 5 - n, producer=1 - n % 2) for n in range(6)]
    check(tmp_path, produced, reads)


def test_a_producer_that_came_to_its_end_keeps_no_other_open(run, tmp_path) -> None:
    """Producer 0 has an END, so a record that its ledger lacks is a phantom, though producer 1 was killed."""
    produced = [sent(0), sent(0, 1, producer=1)]
    directory = write_ledger(tmp_path / "case", produced, [read(0), read(0, 1, producer=1), read(7, 2)])
    write_case(
        directory,
        [{"id": "p0"}, {"id": "p1", "killed": True}, {"id": "r9"}],
        ended=["produced/p0", "consumed/r9"],
    )
    (result,) = run(directory)
    assert result.file is not None
    assert (result.file.counts["phantom"], result.file.unledgered) == (1, 0)


@pytest.mark.parametrize("broken", [0, 1])
def test_behind_a_broken_file_of_a_client_the_next_is_read(run, tmp_path, broken) -> None:
    directory = write_ledger(tmp_path / "case", SENT, READ)
    folder = part(directory, "consumed").parent
    shutil.rmtree(folder)
    folder.mkdir()
    for number, rows in enumerate((READ[:2], READ[2:])):
        pq.write_table(consumed_table(rows), folder / f"part-{number}.parquet")
    path = folder / f"part-{broken}.parquet"
    raw = path.read_bytes()
    path.write_bytes(raw[:4] + bytes(60) + raw[64:])
    (result,) = run(directory)
    assert result.file is not None
    assert result.code == 2
    assert result.file.records.consumed_final == (4, 2)[broken]


THREE = [sent(n, txn=0) for n in range(3)]
ALL = [read(n) for n in range(3)]
AT_THE_END = [committed(n, read_ns=9) for n in range(3)]
OWED = "ledger/transactions: lacks the transactions of 3 produced rows"


def test_a_table_that_is_not_one_is_refused_though_nobody_writes_in_transactions(run, ledger) -> None:
    folder = ledger / "ledger" / "transactions" / "client=p0"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"producer": ["zero"]}), folder / "part-0.parquet")
    refused(run, ledger, "column producer is string")


def test_a_final_read_at_read_committed_counts_also_without_a_table(run, tmp_path) -> None:
    (result,) = run(write_ledger(tmp_path / "case", THREE, [*ALL, *AT_THE_END]))
    assert result.reasons == (OWED,)


@pytest.mark.parametrize("statistics", [True, False])
def test_both_final_reads_in_one_file(run, tmp_path, statistics) -> None:
    directory = write_ledger(tmp_path / "case", THREE, ALL, [transaction(0, COMMITTED)])
    shutil.rmtree(directory / "ledger" / "consumed")
    table = consumed_table([*ALL, *AT_THE_END])
    one_file(directory, "consumed", table, row_group_size=3, write_statistics=statistics)
    (result,) = run(directory)
    assert (result.code, result.reasons) == (0, ())


@pytest.mark.parametrize("first", [-1, 0])
def test_a_file_of_which_only_some_row_groups_are_in_transactions(run, tmp_path, first) -> None:
    """The aborted read is found, whether the transaction is in the first row group or in the second."""
    plain, inside = sent(0), sent(1, txn=0)
    rows = (
        [plain, inside] if first < 0 else [inside._replace(seq=0, offset=0), plain._replace(seq=1, offset=1)]
    )
    reads = [read(n) for n in range(2)]
    aborted = next(row for row in rows if row.txn == 0)
    directory = write_ledger(
        tmp_path / "case",
        [],
        [*reads, *(committed(n, read_ns=9) for n in range(2))],
        [transaction(0, ABORTED)],
    )
    shutil.rmtree(directory / "ledger" / "produced", ignore_errors=True)
    one_file(directory, "produced", produced_table(rows), row_group_size=1)
    (result,) = run(directory)
    assert result.file is not None, result.reasons
    assert (result.code, result.file.counts["aborted-read"]) == (0, 1), aborted


@pytest.mark.parametrize("count", [1, 3])
def test_a_ledger_of_one_transaction_that_was_aborted(run, tmp_path, count) -> None:
    rows, reads = THREE[:count], ALL[:count]
    directory = write_ledger(
        tmp_path / "case", rows, [*reads, *AT_THE_END[:count]], [transaction(0, ABORTED)]
    )
    (result,) = run(directory)
    assert result.file is not None
    assert result.file.counts["aborted-read"] == count


def test_one_transaction_over_all_of_two_partitions(run, tmp_path) -> None:
    """All rows of each partition are in transaction 0, so that the column is kept as one number."""
    rows = [sent(n, n // 2, partition=n % 2, txn=0) for n in range(6)]
    reads = [each(n, n // 2, partition=n % 2) for each in (read, committed) for n in range(6)]
    (result,) = run(write_ledger(tmp_path / "case", rows, reads, [transaction(0, ABORTED)]))
    assert result.file is not None
    assert result.file.counts["aborted-read"] == 6


def test_a_commit_that_was_asked_for_after_the_final_read(run, tmp_path) -> None:
    """Only the final reader got the records, before the commit was requested."""
    table = [transaction(0, COMMITTED, commit_ns=50)]
    (result,) = run(write_ledger(tmp_path / "case", THREE, [*ALL, *AT_THE_END], table))
    assert result.file is not None
    assert result.file.counts["early-read"] == 3
