"""Tests of faults of disks and power in containers, whose data is mounted from this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ackproof.cluster.disks import file_systems as disks
from ackproof.cluster.install import Installation
from ackproof.experiment.backends import Need
from faultbench import Bench, duds_on, no_bite
from faultbench.duds import Dud

pytestmark = pytest.mark.docker
SETTINGS = {
    "replica.lag.time.max.ms": 3000,
    "replica.high.watermark.checkpoint.interval.ms": 500,
    "log.flush.offset.checkpoint.interval.ms": 500,
    "unclean.leader.election.enable": True,
}
MOUNTS = disks.refusal()
needs_mounts = pytest.mark.skipif(MOUNTS is not None, reason=MOUNTS or "")


@pytest.fixture(scope="module")
def bench(installed: Callable[[], Installation], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(
        tmp_path_factory.mktemp("bench"),
        backend="docker",
        installed=installed(),
        needs=frozenset({Need.DISKS} if MOUNTS is None else set[Need]()),
        topics={
            "t": {"replication_factor": 2, "config": {"min.insync.replicas": 1, "segment.bytes": 1 << 20}}
        },
        rate=2000.0,
        config=SETTINGS,
        disk="256MB",
        log_dirs=2,
        brokers=2,
    ) as made:
        yield made


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("full_disk: {target: leader(t/0)}", marks=needs_mounts),
        # These run on processes with every push; full_disk has the mounts of containers.
        pytest.param("power_loss: {target: leader(t/0)}", marks=pytest.mark.nightly),
        pytest.param("empty_disk: {target: follower(t/0)}", marks=pytest.mark.nightly),
        pytest.param("fail_log_dir: {target: leader(t/0)}", marks=[needs_mounts, pytest.mark.nightly]),
        pytest.param("slow_disk: {target: leader(t/0)}", marks=[needs_mounts, pytest.mark.nightly]),
        pytest.param("flip_bits: {target: follower(t/0)}", marks=pytest.mark.nightly),
        pytest.param("truncate_segment: {target: leader(t/0)}", marks=pytest.mark.nightly),
        pytest.param(
            "delete_checkpoint: {target: follower(t/0), file: replication-offset}", marks=pytest.mark.nightly
        ),
    ],
)
def test_it_bites_and_is_healed(bench: Bench, fault: str) -> None:
    bite = bench.bite(fault)
    assert bite.good, bite


@pytest.mark.parametrize("dud", duds_on("disks", nightly=True))
def test_a_dud_does_not_pass_for_a_bite(bench: Bench, dud: Dud) -> None:
    no_bite(bench, dud)
