"""Test that mypy accepts all packages. It runs with the other tests, because it takes longest of all checks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_types() -> None:
    mypy = Path(sys.executable).with_name("mypy")
    done = subprocess.run([mypy], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
