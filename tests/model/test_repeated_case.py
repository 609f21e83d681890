"""`ackproof replay` of a simulated run: what is repeated is what was drawn."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from ackproof.cli.main import main_code
from ackproof.plan import describe
from ackproof.plan.cases import case_from_json
from ackproof.run import conclude as concluding
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.timeline import FaultAsked, read_timeline

from ..audit.local import audited

STORM = """\
name: stormy
backend: model
topics: {orders: {}}
workload: {producers: {rate: 200/s, linger: 100ms}, duration: 5s}
matrix: {workload.producers.acks: [1, all]}
faults:
  - {storm: {menu: {pause: 1, kill: 1, cut: 1}, count: 4, at_least: 0}, at: 1s}
  - {kill: {target: broker}, at: 2s, restart_after: 1s}
"""


def _stored(out: Path) -> dict[str, CaseDir]:
    return {path.parent.name: CaseDir(path.parent) for path in sorted((out / "latest").glob("*/case.json"))}


def _asked(run: CaseDir) -> list[FaultAsked]:
    events, _ = read_timeline(run.timeline)
    return [event.what for event in events if isinstance(event.what, FaultAsked)]


def test_a_stored_case_is_repeated_with_its_seed_and_all_that_was_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(concluding.audit, "run", audited)
    file = tmp_path / "storm.yaml"
    file.write_text(STORM)
    assert main_code(["run", "storm.yaml", "--seed", "11"]) in (0, 1, 2)
    first = _stored(tmp_path / "runs")
    assert list(first) == ["acks=1_1", "acks=all_1"]
    # Neither is asked any more: not the file, nor what its seed would draw.
    file.unlink()
    monkeypatch.setattr(
        import_module("ackproof.plan.cases"), "draw_storm", lambda *_: pytest.fail("drawn anew")
    )
    assert main_code(["replay", "runs/latest", "--case", "acks=all", "--out", "again"]) in (0, 1, 2)
    (again,) = _stored(tmp_path / "again").values()
    before, after = (CaseFile.load(run.case_json) for run in (first["acks=all_1"], again))
    assert after.wall_ns > before.wall_ns
    assert (after.seed, after.resolved) == (before.seed, before.resolved)
    plans = [list(describe(case_from_json(file.resolved))) for file in (before, after)]
    assert plans[0] == plans[1]
    assert len([line for line in plans[0] if "fault" in line]) >= 5
    assert _asked(again) == _asked(first["acks=all_1"]) != []
    assert after.replay == "ackproof replay runs/latest --case 'acks=all#1'"
