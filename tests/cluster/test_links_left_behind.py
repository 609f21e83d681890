"""Tests that `ackproof clean` removes all proxies and packet rules of a run that was killed with SIGKILL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ackproof.base.processes import find_children
from faultbench.links import tables_of

from ..support.begun import await_run

pytestmark = pytest.mark.cluster

ACKPROOF = Path(sys.executable).with_name("ackproof")
BROKEN = """\
name: broken-links
cluster: {{brokers: 2, combined: true}}
topics: {{t: {{replication_factor: 2}}}}
workload: {{producers: {{rate: 500/s}}, duration: 60s}}
faults:
  - {fault}
    at: 0s
"""
LOSS = "loss: {link: follower(t/0) -> leader(t/0), share: 20%}"
CUT = "cut: {link: follower(t/0) -> leader(t/0)}"


def _start(folder: Path, fault: str, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    file = folder / "experiment.yaml"
    file.write_text(BROKEN.format(fault=fault), encoding="utf-8")
    return subprocess.Popen(
        [ACKPROOF, "run", file, "--out", folder / "runs"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
    )


def _roles(folder: Path) -> set[str]:
    return {child.role for child in find_children() if folder in child.directory.parents}


def _timeline(folder: Path) -> str:
    return "".join(path.read_text("utf-8") for path in (folder / "runs").glob("*/*/timeline.jsonl"))


def _asked(folder: Path) -> bool:
    return "fault-asked" in _timeline(folder)


@pytest.mark.parametrize(
    ("fault", "rules"),
    [
        pytest.param(LOSS, 1, marks=pytest.mark.skipif(os.geteuid() != 0, reason="packet rules are root's")),
        pytest.param(CUT, 0, marks=pytest.mark.nightly),
    ],
)
def test_nothing_is_left_after_kill_9_and_clean(tmp_path: Path, fault: str, rules: int) -> None:
    process = _start(tmp_path, fault)
    try:
        await_run(
            process,
            lambda: _asked(tmp_path) and len(tables_of(process.pid)) == rules,
            "the links to be broken",
            logs=lambda: f"tables {tables_of(process.pid)}\n{_timeline(tmp_path)[-2000:]}",
        )
        assert "toxiproxy" in _roles(tmp_path)
        tables = set(tables_of(process.pid))
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
    cleaned = subprocess.run([ACKPROOF, "clean", "--json"], capture_output=True, text=True, check=True)
    assert set(json.loads(cleaned.stdout)["rules"]) >= tables
    assert _roles(tmp_path) == set()
    assert tables_of(process.pid) == []
