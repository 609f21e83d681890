"""Tests of the tutorial: its commands in their order and its files, on real brokers.

Then the examples of `docs/api.md` run on the tutorial's results."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ackproof.rundir.batch import BatchFile
from ackproof.rundir.outcome import Verdict
from pages import ROOT, Page

pytestmark = pytest.mark.cluster

TUTORIAL = Page(ROOT / "docs" / "tutorial.md")
NOTEBOOK = Page(ROOT / "docs" / "api.md")


def _run(words: list[str], folder: Path) -> str:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def _last(folder: Path) -> BatchFile:
    return BatchFile.load(folder / "runs" / "latest" / "batch.json")


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    for name, text in TUTORIAL.files().items():
        (tmp_path / name).write_text(text, "utf-8")
    lost: list[dict[str, int]] = []
    for line in TUTORIAL.commands():
        words = shlex.split(line, comments=True)
        if words[0] != "ackproof":
            continue  # what sets the clone up has been done here
        said = _run(words, tmp_path)
        if words[1] == "run":
            batch = _last(tmp_path)
            assert batch.verdict is Verdict.PASS
            assert (tmp_path / "runs" / "latest" / "report.html").stat().st_size > 10_000
            lost.append({case.case: case.counts["lost"] for case in batch.cases})
        if words[1] == "predict":
            assert "lost is possible with first" in said
        if words[1] == "explain":
            assert "the final read does not hold it" in said
            assert "what took it: " in said

    with_one, with_all, both = lost
    assert with_one["case#1"] > 0
    assert with_all["case#1"] == 0
    assert both["acks=1#1"] > 0
    assert both["acks=all#1"] == 0

    for block in NOTEBOOK.of("python"):
        _run([sys.executable, "-c", block.text], tmp_path)
