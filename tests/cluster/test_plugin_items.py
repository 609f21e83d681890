"""Tests of experiment files under pytest on real clusters: verdicts, xdist, interrupts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from ackproof.base.processes import find_children
from ackproof.base.wait import wait_until
from ackproof.rundir.batch import BatchFile
from ackproof.rundir.observed import read_samples
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.registry import read_entries

from ..support.begun import await_run

pytestmark = pytest.mark.cluster

CALM = """\
name: calm
cluster: {brokers: 1, combined: true}
topics: {events: {replication_factor: 1}}
workload: {producers: {rate: 1000/s}, duration: 1s}
"""
NEVER = (
    CALM.replace("name: calm", "name: never")
    + "faults:\n  - {pause: {target: broker}, when: acked >= 900000, for: 1s}\n"
)
LOSSY = """\
name: lossy
topics: {orders: {}}
workload: {producers: {acks: 1, rate: 3000/s}, duration: 1s}
faults:
  - {pause: {target: followers(orders/0)}, when: acked >= 500, for: 1s}
  - {kill: {target: leader(orders/0)}, after: {fault: 1, by: 500ms}}
expect:
  - {lost: 0}
"""


def _start(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")},
        start_new_session=True,
    )


def _marked(folder: Path) -> list[str]:
    return [f"{child.role} {child.pid}" for child in find_children() if folder in child.directory.parents]


@pytest.mark.nightly  # a foreign project runs its experiments by two workers in every run
def test_two_workers_and_all_three_verdicts(tmp_path: Path) -> None:
    for name, text in (("calm", CALM), ("never", NEVER), ("lossy", LOSSY)):
        (tmp_path / f"{name}.yaml").write_text(text)
    process = _start(tmp_path, "-n", "2", "--junitxml", "junit.xml", "--ackproof-seed", "5")
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 1, out
    assert "1 failed, 1 passed, 1 error" in out
    assert "FAIL: lossy" in out
    assert "expected lost" in out
    assert "INCONCLUSIVE: never" in out
    assert "Traceback" not in out
    batches = sorted(tmp_path.glob("runs/*-pytest-gw[01]"))
    assert len(batches) == 2
    for batch in batches:
        assert f"report: runs/{batch.name}/report.html" in out
        assert (batch / "report.html").exists()
    cases = [case for batch in batches for case in BatchFile.load(batch / "batch.json").cases]
    assert sorted(str(case.verdict) for case in cases) == sorted(verdict.value for verdict in Verdict)
    verdicts = set()
    for case in ET.parse(tmp_path / "junit.xml").iter("testcase"):
        said = {one.get("name"): one.get("value") for one in case.iter("property")}
        assert said["ackproof.seed"] == "5"
        assert (Path(said["ackproof.run"] or "") / "verdict.json").exists()
        verdicts.add(said["ackproof.verdict"])
    assert verdicts == {"PASS", "FAIL", "INCONCLUSIVE"}
    assert _marked(tmp_path) == []
    assert not list(tmp_path.glob("runs/*/*/*/nodes/*/data"))


@pytest.mark.parametrize(
    ("words", "number"),
    [
        ((), signal.SIGINT),
        pytest.param((), signal.SIGTERM, marks=pytest.mark.nightly),
        pytest.param(("-n", "1"), signal.SIGINT, marks=pytest.mark.nightly),
    ],
)
def test_an_interrupt_ends_everything(tmp_path: Path, words: tuple[str, ...], number: signal.Signals) -> None:
    """The signal goes to the pytest process alone; a terminal would send it to all processes."""
    (tmp_path / "calm.yaml").write_text(CALM.replace("duration: 1s", "duration: 60s"))
    process = _start(tmp_path, *words)

    def loaded() -> bool:
        samples = list(tmp_path.glob("runs/*/calm/*/observed/partitions.jsonl"))
        return bool(samples) and any(sample.high_watermark > 100 for sample in read_samples(samples[0]))

    await_run(process, loaded, "records in the log")
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, out
    wait_until(
        lambda: not _marked(tmp_path),
        what="everything to end",
        timeout_s=20,
        state=lambda: str(_marked(tmp_path)),
    )
    assert not list(tmp_path.glob("runs/*/*/*/nodes/*/data"))
    assert [entry for _, entry in read_entries() if tmp_path in Path(entry.case_dir).parents] == []


FIXTURE = """\
import time
def test_it(kafka_cluster):
    open("up", "w").close()
    time.sleep(100)
"""


@pytest.mark.nightly
def test_an_interrupt_ends_the_cluster_of_a_fixture(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FIXTURE)
    process = _start(tmp_path)
    await_run(process, (tmp_path / "up").exists, "a cluster")
    (run,) = (tmp_path / "runs" / "kafka_cluster").iterdir()
    assert _marked(run.parent)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, out
    assert _marked(run.parent) == []
    assert not list(run.rglob("data"))


FAILING = """\
import time
import pytest
@pytest.mark.kafka(controllers=1, topics=["orders"])
@pytest.mark.parametrize("number", [1, 2])
def test_it(kafka_cluster, number):
    time.sleep(1.5)
    with kafka_cluster.fault("kill", "leader(orders/0)"):
        kafka_cluster.await_leader("orders", other_than=0)
        time.sleep(3.5 if number == 1 else 0)
    assert number == 2, "so that it is told of"
"""


@pytest.mark.nightly
def test_a_failure_tells_of_the_moments_of_its_faults_and_where_its_run_is(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FAILING)
    homes = {"runs": (), "kept": ("--ackproof-out", "kept")}
    for out, words in homes.items():
        process = _start(tmp_path, *words)
        text, _ = process.communicate(timeout=120)
        assert process.returncode == 1, text
        told = text.partition("Kafka nodes")[2]
        assert "kill leader(orders/0) → node" in told
        assert "end of kill leader(orders/0)" in told
        assert "fenc" in told.partition("-- controller-101")[2], text
        home = tmp_path / out / "kafka_cluster"
        assert f"run directory: {home}/test_it.test_it_1_\n" in told
        assert (home / "test_it.test_it_1_" / "timeline.jsonl").exists()
        assert (home / "test_it.test_it_2_").exists() == (out == "kept")
