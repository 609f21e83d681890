"""Tests of records removed by retention, compaction or deletion of a topic, against losses that look alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ackproof.audit.removed import RemovedRecords, SupersededRecords
from ackproof.ledgers.rows import Array, Rows, Schema, concat_rows
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.payload import Keys
from ackproof.rundir.removals import EVER, Removal

Record = tuple[int, int]
"""(seq, offset). The record is sent at `seq` ns and answered 1 ns later. Offset -1: unknown."""


def produced(records: Sequence[Record], producer: int = 0) -> dict[str, Array]:
    seq, offset = np.array(records, np.int64).reshape(-1, 2).T
    count = len(records)
    return {
        "producer": np.full(count, producer, np.int32),
        "seq": seq,
        "outcome": np.full(count, Outcome.ACKED, np.int8),
        "offset": offset,
        "at_ns": seq + 1,
        "latency_ns": np.ones(count, np.int64),
        "txn": np.full(count, -1, np.int64),
    }


def reads(records: Sequence[Record], producer: int = 0) -> Rows:
    rows = produced(records, producer)
    count = len(records)
    return Rows({**rows, "intact": np.ones(count, np.bool_), "read_ns": rows["at_ns"]}, count)


def gone(
    sent: Sequence[Record],
    there: Sequence[Record] = (),
    live: Sequence[Record] = (),
    *,
    keys: Keys | None = None,
    **removal: Any,
) -> dict[str, list[int]]:
    """Return the seqs of `sent` that each class explains, by the name of the class.

    `there`: records of the final read; `live`: of a live reader; `removal`: the fields of `Removal`.
    """
    rows = Rows(produced(sent), len(sent))
    own = {} if keys is None else {0: keys}
    found = RemovedRecords(Removal("t", 0, **removal), own, rows, reads(there), reads(live))
    return {
        anomaly.value: rows.ints("seq")[which].tolist() for anomaly, which, _ in found.causes() if which.any()
    }


TEN = [(seq, seq) for seq in range(10)]


def test_below_the_start_what_is_old_enough_expired() -> None:
    assert gone(TEN, TEN[6:], log_start=6, expired_until_ns=3) == {"expired": [0, 1, 2, 3]}
    assert gone(TEN, TEN[6:], log_start=6, expired_until_ns=99) == {"expired": [0, 1, 2, 3, 4, 5]}
    assert gone(TEN, TEN[6:], expired_until_ns=99) == {}


def test_an_offset_that_was_acknowledged_twice_was_truncated_and_did_not_expire() -> None:
    again = [*TEN[:5], (5, 2), (6, 3)]
    assert gone(again, log_start=9, expired_until_ns=99) == {"expired": [0, 1, 4, 5, 6]}
    one_without = [*again, (7, -1)]
    assert gone(one_without, log_start=9, expired_until_ns=99) == {"expired": [0, 1, 4, 5, 6, 7]}


@pytest.mark.parametrize(
    ("there", "live", "expected"),
    [
        pytest.param(
            [(5, 5)], [(seq, seq) for seq in range(5)], [0, 1, 2, 3, 4], id="each was seen below the start"
        ),
        pytest.param(
            [(5, 5)], [], [0, 1, 2, 3, 4], id="there is room for all before the first that is there"
        ),
        pytest.param(
            [(5, 5)], [(0, 0), (4, 4)], [0, 1, 2, 3, 4], id="there is room between two that were seen"
        ),
        pytest.param([(5, 5)], [(0, 0), (3, 1)], [0, 3, 4], id="no room between two that stood side by side"),
        pytest.param(
            [(4, 5)], [(0, 0), (1, 1), (2, 2), (3, 4)], [0, 1, 2, 3], id="what comes after the first is lost"
        ),
        pytest.param([], [(0, 2)], [0, 1, 2], id="only so many fit below the start"),
    ],
)
def test_an_acknowledgement_without_an_offset(
    there: list[Record], live: list[Record], expected: list[int]
) -> None:
    sent = [(seq, -1) for seq in range(6)]
    assert gone(sent, there, live, log_start=5, expired_until_ns=99).get("expired", []) == [
        seq for seq in expected if seq not in dict(there)
    ]


def test_below_a_start_of_which_every_offset_was_seen_nothing_else_expired() -> None:
    """A live reader saw each offset below the log start, without seq 2. So seq 2 was lost and did not expire."""
    sent = [(seq, -1) for seq in range(5)]
    live = [(0, 0), (1, 1), (3, 2), (4, 3)]
    assert gone(sent, [], live, log_start=4, expired_until_ns=99) == {"expired": [0, 1, 3, 4]}


TWO = Keys(2)


def test_only_while_compaction_is_in_force_a_later_record_replaces_another() -> None:
    assert gone(TEN, TEN[8:], keys=TWO) == {}
    assert gone(TEN, TEN[8:], keys=TWO, compacted_until_ns=EVER) == {"compacted": list(range(8))}
    assert gone(TEN, TEN[8:], keys=TWO, compacted_until_ns=5) == {"compacted": [0, 1, 2, 3]}


def test_the_active_segment_is_never_compacted() -> None:
    assert gone(TEN, TEN[8:], keys=TWO, compacted_until_ns=EVER, compacted_below=6) == {
        "compacted": [0, 1, 2, 3]
    }
    assert gone(TEN, TEN[8:], keys=TWO, compacted_until_ns=EVER, compacted_below=0) == {}


def test_compaction_gives_no_offset_to_another_record() -> None:
    """The only replica came back empty. Later records of the same keys have the offsets of the older ones."""
    sent = [(0, 0), (1, 1), (2, 2), (3, 3), (4, 0), (5, 1), (6, 2), (7, 3), (8, 4), (9, 5)]
    assert gone(sent, sent[4:], keys=TWO, compacted_until_ns=EVER) == {}
    assert gone(sent, sent[8:], keys=TWO, compacted_until_ns=EVER) == {"compacted": [4, 5, 6, 7]}


def test_what_a_deleted_topic_held() -> None:
    """The topic is deleted at 4 ns and created again before 8 ns. The old leader still took seq 5."""
    sent = [*TEN[:6], (6, 0), (7, 1), (8, 2)]
    assert gone(sent, deleted_ns=4, deleted_until_ns=7) == {"deleted": [0, 1, 2, 3, 4, 5]}


def test_a_live_read_of_what_was_removed_has_not_vanished() -> None:
    rows = Rows(produced(TEN), len(TEN))
    found = RemovedRecords(Removal("t", 0, log_start=6, expired_until_ns=3), {}, rows, reads([]), reads([]))
    assert found.among(reads([(0, 0), (3, 3), (4, 4), (7, 7), (77, 2)])).tolist() == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_a_transaction_is_not_torn_by_what_expired_until_it_was_read() -> None:
    rows = Rows(produced(TEN), len(TEN))
    removal = Removal("t", 0, log_start=2, committed_start=4, expired_until_ns=99)
    found = RemovedRecords(removal, {}, rows, reads(TEN[2:]), reads([]))
    assert np.flatnonzero(found.explained).tolist() == [0, 1]
    assert np.flatnonzero(found.at_read_committed).tolist() == [0, 1, 2, 3]


TWO = Keys(2)
"""Two keys: even seqs have one key, odd seqs the other."""
DELETING = Keys(2, 3)
"""Two keys. Every third record of a key is a tombstone: seqs 4 and 5, 10 and 11."""


def rows(records: Sequence[tuple[int, int]], outcome: Outcome = Outcome.ACKED, producer: int = 0) -> Rows:
    """Return intact rows of one producer, with `records` as (seq, offset) and the same outcome."""
    count = len(records)
    seq, offset = np.array(records, np.int64).reshape(-1, 2).T
    columns: dict[str, Array] = {
        "producer": np.full(count, producer, np.int32),
        "seq": seq,
        "offset": offset,
        "outcome": np.full(count, outcome, np.int8),
        "intact": np.ones(count, np.bool_),
    }
    return Rows(columns, count)


def superseded(keys: Keys, produced: Sequence[int], final: Sequence[int]) -> list[int]:
    """Return the seqs out of `produced` that a later record supersedes. Each has its seq as its offset.

    `final`: seqs that the final read has.
    """
    sent = rows([(seq, seq) for seq in produced])
    found = SupersededRecords({0: keys}, sent, rows([(seq, seq) for seq in final])).among(sent)
    return [seq for seq, one in zip(produced, found, strict=True) if one]


@pytest.mark.parametrize(
    ("keys", "final", "expected"),
    [
        pytest.param(TWO, [4, 5], [0, 1, 2, 3], id="the last of each key is there"),
        pytest.param(TWO, [2, 5], [0, 1, 2, 3], id="the last of one key is missing, an older one is there"),
        pytest.param(TWO, [], [0, 1, 2, 3], id="nothing is there: the last of each key is owed"),
        pytest.param(DELETING, [], [0, 1, 2, 3, 4, 5], id="tombstones went, and all before them"),
        pytest.param(DELETING, [4, 5], [0, 1, 2, 3, 4, 5], id="tombstones are there"),
        pytest.param(
            DELETING, [2], [0, 1, 2, 3, 5], id="a value is there that a tombstone had deleted: it is lost"
        ),
    ],
)
def test_what_takes_the_place_of_a_record(keys: Keys, final: list[int], expected: list[int]) -> None:
    assert superseded(keys, range(6), final) == expected


def test_a_value_after_a_tombstone_is_owed() -> None:
    assert superseded(DELETING, range(8), [7]) == [0, 1, 2, 3, 4, 5]


def test_it_goes_by_offsets_and_not_by_what_was_sent_later() -> None:
    """The record sent first was written last, so it is the value of its key."""
    sent = rows([(0, 9), (2, 3)])
    there = SupersededRecords({0: TWO}, sent, rows([(2, 3)]))
    assert there.among(sent).tolist() == [False, True]
    assert SupersededRecords({0: TWO}, sent, rows([(0, 9)])).among(sent).tolist() == [False, True]


def test_keys_are_a_producers_own_and_others_have_none() -> None:
    other = rows([(0, 1)], producer=1)
    assert not SupersededRecords({0: TWO}, rows([]), rows([(2, 5)])).among(other).any()
    assert not SupersededRecords({}, rows([]), rows([(2, 5)])).among(rows([(0, 1)])).any()


def test_a_tombstone_of_which_nobody_knows_deletes_nothing() -> None:
    sent = rows([(0, 0), (2, 2)])
    unknown = rows([(4, -1)], Outcome.INDETERMINATE)
    schema: Schema = {"producer": "i4", "seq": "i8", "offset": "i8", "outcome": "i1", "intact": "?"}
    found = SupersededRecords({0: DELETING}, concat_rows([sent, unknown], schema), rows([]))
    assert found.among(sent).tolist() == [True, False]


def test_an_acknowledgement_without_an_offset_goes_by_its_seq() -> None:
    """An idempotent producer that sends a record again gets no offset. Such a record is compared by its seq."""
    sent = rows([(0, 0), (2, -1), (4, -1)])
    assert SupersededRecords({0: TWO}, sent, rows([])).among(sent).tolist() == [True, True, False]
    assert SupersededRecords({0: DELETING}, sent, rows([])).among(sent).tolist() == [True, True, True]
    assert SupersededRecords({0: DELETING}, sent, rows([(0, 0)])).among(sent).tolist() == [True, True, False]


def test_a_damaged_record_takes_nothings_place() -> None:
    sent, damaged = rows([(0, 0)]), rows([(2, 2)])
    damaged = Rows({**damaged.columns, "intact": np.zeros(1, np.bool_)}, 1)
    assert not SupersededRecords({0: TWO}, sent, damaged).among(sent).any()
