"""Tests of the parts of the audit, each against a plain computation with Python's lists and dicts."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ackproof.audit.outputs import FindingsWriter, Handover, Outputs
from ackproof.audit.planning import bucket_units, group_tasks, plan_units
from ackproof.audit.shares import UNMATCHED, IdentityRegister, cut_shares
from ackproof.audit.units import AuditTarget, Limits
from ackproof.ledgers.directory import Part, RowGroup
from ackproof.ledgers.load import SpillFile
from ackproof.ledgers.lookup import Identities, Lookup, are_covered, highest_over
from ackproof.ledgers.rows import (
    Rows,
    concat_rows,
    constant_column,
    distinct_values,
    empty_rows,
    group_starts,
    is_constant,
    is_sorted,
    sort_order,
    squeeze,
)
from ackproof.rundir import arrow
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.partition import TopicPartition

LEAST, GREATEST = -(2**63), 2**63 - 1
wild = st.one_of(
    st.integers(-3, 12),
    st.integers(0, 300),
    st.integers(2**53 - 2, 2**53 + 2),
    st.integers(LEAST, LEAST + 3),
    st.integers(GREATEST - 3, GREATEST),
)
tame = st.integers(-3, 12)
SCHEMA = {"a": "i8", "b": "i4"}
many = settings(max_examples=150, deadline=None)


def ints(values) -> np.ndarray:
    return np.array(list(values), dtype=np.int64)


def rows_of(pairs) -> Rows:
    return Rows({"a": ints(a for a, _ in pairs), "b": ints(b for _, b in pairs).astype(np.int32)}, len(pairs))


def pairs_of(rows: Rows):
    return list(zip(rows["a"].tolist(), rows["b"].tolist(), strict=True))


pairs = st.lists(st.tuples(st.one_of(tame, wild), st.integers(-2, 3)), max_size=40)


@many
@given(st.sets(st.one_of(tame, wild)), st.lists(st.one_of(tame, wild)))
def test_lookup(keys, values) -> None:
    ordered = sorted(keys)
    found = Lookup(ints(ordered)).find(ints(values)).tolist()
    assert found == [ordered.index(value) if value in keys else -1 for value in values]


def test_lookup_ways() -> None:
    """Dense, spread and sparse keys use three ways of lookup, which agree."""
    for keys in (range(10, 20), range(10, 200, 9), range(10, 10**9, 10**7)):
        lookup = Lookup(ints(keys))
        asked = [*keys, *(key + 1 for key in keys), -5, 9, 2**62]
        listed = list(keys)
        assert lookup.find(ints(asked)).tolist() == [
            listed.index(one) if one in keys else -1 for one in asked
        ]


@many
@given(
    st.sets(st.tuples(st.integers(-1, 3), st.one_of(tame, wild))),
    st.lists(st.tuples(st.integers(-1, 3), st.one_of(tame, wild))),
    st.booleans(),
)
def test_identities(keys, values, one_producer) -> None:
    if one_producer:
        keys, values = {(1, seq) for _, seq in keys}, [(1, seq) for _, seq in values]
    ordered = sorted(keys)
    identities = Identities(ints(p for p, _ in ordered).astype(np.int32), ints(s for _, s in ordered))
    producer = ints(p for p, _ in values).astype(np.int32)
    expected = [ordered.index(value) if value in keys else -1 for value in values]
    assert identities.find(producer, ints(s for _, s in values)).tolist() == expected
    assert identities.find(squeeze(producer), ints(s for _, s in values)).tolist() == expected


@pytest.mark.parametrize("producer", [0, 2, 4])
def test_identities_of_one_producer_who_has_none(producer) -> None:
    identities = Identities(ints([1, 1, 3, 3]).astype(np.int32), ints([5, 6, 5, 6]))
    asked = squeeze(np.full(3, producer, dtype=np.int32))
    assert identities.find(asked, ints([5, 6, 7])).tolist() == [-1] * 3
    assert Identities(ints([]).astype(np.int32), ints([])).find(asked, ints([5, 6, 7])).tolist() == [-1] * 3


@pytest.mark.parametrize("far", [6, 2**62, 2**63 - 2])
def test_identities_that_stand_between_others(far) -> None:
    """Look up numbers below, between and above the two of a producer. Only its own two are found."""
    identities = Identities(ints([1, 1, 3, 3]).astype(np.int32), ints([5, far, 5, far]))
    for producer, first in ((1, 0), (3, 2)):
        for asked in (np.full(6, producer, dtype=np.int32), constant_column(producer, "i4", 6)):
            found = identities.find(asked, ints([4, 5, 7, far - 1, far, far + 1])).tolist()
            assert found == [-1, first, -1, first if far == 6 else -1, first + 1, -1]


def test_lookup_among_nothing() -> None:
    assert Lookup(ints([])).find(ints([-1, 0, 1])).tolist() == [-1] * 3


@many
@given(
    st.lists(tame),
    st.lists(st.tuples(st.integers(-4, 13), st.integers(-4, 13), st.integers(0, 3)), max_size=9),
)
def test_highest_over(values, intervals) -> None:
    values = sorted(values)
    columns = [ints(column) for column in zip(*intervals, strict=True)] or [ints([])] * 3
    heights = highest_over(ints(values), *columns).tolist()
    assert heights == [
        max((height for after, before, height in intervals if after < value < before), default=LEAST)
        for value in values
    ]
    assert are_covered(ints(values), columns[:2]).tolist() == [height > LEAST for height in heights]


@many
@given(pairs)
def test_order_and_groups(drawn) -> None:
    rows = rows_of(drawn)
    keys = [rows["a"], rows["b"]]
    order = sort_order(keys)
    assert (order is None) == (drawn == sorted(drawn)) == is_sorted(keys)
    ordered = rows if order is None else rows.take(order)
    assert pairs_of(ordered) == sorted(drawn)
    starts = group_starts([ordered["a"], ordered["b"]]).tolist()
    assert starts == [n for n, one in enumerate(sorted(drawn)) if n == 0 or sorted(drawn)[n - 1] != one]
    assert distinct_values(rows["a"]).tolist() == sorted({a for a, _ in drawn})


def test_constant_columns_stay_constant() -> None:
    rows = Rows({"a": squeeze(ints([7] * 5)), "b": squeeze(ints([1, 2, 1, 2, 1]))}, 5)
    assert is_constant(rows["a"])
    assert not is_constant(rows["b"])  # its ends are alike, and not what is between
    for other in (rows.take(ints([0, 3])), rows.take(rows["b"] == 2), rows.slice(1, 3), rows.copied()):
        assert is_constant(other["a"])
        assert len(other["a"]) == len(other)
    schema = {"a": "i8", "b": "i8"}
    assert is_constant(concat_rows([rows, rows], schema)["a"])
    eight = Rows({"a": constant_column(8, "i8", 2), "b": ints([0, 0])}, 2)
    assert concat_rows([rows, eight, empty_rows(schema)], schema)["a"].tolist() == [7] * 5 + [8, 8]
    assert len(concat_rows([], schema)) == 0


@many
@given(pairs)
def test_spilled_and_back(drawn) -> None:
    with tempfile.TemporaryDirectory() as folder:
        spill = SpillFile(Path(folder) / "x.rows")
        rows = rows_of(drawn)
        places = [spill.add(rows), spill.add(rows.slice(0, len(rows) // 2)), spill.add(rows)]
        spill.close()
        assert pairs_of(places[2].load()) == pairs_of(places[0].load()) == drawn
        assert pairs_of(places[1].load()) == drawn[: len(drawn) // 2]
        assert {name: rows[name].dtype for name in SCHEMA} == {
            name: places[0].load()[name].dtype for name in SCHEMA
        }


def test_a_file_cut_short_is_an_error(tmp_path) -> None:
    spill = SpillFile(tmp_path / "x.rows")
    place = spill.add(rows_of([(n, n) for n in range(100)]))
    spill.close()
    (tmp_path / "x.rows").write_bytes((tmp_path / "x.rows").read_bytes()[:-1])
    with pytest.raises(OSError, match="cut short"):
        place.load()


def test_spilled_rows_are_narrow(tmp_path) -> None:
    spill = SpillFile(tmp_path / "x.rows")
    far = 2**60 + np.arange(1000, dtype=np.int64)
    place = spill.add(Rows({"a": far, "b": constant_column(3, "i4", 1000)}, 1000))
    spill.close()
    assert (tmp_path / "x.rows").stat().st_size == 4000
    assert place.load()["a"].tolist() == far.tolist()


def identities(place, producer, seq, present) -> Handover:
    columns = {"producer": np.full(len(seq), producer, np.int32), "seq": seq, "present": present}
    return Handover(place, "identities", Rows(columns, len(seq)))


@pytest.mark.parametrize("count", [1, 3])
def test_what_the_register_knows(count) -> None:
    """The register has dense blocks, sparse blocks and one that is both, in one or several shares."""
    place = TopicPartition("t", 0)
    dense, thin = np.arange(3000, dtype=np.int64), ints([5000, 70_000, 2**40, 2**62])
    messages = [
        identities(place, 0, dense, dense % 2 == 0),
        identities(TopicPartition("t", 1), 0, thin, np.array([True, False, True, True])),
        identities(TopicPartition("t", 2), 4, ints([5, 6]), np.array([True, False])),
    ]
    given_: dict[int, list] = {number: [] for number in range(count)}
    for message in messages:
        for number, share in cut_shares(message, count):
            given_[number].append(share)
    registers = [IdentityRegister(given_[number]) for number in range(count)]
    asked = [
        (0, 10),
        (0, 11),
        (0, 2999),
        (0, 3000),
        (0, 5000),
        (0, 70_000),
        (0, 2**40),
        (0, 2**62),
        (4, 5),
        (4, 6),
        (4, 7),
        (1, 5),
    ]
    producer, seq = ints(p for p, _ in asked).astype(np.int32), ints(s for _, s in asked)
    produced, present = (np.zeros(len(asked), dtype=bool) for _ in range(2))
    rows = Rows(
        {
            "producer": producer,
            "seq": seq,
            "offset": np.arange(len(asked)),
            "intact": produced,
            "astray": produced,
        },
        len(asked),
    )
    for number, share in cut_shares(Handover(place, "unmatched", rows), count):
        at = share.unmatched["offset"]
        produced[at], present[at] = registers[number].find(
            share.unmatched["producer"], share.unmatched.ints("seq")
        )
        assert set(share.unmatched.columns) == set(UNMATCHED)
    assert produced.tolist() == [True, True, True, False, True, True, True, True, True, True, False, False]
    assert present.tolist() == [True, False, False, False, True, False, True, True, True, False, False, False]


@many
@given(st.lists(st.one_of(st.none(), tame), min_size=1), st.integers(0, 5), st.integers(0, 5))
def test_arrow_and_back(values, start, stop) -> None:
    values = [0 if value is None else value for value in values]
    for column in (
        pa.array(values, pa.int64()),
        pa.array(values, pa.int8()),
        pa.array([v > 3 for v in values]),
    ):
        part = column.slice(start, max(0, len(column) - stop))
        assert arrow.to_numpy(part).tolist() == part.to_pylist()
    assert arrow.to_arrow(ints(values), pa.int32()).to_pylist() == values
    assert arrow.append_numbers("at ", ints(values)).to_pylist() == [f"at {value}" for value in values]
    assert arrow.repeat_text("ä/ö", start).to_pylist() == ["ä/ö"] * start


def test_many_findings_are_written_as_they_come(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("ackproof.audit.outputs._FLUSH_ROWS", 10)
    path = tmp_path / "part-0.parquet"
    findings = FindingsWriter(path)
    rows = Rows({"offset": np.arange(25), "producer": constant_column(3, "i4", 25)}, 25)
    findings.add(TopicPartition("t", 1), Anomaly.LOST, rows, ints([]))
    findings.add(TopicPartition("t", 1), Anomaly.LOST, rows)
    assert path.exists()
    rows = Rows({"offset": ints([1, 2, 3]), "seq": ints([6, 7, 8])}, 3)
    which, offset = ints([1, 2]), ints([5, 5])
    findings.add(TopicPartition("u", 2), Anomaly.REWOUND, rows, which, offset=offset, detail="why")
    findings.close()
    rows = pq.read_table(path).to_pylist()
    assert len(rows) == 27
    assert rows[24] == dict(zip(rows[0], ["lost", "t", 1, 3, 24, -1, ""], strict=True))
    assert rows[26] == dict(zip(rows[0], ["rewound", "u", 2, -1, 5, 8, "why"], strict=True))
    assert findings.counts == {"lost": 25, "rewound": 2}


def test_no_findings_no_file(tmp_path) -> None:
    findings = FindingsWriter(tmp_path / "part-0.parquet")
    findings.close()
    assert list(tmp_path.iterdir()) == []


# planning ------------------------------------------------------------------------------------------------------------


def a_part(name, kind, *groups) -> Part:
    """Return a part with one row group per tuple in `groups`, each with offsets 0 to 9 as its span."""
    held = (RowGroup(n, *group, spans={"offset": (0, 9)}) for n, group in enumerate(groups))
    return Part(name, kind, "c", tuple(held), ())


class LedgerStub:
    """Stand-in for a ledger, with the attributes that planning reads."""

    def __init__(self, *parts: Part) -> None:
        self.parts = list(parts)


TARGET = AuditTarget(0, Outputs("d", "a"), frozenset(), 1)


def test_a_small_directory_is_one_unit() -> None:
    ledger = LedgerStub(
        a_part("x", "produced", (10, "t", 0, None)), a_part("y", "consumed", (10, None, None, 1))
    )
    planned = plan_units(ledger, TARGET, Limits(whole_rows=20), frozenset())
    assert planned.whole is not None
    assert (planned.whole.rows, planned.splits, planned.direct) == (20, (), {})
    assert plan_units(ledger, TARGET, Limits(whole_rows=19), frozenset()).whole is None


def test_a_large_one_is_read_by_bucket_and_what_is_mixed_is_split_once() -> None:
    ledger = LedgerStub(
        a_part(
            "x", "produced", (10, "t", 0, None), (10, "t", 1, None), (4, None, 0, None), (5, "t", None, None)
        ),
        a_part("y", "consumed", (7, None, None, None), (7, "t", 0, 1)),
        a_part("z", "consumed", (2, None, None, 0)),
    )
    limits = Limits(whole_rows=0, split_rows=9)
    planned = plan_units(ledger, TARGET, limits, frozenset())
    assert [
        [(p.part.path, [g.number for g in p.groups]) for p in unit.pieces] for unit in planned.splits
    ] == [
        [("x", [2, 3])],
        [("y", [0]), ("z", [0])],
    ]
    assert {place: sum(piece.rows for piece in pieces) for place, pieces in planned.direct.items()} == {
        TopicPartition("t", 0): 17,
        TopicPartition("t", 1): 10,
    }
    units = bucket_units(planned, TARGET, [])
    assert [(unit.place, unit.rows) for unit in units] == [
        (TopicPartition("t", 0), 17),
        (TopicPartition("t", 1), 10),
    ]
    doubted = plan_units(ledger, TARGET, limits, frozenset(["x"]))
    assert {place: sum(piece.rows for piece in pieces) for place, pieces in doubted.direct.items()} == {
        TopicPartition("t", 0): 7
    }
    assert sum(unit.rows for unit in doubted.splits) == 29 + 9


def test_the_longest_task_first_and_small_units_together() -> None:
    ledger = LedgerStub(
        a_part(
            "x",
            "produced",
            *((rows, "t", number, None) for number, rows in enumerate((5, 90, 7, 300_000, 8))),
        )
    )
    planned = plan_units(ledger, TARGET, Limits(whole_rows=0), frozenset())
    units = bucket_units(planned, TARGET, [])
    found = group_tasks(units, Limits(task_rows=45_000), 0)
    assert [[unit.rows for unit in task] for task in found] == [[300_000], [90, 5], [8, 7]]
