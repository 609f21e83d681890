"""`ackproof trend`: batches over time, with changed versions and settings, certain slowdowns, unreadable batches."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import pytest
from click.testing import CliRunner

from ackproof.base.errors import BadInput
from ackproof.experiment.kafka import DEFAULT
from ackproof.rundir.batch import BatchFile
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.lab import TrendFile
from ackproof.rundir.layout import BatchDir, CaseDir
from ackproof.rundir.outcome import Verdict
from ackproof_lab.compare.command import trend as command
from ackproof_lab.compare.trend import trend
from ackproof_reports.comparison_pages import trend_page
from repeated import Go, repeated


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("nights")
        yield nights(folder, repeated(folder, patch))


@pytest.fixture
def runs(done: Path, tmp_path: Path) -> Path:
    """Folder of batches of `nights`, a copy that a test may change."""
    return Path(copytree(done, tmp_path / "runs", symlinks=True))


def nights(folder: Path, go: Go) -> Path:
    """Write three batches, and return their folder. Two are alike. In the third, the session time-out is three times as
    long, and one repeat failed."""
    for number, (seed, timeout) in enumerate(((7, 3000), (8, 3000), (9, 9000))):
        made = go("{lost: 0}", repeat=4, seed=seed, timeout=timeout).directory.path
        made.rename(made.with_name(f"night-{number}"))
    (folder / "runs" / "night-1x").mkdir()
    file = BatchDir(folder / "runs" / "night-2").batch_json
    batch = BatchFile.load(file)
    first, *others = batch.cases
    torn = first.model_copy(update={"verdict": Verdict.FAIL, "counts": {"lost": 5}})
    batch.model_copy(update={"cases": (torn, *others)}).save(file)
    return folder / "runs"


def test_each_case_by_date_with_what_changed(runs: Path) -> None:
    found = trend(runs)
    assert [case.case for case in found.cases] == ["recovery: acks=1", "recovery: acks=all"]
    one, every = found.cases
    assert [point.batch for point in every.points] == ["night-0", "night-1", "night-2"]
    assert [point.changed for point in every.points] == [
        (),
        (),
        ("cluster.config[broker.session.timeout.ms]: 3000 → 9000",),
    ]
    assert [bool(point.apart) for point in every.points] == [False, False, True]
    assert every.points[2].apart[0].startswith("recovery ")
    assert [(point.worst, point.verdicts) for point in one.points] == [
        ("PASS", "4 PASS"),
        ("PASS", "4 PASS"),
        ("FAIL", "1 FAIL, 3 PASS"),
    ]
    assert [point.lost for point in one.points] == [0, 0, 5]
    assert {point.version for point in every.points} == {DEFAULT}
    assert len(found.unread) == 1
    assert "night-1x" in found.unread[0]


def test_a_batch_without_numbers_hides_no_change(runs: Path) -> None:
    """If the night before a change has no verdict, the change is shown relative to the last night that has one."""
    file = BatchDir(runs / "night-1").batch_json
    batch = BatchFile.load(file)
    torn = tuple(one.model_copy(update={"verdict": Verdict.INCONCLUSIVE}) for one in batch.cases)
    batch.model_copy(update={"cases": torn}).save(file)
    every = trend(runs).cases[1]
    assert [bool(point.apart) for point in every.points] == [False, False, True]
    assert [bool(point.changed) for point in every.points] == [False, False, True]
    assert [point.version for point in every.points] == [DEFAULT] * 3


def test_the_order_is_that_of_dates_and_not_of_names(runs: Path) -> None:
    (runs / "night-0").rename(runs / "oldest")
    for case in trend(runs).cases:
        assert [point.batch for point in case.points] == ["oldest", "night-1", "night-2"]
    file = CaseDir(
        runs / "night-2" / BatchFile.load(BatchDir(runs / "night-2").batch_json).cases[0].run
    ).case_json
    CaseFile.load(file).model_copy(update={"wall_ns": 0}).save(file)
    assert [point.batch for point in trend(runs).cases[0].points] == ["oldest", "night-1", "night-2"]


def test_the_page(runs: Path) -> None:
    found = trend(runs)
    page = trend_page(found)
    assert "<script" not in page
    assert page.count('class="axis change"') == 4, "of two cases two pictures each"
    assert page.count("<circle") == 12
    assert page.count('class="mark bad"') == 2
    hostile = found.model_copy(update={"directory": "<script>x</script>"})
    assert "<script" not in trend_page(hostile)


def test_the_command(runs: Path, tmp_path: Path) -> None:
    data = tmp_path / "t.json"
    done = CliRunner().invoke(command, [str(runs), "--json", str(data)], standalone_mode=False)
    assert done.return_value == 0, done.output
    assert "recovery: acks=all: night-2: recovery " in done.output
    assert (runs / "trend.html").exists()
    assert TrendFile.load(data) == trend(runs)


def test_bad_input(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="no batches here"):
        trend(tmp_path / "empty")
    error = CliRunner().invoke(command, [os.fspath(tmp_path / "nowhere")]).exception
    assert isinstance(error, BadInput)
