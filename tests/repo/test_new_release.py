"""Tests of the tool that adds a release: its lock has Maven's jars, and the other rows stay."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ackproof.experiment.kafka import LINES, RELEASES, ROWS

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture
def with_release(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(str(TOOLS))
    sys.modules.pop("new_release", None)
    from new_release import with_release as made  # type: ignore[import-not-found]

    return made


def test_a_row_is_added_and_the_others_stay(with_release) -> None:  # type: ignore[no-untyped-def]
    before = json.loads(ROWS.read_text("utf-8"))
    after = json.loads(with_release(ROWS.read_text("utf-8"), "4.10.1", {"metadata.version": (7, 40)}))
    assert after.pop("4.10") == {"releases": ["4.10.1"], "features": {"metadata.version": [7, 40]}}
    assert after == before


def test_a_patch_release_is_added_to_its_line(with_release) -> None:  # type: ignore[no-untyped-def]
    line = LINES[-1]
    text = with_release(ROWS.read_text("utf-8"), f"{line}.99", dict(line.features))
    assert json.loads(text)[str(line)]["releases"] == [*line.releases, f"{line}.99"]


def test_the_rows_stand_as_the_tool_writes_them(with_release) -> None:  # type: ignore[no-untyped-def]
    text = ROWS.read_text("utf-8")
    assert with_release(text, RELEASES[-1], dict(LINES[-1].features)) == text
