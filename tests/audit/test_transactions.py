"""Tests of the classes of transactions in small ledgers, and of missing or wrong tables of transactions."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ackproof.audit.units import Limits
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.removals import EVER, Removal, write_by_partition

from .ledgers import findings_of, write_case, write_ledger
from .local import audited
from .rows import committed, committed_live, live, read, sent, transaction

COMMITTED, ABORTED, UNKNOWN, FENCED = range(4)
THREE = [sent(0, txn=0), sent(1, txn=0), sent(2, txn=0)]
ALL = [read(n) for n in range(3)]


@pytest.fixture(params=["whole", "buckets"])
def count(request, tmp_path):
    """Return a function that audits rows and returns the counts that are not 0.

    The function's attributes `result`, `findings` and `units` have the rest of the result.
    """
    limits = (
        Limits()
        if request.param == "whole"
        else Limits(whole_rows=0, range_rows=3, slice_rows=2, share_rows=4, split_rows=4)
    )

    def run(produced, reads, transactions, *, change=lambda directory: None):
        directory = write_ledger(tmp_path / "case", produced, reads, transactions)
        change(directory)
        (result,) = audited([directory], limits=limits)
        run.result = result
        assert result.file is not None, result.reasons
        run.findings = findings_of(directory)
        assert Counter(row["class"] for row in run.findings) == {
            k: n for k, n in result.file.counts.items() if n
        }
        run.units = {
            (row["class"], row["topic"], row["partition"], row["producer"], row["offset"], row["seq"])
            for row in run.findings
        }
        return {name: number for name, number in result.file.counts.items() if number}

    return run


def all_committed():
    return [committed(n, read_ns=9) for n in range(3)]


def test_the_parts_of_a_transaction_meet_however_far_apart_its_records_are(count) -> None:
    produced, table = [], []
    for number in range(9):
        produced += [sent(number, txn=number), sent((number + 1) << 40, number, partition=1, txn=number)]
        table.append(transaction(number, UNKNOWN))
    reads = [read(row.seq, row.offset, partition=row.partition) for row in produced]
    reads += [committed(number, read_ns=9) for number in range(9)]
    assert count(produced, reads, table) == {"torn-transaction": 9}


def test_a_committed_transaction(count) -> None:
    assert count(THREE, [*ALL, *all_committed()], [transaction(0, COMMITTED)]) == {}
    assert (count.result.code, count.result.reasons) == (0, ())
    records = count.result.file.records
    assert (records.consumed_final, count.result.file.consumed_committed, records.consumed_live) == (3, 3, 0)


def test_an_aborted_transaction_that_nobody_sees(count) -> None:
    reads = [*ALL, committed(3, read_ns=9), read(3)]
    assert count([*THREE, sent(3)], reads, [transaction(0, ABORTED)]) == {}


def test_a_record_of_an_aborted_transaction_is_read(count) -> None:
    reads = [
        *ALL,
        *all_committed()[:1],
        committed_live(1, read_ns=9),
        committed_live(1, 1, read_ns=9, assignment=1),
    ]
    counts = count(THREE, reads, [transaction(0, ABORTED)])
    # each live read, and of the final ones those that differ; and it is there in part
    assert counts == {"aborted-read": 3, "torn-transaction": 1}
    assert ("aborted-read", "t", 0, 0, 1, 1) in count.units
    details = {row["detail"] for row in count.findings if row["class"] == "aborted-read"}
    assert details == {
        "returned to a final reader at read_committed, of a transaction that was aborted",
        "returned to a live reader at read_committed, of a transaction that was aborted",
    }


def test_an_aborted_record_that_a_restarted_final_reader_gives_twice_counts_once(count) -> None:
    reads = [*ALL, *all_committed(), committed(1, assignment=1, read_ns=9)]
    assert count(THREE, reads, [transaction(0, ABORTED)]) == {"aborted-read": 3}


def test_at_read_uncommitted_an_aborted_record_is_read_by_right(count) -> None:
    reads = [*ALL, read(1, phase=0, reader=1), committed(3, read_ns=9), read(3)]
    assert count([*THREE, sent(3)], reads, [transaction(0, ABORTED)]) == {}


@pytest.mark.parametrize("outcome", [COMMITTED, ABORTED, UNKNOWN, FENCED])
def test_a_transaction_is_there_in_part(count, outcome) -> None:
    produced = [sent(0, txn=4), sent(1, 0, partition=1, txn=4), sent(2, 1, txn=4)]
    reads = [read(0), read(1, 0, partition=1), read(2, 1), committed(0, read_ns=9)]
    counts = count(produced, reads, [transaction(4, outcome)])
    assert counts.pop("aborted-read", 0) == (outcome == ABORTED)
    assert counts == {"torn-transaction": 1}
    assert ("torn-transaction", "t", 1, 0, 0, 1) in count.units
    (detail,) = (row["detail"] for row in count.findings if row["class"] == "torn-transaction")
    names = ("committed", "aborted", "unknown", "fenced")
    assert detail == (
        f"transaction 4, {names[outcome]}: at read_committed 1 of its records are there, "
        "2 acknowledged ones are not"
    )


@pytest.mark.parametrize(("outcome", "torn"), [(COMMITTED, 1), (ABORTED, 0), (UNKNOWN, 0), (FENCED, 0)])
def test_a_transaction_is_wholly_absent(count, outcome, torn) -> None:
    produced, reads = [*THREE, sent(3)], [*ALL, read(3), committed(3, read_ns=9)]
    assert count(produced, reads, [transaction(0, outcome)]) == ({"torn-transaction": 1} if torn else {})


@pytest.mark.parametrize("outcome", [UNKNOWN, FENCED])
def test_a_transaction_of_unknown_end_is_wholly_there(count, outcome) -> None:
    assert count(THREE, [*ALL, *all_committed()], [transaction(0, outcome)]) == {}


def test_an_attempt_without_an_ack_tears_no_transaction(count) -> None:
    produced = [*THREE[:2], sent(2, outcome=2, txn=0)]
    assert count(produced, [*ALL[:2], *all_committed()[:2]], [transaction(0, UNKNOWN)]) == {}


def test_but_its_presence_shows_that_the_others_should_be_there(count) -> None:
    produced = [sent(0, txn=0), sent(1, outcome=2, txn=0)]
    reads = [read(0), read(1), committed(1, read_ns=9)]
    assert count(produced, reads, [transaction(0, UNKNOWN)]) == {"torn-transaction": 1, "surfaced": 1}


def test_a_broken_copy_does_not_make_it_whole(count) -> None:
    reads = [*ALL, *all_committed()[:2], committed(2, intact=False, read_ns=9)]
    counts = count(THREE, reads, [transaction(0, COMMITTED)])
    assert counts == {"torn-transaction": 1, "corrupted": 1}


def test_transactions_of_two_producers_and_numbers_are_kept_apart(count) -> None:
    produced = [sent(0, txn=0), sent(1, txn=1), sent(0, 2, producer=1, txn=0)]
    reads = [read(0), read(1), read(0, 2, producer=1), committed(1, read_ns=9)]
    table = [transaction(0, ABORTED), transaction(1, COMMITTED), transaction(0, UNKNOWN, producer=1)]
    assert count(produced, reads, table) == {}


@pytest.mark.parametrize(("outcome", "lost"), [(COMMITTED, 1), (ABORTED, 0), (UNKNOWN, 0), (FENCED, 0)])
def test_only_a_record_whose_commit_was_acknowledged_can_be_lost(count, outcome, lost) -> None:
    reads = [
        read(0),
        read(2),
        *([] if outcome == ABORTED else [committed(0, read_ns=9), committed(2, read_ns=9)]),
    ]
    counts = count([*THREE, sent(3)], [*reads, read(3), committed(3)], [transaction(0, outcome)])
    assert counts.get("lost", 0) == lost
    assert counts.get("torn-transaction", 0) == (outcome != ABORTED)


@pytest.mark.parametrize("phase", [2, 3])
def test_a_record_handed_over_before_its_commit_began(count, phase) -> None:
    table = [transaction(0, COMMITTED, 100)]
    early = committed(1, phase=phase, reader=5, read_ns=99)
    on_time = [committed(n, read_ns=100) for n in range(3) if phase == 2 or n != 1]
    assert count(THREE, [*ALL, *on_time, early], table) == {"early-read": 1}
    assert count.units == {("early-read", "t", 0, 0, 1, 1)}


@pytest.mark.parametrize("times", [(50, 150), (150, 50)])
def test_a_restarted_final_reader_is_early_where_its_first_read_was(count, times) -> None:
    reads = [*ALL, *(committed(n, read_ns=150) for n in (0, 2))]
    reads += [committed(1, read_ns=at, assignment=number) for number, at in enumerate(times)]
    assert count(THREE, reads, [transaction(0, COMMITTED, 100)]) == {"early-read": 1}


def test_at_read_uncommitted_a_record_is_read_early_by_right(count) -> None:
    reads = [*ALL, *(committed(n, read_ns=100) for n in range(3)), read(1, phase=0, reader=1, read_ns=5)]
    assert count(THREE, reads, [transaction(0, COMMITTED, 100)]) == {}


def test_a_live_reader_at_read_committed_passes_over_what_was_aborted(count) -> None:
    produced = [sent(0), sent(1, txn=0), sent(2, txn=1), sent(3, txn=2), sent(4, txn=3), sent(5)]
    table = [
        transaction(0, ABORTED),
        transaction(1, COMMITTED),
        transaction(2, UNKNOWN),
        transaction(3, FENCED),
    ]
    final = [read(n) for n in range(6)]
    seen = [committed(n, read_ns=9) for n in (0, 2, 3, 5)]
    passing = [committed_live(0, read_ns=9), committed_live(5, read_ns=9)]
    # the unknown one is visible at the end: it was committed; the fenced one is not
    assert count(produced, [*final, *seen, *passing], table) == {"skipped": 2}
    assert {unit[4] for unit in count.units} == {2, 3}
    assert count.result.file.records.consumed_live == 2


def test_what_was_committed_is_owed_to_a_live_reader_though_the_final_read_does_not_hold_it(count) -> None:
    passing = [committed_live(0, read_ns=9), committed_live(2, read_ns=9)]
    reads = [*ALL, committed(0, read_ns=9), committed(2, read_ns=9), *passing]
    assert count(THREE, reads, [transaction(0, COMMITTED)]) == {"torn-transaction": 1, "skipped": 1}


def test_a_live_reader_at_read_uncommitted_is_handed_aborted_records_too(count) -> None:
    reads = [*ALL, committed(3), read(3), read(0, phase=0, reader=1), read(3, phase=0, reader=1)]
    assert count([*THREE, sent(3)], reads, [transaction(0, ABORTED)]) == {"skipped": 2}


def test_what_only_a_live_reader_at_read_committed_saw_has_vanished(count) -> None:
    reads = [*ALL, *all_committed(), committed_live(7, 3, producer=7)]
    assert count(THREE, reads, [transaction(0, COMMITTED)]) == {"vanished": 1}


def test_a_reader_at_read_committed_that_goes_back(count) -> None:
    reads = [*ALL, *all_committed(), committed_live(1, read_ns=9), committed_live(0, read_ns=9)]
    assert count(THREE, reads, [transaction(0, COMMITTED)]) == {"rewound": 1}


def test_a_final_reader_at_read_committed_that_goes_back_is_a_flaw_of_the_read(count) -> None:
    reads = [*ALL, *all_committed(), committed(0, read_ns=9)]
    assert count(THREE, reads, [transaction(0, COMMITTED)]) == {}
    assert count.result.file.final_read.places == (["t", 0, 0],)


def test_what_only_the_reader_at_read_committed_holds_is_there_and_in_conflict_where_it_differs(
    count,
) -> None:
    reads = [*ALL, *all_committed()[:2], committed(9, 2, producer=7, read_ns=9)]
    counts = count(THREE, reads, [transaction(0, COMMITTED)])
    assert counts == {"phantom": 1, "conflict": 1, "torn-transaction": 1}


def test_a_table_that_does_not_know_a_transaction(count) -> None:
    counts = count([*THREE, sent(3, txn=1)], [*ALL, *all_committed()], [transaction(0, COMMITTED)])
    assert counts == {}, "nobody knows that it was committed"
    assert count.result.code == 2
    assert count.result.reasons == ("ledger/transactions: lacks the transactions of 1 produced rows",)


def test_no_table_at_all(count) -> None:
    assert count(THREE, all_committed(), []) == {}
    assert count.result.reasons == ("ledger/transactions: lacks the transactions of 3 produced rows",)


def test_no_read_at_read_committed(count) -> None:
    assert count(THREE, ALL, [transaction(0, COMMITTED)]) == {}
    assert count.result.code == 2
    assert count.result.reasons == (
        "ledger/consumed: transactions, and no final read at read_committed, so torn ones cannot be detected",
    )


def test_a_reader_at_read_committed_that_was_handed_nothing(count) -> None:
    def change(directory) -> None:
        clients = [{"id": "f1", "kind": "final", "reader": 8, "isolation": "read_committed"}]
        ended = ["consumed/f1", "consumed/r9", "produced/p0"]
        write_case(directory, [*clients, {"id": "p0"}, {"id": "r9"}], ended=ended)

    counts = count(THREE, ALL, [transaction(0, COMMITTED)], change=change)
    assert (counts, count.result.code) == ({"torn-transaction": 1}, 0)


def rewrite(directory, change) -> None:
    (path,) = directory.glob("ledger/transactions/client=p0/part-0.parquet")
    pq.write_table(change(pq.read_table(path, partitioning=None)), path)


def test_a_table_without_times_finds_no_early_read_and_says_so(count) -> None:
    counts = count(
        THREE,
        [*ALL, *all_committed()],
        [transaction(0, COMMITTED, 100)],
        change=lambda directory: rewrite(directory, lambda t: t.select(["producer", "txn", "outcome"])),
    )
    assert counts == {}
    assert count.result.reasons == (
        "ledger/transactions: no column commit_ns, so early reads cannot be detected",
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.drop_columns("outcome"), "column outcome is there 0 times"),
        (lambda t: t.set_column(1, "txn", t["txn"].cast(pa.int32())), "column txn is int32, not int64"),
        (lambda t: pa.concat_tables([t, t]), "transaction 0 of producer 0 is there twice"),
        (
            lambda t: t.set_column(2, "outcome", pa.array([4], pa.int8())),
            "column outcome holds 4, which is unknown",
        ),
        (lambda t: t.set_column(2, "outcome", pa.array([None], pa.int8())), "column outcome has a null"),
    ],
)
def test_a_table_that_is_none(tmp_path, change, said) -> None:
    directory = write_ledger(tmp_path / "case", THREE, [*ALL, *all_committed()], [transaction(0, COMMITTED)])
    rewrite(directory, change)
    (result,) = audited([directory])
    assert (result.code, result.file) == (254, None)
    assert said in result.reasons[0]


@pytest.mark.parametrize("keep", [60, -100], ids=["no footer", "broken pages"])
def test_a_torn_part_of_the_table_is_set_aside(count, keep) -> None:
    def change(directory) -> None:
        (path,) = directory.glob("ledger/transactions/client=p0/part-0.parquet")
        raw = path.read_bytes()
        path.write_bytes(raw[:keep] if keep > 0 else raw[:4] + bytes(60) + raw[64:])

    assert count(THREE, [*ALL, *all_committed()], [transaction(0, COMMITTED)], change=change) == {}
    assert count.result.code == 2
    assert "torn or unreadable, not counted" in count.result.reasons[0]
    assert "lacks the transactions of 3 produced rows" in count.result.reasons[-1]


def _removed(start: int, **more: int):
    """Return a function that writes removals.json: retention removed all below offset `start`."""
    removal = Removal("t", 0, log_start=start, expired_until_ns=EVER, expired_why="retention.ms 1", **more)
    return lambda directory: write_by_partition(CaseDir(directory).removals_json, [removal])


@pytest.mark.parametrize("start", [2, 3])
def test_a_transaction_is_not_torn_by_retention(count, start: int) -> None:
    """The deleted segment ended in the middle of the transaction, or at its end."""
    reads = [read(2), committed(2, read_ns=9)] if start == 2 else []
    assert count(THREE, reads, [transaction(0, COMMITTED)], change=_removed(start)) == {"expired": start}
    assert {row["detail"] for row in count.findings} == {"retention.ms 1"}


def test_more_had_expired_when_the_reader_at_read_committed_began(count) -> None:
    reads = [*ALL, committed(2, read_ns=9)]
    assert count(THREE, reads, [transaction(0, COMMITTED)], change=_removed(0, committed_start=2)) == {}


def test_a_transaction_that_lacks_a_record_above_the_start_is_torn(count) -> None:
    reads = [read(2), committed(2, read_ns=9)]
    expected = {"expired": 1, "lost": 1, "torn-transaction": 1}
    assert count(THREE, reads, [transaction(0, COMMITTED)], change=_removed(1)) == expected


def test_what_is_not_old_enough_is_lost_below_the_start_too(count) -> None:
    removal = Removal("t", 0, log_start=2, expired_until_ns=500, expired_why="retention.ms 1")
    reads = [read(2), committed(2, read_ns=9), live(0), live(1)]
    counts = count(
        THREE,
        reads,
        [transaction(0, COMMITTED)],
        change=lambda directory: write_by_partition(CaseDir(directory).removals_json, [removal]),
    )
    assert counts == {"expired": 1, "lost": 1, "vanished": 1, "torn-transaction": 1}
