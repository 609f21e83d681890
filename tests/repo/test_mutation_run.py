"""A whole mutation run over a package of a few lines: what is killed, what hangs, what survives, what shows nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ..mutation import exams
from ..mutation.exams import HUNG, SURVIVED, Exam, in_child

ROOT = Path(__file__).parents[2]
PACKAGE = """\
LIMIT = 2


def below(number):
    return number < LIMIT


def down(number):
    while number != 0:
        number -= 1
    return number


def unasked(number):
    return number + 1
"""
TESTS = """\
from tiny.core import below, down


def test_below():
    assert below(1) and not below(2)


def test_down():
    assert down(1) == 0
"""
RUN = """\
import sys
from tests.mutation import fates, rooms
from tests.mutation.mutate import main

folder = sys.argv.pop(1)
rooms.ROOMS["tiny"] = rooms.Room(
    "tiny", (f"{folder}/test_tiny.py",), root=folder, prefix="", modules=("core.py",), changes=rooms.DECIDED
)
fates.Asking.limit_s = lambda self, name: 1.0
sys.exit(main())
"""


def mutate(folder: Path, *options: str) -> tuple[int, str]:
    path = os.pathsep.join([str(ROOT), str(folder)])
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            RUN,
            str(folder),
            "tiny",
            "--jobs",
            "1",
            "--log",
            str(folder / "log"),
            *options,
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "__init__.py").touch()
    (tmp_path / "tiny" / "core.py").write_text(PACKAGE)
    (tmp_path / "test_tiny.py").write_text(TESTS)
    return tmp_path


def test_each_mutant_meets_its_fate(folder: Path) -> None:
    code, said = mutate(folder)
    assert code == 1, said
    assert "hung" in said.partition(" :: core.py: down: 1 → 2: number -= 1")[0].splitlines()[-1], said
    survivors = sorted(line.partition(": ")[2] for line in said.splitlines() if line.startswith("SURVIVED"))
    assert survivors == ["core.py: unasked: 1 → 2: number + 1", "core.py: unasked: operator: number + 1"], (
        said
    )
    # five killed: below's comparison, LIMIT (which is read at the import), and three of down
    assert "| core.py | 7 | 5 | 1 | 0 | 2 | 0 |" in said, said
    again = mutate(folder)
    assert again[0] == 1
    assert "0 of 7 mutants" in again[1]
    (folder / "test_tiny.py").write_text(TESTS + "\n\ndef test_all():\n    from tiny.core import unasked\n\n")
    with (folder / "test_tiny.py").open("a") as file:
        file.write("    assert unasked(1) == 2\n")
    code, said = mutate(folder, "--again", "survivors")
    assert code == 0, said
    assert "2 of 7 mutants" in said
    assert "| core.py | 7 | 7 | 1 | 0 | 0 | 0 |" in said


def test_nothing_is_shown_by_tests_that_fail_without_a_mutant(folder: Path) -> None:
    (folder / "test_tiny.py").write_text(TESTS.replace("below(1) and", "below(3) and"))
    code, said = mutate(folder)
    assert code == 1
    assert "without a mutant" in said
    assert "killed by" not in said
    assert not (folder / "log").exists()


def test_who_is_slow_is_waited_for_and_who_does_nothing_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that leaves a process little of its time, the clock on the wall says nothing of a mutant."""

    def slow(_: pytest.Item | None) -> bool:
        until = time.process_time() + 3
        while time.process_time() < until:
            pass
        return True

    def idle(_: pytest.Item | None) -> bool:
        signal.pause()
        return True

    monkeypatch.setattr(exams, "_WALL_S", 1)
    fates = [in_child([Exam("it", ask)], lambda _: 60.0).fate for ask in (slow, idle)]
    assert fates == [SURVIVED, HUNG]
