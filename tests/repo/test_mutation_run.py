"""Tests of the mutation run: the modules and tests that `tools/mutation` lists exist, and it finds no survivor in one
module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mutation.mutate import PACKAGES, ROOMS, ROOT, fate, tell


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_has_modules_and_tests(name: str) -> None:
    room = ROOMS[name]
    assert all(
        any(path for package in PACKAGES for path in (ROOT / package).parent.glob(module))
        for module in room.modules
    )
    assert all((ROOT / test).exists() for test in room.tests)


def test_fates_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [fate(code) for code in (0, 1, 3, 33, -24, None)] == [
        "survived",
        "killed",
        "killed",
        "that no test runs through",
        "stopped",
        "not tried",
    ]
    tell(tmp_path, {"a": 1, "b": 1, "c": None})
    assert capsys.readouterr().out == "2 killed, 1 not tried\n"


@pytest.mark.nightly
def test_a_module_whose_every_change_is_noticed(tmp_path: Path) -> None:
    """mutmut itself checks that all tests pass without a change."""
    words = [sys.executable, "-m", "tools.mutation.mutate", "reference", "--only", "metadata.py"]
    done = subprocess.run(
        [*words, "--folder", tmp_path, "--jobs", "2"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SURVIVED" not in done.stdout
    assert "killed" in done.stdout.splitlines()[-1]
