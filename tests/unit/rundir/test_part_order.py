"""Rows in the order of a part: what a plain stable sort says, however they come."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ackproof.rundir.ledger import ProducedRows, read_parts, write_produced
from ackproof.rundir.part_order import ArrayPool, find_order
from ackproof.rundir.schema import PRODUCED

PLACES = (("b", 1), ("a", 10), ("b", 0), ("a", 9))

in_turn = st.tuples(st.permutations(range(4)), st.integers(1, 40)).map(
    lambda drawn: [drawn[0][number % 4] for number in range(drawn[1])]
)
in_runs = st.lists(st.tuples(st.integers(0, 3), st.integers(20, 90)), min_size=1, max_size=8).map(
    lambda runs: [place for place, length in runs for _ in range(length)]
)
anyhow = st.lists(st.integers(0, 3), min_size=1, max_size=60)


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
@settings(deadline=None, max_examples=150)
@given(drawn=st.one_of(in_turn, in_runs, anyhow))
def test_the_order_is_that_of_a_stable_sort(index_type: type[np.signedinteger], drawn: list[int]) -> None:
    place = np.array(drawn, index_type)
    order = find_order(place, PLACES, ArrayPool())
    rows = np.arange(len(drawn))
    expected = sorted(rows.tolist(), key=lambda row: PLACES[drawn[row]])
    assert order.put(rows, np.empty_like(rows)).tolist() == expected
    spread = order.spread(np.arange(10, 14), np.empty_like(rows))
    assert spread.tolist() == [10 + drawn[row] for row in expected]
    assert int(order.lengths.sum()) == len(drawn)
    for smallest in (1, 30, 10**6):
        begins = order.bounds(smallest)
        sizes = np.diff([*begins, len(drawn)]).tolist()
        assert begins[0] == 0 and all(size >= smallest for size in sizes[:-1])
        assert all(PLACES[drawn[expected[at]]] != PLACES[drawn[expected[at - 1]]] for at in begins[1:])


def test_rows_in_turn_and_in_runs_are_copied_by_slices_and_others_gathered() -> None:
    assert find_order(np.arange(4000) % 4, PLACES, ArrayPool()).index is None
    assert find_order(np.repeat([2, 0, 2, 3], 500), PLACES, ArrayPool()).index is None
    # two of the four places in turn: no turn of all of them
    assert find_order(np.arange(4000) % 2, PLACES, ArrayPool()).index is not None


def test_a_place_with_one_row_more_than_another() -> None:
    order = find_order(np.arange(41) % 4, PLACES, ArrayPool())
    assert order.lengths.tolist() == [10, 10, 10, 11]  # ("a", 9), ("a", 10), ("b", 0), ("b", 1)
    assert [PLACES[place] for place in order.places.tolist()] == sorted(PLACES)


def test_groups_begin_as_soon_as_there_are_enough_rows() -> None:
    order = find_order(np.repeat([3, 1, 2, 0], 100), PLACES, ArrayPool())
    assert order.bounds(100) == [0, 100, 200, 300]
    assert order.bounds(101) == [0, 200]


def test_a_shelf_hands_out_the_same_array_where_it_fits() -> None:
    shelf = ArrayPool()
    first = shelf.array("offset", np.int64, 10)
    assert np.shares_memory(first, shelf.array("offset", np.int64, 4))
    longer = shelf.array("offset", np.int64, 11)
    assert len(longer) == 11
    assert shelf.array("offset", np.int32, 11).dtype == np.int32
    assert not np.shares_memory(shelf.array("seq", np.int32, 3), shelf.array("offset", np.int32, 3))


def test_one_shelf_serves_many_parts(tmp_path: Path) -> None:
    shelf, written = ArrayPool(), []
    for number, count in enumerate((900, 40, 2000, 7)):
        seq = np.arange(count, dtype=np.int64) + 10_000 * number
        plain = np.full(count, number, np.int64)
        rows = ProducedRows(
            producer=number,
            places=PLACES,
            place=seq % 4,
            seq=seq,
            outcome=plain.astype(np.int8),
            error=plain.astype(np.int16),
            offset=seq * 2,
            sent_ns=seq * 3,
            done_ns=seq * 4,
            txn=plain if number % 2 else None,
        )
        write_produced(tmp_path, number, rows, shelf)
        written += [
            (number, one, PLACES[one % 4], 2 * one, 3 * one, 4 * one, number if number % 2 else -1)
            for one in seq.tolist()
        ]
    read = [
        (
            row["producer"],
            row["seq"],
            (row["topic"], row["partition"]),
            row["offset"],
            row["sent_ns"],
            row["done_ns"],
            row["txn"],
        )
        for row in read_parts(tmp_path, PRODUCED).to_pylist()
    ]
    assert sorted(read) == sorted(written)
