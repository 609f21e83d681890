"""`ackproof clean` lists what it leaves: topics of a killed run on an existing cluster, and damaged journals."""

from __future__ import annotations

from pathlib import Path

from ackproof.clients.journal import chunk_path
from ackproof.run.housekeeping import CleanResult, _tidy
from ackproof.rundir.documents import AttachedFile
from ackproof.rundir.layout import CaseDir


def test_they_are_named_with_their_place(tmp_path: Path) -> None:
    run = CaseDir(tmp_path)
    AttachedFile(bootstrap="kafka-1:9092", topics=("ackproof-1-a", "ackproof-1-b")).save(run.attached_json)
    swept = CleanResult()
    assert _tidy(run, swept)
    assert list(swept.lines()) == [
        "a killed run left topics at kafka-1:9092: ackproof-1-a, ackproof-1-b; delete them there"
    ]
    assert run.attached_json.exists(), "only whoever deletes them may forget them"


def test_without_any_nothing_is_said(tmp_path: Path) -> None:
    swept = CleanResult()
    assert _tidy(CaseDir(tmp_path), swept)
    assert list(swept.lines()) == ["nothing was left behind"]


def test_a_journal_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    run = CaseDir(tmp_path)
    chunk = chunk_path(run.journal / "p0", 0)
    chunk.parent.mkdir(parents=True)
    chunk.write_bytes(b"torn")
    swept = CleanResult()
    _tidy(run, swept)
    (line,) = swept.lines()
    assert line.startswith("could not save a client's journal: ") and "settings.json" in line
    assert chunk.exists()
