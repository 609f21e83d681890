"""Tests of pairs of faults on real brokers: the timeline shows them in force together; one pair kills a group's
coordinator."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.rundir.batch import BatchFile, PairOutcome, PairsFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.timeline import FaultAsked, FaultRecovered, read_timeline

from .helpers import run_experiment

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

EXPERIMENT = """\
name: together
cluster: {brokers: 3}
topics: {orders: {config: {min.insync.replicas: 2}}}
workload:
  producers: {acks: all, idempotence: true, rate: 500/s}
  consumers: {live: 1, commit_every: 200ms}
  duration: 3s
faults:
  - storm:
      pairs: all
      count: 6
      at_least: 6
      menu:
        pause: {target: broker(1), lasting: 1s}
        hold_request: {link: leader(orders/0) -> controllers, api: BrokerHeartbeat, lasting: 1s}
        restart: {target: broker(2)}
    when: acked >= 100
  - kill: leader(__consumer_offsets/0)
    after: {fault: 1, by: 0s}
    restart_after: 2s
evidence: {isr_size: 3}
"""


def test_all_pairs_are_covered_and_the_group_coordinator_is_hit(tmp_path: Path) -> None:
    batch, printed = run_experiment(tmp_path, EXPERIMENT)
    (case,) = BatchFile.load(batch.batch_json).cases
    assert case.verdict is Verdict.PASS, (case.reasons, printed[-2000:])
    (table,) = PairsFile.load(batch.pairs_json).tables
    assert {pair.kinds for pair in table.having(PairOutcome.COVERED)} == {
        ("hold_request", "pause"),
        ("hold_request", "restart"),
        ("pause", "restart"),
    }, table.pairs
    events, _ = read_timeline(CaseDir(batch.path / case.run).timeline)
    mine = [event.what for event in events if event.fault == 2]
    (asked,) = (what for what in mine if isinstance(what, FaultAsked))
    assert asked.role == "leader(__consumer_offsets/0)" and len(asked.nodes) == 1
    assert any(isinstance(what, FaultRecovered) for what in mine)
