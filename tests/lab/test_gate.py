"""`ackproof gate` without brokers: exit codes, the table, the cut of long summaries, annotations, and outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ackproof.audit.results import AuditResult
from ackproof.base.advice import Advice
from ackproof.cli.main import main_code
from ackproof.experiment.problems import Problem
from ackproof.run import conclude as concluding
from ackproof.rundir.documents import AuditFile, VerdictFile
from ackproof.rundir.lab import ComparisonFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import Verdict
from ackproof_lab.gate import gating
from ackproof_reports.gate import GateColumn, GateResult, annotation, output
from ackproof_reports.loading import load_batch
from local_action import read_outputs
from repeated import audited
from synthetic_batch import Recipe, make_batch
from synthetic_batch.recipes import ACKS

EXPERIMENT = """\
name: kept
backend: model
cluster: {brokers: 3}
topics: {orders: {replication_factor: 3}}
workload: {producers: {rate: 100/s, linger: 50ms}, duration: 1s}
matrix:
  workload.producers.acks: [1, all]
expect:
  - lost: 0
"""
INVALID = EXPERIMENT.replace("kept", "invalid").replace("brokers: 3", "brokerz: 3").replace("1s", "5q")
PASSED = Recipe({ACKS: "all"})
FAILED = Recipe({ACKS: 1}, lost=3, verdict=Verdict.FAIL, reasons=("lost: 3 | forbidden",))
OPEN = Recipe({ACKS: 0}, verdict=Verdict.INCONCLUSIVE, reasons=("no final read",))


def column(folder: Path, kafka: str, *recipes: Recipe, code: int = 0) -> GateColumn:
    batch = make_batch(folder / kafka, recipes)
    (batch / "summary.md").write_text("the batch's own\n", "utf-8")
    return GateColumn(kafka, code or load_batch(batch).file.exit_code, load_batch(batch))


# -- text -----------------------------------------------------------------------------------------------------------


def test_the_table_has_a_row_per_case_and_a_column_per_kafka(tmp_path: Path) -> None:
    current = column(tmp_path, "4.3.1", PASSED, replace(FAILED, lost=0, verdict=Verdict.PASS, reasons=()))
    result = GateResult([current, column(tmp_path, "4.4.0", PASSED, FAILED, OPEN)])
    first, _, *rest = result.summary(1 << 20).splitlines()
    assert first == (
        "## ❌ FAIL: Kafka 4.3.1: 2 checks passed; "
        "Kafka 4.4.0: 1 check failed, 1 check ended inconclusive, 1 check passed."
    )
    assert rest[:5] == [
        "| check | Kafka 4.3.1 | Kafka 4.4.0 | why |",
        "| --- | --- | --- | --- |",
        r"| acks\-matrix: acks=all | ✅ PASS, 0 lost | ✅ PASS, 0 lost |  |",
        r"| acks\-matrix: acks=1 | ✅ PASS, 0 lost | ❌ FAIL, 3 lost | lost: 3 \| forbidden |",
        r"| acks\-matrix: acks=0 | — | ❓ INCONCLUSIVE, 0 lost | no final read |",
    ]
    assert rest.count("the batch's own") == 2
    assert (result.exit_code, result.lost) == (1, "3")


@pytest.mark.parametrize("limit", [2_000, 65_000, 150_000])
def test_a_long_summary_is_cut_between_lines_and_says_so(tmp_path: Path, limit: int) -> None:
    many = [replace(PASSED, repeat=number, without=("folder",)) for number in range(1, 50 + limit // 50)]
    result = GateResult([column(tmp_path, "4.4.0", *many)])
    cut = result.summary(limit)
    assert len(cut.encode()) <= limit
    assert len(cut.encode()) > limit - 400
    assert cut.endswith(
        "\n\nThis summary is cut: GitHub does not show a longer one. The report has all of it.\n"
    )
    rows = [line for line in cut.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in rows)
    assert "<details>" not in cut
    assert "is cut" not in result.summary(1 << 20)


COMPARISON = ComparisonFile(batches=(), statistic="mean", confidence=0.95, fail_on="slower:20%")


@pytest.mark.parametrize(
    ("codes", "comparison", "code"),
    [
        ((0, 0), None, 0),
        ((0, 2), None, 2),
        ((2, 254), None, 254),
        ((254, 255), None, 255),
        ((255, 1), None, 1),
        ((0, 0), COMPARISON.model_copy(update={"broken": ("p99",), "told": 3}), 1),
        ((0, 0), COMPARISON.model_copy(update={"told": 3}), 0),
        ((0, 0), COMPARISON.model_copy(update={"untold": 9}), 2),
        ((0, 0), COMPARISON.model_copy(update={"untold": 9, "fail_on": ""}), 0),
        ((0, 1), COMPARISON.model_copy(update={"untold": 9}), 1),
    ],
)
def test_exit_code(codes: tuple[int, ...], comparison: ComparisonFile | None, code: int) -> None:
    result = GateResult([GateColumn("4.4.0", one) for one in codes], comparison)
    assert result.exit_code == code
    assert str(result).startswith(
        {0: "PASS:", 1: "FAIL:", 2: "INCONCLUSIVE:", 254: "BAD INPUT:", 255: "HARNESS FAILED:"}[code]
    )


def test_workflow_commands_are_escaped_by_the_rules_of_github() -> None:
    problem = Problem("a", 3, 7, "100%: a, b", Advice("50 %: a,\r\n::error::b"), severity="warning")
    assert annotation(problem, "a,b:c.yaml") == (
        "::warning file=a%2Cb%3Ac.yaml,line=3,col=7,title=100%25%3A a%2C b::50 %25: a,%0D%0A::error::b"
    )
    assert annotation(Problem("", 0, 0, "", Advice("no file")), "") == "::error title=ackproof::no file"
    hinted = Problem("a.yaml", 2, 1, "x", Advice("unknown", suggestion="y"))
    assert annotation(hinted, "a.yaml").endswith("::unknown (did you mean 'y'?)")


def test_outputs_keep_lines() -> None:
    text = output("report", "a\nverdict=PASS\nlost<<x") + output("lost", "") + output("verdict", "FAIL")
    assert read_outputs(text) == {"report": "a\nverdict=PASS\nlost<<x", "lost": "", "verdict": "FAIL"}


# -- the command ----------------------------------------------------------------------------------------------------

Go = Callable[..., tuple[int, dict[str, str], str, str]]


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Go:
    """Return a function that runs the command in GitHub's environment, on simulated runs. `fails`, `open_`: runs whose
    path contains this text get FAIL or INCONCLUSIVE."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(concluding, "judge_unwritten", lambda _: None)
    for name, text in (("kept.yaml", EXPERIMENT), ("invalid.yaml", INVALID)):
        Path(name).write_text(text, "utf-8")
    outputs, summary = tmp_path / "outputs", tmp_path / "step-summary.md"
    summary.write_text("before\n", "utf-8")
    for name, value in (
        ("ACTIONS", "true"),
        ("OUTPUT", outputs),
        ("STEP_SUMMARY", summary),
        ("WORKSPACE", tmp_path),
    ):
        monkeypatch.setenv(f"GITHUB_{name}", str(value))

    def run(*words: str, fails: str = "", open_: str = "") -> tuple[int, dict[str, str], str, str]:
        def verdict_of(run: Path) -> Verdict:
            if fails and fails in str(run):
                return Verdict.FAIL
            return Verdict.INCONCLUSIVE if open_ and open_ in str(run) else Verdict.PASS

        def audit(directories: list[Path], **_: object) -> list[AuditResult]:
            results = audited(directories)
            for directory in directories:
                if verdict_of(directory) is Verdict.FAIL:
                    file = CaseDir(directory).audit_json
                    AuditFile.load(file).model_copy(update={"counts": {"lost": 2}}).save(file)
            return results

        def judge(run: CaseDir) -> None:
            verdict = verdict_of(run.path)
            reasons = () if verdict is Verdict.PASS else ("because, 100%",)
            VerdictFile(verdict=verdict, reasons=reasons).save(run.verdict_json)

        monkeypatch.setattr(concluding.audit, "run", audit)
        monkeypatch.setattr(concluding, "run_stages", judge)
        capsys.readouterr()
        code = main_code(["gate", *words])
        told = read_outputs(outputs.read_text("utf-8")) if outputs.exists() else {}
        return code, told, capsys.readouterr().out, summary.read_text("utf-8")

    return run


def commands(log: str) -> list[str]:
    return [line for line in log.splitlines() if line.startswith("::")]


def test_a_pass(go: Go, tmp_path: Path) -> None:
    code, told, log, summary = go("kept.yaml", "--kafka", "4.3.1")
    assert (code, told["verdict"], told["lost"], told["exit-code"]) == (0, "PASS", "0", "0")
    (report,) = told["report"].splitlines()
    assert Path(report).is_file()
    assert Path(report).is_relative_to(tmp_path / "runs" / "gate" / "4.3.1")
    assert commands(log) == []
    assert summary.startswith("before\n## ✅ PASS: Kafka 4.3.1: 2 checks passed.\n")
    assert (tmp_path / "runs/gate/summary.md").read_text("utf-8") == summary.removeprefix("before\n")


def test_a_candidate_that_fails_is_annotated_where_the_file_expects(go: Go) -> None:
    code, told, log, summary = go(
        "kept.yaml", "--kafka", "4.3.1", "--kafka", "4.4.0", fails="4.4.0", open_="acks=all"
    )
    assert (code, told["verdict"], told["lost"]) == (1, "FAIL", "4")
    assert [Path(line).name for line in told["report"].splitlines()] == [
        "report.html",
        "report.html",
        "compared.html",
    ]
    assert commands(log) == [
        "::warning file=kept.yaml,line=9,col=3,title=INCONCLUSIVE on Kafka 4.3.1::kept: acks=all: because, 100%25",
        "::error file=kept.yaml,line=9,col=3,title=FAIL on Kafka 4.4.0::"
        "kept: acks=1: because, 100%25%0Akept: acks=all: because, 100%25",
    ]
    assert "| kept: acks=1 | ✅ PASS, 0 lost | ❌ FAIL, 2 lost | because, 100% |" in summary
    compared = ComparisonFile.load(Path("runs/gate/compared.json"))
    assert [batch.directory for batch in compared.batches] == ["Kafka 4.3.1", "Kafka 4.4.0"]


def test_inconclusive(go: Go) -> None:
    code, told, log, _ = go("kept.yaml", open_="acks=1")
    assert (code, told["verdict"]) == (2, "INCONCLUSIVE")
    assert len(commands(log)) == 1


def test_invalid_files_are_annotated_and_nothing_runs(go: Go) -> None:
    code, told, log, summary = go(
        "kept.yaml", "invalid.yaml", "gone.yaml", "--kafka", "4.3.1", "--kafka", "4.4.0"
    )
    assert (code, told["verdict"], told["report"], told["lost"]) == (254, "BAD_INPUT", "", "")
    assert [line.rpartition("::")[0] for line in commands(log)] == [
        "::error file=invalid.yaml,line=3,col=11,title=cluster.brokerz",
        "::error file=invalid.yaml,line=5,col=62,title=workload.duration",
        "::error file=gone.yaml,line=1,col=1,title=ackproof",
    ]
    assert "## ⚠️ BAD INPUT: Kafka 4.3.1: nothing ran; Kafka 4.4.0: nothing ran." in summary
    assert "- gone.yaml: cannot be read" in summary
    assert not Path("runs/gate/4.3.1").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "give experiment files"),
        (("kept.yaml", "--fail-on", "slower:20%"), "--kafka twice or more with --fail-on"),
        (
            ("kept.yaml", "--kafka", "4.3.1", "--kafka", "4.4.0", "--fail-on", "slow"),
            "--fail-on: expected slower:20%",
        ),
        (("kept.yaml", "--kafka", "4.3.1", "--kafka", "44"), "44"),
        (("kept.yaml", "--case", "acks=2"), "no case is called 'acks=2'"),
    ],
)
def test_bad_input_is_told_on_the_page_too(go: Go, words: tuple[str, ...], why: str) -> None:
    code, told, log, summary = go(*words)
    assert (code, told["verdict"]) == (254, "BAD_INPUT")
    (command,) = dict.fromkeys(commands(log))
    assert why in command
    assert not Path("runs/gate/4.3.1").exists()
    assert why.split(":")[0].replace("-", r"\-") in summary


def test_a_harness_failure_leaves_what_the_other_kafka_came_to(
    go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = gating.run_batch

    def fail(planned: gating.PlannedBatch, view: object) -> object:
        if "4.4.0" in str(planned.options.out):
            raise OSError("no space left")
        return real(planned, view)  # type: ignore[arg-type]

    monkeypatch.setattr(gating, "run_batch", fail)
    code, told, log, summary = go("kept.yaml", "--kafka", "4.3.1", "--kafka", "4.4.0")
    assert (code, told["verdict"], told["lost"]) == (255, "HARNESS_FAILED", "0")
    assert commands(log) == ["::error title=ackproof::OSError: no space left"]
    assert "Kafka 4.3.1: 2 checks passed; Kafka 4.4.0: nothing ran." in summary
    assert "OSError: no space left" in summary


def test_without_github_it_says_the_same_in_plain_lines(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ACTIONS", "OUTPUT", "STEP_SUMMARY", "WORKSPACE"):
        monkeypatch.delenv(f"GITHUB_{name}")
    code, told, log, summary = go("kept.yaml", fails="acks=1")
    assert (code, told, summary) == (1, {}, "before\n")
    assert commands(log) == []
    assert "kept.yaml:9:3: FAIL on Kafka 4.4.0: kept: acks=1: because, 100%" in log


def test_fail_on_that_could_not_be_checked_is_inconclusive(go: Go) -> None:
    code, told, _, summary = go(
        "kept.yaml", "--kafka", "4.3.1", "--kafka", "4.4.0", "--fail-on", "slower:20%"
    )
    assert (code, told["verdict"]) == (2, "INCONCLUSIVE")
    assert "slower:20%: 0 broken, 0 checked" in summary
