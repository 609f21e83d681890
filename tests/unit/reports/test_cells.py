"""Tests of settings that vary together, which are one axis of the report's matrix with names as values."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

from ackproof_reports import render_batch
from ackproof_reports.cells import matrix_of, subject
from ackproof_reports.loading import load_batch


def together(path: Path, maker: ModuleType, names: dict[str, str]) -> Path:
    """Make the synthetic batch, with a name for the settings of some cases. `names`: name by value of acks."""
    folder: Path = maker.make_batch(path, maker.matrix())
    batch = json.loads((folder / "batch.json").read_text("utf-8"))
    for case in batch["cases"]:
        acks, _, rest = case["case"].removeprefix("acks=").partition(",")
        case["cell"] = names.get(acks, "")
        case["case"] = f"{names.get(acks, f'acks={acks}')},{rest}"
    (folder / "batch.json").write_text(json.dumps(batch), "utf-8")
    return folder


def test_one_axis_by_name(tmp_path: Path, maker: ModuleType) -> None:
    view = load_batch(together(tmp_path, maker, {"0": "blind", "1": "plain", "all": "safe"}))
    matrix = matrix_of(view.cases)
    assert (matrix.axes[0].path, matrix.axes[0].values) == ("cell", ("blind", "plain", "safe"))
    assert len(matrix.axes) == 2
    assert [len(grid.cells) for grid in matrix.grids] == [3]
    assert subject(matrix.cells[:2], matrix) == "blind"
    assert subject(matrix.cells[:1], matrix) == "blind with min.insync.replicas=1"
    assert view.title(view.cases[0]) == "blind, min.insync.replicas=1"


def test_some_have_no_name(tmp_path: Path, maker: ModuleType) -> None:
    """Settings by which unnamed cases differ stay axes of their own."""
    view = load_batch(together(tmp_path, maker, {"all": "safe"}))
    assert {axis.name for axis in matrix_of(view.cases).axes} == {"cell", "acks", "min.insync.replicas"}
    assert view.title(view.cases[0]) == "acks=0, min.insync.replicas=1"


def test_the_pages_have_the_name(tmp_path: Path, maker: ModuleType) -> None:
    folder = together(tmp_path, maker, {"0": "blind", "1": "plain", "all": "safe"})
    render_batch(folder)
    for page in ("report.html", "summary.md", "junit.xml"):
        assert "blind" in (folder / page).read_text("utf-8"), page
