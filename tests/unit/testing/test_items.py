"""Experiment files as pytest tests, with a fake of runs, audit and verdicts."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import pytest

from ackproof.base.errors import MissingTool, NodeDied
from ackproof.run import batch_state as room
from ackproof.run.conclude import CaseResult
from ackproof.rundir.batch import BatchFile
from ackproof.rundir.documents import AuditFile, FinalReadFile, PartitionRead, RecordCounts, VerdictFile
from ackproof.rundir.outcome import Verdict
from ackproof.testing import items, ledger  # noqa: F401  - inner runs must not import them anew

pytest_plugins = ["pytester"]

EXPERIMENT = """\
name: t
topics:
  orders: {}
workload: {duration: 1s}
matrix:
  workload.producers.acks: [0, 1, all]
"""


class Backend:
    """Fake of runs, audit and verdicts. `verdicts`: by case, else PASS. `errors`: exceptions of runs by case. `ran`:
    (case, seed, whether data is kept) of each run. `where`: backends of the runs. `spark`: number of starts."""

    def __init__(self) -> None:
        self.verdicts: dict[str, Verdict] = {}
        self.errors: dict[str, BaseException] = {}
        self.ran: list[tuple[str, int, bool]] = []
        self.where: set[str] = set()
        self.spark = 0

    def run_case(self, case, run, orders, watcher) -> None:
        self.ran.append((case.id, case.experiment.seed, orders.keep_data))
        self.where.add(case.experiment.backend)
        if error := self.errors.get(case.id):
            raise error
        run.ledger.mkdir(parents=True)

    def conclude(self, runs, step, *, failed, simulate) -> list[CaseResult]:
        assert not simulate
        return [CaseResult(run) if run in failed else self._result(run) for run in runs]

    def _result(self, run) -> CaseResult:
        case = run.path.name.replace("_", "#")
        verdict = self.verdicts.get(case.split("-")[0], Verdict.PASS)
        reasons = () if verdict is Verdict.PASS else ("expected lost <= 0, counted 7",)
        counts = {"lost": 7 if reasons else 0}
        read = PartitionRead(
            topic="t", partition=0, start=0, end=9, epoch=0, epoch_after=0, position=9, complete=True
        )
        FinalReadFile(complete=True, partitions=(read,)).save(run.final_read)
        audit = AuditFile(counts=counts, records=RecordCounts(acked=100), complete=True)
        return CaseResult(run, audit, VerdictFile(verdict=verdict, reasons=reasons))

    def with_spark(self) -> None:
        self.spark += 1


def publish(directory, batch, step) -> None:
    batch.save(directory.batch_json)
    directory.report_html.write_text("report")


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Backend:
    fake = Backend()
    monkeypatch.setattr(items, "run_case", fake.run_case)
    monkeypatch.setattr(room, "conclude", fake.conclude)
    monkeypatch.setattr(items, "install", lambda _: SimpleNamespace(jars=SimpleNamespace(digests={})))
    monkeypatch.setattr(room, "publish", publish)
    monkeypatch.setattr(items.PluginSession, "with_spark", fake.with_spark)
    return fake


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    folder = pytester.mkdir("experiments")
    (folder / "acks.yaml").write_text(EXPERIMENT)
    (folder / "docker-compose.yml").write_text("services: {web: {}}\n")
    (folder / "topics.yaml").write_text("topics: [a]\ncluster: x\nport: 1\n")
    return pytester


def test_a_test_per_case(project: pytest.Pytester, backend: Backend) -> None:
    result = project.runpytest("experiments", "--collect-only", "-q")
    assert result.ret == 0
    result.stdout.fnmatch_lines([f"experiments/acks.yaml::acks={acks}#1" for acks in ("0", "1", "all")])
    assert backend.ran == []
    assert backend.spark == 0
    assert not (project.path / "runs").exists()


def test_what_is_expected_over_repeats_is_refused_and_not_passed_over(
    project: pytest.Pytester, backend: Backend
) -> None:
    expected = "expect: [{latency(p99): p95 < 6s}]\nrepeat: 2\n"
    (project.path / "experiments" / "acks.yaml").write_text(EXPERIMENT + expected)
    result = project.runpytest("experiments")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*latency(p99) p95 < 6s, acks=0: pytest cannot judge expectations over repeats*"]
    )
    assert backend.ran == []


@pytest.mark.parametrize(
    ("said", "where"), [("process", "process"), ("docker", "docker"), ("auto", "process")]
)
def test_a_case_runs_where_its_file_says(
    project: pytest.Pytester, backend: Backend, monkeypatch: pytest.MonkeyPatch, said: str, where: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{project.path}/no.sock")
    (project.path / "experiments" / "acks.yaml").write_text(f"{EXPERIMENT}backend: {said}\n")
    project.runpytest("experiments").assert_outcomes(passed=3)
    assert backend.where == {where}


def test_outcomes(project: pytest.Pytester, backend: Backend) -> None:
    backend.verdicts = {"acks=0#1": Verdict.INCONCLUSIVE, "acks=1#1": Verdict.FAIL}
    result = project.runpytest("experiments")
    result.assert_outcomes(passed=1, failed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*ERROR at setup of experiments/acks.yaml::acks=0#1*",
            "INCONCLUSIVE: t, acks=0#1",
            "  expected lost <= 0, counted 7",
            "counted: 100 acked, 0 failed, 0 indeterminate; lost 7",
            "run: runs/*-pytest/t/acks=0_1",
            "again: ackproof run experiments/acks.yaml --seed 0 --case 'acks=0#1'",
            "*FAILURES*",
            "FAIL: t, acks=1#1",
            "report: runs/*-pytest/report.html",
            "FAILED experiments/acks.yaml::acks=1#1*FAIL: t, acks=1#1",
            "ERROR experiments/acks.yaml::acks=0#1*INCONCLUSIVE*",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    (batch,) = project.path.glob("runs/*-pytest/batch.json")
    document = BatchFile.load(batch)
    assert [case.verdict for case in document.cases] == ["INCONCLUSIVE", "FAIL", "PASS"]
    assert document.exit_code == 1
    assert document.command == "pytest experiments" or document.command.startswith("pytest ")
    assert (project.path / "runs" / "latest").resolve() == batch.parent


def test_a_harness_that_fails_is_an_error_and_the_others_go_on(
    project: pytest.Pytester, backend: Backend
) -> None:
    backend.errors = {"acks=0#1": NodeDied("node 2 died by itself"), "acks=1#1": ZeroDivisionError("oh")}
    result = project.runpytest("experiments")
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(["no verdict: t, acks=0#1", "  node 2 died by itself"])
    result.stdout.fnmatch_lines(["  the harness failed: ZeroDivisionError: oh"])


def test_a_missing_tool_is_an_error_not_a_skip(
    project: pytest.Pytester, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(version: str) -> None:
        raise MissingTool("java", "no java", "apt-get install java")

    monkeypatch.setattr(items, "install", missing)
    result = project.runpytest("experiments")
    result.assert_outcomes(errors=3)
    result.stdout.fnmatch_lines(["  java is missing*"])
    assert not (project.path / "runs").exists()


def test_junit_has_verdict_seed_run_settings_and_replay(project: pytest.Pytester, backend: Backend) -> None:
    backend.verdicts = {"acks=0#1": Verdict.INCONCLUSIVE, "acks=1#1": Verdict.FAIL}
    project.runpytest("experiments", "--junitxml=junit.xml", "--ackproof-seed=9", "--ackproof-keep-data")
    cases = {case.get("name"): case for case in ET.parse(project.path / "junit.xml").iter("testcase")}
    assert set(cases) == {"acks=0#1", "acks=1#1", "acks=all#1"}
    for name, verdict, child in (("acks=0#1", "INCONCLUSIVE", "error"), ("acks=1#1", "FAIL", "failure")):
        said = {one.get("name"): one.get("value") for one in cases[name].iter("property")}
        assert said["ackproof.verdict"] == verdict
        assert said["ackproof.seed"] == "9"
        assert said["ackproof.replay"] == f"ackproof run experiments/acks.yaml --seed 9 --case '{name}'"
        assert said["ackproof.setting:workload.producers.acks"] == name[5]
        assert Path(said["ackproof.run"] or "").is_dir()
        assert cases[name].find(child) is not None
    assert [(seed, keep) for _, seed, keep in backend.ran] == [(9, True)] * 3


def test_last_failed_runs_what_failed_and_what_had_no_verdict(
    project: pytest.Pytester, backend: Backend
) -> None:
    backend.verdicts = {"acks=0#1": Verdict.INCONCLUSIVE, "acks=1#1": Verdict.FAIL}
    project.runpytest("experiments")
    backend.ran.clear()
    backend.verdicts = {}
    project.runpytest("experiments", "--lf").assert_outcomes(passed=2)
    assert [name for name, *_ in backend.ran] == ["acks=0#1", "acks=1#1"]


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        (["-k", "acks:all"], ["acks=all#1"]),
        (["-k", "acks and not all"], ["acks=0#1", "acks=1#1"]),
        (["experiments/acks.yaml::acks=1#1"], ["acks=1#1"]),
        (["-m", "not ackproof"], []),
    ],
)
def test_choosing(project: pytest.Pytester, backend: Backend, words: list[str], chosen: list[str]) -> None:
    project.runpytest("experiments" if words[0].startswith("-") else "-q", *words)
    assert [name for name, *_ in backend.ran] == chosen


def test_a_broken_experiment_is_told_with_line_and_column(project: pytest.Pytester, backend: Backend) -> None:
    (project.path / "experiments" / "bad.yaml").write_text(
        "name: t\ntopics:\n  orders: {partitons: 1}\nworkload: {duration: 1 parsec}\n"
    )
    result = project.runpytest("experiments", "--continue-on-collection-errors")
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*ERROR collecting experiments/bad.yaml*",
            "experiments/bad.yaml:3:12: topics.orders.partitons:*did you mean 'partitions'*",
            "experiments/bad.yaml:4:*: workload.duration:*",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")


def test_other_folder_for_batches(project: pytest.Pytester, backend: Backend) -> None:
    project.runpytest("experiments", "--ackproof-out=elsewhere").assert_outcomes(passed=3)
    assert list(project.path.glob("elsewhere/*-pytest/report.html"))
    assert not (project.path / "runs").exists()


def test_an_interrupt_is_written_down(project: pytest.Pytester, backend: Backend) -> None:
    backend.errors = {"acks=1#1": KeyboardInterrupt()}
    result = project.runpytest("experiments", no_reraise_ctrlc=True)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    (batch,) = project.path.glob("runs/*-pytest/batch.json")
    document = BatchFile.load(batch)
    assert document.interrupted
    assert [case.case for case in document.cases] == ["acks=0#1", "acks=1#1"]


def test_two_files_of_one_name_and_a_repeated_item_have_folders_of_their_own(
    project: pytest.Pytester, backend: Backend
) -> None:
    (project.path / "experiments" / "again.yml").write_text(EXPERIMENT)
    project.runpytest("experiments").assert_outcomes(passed=6)
    (batch,) = project.path.glob("runs/*-pytest/batch.json")
    assert len({case.run for case in BatchFile.load(batch).cases}) == 6


def test_without_a_cache_and_with_warnings_as_errors(project: pytest.Pytester, backend: Backend) -> None:
    project.runpytest("experiments", "-p", "no:cacheprovider", "-W", "error").assert_outcomes(passed=3)
