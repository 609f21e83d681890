"""Tests that records removed by retention, compaction and a wrong clock are named as such, and not counted as lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.rundir.batch import BatchFile
from ackproof.rundir.outcome import Verdict

from .helpers import run_experiment

pytestmark = pytest.mark.cluster

SOON = "log.retention.check.interval.ms: 500, log.initial.task.delay.ms: 500, log.cleaner.backoff.ms: 500"
BY_SIZE = f"""\
name: transactions-that-retention-cuts
cluster: {{brokers: 1, combined: true, config: {{{SOON}}}}}
topics:
  orders:
    replication_factor: 1
    config: {{min.insync.replicas: 1, segment.bytes: 1048576, retention.bytes: 2097152}}
workload:
  producers: {{acks: all, idempotence: true, transaction_size: 100, rate: 1000/s, value_size: 1kB}}
  duration: 8s
faults:
  - set: {{topic: orders, config: {{flush.messages: "1000"}}}}
    when: acked >= 4000
expect:
  - {{lost: 0, torn-transaction: 0, expired: "> 0"}}
"""
BY_CLOCK = f"""\
name: a-clock-ahead-of-retention
cluster: {{brokers: 3, controllers: 1, config: {{log.retention.hours: 12, {SOON}}}}}
topics: {{orders: {{assignment: [[1, 2, 3]], config: {{min.insync.replicas: 2}}}}}}
workload:
  producers: {{acks: all, rate: 300/s}}
  consumers: {{live: 1}}
  duration: 24s
matrix:
  clock:
    - {{name: within, "faults[1].clock_jump.by": 10h}}
    - {{name: beyond, "faults[1].clock_jump.by": 14h}}
faults:
  - clock_jump: {{target: leader(orders/0), by: 10h}}
    when: acked >= 500
    for: 12s
expect:
  - {{given: {{by: 10h}}, lost: 0, expired: 0}}
  - {{given: {{by: 14h}}, lost: 0, expired: "> 0"}}
"""
FOR_A_WHILE = f"""\
name: compact-for-a-while
cluster: {{brokers: 3, controllers: 1, config: {{{SOON}}}}}
topics:
  orders:
    assignment: [[1, 2, 3]]
    config: {{min.insync.replicas: 2, segment.ms: 1000, min.cleanable.dirty.ratio: 0.01}}
workload:
  producers: {{acks: all, idempotence: true, rate: 500/s, keys: 50}}
  consumers: {{live: 1}}
  duration: 20s
faults:
  - set: {{topic: orders, config: {{cleanup.policy: compact}}}}
    when: acked >= 1000
    for: 8s
expect:
  - {{lost: 0, compacted: "> 0"}}
"""


@pytest.mark.parametrize(
    "experiment",
    [
        pytest.param(BY_SIZE, id="retention.bytes"),
        pytest.param(BY_CLOCK, id="a clock", marks=pytest.mark.nightly),
        pytest.param(FOR_A_WHILE, id="compaction", marks=pytest.mark.nightly),
    ],
)
def test_what_was_removed_is_not_lost(tmp_path: Path, experiment: str) -> None:
    batch, output = run_experiment(tmp_path, experiment)
    assert {case.verdict for case in BatchFile.load(batch.batch_json).cases} == {Verdict.PASS}, output
