"""Tests of each class of the audit in small ledgers, with the edge cases of its definition."""

from __future__ import annotations

from collections import Counter

import pytest

from ackproof.audit.units import Limits

from .ledgers import findings_of, write_case, write_ledger, write_stamps
from .local import audited
from .rows import live, read, sent, undecodable

HERE = ("t", 0)


@pytest.fixture(params=["whole", "buckets"])
def count(request, tmp_path):
    """Return a function that audits rows and returns the counts that are not 0. Its attributes have the findings."""

    def run(produced, reads, range_rows=3, stamps=None, **options):
        limits = (
            Limits()
            if request.param == "whole"
            else Limits(
                whole_rows=0, range_rows=range_rows, slice_rows=range_rows, share_rows=4, split_rows=4
            )
        )
        directory = write_ledger(tmp_path / "case", produced, reads, **options)
        if stamps is not None:
            write_stamps(directory, stamps)
        (result,) = audited([directory], limits=limits)
        assert result.file is not None, result.reasons
        run.file = result.file
        run.findings = findings_of(directory)
        run.units = {
            (row["class"], row["topic"], row["partition"], row["producer"], row["offset"], row["seq"])
            for row in run.findings
        }
        assert Counter(row["class"] for row in run.findings) == {
            k: n for k, n in result.file.counts.items() if n
        }
        return {name: number for name, number in result.file.counts.items() if number}

    return run


def test_a_clean_ledger(count) -> None:
    assert count([sent(n) for n in range(9)], [read(n) for n in range(9)] + [live(n) for n in range(9)]) == {}
    assert count.file.complete
    assert count.file.records.model_dump() == {
        "produced": 9,
        "acked": 9,
        "failed": 0,
        "indeterminate": 0,
        "consumed_live": 9,
        "consumed_final": 9,
    }


def test_lost(count) -> None:
    assert count([sent(0), sent(1), sent(2)], [read(0), read(2)]) == {"lost": 1}
    assert count.units == {("lost", "t", 0, 0, 1, 1)}


def test_lost_though_another_partition_holds_it(count) -> None:
    reads = [read(0), read(1, partition=1, origin=HERE)]
    assert count([sent(0), sent(1)], reads) == {"lost": 1, "misrouted": 1}


def test_lost_where_the_only_copy_is_broken(count) -> None:
    assert count([sent(0)], [read(0, intact=False)]) == {"lost": 1, "corrupted": 1}


STAMPS_NS = 7 * 10**12
"""Wall clock in ns at the start of the run. Records are sent in its first ms, with the timestamp 7,000,000."""


@pytest.mark.parametrize(
    ("rule", "stamp", "expected"),
    [
        ((STAMPS_NS, None), 7_000_000, {}),
        ((STAMPS_NS, None), 7_000_001, {"corrupted": 9}),
        ((STAMPS_NS, None), 0, {"corrupted": 9}),
        ((STAMPS_NS, None), -1, {}),
        ((None, (6_999_000, 7_009_000)), 7_009_000, {}),
        ((None, (6_999_000, 7_009_000)), 7_009_001, {"corrupted": 9}),
        ((None, (6_999_000, 7_009_000)), 6_998_999, {"corrupted": 9}),
        ((STAMPS_NS, (7_000_100, 7_009_000)), 7_000_000, {}),
        ((STAMPS_NS, (7_000_100, 7_009_000)), 7_000_099, {"corrupted": 9}),
        ((STAMPS_NS, None, 3_000_000), 6_999_997, {}),
        ((STAMPS_NS, None, 3_000_000), 6_999_996, {"corrupted": 9}),
        ((STAMPS_NS, None, 3_000_000), 7_000_003, {}),
        ((STAMPS_NS, None, 3_000_000), 7_000_004, {"corrupted": 9}),
    ],
)
def test_corrupted_by_its_timestamp(count, rule, stamp, expected) -> None:
    reads = [read(n, timestamp_ms=stamp) for n in range(9)] + [live(n) for n in range(9)]
    assert count([sent(n) for n in range(9)], reads, stamps={HERE: rule}) == expected
    details = {row["detail"] for row in count.findings}
    assert details == ({f"not the timestamp that it was given: {stamp}"} if expected else set())


def test_without_an_answer_the_library_may_have_set_a_timestamp_at_any_time(count) -> None:
    unanswered = [sent(n, outcome=2)._replace(done_ns=-1) for n in range(9)]
    rule = {HERE: (STAMPS_NS, None, 3_000_000)}
    assert count(unanswered, [read(n, timestamp_ms=9_000_000) for n in range(9)], stamps=rule) == {
        "surfaced": 9
    }


def test_a_timestamp_is_compared_only_where_the_rule_and_the_attempt_are_known(count) -> None:
    produced, reads = [sent(0)], [read(0, timestamp_ms=5)]
    assert count(produced, reads, stamps={("t", 1): (STAMPS_NS, None)}) == {}
    assert count(produced, [read(0, intact=False)], stamps={HERE: (STAMPS_NS, None)}) == {
        "lost": 1,
        "corrupted": 1,
    }


def test_lost_without_any_final_row(count) -> None:
    assert count([sent(0), sent(1, outcome=2)], [live(0)]) == {"lost": 1, "vanished": 1}


def test_overwritten(count) -> None:
    produced = [sent(0), sent(1), sent(2, 1), sent(3, -1), sent(4, 7)]
    assert count(produced, [read(0), read(2, 1)]) == {"lost": 3, "overwritten": 1}
    assert ("overwritten", "t", 0, 0, 1, 1) in count.units


def test_not_overwritten_by_a_broken_row_or_elsewhere(count) -> None:
    produced = [sent(0, 5), sent(1, 6), sent(2, 5, partition=1)]
    reads = [read(1, 5, intact=False), read(1, 6), read(2, 5, partition=1)]
    assert count(produced, reads) == {"lost": 1, "corrupted": 1}


def test_overwritten_by_a_record_of_another_run(count) -> None:
    reads = [read(-1, 0, producer=-1, origin=("", -1))]
    assert count([sent(0)], reads) == {"lost": 1, "overwritten": 1, "phantom": 1}


def test_duplicate(count) -> None:
    assert count([sent(0), sent(1)], [read(0), read(1), read(0, 2), read(0, 3)]) == {"duplicate": 2}
    assert count.units == {("duplicate", "t", 0, 0, 2, 0), ("duplicate", "t", 0, 0, 3, 0)}


def test_duplicate_in_another_partition_and_of_what_nobody_produced(count) -> None:
    reads = [
        read(0),
        read(0, 0, partition=1, origin=HERE),
        read(7, 1),
        read(7, 2),
        undecodable(3),
        undecodable(4),
    ]
    expected = {"duplicate": 2, "misrouted": 1, "phantom": 4, "corrupted": 2}
    assert count([sent(0)], reads) == expected
    assert {unit for unit in count.units if unit[0] == "duplicate"} == {
        ("duplicate", "t", 1, 0, 0, 0),
        ("duplicate", "t", 0, 0, 2, 7),
    }


def test_duplicate_only_in_foreign_places_keeps_one(count) -> None:
    reads = [read(0, 0, partition=1, origin=HERE), read(0, 0, partition=2, origin=HERE)]
    assert count([sent(0)], reads) == {"lost": 1, "duplicate": 1, "misrouted": 2}


def test_a_broken_copy_is_no_duplicate(count) -> None:
    assert count([sent(0)], [read(0), read(0, 1, intact=False)]) == {"corrupted": 1}


def test_a_restarted_final_reader_counts_once(count) -> None:
    reads = [read(n) for n in range(3)] + [read(n, assignment=1) for n in range(3)] + [read(0, reader=8)]
    assert count([sent(n) for n in range(3)], reads) == {}
    assert count.file.records.consumed_final == 7
    assert count.file.final_read.count == 0


def test_resurrected_and_surfaced(count) -> None:
    produced = [
        sent(0),
        sent(1, -1, outcome=1),
        sent(2, -1, outcome=2),
        sent(3, -1, outcome=1),
        sent(4, -1, outcome=2),
    ]
    assert count(produced, [read(0), read(1), read(2)]) == {"resurrected": 1, "surfaced": 1}


def test_phantom(count) -> None:
    reads = [
        read(0),
        read(1),
        read(0, 2, producer=5),
        undecodable(3),
        read(-1, 4, producer=-1, origin=("", -1)),
    ]
    assert count([sent(0)], reads) == {"phantom": 4, "corrupted": 1}


def test_who_has_half_an_identity_is_not_nobody(count) -> None:
    reads = [
        read(-1, 0),
        read(-1, 1),
        read(3, 2, producer=-1),
        read(3, 3, producer=-1),
        undecodable(4),
        undecodable(5),
    ]
    assert count([sent(0, -1, outcome=1)], reads) == {"phantom": 6, "duplicate": 2, "corrupted": 2}


def test_misrouted_once_a_row(count) -> None:
    produced = [sent(0), sent(1), sent(2)]
    reads = [
        read(0, origin=("", -1)),  # says nothing
        read(1, origin=("t", 4)),  # at its place, and says another
        read(2, 0, partition=1, origin=("t", 3)),  # elsewhere than produced, elsewhere than it says
        read(9, 3, origin=("other", 0)),  # never produced
    ]
    assert count(produced, reads) == {"misrouted": 3, "phantom": 1, "lost": 1}


def test_misrouted_to_another_topic(count) -> None:
    assert count([sent(0)], [read(0), read(0, topic="u", origin=("", -1))]) == {
        "misrouted": 1,
        "duplicate": 1,
    }


def test_displaced(count) -> None:
    produced = [sent(0), sent(1, 7), sent(2, -1), sent(3, 3)]
    reads = [read(0), read(1, 1), read(2, 2), read(3, 3), read(3, 4)]
    assert count(produced, reads) == {"displaced": 1, "duplicate": 1}
    assert ("displaced", "t", 0, 0, 7, 1) in count.units


def test_reordered(count) -> None:
    produced = [sent(0, 0), sent(1, 3), sent(2, 1), sent(3, 2), sent(4, 4)]
    reads = [read(0, 0), read(2, 1), read(3, 2), read(1, 3), read(4, 4)]
    assert count(produced, reads) == {"reordered": 1}
    assert count.units == {("reordered", "t", 0, 0, 3, 1)}
    assert [row["detail"] for row in count.findings] == ["both acked"]


def test_reordered_at_the_lowest_offset_within_producer_and_partition(count) -> None:
    produced = [
        *(sent(0, 0), sent(1, 1)),  # 0 again at 5: its first copy is in order
        *(sent(5, 2, producer=1), sent(0, 3, producer=2)),
        sent(9, 0, partition=1),
    ]
    reads = [
        read(0),
        read(1),
        read(5, 2, producer=1),
        read(0, 3, producer=2),
        read(0, 5),
        read(9, 0, partition=1),
    ]
    assert count(produced, reads) == {"duplicate": 1}


def test_reordered_in_which_only_one_is_acked(count) -> None:
    produced = [sent(0, -1, outcome=2), sent(1, 0)]
    assert count(produced, [read(1, 0), read(0, 1)]) == {"surfaced": 1, "reordered": 1}
    assert "both acked" not in {row["detail"] for row in count.findings}


def test_vanished(count) -> None:
    reads = [read(0), read(2), live(0), live(1), live(1, reader=2), live(2)]
    assert count([sent(0), sent(1), sent(2)], reads) == {"lost": 1, "vanished": 1}


def test_vanished_phantom_and_nobody(count) -> None:
    reads = [
        read(0),
        live(0),
        live(77, 1),
        undecodable(2, phase=0, reader=1),
        undecodable(3),
        undecodable(3, phase=0),
    ]
    assert count([sent(0)], reads) == {"vanished": 2, "phantom": 1, "corrupted": 1}


def test_not_vanished_where_only_the_checksum_differs(count) -> None:
    reads = [read(0), read(1, intact=False), live(0, intact=False), live(1)]
    assert count([sent(0), sent(1)], reads) == {"lost": 1, "corrupted": 1}


def test_conflict_between_live_readers_and_with_the_final_one(count) -> None:
    produced = [sent(0), sent(1), sent(2, 1), sent(3, 2), sent(4, 2)]
    reads = [read(0), live(0), live(1, 1), live(2, 1, reader=2), live(3, 2), read(4, 2)]
    assert count(produced, reads) == {"lost": 3, "overwritten": 1, "vanished": 2, "conflict": 2}


def test_conflict_between_live_readers_alone_in_whichever_order_they_read(count) -> None:
    reads = [live(0, 0), live(7, 5), live(8, 6), live(1, 0, reader=2), live(7, 5, reader=2)]
    assert count([sent(2, 9)], reads) == {"lost": 1, "vanished": 3, "conflict": 1}


def test_conflict_between_final_readers(count) -> None:
    produced = [sent(0), sent(1, 0)]
    assert count(produced, [read(0), read(1, 0, reader=8), live(1, 0)]) == {"conflict": 1}


def test_skipped(count) -> None:
    reads = [*(read(n) for n in range(9)), live(0), live(1), live(4), live(0, reader=2), live(3, reader=2)]
    assert count([sent(n) for n in range(9)], reads) == {"skipped": 3}
    assert count.units == {("skipped", "t", 0, -1, offset, -1) for offset in (1, 2, 3)}


def test_a_gap_without_present_copies_is_a_marker(count) -> None:
    produced = [sent(0, 0), sent(1, 2), sent(2, 5)]
    reads = [read(0, 0), read(1, 2), undecodable(3), read(2, 4, intact=False), read(2, 5)]
    reads += [live(0, 0), live(1, 2), live(2, 5)]
    assert count(produced, reads) == {"phantom": 1, "corrupted": 2}


def test_not_skipped_what_was_written_later_or_in_another_assignment(count) -> None:
    reads = [*(read(n, epoch=n) for n in range(6)), live(0, epoch=2), live(5, epoch=2)]
    reads += [live(0, reader=2), live(5, reader=2, assignment=1)]
    # Epochs of the copies passed over: 1, 2 (there when 5 was read in epoch 2), 3 and 4 (later).
    assert count([sent(n) for n in range(6)], reads) == {"skipped": 2}


def test_an_unknown_epoch_excuses_nothing(count) -> None:
    reads = [
        read(0),
        read(1, epoch=9),
        read(2, epoch=-1),
        read(3),
        live(0, epoch=1),
        live(2, epoch=-1),
        live(3, epoch=3),
    ]
    assert count([sent(n) for n in range(4)], reads) == {"skipped": 1}


def test_the_first_epoch_is_known(count) -> None:
    """Seq 1 was written in epoch 1, so it did not exist when the live reader read in epoch 0."""
    reads = [read(0), read(1, epoch=1), read(2), live(0), live(2)]
    assert count([sent(n) for n in range(3)], reads) == {}


def test_rewound_counts_reads(count) -> None:
    reads = [*(read(n) for n in range(4)), live(0), live(1), live(1), live(0), live(1), live(2), live(3)]
    reads += [live(0, assignment=1), live(0, reader=2)]
    assert count([sent(n) for n in range(4)], reads) == {"rewound": 2}


def test_flaws_of_the_final_read(count) -> None:
    reads = [read(0), read(1), read(4), read(3), read(4), live(2), live(3), read(5, reader=8)]
    assert count([sent(n) for n in range(6)], reads) == {"lost": 1, "vanished": 1}
    # 2 and 3 were passed over, and at 3 it went back.
    assert [tuple(place) for place in count.file.final_read.places] == [("t", 0, 2), ("t", 0, 3)]
    assert count.file.final_read.count == 2


def test_what_a_truncation_took_is_not_passed_over(count) -> None:
    """Seqs 2 and 3 were read in epoch 0. Epoch 1 began at offset 1 and has markers at 2 and 3 (KAFKA-20716)."""
    reads = [read(0), read(1, epoch=1), read(4, epoch=1), live(2, epoch=0), live(3, epoch=0)]
    assert count([sent(n) for n in range(5)], reads) == {"lost": 2, "vanished": 2}
    assert count.file.final_read.count == 0


@pytest.mark.parametrize(("before", "seen"), [(0, 0), (1, 1), (1, 2), (1, -1), (-1, 0)])
def test_what_no_later_epoch_took_was_passed_over(count, before: int, seen: int) -> None:
    """The record at offset 2 may still exist: no later epoch is known to have begun at or before it."""
    reads = [read(0), read(1, epoch=before), read(4, epoch=2), live(2, epoch=seen)]
    count([sent(n) for n in range(5)], reads)
    assert [tuple(place) for place in count.file.final_read.places] == [("t", 0, 2)]


def test_the_first_thousand_flaws(count) -> None:
    reads = [read(0), read(2001), *(live(n) for n in range(2002))]
    count([sent(n) for n in range(2002)], reads, range_rows=900)
    assert count.file.final_read.count == 2000
    assert [place[2] for place in count.file.final_read.places] == list(range(1, 1001))


def test_unledgered_is_not_phantom(count, tmp_path) -> None:
    (tmp_path / "case").mkdir()
    listed = [{"id": "p0", "producer": 0}, {"id": "p1", "producer": 1}]
    write_case(tmp_path / "case", listed, ended=["produced/p0", "consumed/r9"])
    reads = [read(0), read(1), read(0, 2, producer=1), read(1, 3, producer=1), read(1, 4, producer=1)]
    reads.append(read(0, 5, producer=2))
    produced = [sent(0), sent(0, 2, producer=1)]
    assert count(produced, reads) == {"phantom": 2, "duplicate": 1}
    assert count.file.unledgered == 2
    assert not count.file.complete


def test_far_offsets_are_exact(count) -> None:
    far = 2**53
    produced = [sent(0, far), sent(1, far + 1), sent(2**60 + 1, far + 2), sent(2**60, far + 3)]
    reads = [read(0, far), read(1, far + 1), read(2**60, far + 2)]
    assert count(produced, reads) == {"lost": 1, "overwritten": 1, "displaced": 1}
