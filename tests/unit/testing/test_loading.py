"""The plugin in projects that have nothing to do with Kafka: quick, quiet, in nobody's way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HEAVY = ("pydantic", "pyspark", "confluent_kafka", "kafka", "pyarrow", "numpy", "docker", "ackproof_reports")
MOST_MS = 50.0


def _imported(times: str) -> dict[str, float]:
    """Modules of an `-X importtime` log, and the milliseconds that each took by itself."""
    found = {}
    for line in times.splitlines():
        if line.startswith("import time:") and "|" in line and "self [us]" not in line:
            own, _, name = line.removeprefix("import time:").split("|")
            found[name.strip()] = int(own) / 1000
    return found


def test_loading_takes_next_to_no_time() -> None:
    code = "import pytest, sys; sys.stderr.write('HERE\\n'); import ackproof.pytest_plugin"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True
    )
    loaded = _imported(done.stderr.partition("HERE\n")[2])
    assert "ackproof.pytest_plugin" in loaded
    assert sum(loaded.values()) < MOST_MS, loaded
    assert not [name for name in loaded if name.split(".")[0] in HEAVY]


def test_a_project_without_experiments_loads_nothing_of_it(tmp_path: Path) -> None:
    for folder in ("harness", "reports", "tests"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text(f"NAME = {folder!r}\n")
    (tmp_path / "compose.yaml").write_text("services: {}\ntopics: []\n")
    (tmp_path / "tests" / "broken.yml").write_text("a: [\n")
    (tmp_path / "tests" / "test_it.py").write_text(
        "import sys\nimport harness, reports\n"
        "def test_it():\n"
        "    assert (harness.NAME, reports.NAME) == ('harness', 'reports')\n"
        f"    assert 'ackproof.pytest_plugin' in sys.modules\n"
        f"    assert [name for name in {HEAVY!r} if name in sys.modules] == []\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", "-q", "--strict-markers"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert not (tmp_path / "runs").exists()


def test_markers_and_options_are_known() -> None:
    for words, said in ((["--markers"], "@pytest.mark.kafka(brokers=3"), (["--help"], "--ackproof-seed")):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words], capture_output=True, text=True, check=False
        )
        assert said in done.stdout
