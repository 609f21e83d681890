"""The night (`make nightly`): its jobs, their shards, and the problems that it reports, some of them planted."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from ackproof.base.errors import BadInput
from ackproof.experiment.kafka import NEWEST
from ackproof.plan import InvalidExperiment, cases, load
from ackproof.rundir.outcome import Verdict
from faultbench.table import Bite, Table
from mutation.mutate import ROOMS
from night.doing import do
from night.jobs import (
    CLAIMS,
    FAULT_TABLE,
    MUTANTS,
    PAIR_NIGHTS,
    PLANTED,
    SLOW_TESTS,
    Job,
    plan_night,
    shard_of,
)
from night.page import annotations, page
from night.results import EXPECTED, CaseResult, JobResult, ShardResult, expected_verdict
from nightly import main

ROOT = Path(__file__).resolve().parents[3]
DATE = datetime.date(2026, 11, 21)
PLAIN = (
    "name: {name}\ntopics: {{t: {{partitions: 1}}}}\nworkload: {{producers: {{count: 1}}, duration: 1s}}\n"
)


def _file(folder: Path, name: str, more: str = "") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(PLAIN.format(name=name) + more, encoding="utf-8")
    return path


def _result(**given: object) -> JobResult:
    values: dict[str, object] = {
        "name": "a on 4.3.1, process",
        "file": "experiments/a.yaml",
        "command": "ackproof run experiments/a.yaml",
        "control": False,
        "seconds": 3.0,
        "exit_code": 0,
        "bound_s": 100.0,
        "cases": (CaseResult(case="case#1", verdict="PASS", counts={"acked": 10}),),
    }
    return JobResult.model_validate(values | given)


def test_every_experiment_on_every_release_and_backend(tmp_path: Path) -> None:
    files = [_file(tmp_path, "a", "repeat: 3\n"), _file(tmp_path, "b")]
    night = plan_night(files, ["4.0.2", "4.3.1"], ["process"], DATE, slow_tests=True)
    assert [job.name for job in night.jobs] == [
        "a on 4.0.2, process",
        "a on 4.3.1, process",
        "b on 4.0.2, process",
        "b on 4.3.1, process",
        SLOW_TESTS,
        CLAIMS,
        FAULT_TABLE,
        PLANTED,
        *(MUTANTS + room for room in sorted(ROOMS)),
    ]
    assert night.jobs[0].weight == 3
    assert night.jobs[0].words == ("--set", "cluster.kafka=4.0.2", "--backend", "process")


def test_an_experiment_that_varies_the_release_runs_once(tmp_path: Path) -> None:
    file = _file(tmp_path, "a", 'matrix: {cluster.kafka: ["3.9.2", "4.3.1"]}\n')
    night = plan_night([file], ["4.0.2", "4.3.1"], ["process"], DATE, slow_tests=False)
    assert [(job.name, job.weight) for job in night.jobs] == [("a, process", 2), ("a, process, java", 2)]
    assert night.jobs[0].words == ("--backend", "process")


def test_with_java_clients_on_the_newest_release_on_processes(tmp_path: Path) -> None:
    files = [
        _file(tmp_path, "a"),
        _file(tmp_path, "b", 'matrix: {cluster.kafka: ["3.9.2", "4.4.0"]}\n'),
        _file(tmp_path, "c", "observe: {brokers: true}\n"),
    ]
    text = files[2].read_text(encoding="utf-8").replace("count: 1}", "count: 1}, consumers: {live: 1}")
    files[2].write_text(text, encoding="utf-8")
    night = plan_night(files, ["4.0.2", NEWEST[-1]], ["process", "docker"], DATE, slow_tests=False)
    java = [job for job in night.jobs if job.name.endswith("java")]
    assert [(job.name, job.weight) for job in java] == [
        (f"a on {NEWEST[-1]}, process, java", 1),
        ("b, process, java", 2),
    ]
    assert java[1].words == (
        *("--set", "workload.producers.client=java", "--set", "workload.consumers.client=java"),
        *("--backend", "process"),
    )
    assert ["observe.brokers" in one.why for one in night.refused if one.name.startswith("c")] == [True]


def test_what_a_release_does_not_have_is_refused_with_the_reason(tmp_path: Path) -> None:
    file = _file(tmp_path, "a", "cluster: {features: {eligible.leader.replicas.version: 1}}\n")
    night = plan_night([file], ["3.9.2", "4.3.1"], ["process"], DATE, slow_tests=False)
    assert [job.name for job in night.jobs] == ["a on 4.3.1, process"]
    assert [one.name for one in night.refused] == ["a on 3.9.2, process"]
    assert "eligible.leader.replicas.version" in night.refused[0].why


def test_a_broken_file_is_no_refusal(tmp_path: Path) -> None:
    with pytest.raises(InvalidExperiment, match="brokrs"):
        plan_night(
            [_file(tmp_path, "a", "cluster: {brokrs: 3}\n")], ["4.3.1"], ["process"], DATE, slow_tests=False
        )


def test_a_storm_takes_the_date_as_its_seed(tmp_path: Path) -> None:
    night = plan_night([_file(tmp_path, "storm-small")], ["4.3.1"], ["process"], DATE, slow_tests=False)
    assert night.jobs[0].words[-2:] == ("--seed", "20261121")


def test_pairs_of_faults_have_another_share_each_night(tmp_path: Path) -> None:
    menu = "{pause: 1, kill: 1, stop: 1, restart: 1, starve: 1, kill_client: 1}"
    head = "name: pairs\ntopics: {orders: {}}\nfaults:\n"
    file = tmp_path / "pairs.yaml"
    file.write_text(
        f"{head}  - storm: {{pairs: all, count: 2, menu: {menu}}}\n    at: 1s\n", encoding="utf-8"
    )
    shares = set()
    for night in range(PAIR_NIGHTS):
        date = DATE + datetime.timedelta(days=night)
        jobs = plan_night([file], NEWEST, ["process", "docker"], date, slow_tests=False).repeated(5).jobs
        assert [job.name.partition(" on ")[2] for job in jobs] == [
            "4.4.0, kraft",
            "3.9.2, kraft",
            "3.9.2, zookeeper",
        ]
        (share,) = {job.words[job.words.index("--shard") + 1] for job in jobs}
        shares.add(share)
        assert all(job.weight in (1, 2) and "--seed" not in job.words for job in jobs)
    assert len(shares) == PAIR_NIGHTS
    assert not plan_night([file], ["4.0.2"], ["process"], DATE, slow_tests=False).jobs


def test_five_out_of_five(tmp_path: Path) -> None:
    night = plan_night([_file(tmp_path, "a")], ["4.3.1"], ["process"], DATE, slow_tests=True).repeated(5)
    assert (night.jobs[0].weight, night.jobs[0].words[-2:]) == (5, ("--repeat", "5"))
    assert "--repeat" not in night.jobs[1].words


def test_a_fault_that_nobody_saw_on_a_backend_is_an_empty_cell() -> None:
    table = Table([Bite("kill target: leader(t/0)", "process", bit=True, healed=True, isr_back=True)])
    table.rows.append(Bite("pause target: leader(t/0)", "process", bit=True, healed=True, isr_back=False))
    refusals: dict[str, tuple[str, ...]] = {"kill": (), "pause": (), "clock": ("docker",)}
    assert table.missing(refusals, ["process", "docker"]) == [
        "clock on process",
        "kill on docker",
        "pause on process",
        "pause on docker",
    ]


def test_the_planted_bugs_go_round_in_a_week(tmp_path: Path) -> None:
    nights = [
        plan_night(
            [_file(tmp_path, "a")], ["4.3.1"], ["process"], DATE + datetime.timedelta(days), slow_tests=True
        )
        for days in range(7)
    ]
    jobs = [next(job for job in night.jobs if job.name == PLANTED) for night in nights]
    assert sorted(job.words for job in jobs) == [("--shard", f"{part}/7") for part in range(1, 8)]
    (tmp_path / "out").mkdir()
    result = do(jobs[0], tmp_path / "out", command=[sys.executable, "-c", "raise SystemExit(1)"])
    assert list(result.problems())


def test_changes_that_no_test_noticed_are_on_the_page(tmp_path: Path) -> None:
    said = "print('SURVIVED a.b__mutmut_1'); print('    -x < 1'); print('    +x <= 1'); print('3 killed, 1 survived')"
    job = Job(MUTANTS + "judge", 1, words=("judge",), module="tools.mutation.mutate")
    result = do(job, tmp_path, command=[sys.executable, "-c", said])
    assert result.survivors == ("a.b__mutmut_1 -x < 1 +x <= 1",)
    text = page([ShardResult(date="2026-11-21", shard="1/1", jobs=(result,))])
    assert "judge: 1 that no test noticed" in text
    assert "a.b" in text


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shards_hold_every_job_once_and_are_even(count: int) -> None:
    jobs = [Job(f"job {n}", weight=n % 5 + 1) for n in range(20)]
    shards = [shard_of(jobs, index, count) for index in range(1, count + 1)]
    assert sorted(job.name for shard in shards for job in shard) == sorted(job.name for job in jobs)
    weights = [sum(job.weight for job in shard) for shard in shards]
    assert max(weights) - min(weights) <= 5


@pytest.mark.parametrize("index", [0, 4])
def test_a_shard_that_is_none(index: int) -> None:
    with pytest.raises(BadInput, match="shards 1 to 3"):
        shard_of([], index, 3)


def test_a_good_job_has_no_problem() -> None:
    assert list(_result().problems()) == []


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ({"exit_code": None}, "did not end within 100 s"),
        ({"exit_code": 255}, "exit code 255"),
        ({"cases": ()}, "no case was run"),
        ({"left_behind": ("ended: 2",)}, "left behind: ended: 2"),
        ({"cases": (CaseResult(case="x#1", verdict="FAIL", reasons=("3 lost",)),)}, "x#1: FAIL: 3 lost"),
        (
            {"cases": (CaseResult(case="x#1", verdict=None, reasons=("it fell",)),)},
            "x#1: no verdict: it fell",
        ),
        ({"cases": (CaseResult(case="x#1", verdict="INCONCLUSIVE"),)}, "INCONCLUSIVE: no reason given"),
        (
            {"exit_code": 0, "cases": (CaseResult(case="x#1", verdict="PASS", expected="FAIL"),)},
            "x#1: PASS instead of FAIL: no reason given",
        ),
    ],
)
def test_what_is_wrong_with_a_job_is_said(planted: dict[str, object], said: str) -> None:
    assert any(said in problem for problem in _result(**planted).problems())


def test_a_verdict_that_the_catalogue_expects_is_no_problem() -> None:
    cases = (CaseResult(case="x#1", verdict="FAIL", expected="FAIL", reasons=("3 lost",)),)
    assert list(_result(exit_code=1, cases=cases).problems()) == []


def test_the_catalogue_names_verdicts_of_experiments_and_cases_that_exist() -> None:
    folder = EXPECTED.parent
    files = {
        file.stem: file
        for name in ("*.yaml", "reports/*.yaml", "groups/*.yaml")
        for file in folder.glob(name)
    }
    for experiment, patterns in json.loads(EXPECTED.read_text("utf-8")).items():
        ids = [case.id for case in cases(load(files[experiment]))]
        for pattern, verdict in patterns.items():
            assert verdict in set(Verdict)
            assert any(fnmatchcase(case, pattern) for case in ids), (experiment, pattern, ids)
    assert expected_verdict("patched-leader", "kafka=4.3.1#1") == "FAIL"
    assert expected_verdict("patched-leader", "kafka=4.3.1-patched#1") == "PASS"
    assert expected_verdict("baseline", "x#1") == "PASS"


def test_a_finding_is_wrong_in_the_control_and_not_elsewhere() -> None:
    cases = (CaseResult(case="x#1", verdict="PASS", counts={"lost": 2, "acked": 9, "surfaced": 1}),)
    assert list(_result(cases=cases).problems()) == []
    assert list(_result(cases=cases, control=True).problems()) == [
        "x#1: nothing was broken, and yet: 2 lost. A bug of the harness, or of Kafka"
    ]


def test_the_page_and_the_annotations_name_what_is_wrong() -> None:
    bad = _result(
        name="b, process",
        exit_code=1,
        cases=(CaseResult(case="x|1", verdict="FAIL", reasons=("100% lost\nall",)),),
    )
    shards = [
        ShardResult(
            date="2026-11-21", shard="1/2", jobs=(_result(),), refused=(("c on 3.9.2", "no such level"),)
        ),
        ShardResult(date="2026-11-21", shard="2/2", jobs=(bad,), refused=(("c on 3.9.2", "no such level"),)),
    ]
    text = page(shards)
    assert "2 jobs, 2 cases" in text
    assert "1 with a problem" in text
    assert text.count("no such level") == 1
    assert list(annotations(shards)) == [
        "::error file=experiments/a.yaml,line=1,title=b%2C process::x|1: FAIL: 100%25 lost%0Aall"
    ]
    assert [shard.well for shard in shards] == [True, False]


def test_a_night_without_a_job_is_not_well() -> None:
    assert not ShardResult(date="2026-11-21", shard="1/1", jobs=()).well


def test_a_job_that_hangs_is_ended_and_told(tmp_path: Path) -> None:
    """The time limit of a job is 60 s and `case_s` for each case; a negative `case_s` makes it short here."""
    hang = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(60)"]
    result = do(Job("hangs", weight=1, file=Path("a.yaml")), tmp_path, case_s=-59.0, command=hang)
    assert result.exit_code is None
    assert result.seconds < 30
    assert "here" in result.log_tail


def test_a_job_that_fails_keeps_its_last_words(tmp_path: Path) -> None:
    fail = [sys.executable, "-c", "import sys; print('no such thing'); sys.exit(254)"]
    result = do(Job("fails on 4.3.1", weight=1, file=Path("a.yaml")), tmp_path, command=fail)
    assert (result.exit_code, result.log_tail) == (254, "no such thing")
    assert list(result.problems()) == ["exit code 254"]


LISTED = ("--list", "--backends", "process", "--releases", "4.3.1", "--only", "baseline*")


def _night(*words: str | Path) -> int:
    """Run the command of the night in this process; return its exit code."""
    try:
        return main([str(word) for word in words])
    except SystemExit as end:
        assert isinstance(end.code, int)
        return end.code


def test_the_command_lists_and_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _night(*LISTED) == 0
    assert "baseline on 4.3.1, process" in capsys.readouterr().out
    assert _night("--shard", "5/4", *LISTED[-2:]) == 254
    assert _night("--wrong") == 254
    assert _night("--collect", tmp_path) == 254


def test_it_is_a_command() -> None:
    command = [sys.executable, ROOT / "tools/nightly.py", "--wrong"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 254


def test_shards_are_collected_into_one_page_and_one_exit_code(tmp_path: Path) -> None:
    for name, result in (("one", _result()), ("two", _result(name="b", exit_code=1))):
        (tmp_path / name).mkdir()
        shard = ShardResult(date="2026-11-21", shard=name, jobs=(result,))
        (tmp_path / name / "result.json").write_text(shard.model_dump_json(), encoding="utf-8")
    assert _night("--collect", tmp_path) == 1
    assert "2 jobs" in (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "one" / "result.json").read_text(encoding="utf-8"))["shard"] == "one"
    (tmp_path / "two" / "result.json").unlink()
    assert _night("--collect", tmp_path) == 0
