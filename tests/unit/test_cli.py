"""The command line: each way in which a command can end has the exit code of docs/architecture.md."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ackproof.base.errors import BadInput, MissingTool, NodeDied
from ackproof.cli import main as cli

GOOD = "name: t\ntopics:\n  orders: {}\nworkload: {duration: 1s}\n"


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["run", "--help"], ["schema"]])
def test_help_is_0(words: list[str]) -> None:
    assert cli.main_code(words) == 0


@pytest.mark.parametrize(
    "words", [[], ["nonsense"], ["run"], ["run", "--seed", "x", "f"], ["run", "--repeat", "0", "f"]]
)
def test_usage_errors_are_254(words: list[str]) -> None:
    assert cli.main_code(words) == 254


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (BadInput("bad file"), 254, "bad file"),
        (MissingTool("java", "needed", "apt-get install openjdk-17-jre-headless"), 254, "apt-get install"),
        (ModuleNotFoundError("No module named 'kazoo'", name="kazoo"), 254, "package kazoo is missing"),
        (NodeDied("node 1 died"), 255, "node 1 died"),
        (KeyboardInterrupt(), 255, "interrupted"),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            255,
            "a disk is full: No space left on device. df -h",
        ),
        (OSError(errno.EIO, "Input/output error", "/x"), 255, "/x: Input/output error\n"),
        (ZeroDivisionError("oops"), 255, "ZeroDivisionError: oops"),
    ],
)
def test_errors_have_their_codes(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    error: BaseException,
    code: int,
    said: str,
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("ackproof.run.options.plan_batch", fail)
    assert cli.main_code(["run", str(tmp_path / "x.yaml")]) == code
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""


def test_sigterm_is_an_interrupt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("ackproof.run.options.plan_batch", lambda _: signal.raise_signal(signal.SIGTERM))
    assert cli.main_code(["run", str(tmp_path / "x.yaml")]) == 255
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plan", "x.yaml", "--seed", "1", "--seed=2"], "--seed is given 2 times"),
        (["explain", "runs/latest", "--case", "a#1", "--case", "b#1"], "--case is given 2 times"),
        (["run", "x.yaml", "--simulate", "--no-simulate"], "--simulate is given 2 times"),
        (["plan", "x.yaml", "--set", "a=1", "--set", "b=2", "--case", "a", "--case", "b"], "x.yaml"),
        (["validate", "x.yaml", "--json", "--json"], "x.yaml"),
    ],
)
def test_an_option_of_one_value_is_refused_where_it_is_given_twice(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main_code(words) == 254
    captured = capsys.readouterr()
    assert said in captured.err
    assert ("given" in captured.err) == ("given" in said)


def test_validate_looks_at_every_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad, worse = (tmp_path / name for name in ("good.yaml", "bad.yaml", "worse.yaml"))
    good.write_text(GOOD)
    bad.write_text(GOOD.replace("orders", "or ders"))
    worse.write_text(GOOD.replace("duration", "durration"))
    assert cli.main_code(["validate", str(good)]) == 0
    assert cli.main_code(["validate", str(bad), str(worse), str(good)]) == 254
    captured = capsys.readouterr()
    assert f"{bad}:3:" in captured.err
    assert f"{worse}:4:" in captured.err
    assert f"{good}: valid, 1 case" in captured.out


def test_validate_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`validate --json` prints one list with the errors and warnings of all files, also for valid files."""
    good, bad, doubtful = (tmp_path / name for name in ("good.yaml", "bad.yaml", "doubtful.yaml"))
    good.write_text(GOOD)
    bad.write_text(GOOD.replace("duration: 1s", "duration: 1"))
    doubtful.write_text(GOOD + "faults:\n  - kill: broker\n    when: lag(orders/0) > 9\n")

    def told(*files: Path) -> tuple[int, list[dict[str, object]]]:
        code = cli.main_code(["validate", "--json", *map(str, files)])
        return code, json.loads(capsys.readouterr().out)

    assert told(good) == (0, [])
    code, (warning,) = told(good, doubtful)
    assert (code, warning["severity"], warning["line"], warning["column"]) == (0, "warning", 7, 11)
    code, problems = told(bad, tmp_path / "gone.yaml", doubtful)
    assert code == 254
    assert [(one["severity"], one["line"]) for one in problems] == [
        ("error", 4),
        ("error", None),
        ("warning", 7),
    ]
    assert problems[0] == {
        "file": str(bad),
        "line": 4,
        "column": 22,
        "path": "workload.duration",
        "severity": "error",
        "message": "the number 1 lacks a unit",
        "hint": "write e.g. 5s (or 1ms)",
    }
    assert problems[1]["message"] == "cannot be read: No such file or directory"


def test_plan_shows_every_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(
        GOOD + "matrix:\n  workload.producers.acks: [1, all]\n"
        "faults:\n  - kill: {target: broker}\n    at: 1s\n    restart_after: 2s\n"
    )
    assert cli.main_code(["plan", str(file)]) == 0
    out = capsys.readouterr().out
    assert "acks=1#1" in out
    assert "acks=all#1" in out
    assert "kill broker [drawn: " in out
    assert cli.main_code(["plan", str(file), "--case", "acks=all#1"]) == 0
    assert "acks=1#1" not in capsys.readouterr().out
    assert cli.main_code(["plan", str(file), "--case", "acks=2"]) == 254


def test_list_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main_code(["list", "--out", str(tmp_path / "none"), "--json"]) == 0
    assert '"batches": []' in capsys.readouterr().out
    assert cli.main_code(["list", "--out", str(tmp_path / "none")]) == 0
    assert "none: no batches here" in " ".join(capsys.readouterr().out.split())


def test_an_interrupt_after_the_answer_changes_no_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "main_code", lambda *_: 2)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))  # `entry` adds a finder that hides pandas
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as ended:
            cli.entry()
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.value.code == 2


def test_a_folder_without_a_batch_is_told_where_one_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = tmp_path / "runs" / "latest" / "case_1"
    case.mkdir(parents=True)
    assert cli.main_code(["report", str(case)]) == 254
    assert "no batch.json there; give a batch such as runs/latest" in capsys.readouterr().err
    (case.parent / "batch.json").write_text("{}")
    for command, given in (("report", case), ("judge", tmp_path / "runs"), ("report", tmp_path / "runs")):
        assert cli.main_code([command, str(given)]) == 254
        assert capsys.readouterr().err.endswith(f": ackproof {command} {case.parent}\n"), command
    assert cli.main_code(["judge", str(tmp_path / "nothing")]) == 254
    assert "no such folder" in capsys.readouterr().err


def test_a_case_that_was_never_audited_is_told_what_comes_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "case.json").write_text("{}")
    assert cli.main_code(["judge", str(tmp_path)]) == 254
    assert capsys.readouterr().err.endswith(f"first: ackproof audit {tmp_path}\n")


def test_a_locale_without_arrows_ends_no_command(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(GOOD)
    done = subprocess.run(
        [sys.executable, "-c", "from ackproof.cli.main import entry; entry()", "plan", str(file)],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert b"topics (partitions " in done.stdout


HURRIED = """
import os, signal, sys
from ackproof.cli.start import entry
class Hurry:
    def find_spec(self, name, path=None, target=None):
        if name == {at!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Hurry())
entry()
"""


@pytest.mark.parametrize(
    ("at", "code", "said"),
    [
        ("ackproof.cli.main", -signal.SIGINT, b""),  # which a shell calls 130
        (
            "ackproof.plan.cases",
            255,
            b"ackproof: interrupted: everything was stopped, what was recorded is kept",
        ),
    ],
)
def test_ctrl_c_while_the_command_loads_ends_it_in_silence(
    tmp_path: Path, at: str, code: int, said: bytes
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(GOOD)
    command = [sys.executable, "-c", HURRIED.format(at=at), "validate", str(file)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=120)
    assert (done.returncode, done.stderr.strip()) == (code, said)


def test_who_ignores_ctrl_c_goes_on_ignoring_it(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(GOOD)
    words = [sys.executable, "-c", HURRIED.format(at="ackproof.cli.main"), "validate", str(file)]
    command = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *words]
    assert subprocess.run(command, capture_output=True, check=False, timeout=120).returncode == 0


def test_an_interrupt_says_where_what_was_recorded_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt = KeyboardInterrupt()
    interrupt.add_note("in runs/x")

    def fail(*_: object) -> None:
        raise interrupt

    monkeypatch.setattr("ackproof.run.options.plan_batch", fail)
    assert cli.main_code(["run", "x.yaml"]) == 255
    assert "what was recorded is kept in runs/x" in capsys.readouterr().err
