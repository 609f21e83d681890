"""Faults of disks and of power: each bites, is healed, and the ISRs are full again; duds do not pass for bites."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ackproof.cluster import disks
from ackproof.cluster.launch import Installation
from ackproof.plan.ground import Need
from faultbench import Bench

pytestmark = pytest.mark.cluster
TOPICS: dict[str, object] = {
    "t": {"config": {"min.insync.replicas": 1, "segment.bytes": 1 << 20}},
}
SETTINGS = {
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "replica.lag.time.max.ms": 3000,
    "replica.high.watermark.checkpoint.interval.ms": 500,
    "log.flush.offset.checkpoint.interval.ms": 500,
    "log.flush.start.offset.checkpoint.interval.ms": 500,
    "unclean.leader.election.enable": True,
}


@pytest.fixture(scope="module")
def bench(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    needs = frozenset({Need.DISKS} if disks.refusal() is None else set[Need]())
    with Bench(
        tmp_path_factory.mktemp("bench"),
        installed=installs("4.3.1"),
        needs=needs,
        topics=TOPICS,
        rate=2000.0,
        config=SETTINGS,
        disk="256MB",
        log_dirs=2,
    ) as made:
        yield made


needs_mounts = pytest.mark.skipif(disks.refusal() is not None, reason=disks.refusal() or "")


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("full_disk: {target: leader(t/0)}", marks=needs_mounts),
        pytest.param("fail_log_dir: {target: leader(t/0)}", marks=needs_mounts),
        "fail_log_dir: {target: follower(t/0), how: read_only}",
        pytest.param("slow_disk: {target: leader(t/0)}", marks=needs_mounts),
        "empty_disk: {target: follower(t/0)}",
        "power_loss: {target: leader(t/0)}",
        "power_loss: {target: follower(t/0), how: cut}",
        "flip_bits: {target: follower(t/0)}",
        "truncate_segment: {target: leader(t/0)}",
        "delete_checkpoint: {target: follower(t/0), file: replication-offset}",
    ],
)
def test_it_bites_and_is_healed(bench: Bench, fault: str) -> None:
    bite = bench.bite(fault)
    assert bite.good, bite
