"""A test may be skipped on a user's machine. In CI each skip is a failure, by a mark, a fixture or the test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
SKIPPING = """
import pytest

@pytest.fixture
def lacking():
    pytest.skip("the tool is missing")

def test_by_a_fixture(lacking): ...

@pytest.mark.skipif(True, reason="needs root")
def test_by_a_mark(): ...

def test_by_itself():
    pytest.skip("no engine")

def test_that_runs(): ...
"""


@pytest.mark.parametrize(
    ("ci", "outcome"), [("", "1 passed, 3 skipped"), ("true", "1 failed, 1 passed, 2 errors")]
)
def test_what_skips_at_home_fails_in_ci(tmp_path: Path, ci: str, outcome: str) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    shutil.copy(TESTS / "conftest.py", folder)
    shutil.copy(TESTS.parent / "pyproject.toml", tmp_path)
    (folder / "test_skipping.py").write_text(SKIPPING, encoding="utf-8")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-c",
            os.devnull,
            f"--rootdir={folder}",
            folder,
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "CI": ci, "PYTHONPATH": str(TESTS / "support")},
    )
    assert outcome in done.stdout, done.stdout + done.stderr
    if ci:
        for reason in ("the tool is missing", "needs root", "no engine"):
            assert f"nothing skips when CI is set: Skipped: {reason}" in done.stdout
