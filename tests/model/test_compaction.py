"""Log compaction: the newest of each key stays, and with it offsets, sequence numbers and what is not committed yet."""

from __future__ import annotations

from itertools import product

from ackproof_reference.log import COMMIT, DATA, EMPTIED, Batch, Log, append, compact, last_batches
from ackproof_reference.messages import Error, Produce
from ackproof_reference.producers import check_sequence
from ackproof_reference.rules import Rules
from ackproof_reference.transactions import open_transactions


def keyed(*keys: int, tombstones: tuple[int, ...] = ()) -> Log:
    """A committed log with one record for each key, of one producer, and one without a key at its end."""
    made = Log()
    for place, key in enumerate(keys):
        made = append(made, Batch(place, 0, 0, place, key=key, tombstone=place in tombstones))
    return committed(append(made, Batch(len(keys), 0, 0, len(keys))))


def committed(log: Log) -> Log:
    return log._replace(high_watermark=log.end)


def bases(log: Log) -> list[int]:
    return [batch.base for batch in log.batches]


def newest(log: Log) -> dict[int, int]:
    """What a reader of a compacted topic ends with: the last record of each key, without deleted ones."""
    values = {b.key: -1 if b.tombstone else b.sequence for b in log.batches if b.kind == DATA and b.key >= 0}
    return {key: value for key, value in values.items() if value >= 0}


def test_it_keeps_the_newest_of_each_key_and_all_offsets() -> None:
    made = keyed(0, 2, 0, 0)
    assert bases(compact(made, 3)) == [1, 2, 3, 4]
    assert bases(compact(made, 4)) == [1, 3, 4]
    assert compact(made, 5).end == 5


def test_it_leaves_batches_of_several_records_and_those_without_a_key() -> None:
    made = append(append(Log(), Batch(0, 0, 0, 0, length=2, key=1)), Batch(2, 0, 0, 2, key=1))
    assert compact(committed(made), 3) == committed(made)
    assert compact(keyed(-1, -1), 3) == keyed(-1, -1)


def test_it_touches_nothing_that_is_not_committed() -> None:
    made = keyed(7, 7, 7)._replace(high_watermark=2)
    assert bases(compact(made, 4)) == [1, 2, 3]


def test_a_tombstone_stays_until_its_time_is_over() -> None:
    made = keyed(7, 7, 8, tombstones=(1,))
    assert bases(compact(made, 4)) == [1, 2, 3]
    assert bases(compact(made, 4, tombstones_below=1)) == [1, 2, 3]
    assert bases(compact(made, 4, tombstones_below=2)) == [2, 3]
    assert bases(compact(made, 1, tombstones_below=2)) == [0, 1, 2, 3]
    assert bases(compact(keyed(7, tombstones=(0,)), 1)) == [0, 1]


def test_a_producers_last_batch_stays_without_its_records_and_its_sequence_is_still_known() -> None:
    made = append(append(Log(), Batch(0, 0, 5, 0, producer_epoch=0, key=7)), Batch(1, 0, 6, 0, key=7))
    cleaned = compact(committed(made), 2)
    assert [(batch.base, batch.kind) for batch in cleaned.batches] == [(0, EMPTIED), (1, DATA)]
    assert compact(cleaned, 2) == cleaned
    assert [batch.sequence for batch in last_batches(cleaned, 5)] == [0]
    again, skipped = Produce(5, 0, -1, producer_epoch=0), Produce(5, 2, -1, producer_epoch=0)
    assert check_sequence(cleaned, again, Rules())[0] is Error.NONE
    assert check_sequence(cleaned, again, Rules())[1] == cleaned.batches[0]
    assert check_sequence(cleaned, skipped, Rules())[0] is Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_emptied_batch_neither_opens_nor_ends_a_transaction() -> None:
    made = append(Log(), Batch(0, 0, 5, 0, kind=EMPTIED, transactional=True))
    assert open_transactions(made) == {}
    begun = append(append(Log(), Batch(0, 0, 5, 0, transactional=True)), Batch(1, 0, 5, 1, kind=EMPTIED))
    assert open_transactions(begun) == {5: 0}


def test_a_marker_after_it_does_not_make_it_less_the_last() -> None:
    made = append(append(Log(), Batch(0, 0, 5, 0, key=7)), Batch(1, 0, 5, -1, kind=COMMIT))
    cleaned = compact(committed(append(made, Batch(2, 0, 6, 0, key=7))), 3)
    assert [batch.kind for batch in cleaned.batches] == [EMPTIED, COMMIT, DATA]


def test_a_marker_stays_whatever_its_key() -> None:
    made = append(append(Log(), Batch(0, 0, 5, -1, kind=COMMIT, key=7)), Batch(1, 0, 6, 0, key=7))
    assert bases(compact(committed(made), 2)) == [0, 1]


def test_replicas_that_compact_at_other_places_tell_readers_the_same_in_the_end() -> None:
    """Bytes differ then, and are no measure of agreement."""
    for keys in product((0, 1), repeat=4):
        made = keyed(*keys, tombstones=(2,))
        for mine, theirs in product(range(6), repeat=2):
            assert newest(compact(made, mine)) == newest(compact(made, theirs, tombstones_below=theirs))
