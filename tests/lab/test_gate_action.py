"""The steps of `action.yml`, run by a local runner: the command's arguments, the one comment, and the exit code."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import stub_gh
from local_action import Job, LocalAction, document

ROOT = Path(__file__).parents[2]
STUB = """\
#!{python}
import json, os, pathlib, sys
words = sys.argv[1:]
pathlib.Path("words.json").write_text(json.dumps(words))
code, out = int(os.environ["STUB_CODE"]), pathlib.Path(words[words.index("--out") + 1])
if os.environ.get("STUB_DIES"):
    sys.exit(code)
out.mkdir(exist_ok=True)
out.joinpath("comment.md").write_text(os.environ["STUB_TEXT"])
with open(os.environ["GITHUB_OUTPUT"], "a") as file:
    file.write(f"verdict<<end\\n{{os.environ['STUB_VERDICT']}}\\nend\\nexit-code<<end\\n{{code}}\\nend\\nlost<<end\\n3\\nend\\n")
    file.write("report<<end\\na.html\\nb.html\\nend\\n")
sys.exit(code)
"""
Act = Callable[..., Job]


@pytest.fixture
def act(tmp_path: Path) -> Act:
    """Return a function that runs the action's steps, with fakes of make, gh and ackproof."""
    tools, temp, workspace = (tmp_path / name for name in ("tools", "temp", "workspace"))
    for folder in (tools, temp / "ackproof" / "bin", workspace / "experiments"):
        folder.mkdir(parents=True)
    for name in ("b c.yaml", "a.yaml"):
        (workspace / "experiments" / name).touch()
    scripts = {
        tools / "make": '#!/bin/bash\nprintf "%s\\n" "$@"\n[ -z "$STUB_NO_MAVEN" ]\n',
        tools / "gh": f'#!/bin/bash\nexec {sys.executable} {stub_gh.__file__} "$@"\n',
        temp / "ackproof" / "bin" / "ackproof": STUB.format(python=sys.executable),
    }
    for file, text in scripts.items():
        file.write_text(text, "utf-8")
        file.chmod(0o755)

    def run(
        code: int = 0, verdict: str = "PASS", text: str = "the summary", pull: str = "", **more: str
    ) -> Job:
        environment = {name: more.pop(name) for name in list(more) if name.isupper()}
        given = {"experiments": "experiments/*.yaml", **more}
        github = {"github.event.pull_request.number": pull}
        action = LocalAction(
            ROOT,
            workspace,
            temp,
            github,
            {"upload": {"artifact-url": "https://reports"}, "python": {"python-path": "py"}},
        )
        path = f"{tools}:/usr/bin:/bin"
        words = {
            "PATH": path,
            "GH_COMMENTS": str(tmp_path / "comments.json"),
            "STUB_NO_MAVEN": "",
            **environment,
        }
        action.environment = {**words, "STUB_CODE": str(code), "STUB_VERDICT": verdict, "STUB_TEXT": text}
        return action.run(**given)

    return run


def words(tmp_path: Path) -> list[str]:
    found: list[str] = json.loads((tmp_path / "workspace" / "words.json").read_text("utf-8"))
    return found


def comments(tmp_path: Path) -> list[str]:
    return [one["body"] for one in json.loads((tmp_path / "comments.json").read_text("utf-8"))]


def test_inputs_are_words_of_the_command(act: Act, tmp_path: Path) -> None:
    job = act(
        experiments="experiments/*.yaml\ngone/*.yaml\n",
        kafka="4.3.1\n{path: ../kafka}\n",
        settings="workload.duration=5s\n",
        backend="docker",
        repeat="3",
        seed="7",
        fail_on="slower:20%",
        out="out here",
    )
    assert words(tmp_path) == [
        *("gate", "--out", "out here", "--kafka", "4.3.1", "--kafka", "{path: ../kafka}"),
        *("--set", "workload.duration=5s", "--backend", "docker", "--repeat", "3", "--seed", "7"),
        *("--fail-on", "slower:20%", "--", "experiments/a.yaml", "experiments/b c.yaml", "gone/*.yaml"),
    ]
    assert (job.code, job.outputs) == (
        0,
        {
            "verdict": "PASS",
            "lost": "3",
            "report": "a.html\nb.html",
            "exit-code": "0",
            "report-url": "https://reports",
        },
    )
    assert f"VENV={tmp_path / 'temp' / 'ackproof'}" in job.steps["install ackproof"].log
    assert "PYTHON=py" in job.steps["install ackproof"].log


def test_no_input_becomes_a_command(act: Act, tmp_path: Path) -> None:
    evil = '$(touch planted)"; touch planted; `touch planted` #'
    job = act(
        experiments=evil,
        kafka=evil,
        settings=evil,
        seed=evil,
        fail_on=evil,
        artifact=evil,
        comment="true",
        pull="7",
    )
    assert job.code == 0
    assert words(tmp_path).count(evil) == 5
    assert not (tmp_path / "workspace" / "planted").exists()


@pytest.mark.parametrize(
    ("code", "verdict"), [(0, "PASS"), (1, "FAIL"), (2, "INCONCLUSIVE"), (254, "BAD_INPUT")]
)
def test_it_ends_by_the_verdict_after_the_upload_and_the_comment(
    act: Act, tmp_path: Path, code: int, verdict: str
) -> None:
    job = act(code, verdict, comment="true", pull="7")
    assert (job.code, job.outputs["verdict"], job.steps["verdict"].code) == (code, verdict, code)
    assert job.steps["gate"].code == 0
    assert not job.steps["upload"].skipped
    assert job.steps["upload"].given["name"] == "ackproof"
    assert len(comments(tmp_path)) == 1


@pytest.mark.parametrize(
    ("died", "code", "verdict"),
    [(254, 254, "BAD_INPUT"), (137, 137, "HARNESS_FAILED"), (0, 255, "HARNESS_FAILED")],
)
def test_a_command_that_tells_nothing_is_no_pass(act: Act, died: int, code: int, verdict: str) -> None:
    job = act(died, STUB_DIES="1")
    assert (job.code, job.outputs["verdict"]) == (code, verdict)
    assert job.steps["gate"].commands == [f"::error title=ackproof::{verdict}: the log of this step says why"]
    assert job.summary == f"## {verdict}: the log of the step says why\n"


def test_an_installation_that_fails_runs_nothing(act: Act) -> None:
    job = act(STUB_NO_MAVEN="1")
    assert job.code == 1
    assert {name for name, step in job.steps.items() if step.skipped} == {
        *("gate", "upload", "comment on the pull request", "verdict"),
    }


def test_one_comment_is_created_and_then_updated(act: Act, tmp_path: Path) -> None:
    act(text="first", comment="true", pull="7")
    act(1, "FAIL", text="second", comment="true", pull="7")
    assert comments(tmp_path) == ["<!-- ackproof gate ackproof -->\nsecond\n[Reports](https://reports)\n"]
    act(text="another gate", comment="true", pull="7", artifact="night")
    assert [body.splitlines()[1] for body in comments(tmp_path)] == ["second", "another gate"]


def test_nobody_elses_comment_is_touched(act: Act, tmp_path: Path) -> None:
    theirs = {
        "id": 1,
        "body": "<!-- ackproof gate ackproof -->\nPASS",
        "user": {"type": "User", "login": "mallory"},
    }
    (tmp_path / "comments.json").write_text(json.dumps([theirs]), "utf-8")
    act(text="mine", comment="true", pull="7")
    act(text="mine again", comment="true", pull="7")
    assert [body.splitlines()[1] for body in comments(tmp_path)] == ["PASS", "mine again"]


@pytest.mark.parametrize(("comment", "pull"), [("false", "7"), ("true", "")])
def test_no_comment_unless_it_is_asked_for_on_a_pull_request(
    act: Act, tmp_path: Path, comment: str, pull: str
) -> None:
    assert act(comment=comment, pull=pull).steps["comment on the pull request"].skipped
    assert not (tmp_path / "comments.json").exists()


def test_a_token_that_may_not_comment_does_not_change_the_verdict(act: Act) -> None:
    job = act(2, "INCONCLUSIVE", comment="true", pull="7", GH_REFUSES="1")
    assert job.code == 2
    (warning,) = job.steps["comment on the pull request"].commands
    assert "pull-requests: write" in warning


def test_every_input_is_used_and_third_parties_are_pinned_as_in_ci() -> None:
    action, text = document(ROOT), (ROOT / "action.yml").read_text("utf-8")
    assert [name for name in action["inputs"] if f"inputs.{name} " not in text] == []
    ci = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    used = {step["uses"] for step in action["runs"]["steps"] if "uses" in step}
    assert {name for name in used if name not in ci} == {"actions/setup-java@v5"}
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", name) for name in used)


@pytest.mark.parametrize(
    ("planted", "instead", "why"),
    [
        ("${{ inputs.fail-on }}", "${{ inputs.failon }}", "nothing is called inputs.failon"),
        ("steps.gate.outputs.lost", "steps.gates.outputs.lost", "nothing is called steps.gates.outputs.lost"),
        ('"$OUT")\n', "${{ inputs.out }})\n", "takes inputs from the environment"),
    ],
)
def test_what_is_wrong_with_an_action_is_noticed(
    act: Act, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str, instead: str, why: str
) -> None:
    shutil.copy(ROOT / "action.yml", tmp_path)
    file = tmp_path / "action.yml"
    assert planted in file.read_text("utf-8")
    file.write_text(file.read_text("utf-8").replace(planted, instead), "utf-8")
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "run.lock").touch()
    (tmp_path / "harness/ackproof/provision/locks").mkdir(parents=True)
    (tmp_path / "harness/ackproof/provision/locks/a").touch()
    with pytest.raises(ValueError, match=why):
        act()
