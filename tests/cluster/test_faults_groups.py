"""Tests of faults of consumer groups on real brokers: the coordinator confirms each, and each is healed and
reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.rundir.layout import CaseDir
from ackproof.rundir.timeline import (
    FaultConfirmed,
    FaultFailed,
    FaultRecovered,
    OffsetsReset,
    read_timeline,
)

from .helpers import run_experiment

pytestmark = pytest.mark.cluster

EXPERIMENT = """\
name: groups
cluster:
  brokers: {brokers}
  combined: {alone}
  config: {{group.consumer.min.session.timeout.ms: 1000, group.consumer.session.timeout.ms: 6000,
    group.consumer.min.heartbeat.interval.ms: 500, group.consumer.heartbeat.interval.ms: 500}}
topics: {{orders: {{partitions: 4, replication_factor: {brokers}}}}}
workload:
  producers: {{rate: 200/s}}
  groups:
    billing: {{members: 3, protocol: {protocol}, record_time: 2ms, max_poll_interval: 6s, batch: 20, settle: 60s}}
  duration: 5s
faults: [{faults}]
"""
JOIN = "{join_group: billing, count: 2, at: 1s, for: 2s}"
BOUNCE = "{bounce_members: billing, after: {fault: 1, by: 4s}}"
RESET = "{reset_offsets: billing, to: latest, stop_members: true, after: {fault: 2, by: 6s}}"
OTHERS = (
    "{leave_group: billing, at: 1s, for: 2s}",
    "{pause_client: {client: owner(orders/1)}, after: {fault: 1, by: 5s}, for: 2s}",
    "{kill_client: {client: owner(orders/2)}, after: {fault: 2, by: 4s}, restart_after: 1s}",
    "{slow_member: owner(orders/0), record_time: 3s, after: {fault: 3, by: 8s}, for: 2s}",
    "{kill: coordinator(billing), after: {fault: 4, by: 8s}, restart_after: 2s}",
    "{migrate_group: billing, to: consumer, after: {fault: 5, by: 8s}}",
)


def _run(tmp_path: Path, protocol: str, *faults: str, brokers: int = 1) -> CaseDir:
    alone = str(brokers == 1).lower()
    text = EXPERIMENT.format(brokers=brokers, alone=alone, protocol=protocol, faults=", ".join(faults))
    batch, said = run_experiment(tmp_path, text)
    run = CaseDir(batch.path / "case_1")
    assert run.timeline.exists(), said
    events = [event.what for event in read_timeline(run.timeline)[0]]
    assert [what.reason for what in events if isinstance(what, FaultFailed)] == []
    assert sum(isinstance(what, FaultConfirmed) for what in events) == len(faults)
    assert sum(isinstance(what, FaultRecovered) for what in events) == len(faults)
    return run


def test_members_join_and_are_bounced_and_an_operator_resets_offsets(tmp_path: Path) -> None:
    run = _run(tmp_path, "classic", JOIN, BOUNCE, RESET)
    events = [event.what for event in read_timeline(run.timeline)[0]]
    join, bounce, _ = (what for what in events if isinstance(what, FaultConfirmed))
    assert join.clients == ("g3", "g4")
    assert join.witness.startswith("coordinator: broker ")
    assert bounce.clients is not None
    assert len(bounce.clients) == 2
    (reset,) = (what for what in events if isinstance(what, OffsetsReset))
    assert [row[:2] for row in reset.offsets] == [("orders", number) for number in range(4)]
    assert all(after >= before for *_, before, after in reset.offsets)


@pytest.mark.nightly  # the faults above have the same witness
def test_every_other_fault_of_a_group(tmp_path: Path) -> None:
    _run(tmp_path, "classic", *OTHERS, brokers=3)


@pytest.mark.nightly
def test_members_of_a_kip_848_group(tmp_path: Path) -> None:
    _run(tmp_path, "consumer", JOIN, BOUNCE, RESET)
