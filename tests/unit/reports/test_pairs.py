"""Tests of pairs of fault kinds in the report, in the summary and merged: each outcome with its reason, escaped."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from ackproof.cli import main as cli
from ackproof.rundir.batch import PairEntry, PairOutcome, PairsFile, PairTable
from ackproof.rundir.layout import BatchDir
from ackproof_reports import render_batch

NOT_BITTEN = PairEntry(
    kinds=("cut", "pause"), outcome=PairOutcome.NOT_BITTEN, case="case#2", why="nobody <b>there</b>"
)


def table(*pairs: PairEntry) -> PairsFile:
    covered = PairEntry(kinds=("cut", "kill"), outcome=PairOutcome.COVERED, case="case#1")
    refused = PairEntry(kinds=("kill", "stop"), outcome=PairOutcome.REFUSED, why="nothing to break")
    pairs = (covered, *pairs, refused)
    return PairsFile(
        tables=(PairTable(experiment="pairs", cell="case", kafka="4.4.0, kraft", runs=7, pairs=pairs),)
    )


@pytest.fixture
def folder(maker: ModuleType, tmp_path: Path) -> Path:
    made: Path = maker.make_batch(tmp_path, maker.matrix())
    render_batch(made)
    assert 'id="pairs"' not in (made / "report.html").read_text()
    table(NOT_BITTEN).save(BatchDir(made).pairs_json)
    render_batch(made)
    return made


def test_the_page_and_the_summary_tell_each_outcome(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    section = page[page.index('<section id="pairs"') : page.index('<section id="cases"')]
    tally = "3 pairs of fault kinds: 1 covered, 1 not bitten, 0 not run, 1 refused"
    assert f"{tally}. All of them take 7 runs." in section
    assert (
        "cut + kill in <bdi>case#1</bdi>" in section and "kill + stop: <bdi>nothing to break</bdi>" in section
    )
    assert "nobody &lt;b&gt;there&lt;/b&gt;" in section
    summary = (folder / "summary.md").read_text()
    assert tally in summary and "cut \\+ pause: case\\#2: nobody &lt;b&gt;there" in summary


def test_shards_are_merged(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    other.mkdir()
    table(NOT_BITTEN.model_copy(update={"outcome": PairOutcome.COVERED, "why": ""})).save(
        BatchDir(other).pairs_json
    )
    assert cli.main_code(["pairs", str(folder)]) == 2
    assert "cut + pause: case#2: nobody <b>there</b>" in capsys.readouterr().out
    assert cli.main_code(["pairs", str(folder), str(other)]) == 0
    assert (
        "pairs case, Kafka 4.4.0, kraft: 3 pairs of fault kinds: 2 covered, 0 not" in capsys.readouterr().out
    )
    (other / "pairs.json").unlink()
    assert cli.main_code(["pairs", str(other)]) == 254
    assert "had no storm of pairs" in capsys.readouterr().err
