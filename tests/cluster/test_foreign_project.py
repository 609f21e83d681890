"""Tests of the pytest plugin in a foreign project: a wheel in a fresh environment, and folders with the names of this
repository's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from ackproof.base.processes import find_children

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")

PAGE = ROOT / "docs" / "pytest.md"
METHOD = re.compile(r"    def send\(.*?\n(?=\n)", re.DOTALL)
EXPERIMENT = """\
name: calm
cluster: {brokers: 1, combined: true}
topics: {events: {replication_factor: 1}}
workload: {producers: {rate: 500/s}, duration: 500ms}
matrix:
  workload.producers.acks: [1, all]
"""
FILES = {
    "pytest.ini": "[pytest]\nfilterwarnings = error\naddopts = --strict-markers --strict-config\npythonpath = .\n",
    "compose.yaml": "services: {}\ntopics: {}\n",
    "harness/__init__.py": "WHOSE = 'theirs'\n",
    "reports/__init__.py": "WHOSE = 'theirs'\n",
    "tests/__init__.py": "",
    "tests/values.yml": "topics: [\n",
    "tests/test_names.py": """\
        import ackproof, harness, reports, tests

        def test_nothing_of_theirs_is_ours():
            assert harness.WHOSE == reports.WHOSE == "theirs"
            assert "site-packages" in ackproof.__file__
        """,
    "experiments/calm.yaml": EXPERIMENT,
}


def _run(*words: str | Path, cwd: Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTEST_", "PYTHON", "VIRTUAL_ENV"))
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The interpreter of a fresh environment in which the wheel is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    steps: list[tuple[str | Path, ...]] = [
        (UV, "build", "--wheel", "--no-build-isolation", "--python", sys.executable, "-o", folder, ROOT),
        (UV, "venv", "--python", sys.executable, folder / "venv"),
    ]
    for step in steps:
        done = _run(*step, cwd=folder)
        assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("ackproof-*.whl")
    found = folder / "venv" / "bin" / "python"
    install = (
        UV,
        "pip",
        "install",
        "--python",
        found,
        "-c",
        ROOT / "requirements" / "dev.lock",
        wheel,
        "pytest",
        "pytest-xdist",
    )
    done = _run(*install, "--offline", cwd=folder)
    if done.returncode:  # the cache of uv is cold
        done = _run(*install, cwd=folder)
    assert done.returncode == 0, done.stderr
    archive = _run(
        found,
        "-c",
        "from ackproof.spark.driver import archive_path; from ackproof.provision.java import find_java\n"
        "print(archive_path(find_java()))",
        cwd=folder,
    )
    assert archive.returncode == 0, archive.stderr
    # An archive for the jars of this environment would be of no use without it: an empty one says that there is none.
    none = Path(archive.stdout.strip())
    none.parent.mkdir(parents=True, exist_ok=True)
    none.touch()
    yield found
    none.unlink(missing_ok=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))
    return folder


def examples_of_the_page() -> tuple[str, str]:
    """Return the page's example whose sender ignores errors, and the same with the corrected sender."""
    swallows, mended, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(METHOD.findall(swallows)) == 1
    return swallows, METHOD.sub(lambda _: mended, swallows)


@pytest.mark.nightly  # tests/cluster/test_plugin.py finds the same bug without an installation
def test_a_planted_delivery_bug_is_found_and_without_it_all_passes(python: Path, project: Path) -> None:
    words = (python, "-m", "pytest", "--basetemp", project / "tmp")
    swallows, mended = examples_of_the_page()
    orders = project / "tests" / "test_orders.py"
    orders.write_text(swallows)
    found = _run(*words, "tests", cwd=project)
    assert found.returncode == 1, found.stdout + found.stderr
    assert "1 failed, 1 passed" in found.stdout
    for said in ("order-50", "_MSG_TIMED_OUT", "swallowed: ", "kill leader(orders/0)", "-- broker-1"):
        assert said in found.stdout, found.stdout
    assert "lost: " not in found.stdout
    assert list(project.glob("tmp/*/kafka/ledger/produced/client=p0/part-*.parquet"))

    orders.write_text(mended)
    again = _run(*words, "tests", "--lf", cwd=project)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "1 passed" in again.stdout


def runs(python: Path, project: Path, *words: str, passed: int, verdicts: dict[str, str]) -> None:
    """Run pytest in the project; assert that it passes, with reports and these verdicts. `verdicts`: verdict by
    test."""
    _, mended = examples_of_the_page()
    (project / "tests" / "test_orders.py").write_text(mended)
    command = (python, "-m", "pytest", "--basetemp", project / "tmp", "--junitxml", "junit.xml")
    done = _run(*command, *words, cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{passed} passed" in done.stdout
    assert "report: runs/" in done.stdout
    reports = list(project.glob("runs/*-pytest*/report.html"))
    assert reports
    assert all(report.stat().st_size > 10_000 for report in reports)
    told = {}
    for case in ET.parse(project / "junit.xml").iter("testcase"):
        said = {one.get("name"): one.get("value") for one in case.iter("property")}
        if "ackproof.verdict" in said:
            told[case.get("name")] = said["ackproof.verdict"]
            assert said["ackproof.seed"] == "0"
            assert (Path(said["ackproof.run"] or "") / "verdict.json").exists()
    assert told == verdicts
    assert [child for child in find_children() if project in child.directory.parents] == []


def test_a_project_with_the_plugin_runs_a_test_and_an_experiment(python: Path, project: Path) -> None:
    words = ("-k", "theirs or acks:all")
    runs(python, project, *words, passed=2, verdicts={"acks=all#1": "PASS"})


@pytest.mark.nightly
def test_a_project_with_the_plugin_runs_its_tests_and_experiments_by_two_workers(
    python: Path, project: Path
) -> None:
    runs(python, project, "-n", "2", passed=4, verdicts={"acks=1#1": "PASS", "acks=all#1": "PASS"})
