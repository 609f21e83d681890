"""Batches without clusters: folders, exit code, the command that repeats a batch, the start of the next cluster."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from ackproof.audit.results import AuditResult
from ackproof.base.errors import BadInput, NodeDied
from ackproof.run import batch as room
from ackproof.run import conclude as concluding
from ackproof.run import extensions
from ackproof.run.batch import run_batch
from ackproof.run.batch_state import warn_of_same_names
from ackproof.run.conclude import conclude_again
from ackproof.run.options import BatchOptions, command_of, plan_batch, plan_cases
from ackproof.rundir.batch import BatchFile
from ackproof.rundir.documents import AuditFile, RecordCounts, VerdictFile
from ackproof.rundir.layout import BatchDir, CaseDir
from ackproof.rundir.outcome import Verdict, batch_exit_code, worst_exit_code
from ackproof.rundir.timeline import Event

YAML = "name: t\ntopics:\n  orders: {}\nworkload: {duration: 1s}\nmatrix:\n  workload.producers.acks: [0, 1, all]\n"


class Watcher:
    """Watcher that records each call as a text in `told`."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def case_begins(self, case: str, racks: str = "") -> None:
        self.told.append(f"begin {case}")

    def case_ends(self, case: str, error: str | None) -> None:
        self.told.append(f"end {case} {error}")

    def step(self, text: str) -> None:
        self.told.append(text)

    def add_cases(self, cases: int) -> None:
        self.told.append(f"{cases} more")

    def event(self, event: Event) -> None:
        self.told.append(str(event.kind))

    def live(self, acked: int, read: int, isr: str) -> None:
        self.told.append("live")


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([Verdict.PASS, Verdict.PASS], 0),
        ([Verdict.PASS, Verdict.INCONCLUSIVE], 2),
        ([Verdict.INCONCLUSIVE, None], 255),
        ([None, Verdict.FAIL, Verdict.INCONCLUSIVE], 1),
        ([None], 255),
        ([], 2),
    ],
)
def test_the_worst_verdict_wins(verdicts: list[Verdict | None], code: int) -> None:
    assert batch_exit_code(verdicts) == code


@pytest.mark.parametrize(
    ("codes", "code"), [([0, 2], 2), ([2, 254], 254), ([254, 255], 255), ([255, 1], 1), ([], 0)]
)
def test_the_worst_code_wins(codes: list[int], code: int) -> None:
    assert worst_exit_code(codes) == code


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "an experiment.yaml"
    path.write_text(YAML)
    return path


class FakeRun:
    """Fake of `CaseRun`: records calls in `log`, makes the ledger folder, raises the case's exception in `errors`."""

    errors: ClassVar[dict[str, BaseException]] = {}
    log: ClassVar[list[str]] = []

    def __init__(self, case: Any, run: Any, options: Any, watcher: Any) -> None:
        self.case, self.options, self.run = case, options, run

    def __enter__(self) -> FakeRun:
        self.log.append(f"enter {self.case.id}")
        return self

    def __exit__(self, *_: object) -> None:
        self.log.append(f"exit {self.case.id}")

    def prepare(self) -> None:
        self.log.append(f"prepare {self.case.id}")

    def go(self) -> None:
        self.log.append(f"go {self.case.id}")
        self.run.ledger.mkdir(parents=True)
        self.options.healed()
        if error := self.errors.get(self.case.id):
            raise error


def audited(directories: list[Path], **_: object) -> list[AuditResult]:
    """Fake of the audit: writes for each run an `audit.json` with 5 acknowledged records and none lost."""
    counted = AuditFile(counts={"lost": 0}, records=RecordCounts(acked=5), complete=True)
    for directory in directories:
        counted.save(CaseDir(directory).audit_json)
    return [AuditResult(directory, counted, 0, ()) for directory in directories]


def judged(run: CaseDir) -> None:
    """Fake of `run_stages`: writes the verdict FAIL. Raises `BadInput` for a run whose folder has a file `broken`."""
    if (run.path / "broken").exists():
        raise BadInput("observed/final-read.json: not a FinalReadFile")
    VerdictFile(verdict=Verdict.FAIL, reasons=("lost: 1",)).save(run.verdict_json)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeRun]:
    monkeypatch.setattr(room, "CaseRun", FakeRun)
    monkeypatch.setattr(room, "install", lambda *_: None)
    monkeypatch.setattr(concluding, "render_batch", lambda _: None)
    monkeypatch.setattr(concluding.audit, "run", audited)
    monkeypatch.setattr(concluding, "run_stages", judged)
    monkeypatch.setattr(FakeRun, "errors", {})
    monkeypatch.setattr(FakeRun, "log", [])
    return FakeRun


def _run(file: Path, out: Path, watcher: Watcher) -> room.Batch:
    options = BatchOptions((file,), out=out)
    return run_batch(plan_batch(options), watcher)


def test_a_failed_case_does_not_stop_the_others(file: Path, tmp_path: Path, fake: type[FakeRun]) -> None:
    fake.errors = {"acks=1#1": NodeDied("node 2 died")}
    watcher = Watcher()
    done = _run(file, tmp_path / "runs", watcher)
    document = BatchFile.load(done.directory.batch_json)
    assert document.exit_code == 1
    assert [case.verdict for case in document.cases] == ["FAIL", None, "FAIL"]
    assert [case.error for case in document.cases] == [None, "node 2 died", None]
    assert [case.counts["acked"] for case in document.cases] == [5, 5, 5], "what it left is counted"
    assert [line for line in watcher.told if line.startswith("end")] == [
        "end acks=0#1 None",
        "end acks=1#1 node 2 died",
        "end acks=all#1 None",
    ]
    assert (tmp_path / "runs" / "latest").resolve() == done.directory.path


def test_a_case_that_is_refused_does_not_stop_the_others(
    file: Path, tmp_path: Path, fake: type[FakeRun]
) -> None:
    fake.errors = {"acks=0#1": BadInput("that topic is not yours")}
    cases = _run(file, tmp_path / "runs", Watcher()).document().cases
    assert [case.error for case in cases] == ["that topic is not yours", None, None]


def test_a_batch_whose_every_case_is_refused_is_bad_input(
    file: Path, tmp_path: Path, fake: type[FakeRun]
) -> None:
    fake.errors = {f"acks={acks}#1": BadInput("nobody answers") for acks in ("0", "1", "all")}
    with pytest.raises(BadInput, match=r"^nobody answers$"):
        _run(file, tmp_path / "runs", Watcher())
    document = BatchFile.load(tmp_path / "runs" / "latest" / "batch.json")
    assert {case.error for case in document.cases} == {"nobody answers"}


def test_a_case_that_cannot_be_judged_does_not_take_the_others_along(
    file: Path, tmp_path: Path, fake: type[FakeRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    def go(self: FakeRun) -> None:
        self.run.ledger.mkdir(parents=True)
        if self.case.id == "acks=1#1":
            (self.run.path / "broken").touch()

    monkeypatch.setattr(fake, "go", go)
    batch = _run(file, tmp_path / "runs", Watcher())
    for document in (batch.document(), conclude_again(batch.directory, lambda _: None)):
        assert [case.verdict for case in document.cases] == [Verdict.FAIL, None, Verdict.FAIL]
        assert "could not be judged: BadInput: observed/final-read.json" in str(document.cases[1].error)
        assert document.cases[1].counts["acked"] == 5
        assert document.exit_code == 1


def test_an_old_batch_is_concluded_as_a_new_one_is(
    file: Path, tmp_path: Path, fake: type[FakeRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = _run(file, tmp_path / "runs", Watcher())
    (done.planned[0].run.audit_json).unlink()
    told: list[str] = []
    again = conclude_again(BatchDir(done.directory.path), told.append)
    assert told == ["auditing 1 run", "writing the report"], "the others were counted before"
    assert again == done.document()


def test_a_case_that_cannot_be_audited_says_so(
    file: Path, tmp_path: Path, fake: type[FakeRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    def torn(directories: list[Path], **_: object) -> list[AuditResult]:
        first, *others = directories
        return [AuditResult(first, None, 254, ("a column is missing",)), *audited(others)]

    monkeypatch.setattr(concluding.audit, "run", torn)
    document = _run(file, tmp_path / "runs", Watcher()).document()
    assert [case.error for case in document.cases] == ["audit: a column is missing", None, None]
    assert [case.verdict for case in document.cases] == [None, Verdict.FAIL, Verdict.FAIL]


def test_nothing_is_simulated_unless_asked_for(
    file: Path, tmp_path: Path, fake: type[FakeRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    def simulated(run: CaseDir) -> None:
        if "acks=1" in run.path.name:
            raise ZeroDivisionError("oh")
        run.simulation_json.touch()

    stand_in = SimpleNamespace(simulate_beside=simulated)
    for module in (concluding, extensions):
        monkeypatch.setattr(module, "find_simulator", lambda: stand_in)
    plain = _run(file, tmp_path / "runs", Watcher())
    assert not any(one.run.simulation_json.exists() for one in plain.planned)
    watcher = Watcher()
    options = BatchOptions((file,), out=tmp_path / "runs", simulate=True)
    asked = run_batch(plan_batch(options), watcher)
    assert [one.run.simulation_json.exists() for one in asked.planned] == [True, False, True]
    assert "not simulated: acks=1_1: ZeroDivisionError: oh" in watcher.told
    assert asked.document().exit_code == plain.document().exit_code


def test_the_next_case_is_prepared_once_the_present_one_has_healed(
    file: Path, tmp_path: Path, fake: type[FakeRun]
) -> None:
    _run(file, tmp_path / "runs", Watcher())
    log = fake.log
    for earlier, later in (("acks=0#1", "acks=1#1"), ("acks=1#1", "acks=all#1")):
        assert log.index(f"go {earlier}") < log.index(f"enter {later}") < log.index(f"exit {earlier}")
        assert log.index(f"exit {earlier}") < log.index(f"go {later}")
    assert sorted(line for line in log if line.startswith("exit")) == [
        "exit acks=0#1",
        "exit acks=1#1",
        "exit acks=all#1",
    ]


def test_an_interrupt_ends_the_case_ahead_too_and_is_written_down(
    file: Path, tmp_path: Path, fake: type[FakeRun]
) -> None:
    fake.errors = {"acks=0#1": KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt) as interrupt:
        _run(file, tmp_path / "runs", Watcher())
    kept = (tmp_path / "runs" / "latest").resolve()
    assert interrupt.value.__notes__ == [f"in {kept}"], "the command says where"
    assert {"exit acks=0#1", "exit acks=1#1"} <= set(fake.log)
    assert "go acks=1#1" not in fake.log
    document = BatchFile.load(tmp_path / "runs" / "latest" / "batch.json")
    assert document.interrupted
    assert document.exit_code == 255


def test_the_command_repeats_exactly_this(file: Path) -> None:
    assert shlex.split(command_of(BatchOptions((file,)), 0)) == ["ackproof", "run", str(file), "--seed", "0"]
    options = BatchOptions(
        (file,), backend="model", repeat=2, settings=("workload.duration=2 s",), only=("acks=1",)
    )
    words = shlex.split(command_of(options, 7, only="acks=1,x='y'#1"))
    assert words[3:] == [
        *("--seed", "7", "--repeat", "2", "--backend", "model"),
        *("--set", "workload.duration=2 s", "--case", "acks=1,x='y'#1"),
    ]


def test_two_batches_in_one_second_have_folders_of_their_own(
    file: Path, tmp_path: Path, fake: type[FakeRun]
) -> None:
    folders = {_run(file, tmp_path / "runs", Watcher()).directory.path for _ in range(3)}
    assert len(folders) == 3


def test_a_file_called_latest_is_left_alone(file: Path, tmp_path: Path, fake: type[FakeRun]) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "latest").write_text("mine")
    _run(file, tmp_path / "runs", Watcher())
    assert (tmp_path / "runs" / "latest").read_text() == "mine"


def test_cases_of_several_files_do_not_share_folders(file: Path, tmp_path: Path, fake: type[FakeRun]) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(YAML.replace("name: t", "name: u"))
    options = BatchOptions((file, other), out=tmp_path / "runs")
    done = run_batch(plan_batch(options), Watcher())
    assert len({case.run for case in done.document().cases}) == 6
    assert {case.experiment for case in done.document().cases} == {"t", "u"}
    assert done.document().cases[0].title == f"t: {done.document().cases[0].case}"
    assert list(warn_of_same_names(plan_cases(options))) == []


def test_experiments_of_one_name_are_told_apart_by_their_files(
    file: Path, tmp_path: Path, fake: type[FakeRun]
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(YAML)
    options = BatchOptions((file, other), out=tmp_path / "runs")
    planned = plan_batch(options)
    assert list(warn_of_same_names(planned.cases)) == [
        f"{file} and {other} have the same experiment name, t: the report adds the file names"
    ]
    done = run_batch(planned, Watcher())
    assert {case.experiment for case in done.document().cases} == {f"t ({file.name})", "t (other.yaml)"}


def test_files_of_one_name_in_two_folders_are_told_apart_by_their_folders(
    tmp_path: Path, fake: type[FakeRun]
) -> None:
    files = (tmp_path / "old" / "t.yaml", tmp_path / "new" / "t.yaml")
    for one in files:
        one.parent.mkdir()
        one.write_text(YAML)
    options = BatchOptions(files, out=tmp_path / "runs")
    done = run_batch(plan_batch(options), Watcher())
    assert {case.experiment for case in done.document().cases} == {"t (old/t.yaml)", "t (new/t.yaml)"}


def test_the_cases_of_one_file_need_no_name_beside_their_own(
    file: Path, tmp_path: Path, fake: type[FakeRun]
) -> None:
    done = _run(file, tmp_path / "runs", Watcher())
    assert {case.title for case in done.document().cases} == {case.case for case in done.document().cases}


def test_an_unknown_case_is_bad_input(file: Path) -> None:
    with pytest.raises(BadInput, match="acks=7"):
        plan_cases(BatchOptions((file,), only=("acks=7",)))
