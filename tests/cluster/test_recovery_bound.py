"""Test of a bound on recovery time over repeats: it holds with short time-outs, and breaks with three times these."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ackproof.rundir.batch import BatchFile
from ackproof.rundir.layout import BatchDir
from ackproof.rundir.outcome import Verdict

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

LEADER_KILL = """\
name: recovery
repeat: 6
cluster:
  config: {{broker.session.timeout.ms: {session}, replica.lag.time.max.ms: {lag}}}
topics: {{orders: {{config: {{min.insync.replicas: 2}}}}}}
workload: {{producers: {{acks: all, rate: 200/s}}, duration: 4s}}
faults:
  - kill: leader(orders/0)
    at: 1s
    restart_after: 9s
expect:
  - time_to(first ack, fault 1): p50 < 5s
"""


@pytest.mark.parametrize(
    ("session", "lag", "exits", "verdict"),
    [(2000, 1500, 0, Verdict.PASS), (6000, 4500, 1, Verdict.FAIL)],
    ids=["short", "tripled"],
)
def test_the_same_file_fails_with_time_outs_tripled(
    tmp_path: Path, session: int, lag: int, exits: int, verdict: Verdict
) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(LEADER_KILL.format(session=session, lag=lag), encoding="utf-8")
    command = [Path(sys.executable).with_name("ackproof"), "run", file, "--out", tmp_path / "runs"]
    done = subprocess.run(command, capture_output=True, text=True)
    (folder,) = (one for one in (tmp_path / "runs").iterdir() if not one.is_symlink())
    batch = BatchFile.load(BatchDir(folder).batch_json)
    (bound,) = batch.over_repeats
    assert (done.returncode, bound.verdict) == (exits, verdict), (done.stderr, bound)
    assert bound.low is not None and bound.high is not None and bound.low <= bound.high
    assert (bound.high < 5) is (verdict is Verdict.PASS)
