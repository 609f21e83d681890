"""The pytest plugin in projects without Kafka: it loads quickly, prints nothing, and changes nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import median

HEAVY = ("pydantic", "pyspark", "confluent_kafka", "kafka", "pyarrow", "numpy", "docker", "ackproof_reports")
MOST_MS = 50.0


def _cpu_ms(module: str, folder: Path) -> tuple[float, list[str]]:
    """Return the ms of processor time that importing a module takes a new pytest process, and the modules loaded."""
    code = (
        "import pytest, sys, time\nbefore, began = set(sys.modules), time.process_time()\n"
        f"import {module}\ntook = time.process_time() - began\n"
        "print(took * 1000, *sorted(set(sys.modules) - before))"
    )
    words = [sys.executable, "-c", code]
    said = subprocess.run(words, capture_output=True, text=True, check=True, cwd=folder).stdout.split()
    return float(said[0]), said[1:]


def _cost(module: str, folder: Path, times: int) -> tuple[float, list[str]]:
    """Return by how many ms (median) an import takes longer than that of an empty module, and the modules that were
    loaded. `times`: number of measurements."""
    (folder / "bare.py").write_text("")
    rounds = [(_cpu_ms(module, folder), _cpu_ms("bare", folder)) for _ in range(times)]
    return median(own - bare for (own, _), (bare, _) in rounds), rounds[0][0][1]


def test_loading_takes_next_to_no_time(tmp_path: Path) -> None:
    cost, loaded = _cost("ackproof.testing.plugin", tmp_path, 5)
    assert cost <= MOST_MS
    assert "ackproof.testing.plugin" in loaded
    assert not [name for name in loaded if name.split(".")[0] in HEAVY]


def test_a_plugin_that_took_long_would_be_noticed(tmp_path: Path) -> None:
    (tmp_path / "heavy.py").write_text("import pydantic, ackproof.experiment.spec, ackproof.testing.plugin\n")
    cost, loaded = _cost("heavy", tmp_path, 1)
    assert cost > MOST_MS
    assert [name for name in loaded if name.split(".")[0] in HEAVY]


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
        f"    assert 'ackproof.testing.plugin' in sys.modules\n"
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


def test_markers_and_options_are_known(tmp_path: Path) -> None:
    for words, said in ((["--markers"], "@pytest.mark.kafka(brokers=3"), (["--help"], "--ackproof-seed")):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert said in done.stdout
