"""What a compacted log need not hold: partitions written down by hand, beside what compaction promises."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ackproof.audit.removed import SupersededRecords
from ackproof.ledgers.rows import Array, Rows, Schema, concat_rows
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.payload import Keys

TWO = Keys(2)
"""Records 0, 2, 4 … are of one key, 1, 3, 5 … of another."""
DELETING = Keys(2, 3)
"""The third record of each key is a tombstone: 4 and 5, 10 and 11."""


def rows(records: Sequence[tuple[int, int]], outcome: Outcome = Outcome.ACKED, producer: int = 0) -> Rows:
    """Records as (seq, offset)."""
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
    """Which of these seqs are, each at the offset of its number; `final`: those that are there."""
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
    """What was sent first was written last: it is the value of its key."""
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
    """That of a copy which an idempotent producer sent again."""
    sent = rows([(0, 0), (2, -1), (4, -1)])
    assert SupersededRecords({0: TWO}, sent, rows([])).among(sent).tolist() == [True, True, False]
    assert SupersededRecords({0: DELETING}, sent, rows([])).among(sent).tolist() == [True, True, True]
    assert SupersededRecords({0: DELETING}, sent, rows([(0, 0)])).among(sent).tolist() == [True, True, False]


def test_a_damaged_record_takes_nothings_place() -> None:
    sent, damaged = rows([(0, 0)]), rows([(2, 2)])
    damaged = Rows({**damaged.columns, "intact": np.zeros(1, np.bool_)}, 1)
    assert not SupersededRecords({0: TWO}, sent, damaged).among(sent).any()
