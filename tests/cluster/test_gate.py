"""Tests of the GitHub Action: its steps run on a clone with real brokers, for PASS, FAIL, INCONCLUSIVE and an invalid
file."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import stub_gh
from local_action import Job, LocalAction

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
KEEPS = """\
name: keeps
cluster: {brokers: 1, combined: true}
topics: {events: {replication_factor: 1}}
workload: {producers: {rate: 500/s}, duration: 500ms}
expect:
  - lost: 0
"""
LOSES = """\
name: loses
cluster: {brokers: 3, controllers: 1, timing: script}
topics:
  orders: {assignment: [[1, 2, 3]], config: {min.insync.replicas: 1}}
workload:
  producers: {count: 1, acks: 1, value_size: 100B}
  consumers: {live: 0}
  duration: 1s
faults:
  - script:
      steps:
        - {send: 0, then: {ends: {1: 1, 2: 0, 3: 0}, acked: 1}}
        - {fetch: 2, then: {ends: {1: 1, 2: 1, 3: 0}}}
        - {fetch: 3, then: {ends: {1: 1, 2: 1, 3: 1}}}
        - {send: 0, times: 2, then: {ends: {1: 3, 2: 1, 3: 1}, acked: 3}}
        - kill: 1
        - {end_session: 1, then: {leader: 2, epoch: 1, isr: [2, 3]}}
    at: 0s
expect:
  - lost: 0
"""
"""Experiment that must FAIL: acks=1 loses the two records that no follower has, and `expect` demands none."""
SHOWS_NOTHING = KEEPS.replace("keeps", "shows-nothing").replace("lost: 0", 'lost: "> 0"')
INVALID = KEEPS.replace("keeps", "invalid").replace("brokers: 1", "brokerz: 1")
Act = Callable[..., Job]


@pytest.fixture(scope="module")
def comments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """File for the comments on the pull request."""
    return tmp_path_factory.mktemp("github") / "comments.json"


@pytest.fixture(scope="module")
def act(tmp_path_factory: pytest.TempPathFactory, comments: Path) -> Act:
    """Function that runs the action of a clone in a folder with the experiments. The action installs the clone once."""
    folder = tmp_path_factory.mktemp("action")
    clone, workspace, tools = folder / "clone", folder / "workspace", folder / "tools"
    # As a clone has it, with what is not committed yet.
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout.decode()
    for name in listed.rstrip("\0").split("\0"):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, clone / name)
    for made in (workspace / "ours", tools, folder / "temp"):
        made.mkdir(parents=True)
    for name, text in (
        ("keeps", KEEPS),
        ("loses", LOSES),
        ("shows-nothing", SHOWS_NOTHING),
        ("invalid", INVALID),
    ):
        (workspace / "ours" / f"{name}.yaml").write_text(text, "utf-8")
    (tools / "gh").write_text(f'#!/bin/bash\nexec {sys.executable} {stub_gh.__file__} "$@"\n', "utf-8")
    (tools / "gh").chmod(0o755)

    def run(**given: str) -> Job:
        path = f"{tools}:{Path(sys.executable).parent}:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        environment = {"PATH": path, "GH_COMMENTS": str(comments), "NO_COLOR": "1"}
        used = {"python": {"python-path": sys.executable}, "upload": {"artifact-url": "https://reports"}}
        github = {"github.event.pull_request.number": "7"}
        return LocalAction(clone, workspace, folder / "temp", github, used, environment).run(**given)

    return run


def _log(job: Job) -> str:
    return "\n".join(step.log for step in job.steps.values())


@pytest.mark.nightly  # a FAIL is asked for with every push
def test_a_pass_on_the_current_kafka_and_on_a_candidate(act: Act) -> None:
    job = act(experiments="ours/keeps.yaml", kafka="4.3.1\n4.4.0\n")
    assert job.code == 0, _log(job)
    assert (job.outputs["verdict"], job.outputs["lost"], job.outputs["exit-code"]) == ("PASS", "0", "0")
    reports = [Path(line) for line in job.outputs["report"].splitlines()]
    assert [one.name for one in reports] == ["report.html", "report.html", "compared.html"]
    assert all("<html" in one.read_text("utf-8") for one in reports)
    assert job.steps["gate"].commands == []
    assert job.summary.startswith(
        "## ✅ PASS: Kafka 4.3.1: 1 check passed; Kafka 4.4.0: 1 check passed.\n\n"
        "| check | Kafka 4.3.1 | Kafka 4.4.0 | why |\n| --- | --- | --- | --- |\n"
        r"| keeps | ✅ PASS, 0 lost | ✅ PASS, 0 lost |  |"
    ), job.summary
    assert job.steps["comment on the pull request"].skipped


@pytest.mark.nightly  # a FAIL is asked for with every push
def test_an_expectation_that_is_not_shown_is_inconclusive(act: Act) -> None:
    job = act(experiments="ours/shows-nothing.yaml")
    assert (job.code, job.outputs["verdict"], job.outputs["lost"]) == (2, "INCONCLUSIVE", "0"), _log(job)
    (command,) = job.steps["gate"].commands
    assert command.startswith(
        "::warning file=ours/shows-nothing.yaml,line=6,col=3,title=INCONCLUSIVE on Kafka "
    )
    assert job.summary.startswith("## ❓ INCONCLUSIVE: ")


@pytest.mark.nightly  # tests/lab/test_gate.py runs its steps with every push
def test_a_loss_that_is_not_expected_fails_and_is_told_in_one_comment(act: Act, comments: Path) -> None:
    job = act(experiments="ours/[kls]*.yaml", comment="true", out="gate out")
    assert (job.code, job.outputs["verdict"], job.outputs["lost"]) == (1, "FAIL", "2"), _log(job)
    assert sorted(command.partition(" on Kafka")[0] for command in job.steps["gate"].commands) == [
        "::error file=ours/loses.yaml,line=20,col=3,title=FAIL",
        "::warning file=ours/shows-nothing.yaml,line=6,col=3,title=INCONCLUSIVE",
    ]
    assert "1 check failed, 1 check ended inconclusive, 1 check passed." in job.summary
    assert "❌ FAIL, 2 lost" in job.summary
    (comment,) = json.loads(comments.read_text("utf-8"))
    assert job.summary in comment["body"]


@pytest.mark.nightly  # tests/lab/test_gate.py tells two pushes in one comment
def test_the_next_push_tells_in_the_same_comment_that_the_loss_is_gone(act: Act, comments: Path) -> None:
    assert act(experiments="ours/loses.yaml", comment="true", out="gate out").code == 1
    assert act(experiments="ours/keeps.yaml", comment="true", out="gate out").code == 0
    (comment,) = json.loads(comments.read_text("utf-8"))
    assert "## ✅ PASS" in comment["body"]
    assert "FAIL" not in comment["body"]


def test_an_invalid_file_starts_nothing(act: Act) -> None:
    job = act(experiments="ours/*.yaml")
    assert (job.code, job.outputs["verdict"]) == (254, "BAD_INPUT"), _log(job)
    (command,) = job.steps["gate"].commands
    assert command.startswith("::error file=ours/invalid.yaml,line=2,col=11,title=cluster.brokerz::")
    assert "case" not in job.steps["gate"].log.partition("::error")[0]
