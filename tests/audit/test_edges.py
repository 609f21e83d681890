"""Tests of edge cases in the parts of the audit that whole ledgers seldom reach."""

from __future__ import annotations

import os
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ackproof.audit.identity import distinct_copies
from ackproof.audit.outputs import Handover, Outputs
from ackproof.audit.pipeline import audit_all
from ackproof.audit.planning import plan_units
from ackproof.audit.series import _latencies
from ackproof.audit.shares import IdentityRegister, cut_shares
from ackproof.audit.units import AuditTarget, Limits
from ackproof.base import processes
from ackproof.ledgers.clients import ListedClient, read_clients
from ackproof.ledgers.directory import Part, RowGroup, describe_unreadable, examine_directory
from ackproof.ledgers.load import distinct_strings
from ackproof.ledgers.rows import Rows, constant_column
from ackproof.rundir.partition import TopicPartition
from ackproof.spark.workers import extract_cause

from .agreement import WAYS, DrawnDirectory, agree, write
from .ledgers import write_case, write_ledger
from .local import READ, SENT, LocalEdge, audited, part, refused
from .rows import live, read, sent


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["b", "a", "b"]),
        pa.array(["b", "a", "b"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([2, 1, 0], pa.int32()), pa.array(["b", "a", "b"])),
    ],
    ids=["plain", "dictionary", "a word twice in the dictionary"],
)
def test_words_and_their_numbers(column) -> None:
    words, codes = distinct_strings(column)
    assert sorted(words) == ["a", "b"]
    assert [words[code] for code in codes] == ["b", "a", "b"]


TRACE = """\
An error occurred while calling o1.collect:
: org.apache.spark.SparkException: Job aborted: a task failed
\tat org.apache.spark.scheduler.DAGScheduler.abort(DAGScheduler.scala:1)
\tat more.of.that
Caused by: java.io.IOException: in between
Caused by: java.lang.OutOfMemoryError: Java heap space
\tat the.end
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            TRACE,
            "Caused by: java.lang.OutOfMemoryError: Java heap space / "
            "org.apache.spark.SparkException: Job aborted: a task failed / "
            "An error occurred while calling o1.collect",
        ),
        ("it is gone\nand more", "it is gone"),
        ("", "no reason given"),
        (": \n", "no reason given"),
        ("x" * 600, "x" * 500),
    ],
)
def test_why_spark_died(text, said) -> None:
    assert extract_cause(text) == said


def test_progress_is_said_in_words(tmp_path) -> None:
    ledgers = [write_ledger(tmp_path / name, SENT, READ) for name in ("one", "two")]
    said: list[str] = []
    audit_all(ledgers, LocalEdge, said.append, Limits())
    assert said == ["reading the footers of 2 directories", "auditing 24 rows of 2 directories"]
    said.clear()
    audit_all(ledgers[:1], LocalEdge, said.append, Limits())
    assert said == ["reading the footers of 1 directory", "auditing 12 rows of 1 directory"]


def test_only_what_a_dead_audit_left_is_swept(run, ledger) -> None:
    alive = ledger / f".audit-{os.getpid()}-{processes.started(os.getpid())}-7"
    foreign = [ledger / name for name in (".audit-x-1-0", ".audit-999999999-x-0")]
    for folder in (alive, *foreign):
        folder.mkdir()
    (result,) = run(ledger)
    assert result.code == 0
    assert all(folder.exists() for folder in (alive, *foreign))


def test_latencies_of_very_many_bins_and_very_long_ones() -> None:
    """Bin and latency do not fit into one integer together, and must be sorted all the same."""
    far = 1 << 23
    for rank, latency, count in (
        ([far, 0, far, 0], [7, 3, 5, 1], far + 1),
        ([far, 0, far, 0], [3, 7, 1, 5], far + 1),
        ([1, 0, 1, 0], [2**41 + 1, 3, 2**41 - 1, 1], 2),
        ([1, 0, 1, 0], [2**41 + 1, 2**40, 2**40 - 1, 1], 2),
    ):
        found = _latencies(np.array(rank), np.array(latency), count)
        for bin_ in (0, count - 1):
            own = [one / 1e6 for one, at in zip(latency, rank, strict=True) if at == bin_]
            assert found["p50_ms"][bin_] == pytest.approx(sum(own) / 2)
            assert found["max_ms"][bin_] == pytest.approx(max(own))


@pytest.mark.parametrize(
    "times",
    [
        [(7, 7)],
        [(7, 7), (7, 7)],
        [(5, 7), (6, 7)],
        [(7, 8), (7, 9)],
        [(0, 0), (0, 2**41), (10**18, 10**18 + 3)],
    ],
)
def test_the_series_of_few_acks(tmp_path, times) -> None:
    produced = tuple(sent(n)._replace(sent_ns=at, done_ns=done) for n, (at, done) in enumerate(times))
    drawn = DrawnDirectory(produced, tuple(read(n) for n in range(len(times))), None, ())
    path = write(tmp_path / "case", drawn, random.Random(1))
    for limits in (Limits(), Limits(whole_rows=0, range_rows=0, slice_rows=1)):
        (result,) = audited([path], limits=limits)
        agree(drawn, path, result)


LEAST, GREATEST = -(2**63), 2**63 - 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "offsets", [[GREATEST - n for n in range(6)], [GREATEST], [-1, 0, 1, 5, GREATEST - 3, LEAST]]
)
def test_offsets_as_great_as_can_be(tmp_path, way, offsets) -> None:
    produced = tuple(sent(n, offset) for n, offset in enumerate(offsets))
    reads = tuple(read(n, offset) for n, offset in enumerate(offsets))
    drawn = DrawnDirectory(produced, reads, None, ())
    path = write_ledger(tmp_path / "case", produced, reads, row_group_size=2)
    (result,) = audited([path], limits=Limits(**WAYS[way]))
    agree(drawn, path, result)


@pytest.mark.parametrize("way", WAYS)
def test_a_footer_that_says_a_phase_that_means_nothing(tmp_path, way) -> None:
    reads = [read(n, reader=phase, phase=phase) for phase in (1, 9) for n in range(6)]
    path = write_ledger(tmp_path / "case", [sent(n) for n in range(6)], reads)
    (result,) = audited([path], limits=Limits(**WAYS[way]))
    bad = path / "ledger/consumed/client=r9/part-0.parquet"
    assert (result.code, result.reasons) == (254, (f"{bad}: column phase holds 9, which is unknown",))


def test_why_a_file_was_set_aside_is_one_short_line() -> None:
    assert describe_unreadable(OSError("first\nsecond")) == "torn or unreadable, not counted (first)"
    assert describe_unreadable(OSError()) == "torn or unreadable, not counted (OSError)"
    assert describe_unreadable(OSError("x" * 300)) == f"torn or unreadable, not counted ({'x' * 200})"


@pytest.mark.parametrize(("holes", "said"), [(1, "has 1 null"), (2, "has 2 nulls")])
def test_nulls_are_counted_over_row_groups(run, ledger, holes, said) -> None:
    path = part(ledger)
    table = pq.read_table(path, partitioning=None)
    holed = pa.array([None if n < holes else n for n in range(len(table))], pa.int64())
    at = table.column_names.index("seq")
    pq.write_table(table.set_column(at, pa.field("seq", pa.int64()), holed), path, row_group_size=1)
    (result,) = run(ledger)
    assert result.reasons[0].endswith(f"column seq {said}")
    refused(run, ledger, said)


NAMELESS = tuple(f"case.json: a client without an id: {entry}" for entry in ("true", "1.5", "{}"))


@pytest.mark.parametrize(
    ("text", "clients", "problems"),
    [
        ("{}", (), ()),
        ('{"clients": null}', (), ()),
        ("[]", (), ("case.json: not an object",)),
        ('{"clients": 3}', (), ("case.json: `clients` is neither a list nor an object",)),
        ('{"clients": [true, 1.5, {}, 7]}', (ListedClient("7", None),), NAMELESS),
        (
            '{"clients": {"a": true, "b": 4, "c": {"producer": true}}}',
            (ListedClient("a", None), ListedClient("b", 4), ListedClient("c", None)),
            (),
        ),
        (
            '{"clients": [{"client": "c", "name": "n", "producer": 0, "killed": 1}, {"name": "n", "killed": true}]}',
            (ListedClient("c", 0), ListedClient("n", None, killed=True)),
            (),
        ),
        (
            '{"clients": [{"id": "f", "kind": "final", "isolation": "read_committed"},'
            ' {"id": "g", "kind": "final"}, {"id": "h", "isolation": "read_committed"}]}',
            (ListedClient("f", None, final_committed=True), ListedClient("g", None), ListedClient("h", None)),
            (),
        ),
    ],
)
def test_clients_in_many_shapes(tmp_path, text, clients, problems) -> None:
    (tmp_path / "case.json").write_text(text)
    found = read_clients(tmp_path / "case.json")
    assert tuple(map(tuple, found)) == (clients, problems)


@pytest.mark.parametrize("range_rows", [3, 5, 8, 13])
def test_reordered_over_many_ranges(tmp_path, range_rows) -> None:
    """Two producers have records in random order, each in several ranges. They share some of the ranges."""
    for seed in range(6):
        luck = random.Random(seed)
        identities = [(producer, seq) for producer in (0, 1) for seq in range(9)]
        offsets = luck.sample(range(18), 18) if seed % 2 else [*range(9, 18), *range(9)]
        if seed % 2 == 0:  # in order but for one
            one, other = luck.sample(range(9), 2)
            offsets[one], offsets[other] = offsets[other], offsets[one]
        produced = tuple(
            sent(seq, offset, producer=producer, outcome=luck.choice([0, 0, 2]))
            for (producer, seq), offset in zip(identities, offsets, strict=True)
        )
        reads = tuple(read(row.seq, row.offset, producer=row.producer) for row in produced)
        drawn = DrawnDirectory(produced, reads, None, ())
        path = write(tmp_path / str(seed), drawn, luck)
        (result,) = audited([path], limits=Limits(whole_rows=0, range_rows=2, slice_rows=range_rows))
        agree(drawn, path, result)


def found_in(path, produced, reads, **limits) -> dict[str, int]:
    directory = write_ledger(path, produced, reads)
    (result,) = audited([directory], limits=Limits(**limits))
    assert result.file is not None
    return {name: count for name, count in result.file.counts.items() if count}


def test_acked_at_the_very_first_offset_and_found_behind_it(tmp_path) -> None:
    assert found_in(tmp_path / "case", [sent(5, 0)], [read(5, 3)]) == {"displaced": 1}


@pytest.mark.parametrize("limits", [{}, {"whole_rows": 0, "share_rows": 2, "split_rows": 2}])
def test_two_strangers_each_in_two_partitions(tmp_path, limits) -> None:
    reads = [read(seq, seq, partition=partition) for partition in (0, 1) for seq in (7, 8)]
    assert found_in(tmp_path / "case", [sent(1, 0, outcome=1)], reads, **limits) == {
        "phantom": 4,
        "duplicate": 2,
    }


def test_a_register_of_bitmaps_alone() -> None:
    seq = np.arange(3000, dtype=np.int64)
    columns = {"producer": np.zeros(3000, np.int32), "seq": seq, "present": seq % 2 == 0}
    ((_, share),) = cut_shares(Handover(TopicPartition("t", 0), "identities", Rows(columns, 3000)), 1)
    produced, present = IdentityRegister([share]).find(np.zeros(3, np.int32), np.array([10, 11, 3000]))
    assert (produced.tolist(), present.tolist()) == ([True, True, False], [True, False, False])


def test_what_a_footer_tells_of_row_groups(tmp_path) -> None:
    """A row group names its topic, partition and phase where all rows agree, and whether it may have transactions."""
    rows = [sent(0), sent(1), sent(2), sent(3, partition=1), sent(4, topic="u"), sent(5, txn=0)]
    reads = [read(0), read(1), read(2), live(3, reader=9)]
    ledger = examine_directory(write_ledger(tmp_path / "case", rows, reads, row_group_size=2), set_aside={})
    groups = {part.kind: part.groups for part in ledger.parts}
    assert groups["produced"] == (
        RowGroup(0, 2, "t", 0, None, False),
        RowGroup(1, 2, "t", None, None, False),
        RowGroup(2, 2, None, 0, None, True),
    )
    assert groups["consumed"] == (RowGroup(0, 2, "t", 0, 1), RowGroup(1, 2, "t", 0, None))


def test_a_column_that_is_there_twice(run, ledger) -> None:
    path = part(ledger)
    table = pq.read_table(path, partitioning=None)
    pq.write_table(table.append_column("seq", table["seq"]), path)
    refused(run, ledger, "column seq is there 2 times")


@pytest.mark.parametrize(
    ("ended", "open_producers"),
    [
        (["produced/p0", "consumed/x"], set()),
        (["consumed/x"], {0}),
        (["produced/p0"], {5}),
        (["produced/p0", "consumed/p0"], {5}),
        (["consumed/p0"], {0, 5}),
    ],
)
def test_whose_end_is_open(ledger, ended, open_producers) -> None:
    """A producer is open without an END in its folder, or, if it has no folder, without one among the readers."""
    write_case(ledger, [{"id": "p0"}, {"id": "x", "producer": 5}], ended=ended)
    assert examine_directory(ledger, set_aside={}).open_producers == open_producers


def test_what_one_task_takes_apart_has_a_bound() -> None:
    def a_part(name: str, *rows: int) -> Part:
        groups = tuple(RowGroup(number, count, None, None, None) for number, count in enumerate(rows))
        return Part(name, "produced", "c", groups, ())

    class LedgerStub:
        parts = (a_part("x", 4, 5, 4, 20, 1), a_part("y", 3), a_part("z", 5))

    planned = plan_units(
        LedgerStub,
        AuditTarget(0, Outputs("d", "a"), frozenset(), 1),
        Limits(whole_rows=0, split_rows=9),
        frozenset(),
    )
    found = [[(piece.part.path, piece.rows) for piece in unit.pieces] for unit in planned.splits]
    assert found == [[("x", 9)], [("x", 4)], [("x", 20)], [("x", 1), ("y", 3), ("z", 5)]]


def test_a_disk_that_is_full_while_a_task_writes(run, ledger, monkeypatch) -> None:
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ackproof.rundir.storage.create_parquet", full)
    (result,) = run(ledger)
    assert (result.code, result.file) == (2, None)
    assert "the results cannot be written" in result.reasons[0]
    assert sorted(path.name for path in ledger.iterdir()) == ["ledger"]


@pytest.mark.parametrize(
    "places",
    [
        [("t", 0), ("t", 70_000)],
        [("t", 0), ("t", 1), ("t", 131_072), ("u", 70_000), ("u", 131_072), ("v", 131_072)],
        [("t", 3), ("t", 4), ("u", 3), ("u", 4)],
    ],
)
def test_places_in_one_row_group_are_told_apart(tmp_path, places) -> None:
    at = [dict(zip(("topic", "partition"), place, strict=True)) for place in places]
    produced = [sent(n, n // len(at), **at[n % len(at)]) for n in range(3 * len(at))]
    reads = [read(n, n // len(at), **at[n % len(at)]) for n in range(3 * len(at))]
    for number, limits in enumerate(({}, {"whole_rows": 0, "split_rows": 100})):
        assert found_in(tmp_path / str(number), produced, reads[1:], **limits) == {"lost": 1}


def test_rows_under_a_mask_are_as_many_as_it_lets_through() -> None:
    rows = Rows({"a": constant_column(7, "i8", 5), "b": np.arange(5)}, 5)
    few = rows.take(rows["b"] > 2)
    assert (len(few), few["a"].tolist(), few["b"].tolist()) == (2, [7, 7], [3, 4])


def test_of_copies_of_one_record_the_lowest_epoch_and_the_first_read_are_kept() -> None:
    count = 6
    columns = {
        "reader": np.zeros(count, np.int32),
        "assignment": np.zeros(count, np.int32),
        "read_seq": np.arange(count),
        "offset": np.array([8, 7, 7, 8, 7, 7]),
        "leader_epoch": np.array([5, 4, -1, 3, 2, 9], np.int32),
        "producer": np.array([1, 1, 1, 1, 1, 2], np.int32),
        "seq": np.array([40, 30, 30, 40, 30, 30]),
        "intact": np.ones(count, np.bool_),
        "astray": np.array([False, False, True, False, False, False]),
        "read_ns": np.array([50, 30, 10, 60, 20, 5]),
    }
    found = distinct_copies(Rows(columns, count))
    kept = zip(*(found[name].tolist() for name in ("offset", "producer", "seq", "leader_epoch")), strict=True)
    assert list(kept) == [(7, 1, 30, -1), (7, 2, 30, 9), (8, 1, 40, 3)]
    assert found["read_ns"].tolist() == [10, 5, 50]
    assert found["astray"].tolist() == [True, False, False]
