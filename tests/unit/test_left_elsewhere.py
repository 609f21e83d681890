"""`ackproof clean` lists the topics that a killed run left on an existing cluster."""

from __future__ import annotations

from pathlib import Path

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
