"""Tests of the core without the packages of the model, the simulator and the lab: it imports, plans and judges."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ackproof.judge.oracle import FOREIGN, NOT_INSTALLED, SettingsOracle, oracle_for
from ackproof.rundir.documents import VerdictFile
from ackproof.rundir.model import ConformanceFile, PredictionFile
from ackproof.rundir.outcome import Verdict
from judged_run import MakeRun
from run_directory import read_case

ALONE = """
import sys
from importlib.abc import MetaPathFinder
from ackproof.base import extensions

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"ackproof_lab", "ackproof_model", "ackproof_reference", "ackproof_simulator"}:
            raise ModuleNotFoundError(f"{name} is not installed", name=name)

sys.meta_path.insert(0, Missing())
extensions.entry_points = lambda group: ()
"""


FILE = """\
name: x
backend: {backend}
topics: {{orders: {{}}}}
workload: {{duration: 2s}}
"""


def run_alone(program: str) -> str:
    """Run a Python program as if only the core were installed. Return its standard output. Fails if its exit status is
    not 0."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE + program], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_of_the_core_is_imported() -> None:
    count = run_alone(
        """
import importlib, pkgutil, ackproof, ackproof_reports
count = 0
for package in (ackproof, ackproof_reports):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
            count += 1
print(count)
"""
    )
    assert int(count) > 200


def test_what_plans_runs_and_judges_loads_neither_docker_nor_spark() -> None:
    loaded = run_alone(
        """
import ackproof.api, ackproof.cli.main, ackproof.run.batch, ackproof.run.conclude, ackproof.judge.verdict
print([name for name in ("docker", "testcontainers", "pyspark") if name in sys.modules])
"""
    )
    assert loaded.strip() == "[]"


@pytest.mark.parametrize(
    ("lost", "producers", "verdict"),
    [
        (0, "acks: all", Verdict.PASS),
        (1, "acks: all", Verdict.FAIL),
        (1, "acks: 1, idempotence: false", Verdict.PASS),
    ],
)
def test_a_run_is_judged_by_its_settings(
    make_run: MakeRun, lost: int, producers: str, verdict: Verdict
) -> None:
    run = make_run(producers=producers, lost=lost)
    for file in (run.conformance_json, run.prediction_json):
        file.unlink()
    loaded = run_alone(
        f"""
from pathlib import Path
from ackproof.rundir.layout import CaseDir
from ackproof.run.conclude import run_stages
run_stages(CaseDir(Path({str(run.path)!r})))
print([name for name in ("docker", "testcontainers", "pyspark") if name in sys.modules])
"""
    )
    assert loaded.strip() == "[]"
    judged = VerdictFile.load(run.verdict_json)
    assert judged.verdict is verdict
    assert f"predictions: {NOT_INSTALLED}" in judged.not_judged
    assert f"explanations: {NOT_INSTALLED}" in judged.not_judged
    assert PredictionFile.load(run.prediction_json).not_predicted == (NOT_INSTALLED,)
    counted = {
        found.anomaly: found.not_replayed for found in ConformanceFile.load(run.conformance_json).classes
    }
    assert counted == ({"lost": 1} if lost else {})


@pytest.mark.parametrize(("backend", "options"), [("model", []), ("process", ["--simulate"])])
def test_a_command_that_needs_a_package_says_which(tmp_path: Path, backend: str, options: list[str]) -> None:
    file, out = tmp_path / "x.yaml", tmp_path / "runs"
    file.write_text(FILE.format(backend=backend))
    told = run_alone(
        f"""
from ackproof.cli.main import main_code
sys.stderr = sys.stdout
assert main_code(["run", {str(file)!r}, "--out", {str(out)!r}, *{options!r}]) == 254
"""
    )
    assert "Install it: the package ackproof_simulator" in " ".join(told.split())
    assert not out.exists(), "refused before anything is started"


def test_the_settings_decide_on_a_cluster_of_somebody_else() -> None:
    case = read_case(FILE.format(backend="attach"))
    foreign = oracle_for(case)
    assert isinstance(foreign, SettingsOracle)
    prediction = foreign.predict(case, None)
    assert prediction.not_predicted == (FOREIGN,)
    assert not any(one.explored for one in prediction.classes)
