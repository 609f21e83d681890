"""Data frames of runs and batches, and the notebook that plots one. The runs are simulated, and the audit is a fake."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import repeated as repeating
from ackproof import api
from ackproof.base.errors import BadInput
from ackproof.experiment.kafka import NEWEST
from ackproof.rundir.schema import FINDINGS, GROUP_FINDINGS, SERIES
from repeated import ACK, Go, repeated

NOTEBOOK = Path(__file__).parents[2] / "docs" / "recovery-by-release.ipynb"


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Go:
    return repeated(tmp_path, monkeypatch)


def test_elections_of_a_batch_are_those_of_its_runs(go: Go) -> None:
    """In each run one leader was killed, and an in-sync replica was elected."""
    batch = api.open_batch(go("{lost: 0}", repeat=2).directory.path)
    frame = batch.elections()
    assert list(frame.columns[:2]) == ["case", "repeat"]
    alone = [api.open_run(run.directory).elections() for run in batch.runs]
    assert len(frame) == sum(map(len, alone)) >= 4
    assert frame.clean.all()
    assert (frame.leader_epoch >= 1).all()
    of_cases = {(case, repeat) for case, repeat in zip(frame.case, frame.repeat, strict=True)}
    assert of_cases == {(f"acks={acks}", n) for acks in ("1", "all") for n in (1, 2)}


def test_a_series_is_there_once_it_was_counted(go: Go) -> None:
    batch = api.open_batch(go("{lost: 0}", repeat=1).directory.path)
    with pytest.raises(BadInput, match="was not audited"):
        batch.runs[0].series()
    row = dict.fromkeys(SERIES.names, 1) | {"topic": "orders"}
    for run in batch.runs:
        pq.write_table(pa.Table.from_pylist([row, row], schema=SERIES), run.directory / "series.parquet")
    assert len(batch.runs[0].series()) == 2
    assert list(batch.series().groupby("case").acked.sum()) == [2, 2]


def test_a_run_has_the_frames_of_its_batch(go: Go) -> None:
    batch = api.open_batch(go("{lost: 0}", repeat=1).directory.path)
    run = batch.runs[0]
    events, told = run.events(), run.timeline()
    assert list(told.t_ns) == [event.t_ns for event in events]
    assert list(told.kind) == [event.kind.value for event in events]
    of_it = batch.timeline().query("case == 'acks=1'").iloc[:, 2:].reset_index(drop=True)
    assert of_it.equals(told)
    with pytest.raises(BadInput, match="no tables"):
        run.findings()
    row = dict.fromkeys(FINDINGS.names, 1) | {"class": "lost", "topic": "orders", "detail": ""}
    (run.directory / "findings").mkdir(exist_ok=True)
    found = pa.Table.from_pylist([row, row], schema=FINDINGS)
    pq.write_table(found, run.directory / "findings" / "part-0.parquet")
    assert list(run.findings()["class"]) == ["lost", "lost"]
    of_group = {**row, "class": "two-owners", "group": "billing", "member": 1}
    pq.write_table(
        pa.Table.from_pylist([of_group], schema=GROUP_FINDINGS), run.directory / "findings" / "part-1.parquet"
    )
    frame = run.findings()
    assert list(frame.columns) == GROUP_FINDINGS.names
    assert list(frame.group.dropna()) == ["billing"] and list(frame.member.dropna()) == [1]


def test_metrics_that_nobody_asked_for_are_said_to_be_missing(go: Go) -> None:
    with pytest.raises(BadInput, match="no metrics were scraped"):
        api.open_batch(go("{lost: 0}", repeat=1).directory.path).metrics()


def test_the_notebook_plots_recovery_by_release(
    go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    releases = sorted(NEWEST)[-2:]
    matrix = f"  cluster.kafka: [{', '.join(map(repr, releases))}]"
    text = repeating.TEXT.replace("  workload.producers.acks: [1, all]", matrix)
    monkeypatch.setattr(repeating, "TEXT", text)
    go(f"{{{ACK!r}: median < 30s}}", repeat=3)
    code = next(c for c in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if c["cell_type"] == "code")
    assert len(code["source"]) <= 15
    monkeypatch.chdir(tmp_path)
    mpl.use("svg")
    told: dict[str, object] = {}
    exec(compile("".join(code["source"]), str(NOTEBOOK), "exec"), told)
    axes = told["axes"]
    lines = axes.get_lines()  # type: ignore[attr-defined]
    assert [line.get_label() for line in lines] == [f"kafka={release}" for release in releases]
    assert [len(line.get_xdata()) for line in lines] == [3, 3]
    assert all(0 < time < 30 for line in lines for time in line.get_xdata())
    assert (tmp_path / "recovery-by-release.svg").stat().st_size > 5000
    plt.close("all")


def test_pandas_is_imported_where_a_frame_is_asked_for_and_nowhere_else() -> None:
    program = "import sys; from ackproof import api; assert 'pandas' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
