"""Tests of findings: ranges, counts, and the rows embedded in a page."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackproof.rundir.layout import CaseDir
from ackproof.rundir.schema import FINDINGS
from ackproof_reports.findings import MOST, SPANS, groups_of, read_findings, stretches

ROW = {"class": "lost", "topic": "t", "partition": 0, "producer": 0, "offset": 0, "seq": 0, "detail": ""}


def table(*rows: dict[str, object]) -> pa.Table:
    return pa.Table.from_pylist([{**ROW, **row} for row in rows], schema=FINDINGS)


@given(st.lists(st.integers(0, 60)), st.integers(1, 5))
def test_stretches_hold_every_number_once(numbers: list[int], gap: int) -> None:
    found, count = stretches(pa.array(sorted(numbers), pa.int64()), gap, len(numbers))
    assert count == len(found)
    assert sum(count for _, _, count in found) == len(numbers)
    assert all(first in numbers and last in numbers for first, last, _ in found)
    for (_, last, _), (first, _, _) in itertools.pairwise(found):
        assert first - last > gap
    for first, last, _ in found:
        inside = sorted({n for n in numbers if first <= n <= last})
        assert all(b - a <= gap for a, b in itertools.pairwise(inside))


def ranges_of(rows: pa.Table) -> list[tuple[object, ...]]:
    return [
        (group.anomaly, group.topic, group.partition, group.producer, *stretch)
        for group in groups_of(rows)
        for stretch in group.ranges
    ]


def test_ranges_by_partition_and_offset() -> None:
    found = ranges_of(
        table(
            *({"offset": n} for n in (7, 5, 6, 9)),
            {"partition": 1, "offset": 5},
            {"topic": "u", "offset": 5},
            {"class": "vanished", "offset": 6, "producer": -1, "seq": -1},
        )
    )
    assert found == [
        ("lost", "t", 0, None, 5, 7, 3),
        ("lost", "t", 0, None, 9, 9, 1),
        ("lost", "t", 1, None, 5, 5, 1),
        ("lost", "u", 0, None, 5, 5, 1),
        ("vanished", "t", 0, None, 6, 6, 1),
    ]


@pytest.fixture
def findings(tmp_path: Path) -> Path:
    (tmp_path / "findings").mkdir()
    return tmp_path / "findings"


def test_unknown_offsets_are_told_by_producer_and_seq() -> None:
    rows = [{"offset": -1, "seq": 3 * n} for n in range(10)] + [{"offset": -1, "seq": 500, "producer": 1}]
    assert ranges_of(table(*rows, {"offset": -1, "seq": 900})) == [
        ("lost", "t", 0, 0, 0, 27, 10),
        ("lost", "t", 0, 0, 900, 900, 1),
        ("lost", "t", 0, 1, 500, 500, 1),
    ]


def test_offsets_beyond_two_to_the_53(findings: Path) -> None:
    big = 2**60
    pq.write_table(table({"offset": big}, {"offset": big + 1}), findings / "a.parquet")
    found = read_findings(CaseDir(findings.parent), 10, (), [])
    assert found is not None and found.groups[0].ranges == ((big, big + 1, 2),)


def test_what_matters_is_embedded_first(maker: ModuleType, findings: Path) -> None:
    recipe = replace(maker.matrix()[2], lost=30, findings={"surfaced": 500, "duplicate": 40, "reordered": 9})
    pq.write_table(maker.findings_of(recipe), findings / "a.parquet")
    found = read_findings(CaseDir(findings.parent), 60, ("reordered",), [])
    assert found is not None
    assert found.counts == {"lost": 30, "surfaced": 500, "duplicate": 40, "reordered": 9}
    assert found.embedded_of() == {"reordered": 9, "lost": 30, "duplicate": 21}
    assert found.total == 579 and found.embedded == 60


def test_no_folder_and_broken_files_are_told(findings: Path) -> None:
    absent: list[str] = []
    assert read_findings(CaseDir(findings / "none"), 10, (), absent) is None
    (findings / "torn.parquet").write_bytes(b"PAR1 and then nothing")
    pq.write_table(table({}).drop_columns(["detail"]), findings / "odd.parquet")
    pq.write_table(table({}), findings / "good.parquet")
    found = read_findings(CaseDir(findings.parent), 10, (), absent)
    assert found is not None and found.counts == {"lost": 1}
    assert len(absent) == 3
    assert any("torn.parquet: cannot be read" in text for text in absent)
    assert "findings/odd.parquet: has no column detail" in absent


def test_dictionary_columns_and_extra_columns_are_read(findings: Path) -> None:
    encoded = table({"offset": 4}).append_column("extra", pa.array([1]))
    encoded = encoded.set_column(0, "class", encoded.column("class").dictionary_encode())
    pq.write_table(encoded, findings / "a.parquet")
    found = read_findings(CaseDir(findings.parent), 10, (), [])
    assert found is not None and found.counts == {"lost": 1} and found.embedded == 1


def test_files_with_other_classes_have_other_dictionaries(findings: Path) -> None:
    """Dictionaries also differ between row groups of one long file, and between its batches of 131,072 rows."""
    pq.write_table(table({"offset": 4}, {"offset": 5}), findings / "a.parquet")
    pq.write_table(table({"class": "vanished", "offset": 4, "topic": "u"}), findings / "b.parquet")
    found = read_findings(CaseDir(findings.parent), 10, (), [])
    assert found is not None
    assert [(group.anomaly, group.topic, group.count) for group in found.groups] == [
        ("lost", "t", 2),
        ("vanished", "u", 1),
    ]


@pytest.mark.parametrize("rows", [0, 1])
def test_hardly_any_rows(findings: Path, rows: int) -> None:
    pq.write_table(table(*[{}] * rows), findings / "a.parquet")
    found = read_findings(CaseDir(findings.parent), 10, (), [])
    assert found is not None and found.total == rows and found.embedded == rows


def test_more_ranges_than_a_page_shows() -> None:
    (group,) = groups_of(table(*({"offset": 2 * n} for n in range(5000))))
    assert (group.count, group.total, group.first, group.last) == (5000, 5000, 0, 9998)
    assert len(group.ranges) == MOST and group.ranges[-1][1] == 2 * (MOST - 1)
    assert len(group.spans) <= SPANS + 1 and group.spans[-1][1] == 9998


def test_topic_and_class_as_dictionaries(findings: Path) -> None:
    rows = table({"topic": "b", "offset": 1}, {"topic": "a", "offset": 2})
    for at, name in ((0, "class"), (1, "topic")):
        rows = rows.set_column(at, name, rows.column(name).dictionary_encode())
    pq.write_table(rows, findings / "a.parquet")
    found = read_findings(CaseDir(findings.parent), 10, (), [])
    assert found is not None and found.rows is not None
    assert found.rows.column("topic").to_pylist() == ["a", "b"]
