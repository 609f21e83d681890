"""Tests of faults of disks and power: each is confirmed and healed, the ISRs become full again, and duds are not
confirmed."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ackproof.base.processes import RunTag
from ackproof.cluster.backends.process import ProcessCluster
from ackproof.cluster.disks import file_systems as disks
from ackproof.cluster.disks.file_systems import FileSystem
from ackproof.cluster.disks.node_disk import mounts_below
from ackproof.cluster.install import Installation
from ackproof.experiment.backends import Need
from ackproof.experiment.spec import ClusterSpec
from faultbench import Bench, duds_on, no_bite
from faultbench.duds import Dud

pytestmark = pytest.mark.cluster
SETTINGS = {
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "replica.lag.time.max.ms": 3000,
    "replica.high.watermark.checkpoint.interval.ms": 500,
    "log.flush.offset.checkpoint.interval.ms": 500,
    "log.flush.start.offset.checkpoint.interval.ms": 500,
}
TOPICS: dict[str, object] = {
    "t": {
        "replication_factor": 2,
        "config": {
            "min.insync.replicas": 1,
            "segment.bytes": 1 << 20,
            "unclean.leader.election.enable": True,
        },
    },
}
needs_mounts = pytest.mark.skipif(disks.refusal() is not None, reason=disks.refusal() or "")
"""Skips a test where faults that need mounted file systems are refused."""


def _bench(folder: Path, installed: Installation, **cluster: object) -> Bench:
    needs = frozenset({Need.DISKS} if disks.refusal() is None else set[Need]())
    return Bench(
        folder,
        installed=installed,
        needs=needs,
        topics=TOPICS,
        rate=2000.0,
        config=SETTINGS,
        disk="256MB",
        **cluster,
    )


@pytest.fixture(scope="module")
def bench(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    with _bench(tmp_path_factory.mktemp("bench"), installs("4.4.0"), brokers=2, log_dirs=2) as made:
        yield made


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("full_disk: {target: leader(t/0)}", marks=needs_mounts),
        pytest.param("fail_log_dir: {target: leader(t/0)}", marks=needs_mounts),
        pytest.param("fail_log_dir: {target: follower(t/0), how: read_only}", marks=pytest.mark.nightly),
        pytest.param("slow_disk: {target: leader(t/0)}", marks=needs_mounts),
        "empty_disk: {target: follower(t/0)}",
        pytest.param("power_loss: {target: follower(t/0), how: cut}", marks=pytest.mark.nightly),
        "flip_bits: {target: leader(t/0)}",
        "truncate_segment: {target: leader(t/0)}",
        "delete_checkpoint: {target: follower(t/0), file: replication-offset}",
    ],
)
def test_it_bites_and_is_healed(bench: Bench, fault: str) -> None:
    bite = bench.bite(fault)
    assert bite.good, bite


def test_the_way_of_a_power_loss_is_told(bench: Bench) -> None:
    """A run must say whether the power loss was true (root) or emulated."""
    bite = bench.bite("power_loss: {target: leader(t/0)}")
    assert bite.good, bite
    true = disks.refusal() is None
    assert bite.did.startswith("true power loss" if true else "emulated power loss"), bite
    assert ("not synced is gone" in bite.witness) is true, bite


@pytest.mark.parametrize("dud", duds_on("disks"))
def test_a_dud_does_not_pass_for_a_bite(bench: Bench, dud: Dud) -> None:
    no_bite(bench, dud)


def test_what_is_not_there_is_not_broken(bench: Bench) -> None:
    bite = bench.bite("flip_bits: {target: controller, partition: t/0}", record=False)
    assert not bite.bit
    assert "has no replica of t/0" in bite.failures[0]


@needs_mounts
def test_what_was_mounted_before_another_could_not_be_is_unmounted(
    installs: Callable[[str], Installation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = FileSystem.make

    def make(system: FileSystem, size: int) -> None:
        if "2" in system.at.parts:
            raise disks.DiskError("no loop device is free")
        whole(system, size)

    monkeypatch.setattr(FileSystem, "make", make)
    nodes, tag = tmp_path / "nodes", RunTag(secrets.token_hex(8), tmp_path, tmp_path)
    cluster = ProcessCluster(
        ClusterSpec(brokers=3),
        nodes,
        tag,
        lambda event: None,
        installed=installs("4.4.0"),
        needs=frozenset({Need.DISKS}),
    )
    with pytest.raises(disks.DiskError, match="no loop device"), cluster:
        cluster.start()
    assert mounts_below(nodes) == []


# -- left to the night ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def quorum_bench(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    with _bench(tmp_path_factory.mktemp("bench"), installs("4.4.0"), controllers=3) as made:
        yield made


@pytest.mark.nightly
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("full_disk: {target: leader(t/0)}", marks=needs_mounts),
        pytest.param("full_disk: {target: controller}", marks=needs_mounts),
        pytest.param("fail_log_dir: {target: leader(t/0)}", marks=needs_mounts),
        "fail_log_dir: {target: leader(t/0), how: read_only}",
        pytest.param("slow_disk: {target: followers(t/0), stall: 2s}", marks=needs_mounts),
        "empty_disk: {target: leader(t/0)}",
        "empty_disk: {target: leader(t/0), restore: live}",
        "empty_disk: {target: follower(t/0), restore: stopped}",
        "empty_disk: {target: controller}",
        "power_loss: {target: brokers}",
        "power_loss: {target: controller}",
        "power_loss: {target: brokers, how: cut}",
        "power_loss: {target: leader(t/0), how: cut, keep: 100}",
        "flip_bits: {target: leader(t/0), segment: closed}",
        "flip_bits: {target: follower(t/0), segment: active}",
        "truncate_segment: {target: follower(t/0), segment: closed, bytes: 64KB}",
        "delete_checkpoint: {target: leader(t/0), file: leader-epoch}",
        "delete_checkpoint: {target: leader(t/0), file: recovery-point}",
        "delete_checkpoint: {target: leader(t/0), file: log-start-offset}",
    ],
)
def test_it_bites_and_is_healed_too(quorum_bench: Bench, fault: str) -> None:
    bite = quorum_bench.bite(fault)
    assert bite.good, bite
