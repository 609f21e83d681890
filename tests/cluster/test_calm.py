"""Tests that runs without faults lose nothing: records that the harness loses would be blamed on Kafka."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ackproof.rundir.batch import BatchFile
from ackproof.rundir.layout import BatchDir
from ackproof.rundir.outcome import Verdict

pytestmark = pytest.mark.cluster

FULL_SPEED = """\
name: full-speed
cluster: {brokers: 3, controllers: 1}
topics: {orders: {partitions: 2}}
workload:
  producers: {count: 2, acks: 0, idempotence: false}
  duration: 2s
expect:
  - {lost: 0}
"""


@pytest.mark.nightly
def test_acks_0_at_full_speed_loses_nothing_by_itself(tmp_path: Path) -> None:
    """Brokers must still read the records in the sockets of a producer that closes, even if they are far behind."""
    file = tmp_path / "experiment.yaml"
    file.write_text(FULL_SPEED, encoding="utf-8")
    words = (
        Path(sys.executable).with_name("ackproof"),
        "run",
        file,
        "--out",
        tmp_path / "runs",
        "--repeat",
        "2",
    )
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    batch = BatchFile.load(BatchDir((tmp_path / "runs" / "latest").resolve()).batch_json)
    assert [case.verdict for case in batch.cases] == [Verdict.PASS] * 2, done.stdout + done.stderr
    assert [case.counts["lost"] for case in batch.cases] == [0, 0]
