"""Tests that actionlint accepts the workflows of GitHub, and that these run the Makefile's commands."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from pages import Page

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"


def _actionlint(*files: Path) -> subprocess.CompletedProcess[str]:
    if not shutil.which("go"):
        pytest.skip("Go is missing, which fetches and runs actionlint")
    return subprocess.run(["go", "run", ACTIONLINT, *files], capture_output=True, text=True, check=False)


def test_actionlint_finds_nothing(tmp_path: Path) -> None:
    assert [file.name for file in WORKFLOWS] == ["ci.yml", "nightly.yml"]
    done = _actionlint(*WORKFLOWS)
    assert done.returncode == 0, done.stdout + done.stderr
    planted = tmp_path / "planted.yml"
    planted.write_text(
        WORKFLOWS[0].read_text(encoding="utf-8").replace("hashFiles", "hashFiels"), encoding="utf-8"
    )
    assert "hashFiels" in _actionlint(planted).stdout


def test_the_workflows_of_the_page_fit_the_action(tmp_path: Path) -> None:
    """actionlint compares a workflow's inputs with `action.yml` only if the action is in the same repository."""
    workflows = tmp_path / ".github" / "workflows"
    for folder in (tmp_path / ".git", workflows):
        folder.mkdir(parents=True)
    shutil.copy(ROOT / "action.yml", tmp_path)
    found = [block for block in Page(ROOT / "docs" / "gate.md").of("yaml") if "\njobs:" in block.text]
    files = [workflows / f"{number}.yml" for number in range(len(found))]
    for file, block in zip(files, found, strict=True):
        file.write_text(block.text.replace("OWNER/ackproof@main", "./"), encoding="utf-8")
    done = _actionlint(*files)
    assert (len(files), done.returncode) == (3, 0), done.stdout + done.stderr
    files[0].write_text(files[0].read_text("utf-8").replace("fail-on:", "failon:"), encoding="utf-8")
    assert 'input "failon" is not defined' in _actionlint(files[0]).stdout


@pytest.mark.parametrize(("file", "target"), [("ci.yml", ".ci/run"), ("nightly.yml", ".ci/run nightly")])
def test_a_workflow_runs_what_one_can_run_at_home(file: str, target: str) -> None:
    document = YAML(typ="safe").load((ROOT / ".github" / "workflows" / file).read_text(encoding="utf-8"))
    commands = [step.get("run") for job in document["jobs"].values() for step in job["steps"]]
    assert target in commands


def test_the_shards_of_the_night_are_all_there() -> None:
    document = YAML(typ="safe").load((ROOT / ".github/workflows/nightly.yml").read_text(encoding="utf-8"))
    night = document["jobs"]["night"]
    shards = night["strategy"]["matrix"]["shard"]
    step = next(step for step in night["steps"] if step.get("run") == ".ci/run nightly")
    assert shards == list(range(1, len(shards) + 1))
    assert f"/{len(shards)} " in step["env"]["NIGHT_ARGS"]
