"""Tests of the code's structure: layers, what the core's tests import, light imports, no paths of a machine, short
files."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
CORE_TESTS = ("audit", "browser", "cluster", "docker", "repo", "unit")
BESIDE_THE_CORE = {"ackproof_lab", "ackproof_model", "ackproof_reference", "ackproof_simulator"}
LAB_IN_AUDIT = {
    "audit/test_rolling.py": "holds the audits of a soak's windows against the audit's second implementation",
    "audit/test_session.py": "looks for private names of Spark in every package that uses Spark",
    "audit/test_views.py": "needs the one Spark session of the audit's tests",
}
"""Core tests that import packages beside the core, and why."""
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


def _imports(module: Path) -> set[str]:
    """Return the first word of each module that a module imports; of one of the tests' own folders, its name."""
    tree = list(ast.walk(ast.parse(module.read_text(encoding="utf-8"))))
    names = [alias.name for node in tree if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in tree if isinstance(node, ast.ImportFrom)]
    return {name.removeprefix("support.").partition(".")[0] for name in names}


def test_tests_of_the_core_import_nothing_beside_it() -> None:
    """Nor do the modules of `tests/support` that they use. `repeated` is forbidden too: it simulates its batches."""
    assert {path.parent.name for path in TESTS.glob("*/*.py")} == {*CORE_TESTS, "lab", "model", "support"}
    support: dict[str, set[str]] = {}
    for path in (TESTS / "support").rglob("*.py"):
        name = path.relative_to(TESTS / "support").parts[0].removesuffix(".py")
        support[name] = support.get(name, set()) | _imports(path)
    core = [path for folder in CORE_TESTS for path in (TESTS / folder).rglob("*.py")]
    found = set()
    for path in [TESTS / "conftest.py", *core]:
        known, new = set(), _imports(path)
        while new:
            known |= new
            new = set().union(*(support.get(name, set()) for name in new)) - known
        if known & {*BESIDE_THE_CORE, "lab", "model", "repeated"}:
            found.add(str(path.relative_to(TESTS)))
    assert found == set(LAB_IN_AUDIT)


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
