"""Tests of lines of findings with ranges, of other copies of duplicates, and of the stories in a page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

from ackproof.rundir.layout import CaseDir
from ackproof.rundir.schema import FINDINGS
from ackproof_reports import facts
from ackproof_reports.facts import CaseFacts, gather
from ackproof_reports.findings import first_lines
from ackproof_reports.loading import load_batch
from ackproof_reports.one_record import RecordId, stories_of, story_of
from ackproof_reports.stories import with_copies

ROW = {"class": "lost", "topic": "t", "partition": 0, "producer": 0, "offset": 0, "seq": 0, "detail": ""}


def lines(*rows: dict[str, object], most: int = 9) -> list[tuple[str, str, int]]:
    table = pa.Table.from_pylist([{**ROW, "other": -1, **row} for row in rows])
    return [(line.numbers("offset"), line.detail, len(line.rows)) for line in first_lines(table, most)]


def test_neighbours_are_one_line() -> None:
    assert lines(*({"offset": n} for n in (5, 6, 7, 9)), {"offset": 10, "partition": 1}) == [
        ("5–7", "", 3),
        ("9", "", 1),
        ("10", "", 1),
    ]
    told = lines({"offset": 5, "detail": "a"}, {"offset": 6, "detail": "a"}, {"offset": 7, "detail": "b"})
    assert told == [("5–6", "a", 2), ("7", "b", 1)]
    assert len(lines(*({"offset": 2 * n} for n in range(20)), most=3)) == 3


def test_of_unknown_offsets_those_of_one_producer_are_one_line() -> None:
    rows = [{"offset": -1, "seq": n, "producer": n // 3} for n in range(5)]
    assert lines(*rows) == [("—", "", 3), ("—", "", 2)]


def test_copies_are_one_line_while_both_go_on_together() -> None:
    rows = [{"class": "duplicate", "offset": 90 + n, "other": 40 + n + 5 * (n > 2)} for n in range(5)]
    assert lines(*rows) == [
        ("90–92", "the other copies are at offsets 40–42", 3),
        ("93–94", "the other copies are at offsets 48–49", 2),
    ]


@pytest.fixture
def loss(maker: ModuleType, tmp_path: Path) -> Path:
    cell = maker.matrix()[2]
    made: Path = maker.make_batch(
        tmp_path, [replace(cell, lost=40, findings={"duplicate": 25}, ledgers=True)]
    )
    return made


def only(folder: Path) -> CaseFacts:
    (fact,) = gather(load_batch(folder))
    return fact


def test_a_duplicate_names_its_other_copy(loss: Path) -> None:
    found = only(loss).findings
    assert found is not None and found.rows is not None
    other = dict(zip(found.rows["offset"].to_pylist(), found.rows["other"].to_pylist(), strict=True))
    assert {offset: at for offset, at in other.items() if at >= 0} == {5000 + n: 2000 + n for n in range(25)}


def test_a_copy_in_another_partition_is_named_in_words(loss: Path) -> None:
    run = load_batch(loss).cases[0].run
    astray = {
        **ROW,
        "class": "duplicate",
        "topic": "orders",
        "partition": 2,
        "offset": 77,
        "seq": 41,
        "detail": "d",
    }
    told = with_copies(pa.Table.from_pylist([astray], schema=FINDINGS), run, [])
    assert told["detail"].to_pylist() == ["d; the other copy is at orders/0 offset 2001"]
    assert told["other"].to_pylist() == [-1]


def test_without_ledgers_there_are_neither_copies_nor_stories(maker: ModuleType, tmp_path: Path) -> None:
    fact = only(maker.make_batch(tmp_path, [replace(maker.matrix()[2], findings={"duplicate": 25})]))
    assert fact.stories is None
    assert fact.findings is not None and fact.findings.rows is not None
    assert set(fact.findings.rows["other"].to_pylist()) == {-1}


def test_a_torn_ledger_is_said_to_be(loss: Path) -> None:
    run: CaseDir = load_batch(loss).cases[0].run
    (part,) = run.consumed.glob("*/*.parquet")
    part.write_bytes(part.read_bytes()[:99])
    absent = " ".join(only(loss).absent)
    assert "the stories of lost records: " in absent
    assert "where the other copies of duplicates are: " in absent


def test_the_page_carries_what_explain_tells(loss: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fact = only(loss)
    assert fact.stories is not None
    texts, of = fact.stories["lines"], fact.stories["of"]
    assert isinstance(texts, list) and isinstance(of, dict) and len(of) == 40
    story = story_of(fact.case.run, RecordId(0, 7))
    told = of["0:7"]
    assert isinstance(told, list)
    assert [texts[at] for _, at in told] == [*(text for _, text in story.moments), *story.facts]
    assert len(texts) < 40 * 6  # what many have in common is there once
    monkeypatch.setattr(facts, "STORIES_OF_BATCH", 3)
    assert list(only(loss).stories["of"]) == ["0:0", "0:1", "0:2"]  # type: ignore[index, arg-type]


def test_many_stories_are_those_told_one_by_one(loss: Path) -> None:
    run = load_batch(loss).cases[0].run
    whom = [RecordId(0, seq) for seq in (0, 39, 41, 64, 999)]
    many = stories_of(run, whom)
    assert RecordId(0, 999) not in many
    assert [many[who] for who in whom[:4]] == [story_of(run, who) for who in whom[:4]]
