"""Output of `--json` for programs: paths of folders and reports, and the results of expectations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ackproof.audit.results import AuditResult
from ackproof.cli.options import batch_with_paths
from ackproof.cli.results import _result_with_paths
from ackproof.run.conclude import CaseResult, add_result
from ackproof.rundir.batch import BatchCase
from ackproof.rundir.documents import AuditFile, ExpectationJudged, VerdictFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import Verdict
from repeated import Go, repeated

GAP = "longest_gap(produce)"


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Go:
    return repeated(tmp_path, monkeypatch)


def test_a_batch_names_its_report_and_the_folders_of_its_repeats(go: Go) -> None:
    batch = go("{lost: 0}", repeat=2)
    told: Any = batch_with_paths(batch.document(), batch.location)
    assert json.loads(json.dumps(told)) == told
    folder = batch.directory.path.absolute()
    assert (told["directory"], told["report"]) == (str(folder), str(folder / "report.html"))
    assert [Path(case["directory"]).joinpath("case.json").exists() for case in told["cases"]] == [True] * 4


def test_a_repeat_carries_what_became_of_what_is_expected() -> None:
    seen = ExpectationJudged(quantity=GAP, bound="< 30s", seen="1.000 s", holds=True, low=1, high=1)
    verdict = VerdictFile(verdict=Verdict.PASS, reasons=(), expected=(seen,))
    entry = BatchCase(case="acks=1#1", settings={}, repeat=1, run="acks=1_1")
    assert add_result(entry, CaseResult(CaseDir(Path("none")), verdict=verdict)).expected == (seen,)


def test_an_audit_names_its_batch_and_measures_what_is_expected(go: Go, tmp_path: Path) -> None:
    batch = go(f"{{{GAP}: '< 30s', lost: 0, 'isr(orders/0)': 'always >= 1'}}", repeat=1)
    run = batch.planned[0].run
    file = AuditFile.load(run.audit_json)
    told: Any = _result_with_paths(AuditResult(run.path, file, 0, ()))
    assert (told["directory"], told["batch"]) == (
        str(run.path.absolute()),
        str(batch.directory.path.absolute()),
    )
    assert told["report"] == str(batch.directory.report_html.absolute())
    found = {one["quantity"]: one for one in told["expected"]}
    assert found.keys() == {GAP, "lost", "isr(orders/0)"}
    assert 0 < found[GAP]["low"] <= found[GAP]["high"] < 30
    assert (found["lost"]["low"], found["lost"]["high"]) == (0, 0)
    assert (found["isr(orders/0)"]["low"], found["isr(orders/0)"]["high"]) == (None, None)
    assert all(one["holds"] for one in found.values())
    alone: Any = _result_with_paths(AuditResult(tmp_path, file, 0, ()))
    assert (alone["batch"], alone["report"], alone["expected"]) == (None, None, [])
