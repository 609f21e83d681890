"""`ackproof replay` repeats a stored case with its seed and random draws. `ackproof init` writes a valid experiment."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.cli.main import main_code
from ackproof.plan import cases, load
from run_directory import case_file, read_case, write_run


def test_what_cannot_be_repeated_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main_code(["replay", str(tmp_path)]) == 254
    assert "neither a case nor a batch" in capsys.readouterr().err
    case = read_case("name: stormy\ntopics: {orders: {}}\nworkload: {duration: 5s}\n", backend="attach")
    stored = case_file(case, backend="attach", replay="ackproof run x.yaml --bootstrap there:9092")
    write_run(tmp_path, case_json=stored)
    assert main_code(["replay", str(tmp_path)]) == 254
    assert "Run it again with: ackproof run x.yaml --bootstrap there:9092" in " ".join(
        capsys.readouterr().err.split()
    )


def test_init_writes_what_validates_and_overwrites_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main_code(["init"]) == 0
    assert main_code(["init", "kills.yaml"]) == 0
    assert main_code(["validate", "first.yaml", "kills.yaml"]) == 0
    (case, _) = cases(load(Path("kills.yaml")))
    assert (case.experiment.name, len(case.experiment.faults)) == ("kills", 2)
    Path("first.yaml").write_text("mine")
    capsys.readouterr()
    assert main_code(["init", "first"]) == 254
    assert "first.yaml exists already" in capsys.readouterr().err
    assert Path("first.yaml").read_text() == "mine"
    assert main_code(["init", "no such/folder"]) == 254
    assert capsys.readouterr().err == "ackproof: no such: no such folder\n"
