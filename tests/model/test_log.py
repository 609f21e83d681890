"""Tests of a replica's log: append, truncation, epochs, loss of power."""

from __future__ import annotations

import pytest

from ackproof_reference.log import (
    COMMIT,
    UNKNOWN,
    Batch,
    EpochEntry,
    Log,
    append,
    begin_epoch,
    end_of_epoch,
    flush,
    last_batches,
    lose_power,
    restart_at,
    truncate,
)
from partition import log


def epochs(of: Log) -> list[tuple[int, int]]:
    return [tuple(entry) for entry in of.epochs]


def test_appending_moves_the_end_and_notes_new_epochs() -> None:
    made = log(0, 0, 2)
    assert made.end == 3
    assert epochs(made) == [(0, 0), (2, 2)]
    assert made.last_epoch == 2
    assert Log().last_epoch == UNKNOWN


def test_a_batch_of_several_records_takes_as_many_offsets() -> None:
    made = append(Log(), Batch(0, 0, 7, 0, length=5))
    assert made.end == 5
    assert made.batches[0].next == 5
    assert made.below(4) == ()
    assert made.below(5) == made.batches


def test_a_batch_in_the_middle_is_refused() -> None:
    with pytest.raises(ValueError, match="does not continue"):
        append(log(0, 0), Batch(1, 0, 0, 9))


def test_reading_starts_at_an_offset_and_is_bounded() -> None:
    made = log(0, 0, 1)
    assert [batch.base for batch in made.read(1, 9)] == [1, 2]
    assert [batch.base for batch in made.read(0, 2)] == [0, 1]
    assert made.read(3, 9) == ()
    assert made.read(0, 0) == ()


def test_below_an_offset_lie_whole_batches() -> None:
    assert [batch.base for batch in log(0, 0, 0).below(2)] == [0, 1]
    assert log().below(3) == ()


def test_a_new_leaders_epoch_begins_at_the_log_end_without_a_record() -> None:
    assert epochs(begin_epoch(log(0, 0), 3)) == [(0, 0), (3, 2)]


def test_an_epoch_in_which_nobody_wrote_gives_way_to_the_next() -> None:
    assert epochs(begin_epoch(begin_epoch(log(0), 1), 2)) == [(0, 0), (2, 1)]
    assert epochs(begin_epoch(log(0, 5), 5)) == [(0, 0), (5, 2)]
    assert epochs(append(begin_epoch(log(0), 1), Batch(1, 2, 0, 1))) == [(0, 0), (2, 1)]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(0, (0, 2)), (2, (2, 3)), (1, (0, 2)), (4, (4, 5)), (3, (2, 3)), (5, (UNKNOWN, UNKNOWN))],
)
def test_where_an_epoch_ends(asked: int, answer: tuple[int, int]) -> None:
    assert tuple(end_of_epoch(log(0, 0, 2, 4, 4), asked)) == answer


def test_where_an_epoch_ends_that_is_older_than_the_log() -> None:
    made = Log((), (EpochEntry(3, 7), EpochEntry(4, 9)), 7, 12)
    assert end_of_epoch(made, 1) == EpochEntry(1, 7)
    assert end_of_epoch(made, UNKNOWN) == EpochEntry(UNKNOWN, UNKNOWN)
    assert end_of_epoch(Log(), 0) == EpochEntry(UNKNOWN, UNKNOWN)


def test_truncation_takes_epochs_high_watermark_and_recovery_point_along() -> None:
    cut = truncate(log(0, 0, 2, high_watermark=3, flushed=3), 1)
    assert (cut.end, cut.high_watermark, cut.flushed, epochs(cut)) == (1, 1, 1, [(0, 0)])
    kept = truncate(log(0, 0, 2, high_watermark=1, flushed=0), 2)
    assert (kept.end, kept.high_watermark, kept.flushed, epochs(kept)) == (2, 1, 0, [(0, 0)])


def test_truncation_keeps_batches_whole() -> None:
    made = append(append(Log(), Batch(0, 0, 0, 0, length=2)), Batch(2, 0, 0, 2, length=3))
    assert truncate(made, 4).end == 2
    assert truncate(made, 1).end == 0


def test_truncation_beyond_the_end_only_drops_epochs_without_records() -> None:
    made = begin_epoch(log(0, 0), 3)
    assert epochs(truncate(made, 2)) == [(0, 0)]
    assert epochs(truncate(made, 9)) == [(0, 0)]
    assert truncate(made, 2).batches == made.batches


def test_truncation_never_goes_below_the_log_start() -> None:
    made = append(restart_at(5), Batch(5, 1, 0, 0))
    assert truncate(made, 2).end == 5
    assert (made.start, made.high_watermark, made.flushed) == (5, 5, 5)


def test_a_read_from_before_the_first_batch_begins_with_it() -> None:
    made = append(append(restart_at(5), Batch(5, 1, 0, 0)), Batch(6, 1, 0, 1))
    assert [batch.base for batch in made.read(2, 1)] == [5]
    assert [batch.base for batch in made.read(6, 2)] == [6]


def test_power_takes_what_was_not_flushed() -> None:
    made = append(flush(log(0, 0)), Batch(2, 0, 0, 2))
    assert made.flushed == 2
    assert lose_power(made, 0).end == 2
    assert lose_power(made, 3).end == 3


def test_the_last_five_batches_of_a_producer_are_known() -> None:
    made = log(*[0] * 7)
    made = append(append(made, Batch(7, 0, 5, 0)), Batch(8, 0, 0, 7, kind=COMMIT))
    assert [batch.sequence for batch in last_batches(made, 0)] == [2, 3, 4, 5, 6]
    assert [batch.base for batch in last_batches(made, 5)] == [7]
    assert last_batches(made, 9) == ()


def test_what_is_not_said_of_a_batch_or_a_log() -> None:
    assert Batch(3, 1, 2, 4) == Batch(3, 1, 2, 4, 1, -1, "data", False, -1)
    assert Log() == Log((), (), 0, 0, 0, 0)
