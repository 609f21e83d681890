"""Tests of the code's structure: layers, light imports, one module that prints, no paths of a machine."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("pyspark", "confluent_kafka", "kafka", "pyarrow", "numpy", "pydantic", "jinja2", "docker")


def test_layers() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "program", ["import ackproof", "from ackproof.cli.main import main_code; main_code(['--help'])"]
)
def test_light_imports(program: str) -> None:
    """`import ackproof` and `ackproof --help` must not load the libraries in `HEAVY`."""
    check = f"{program}\nimport sys\nsys.stderr.write(' '.join(m for m in {HEAVY!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_plans_are_light() -> None:
    """Reading an experiment, with every kind of fault, must not load a library that only a run needs."""
    heavy = ("confluent_kafka", "kafka", "docker", "kazoo", "psutil", "pyarrow", "numpy")
    program = "import ackproof.plan\nfrom ackproof.faults.registry import fault_kinds\nassert fault_kinds()"
    check = f"{program}\nimport sys\nsys.stderr.write(' '.join(m for m in {heavy!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def _tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [ROOT / name for name in listed.decode().split("\0") if name]


def test_no_paths_of_a_machine() -> None:
    """No committed file may name a folder of the machine on which it was written."""
    suspicious = re.compile(r"/(?:root|home/(?!bin)[a-z]+|work|Users/[A-Za-z]+)/")
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in _tracked()
        if path.suffix
        in {".py", ".md", ".toml", ".yaml", ".yml", ".cfg", ".lock", ".html", ".css", ".js", ""}
        and path.is_file()
        and path != Path(__file__)
        for match in [suspicious.search(path.read_text(encoding="utf-8", errors="replace"))]
        if match
    ]
    assert found == []


def test_files_are_small_enough_to_read() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in _tracked()
        if path.suffix == ".py"
        and path.is_file()
        and (lines := len(path.read_text("utf-8").splitlines())) > 400
    }
    assert long == {}
