"""Tests of clusters of other shapes, in parallel where that saves time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ackproof.base.errors import BadInput, NodeDied
from ackproof.base.processes import end_children, find_children
from ackproof.base.wait import wait_until
from ackproof.cluster.install import Installation
from ackproof.cluster.protocol import NodeState
from ackproof.experiment.kafka import ELR
from ackproof.experiment.spec import TopicSpec
from leases import lease_holders

from .conftest import NEWEST, OLDER, Clusters
from .helpers import levels_in_force, produce

pytestmark = pytest.mark.cluster


@pytest.mark.nightly  # test_faults_processes.py kills two of three (lose_quorum) with every push
def test_three_controllers_and_the_active_one_is_killed(clusters: Clusters) -> None:
    cluster = clusters.start(brokers=1, controllers=3)
    cluster.create_topics({"t": TopicSpec(replication_factor=1)})
    active = cluster.controller()
    assert active in (101, 102, 103)
    cluster.node(active).kill()
    successor = wait_until(
        lambda: (now := cluster.controller()) not in (None, active) and now, what="a successor", timeout_s=20
    )
    assert successor in {101, 102, 103} - {active}
    cluster.node(active).start()
    cluster.node(active).await_ready(30)
    assert produce(cluster, "t", 10) == 10


def test_combined_nodes(clusters: Clusters) -> None:
    cluster = clusters.start(combined=True)
    cluster.create_topics({"t": TopicSpec()})
    assert produce(cluster, "t", 10) == 10
    assert cluster.controller() in (1, 2, 3)
    assert [node.id for node in cluster.controllers()] == [node.id for node in cluster.brokers()] == [1, 2, 3]
    assert cluster.environment()["class-data archive"] == "used by every node"
    cluster.stop()
    assert all(node.state() is NodeState.GONE for node in cluster.nodes.values())
    with pytest.raises(BadInput, match="the cluster has ended"):
        cluster.node(1).start()


@pytest.mark.nightly  # tests run clusters side by side with every push
def test_two_clusters_at_once_of_two_releases(clusters: Clusters) -> None:
    older = clusters.start(kafka=OLDER, brokers=2)
    newest = clusters.start(brokers=1)
    assert older.layout.addresses.block != newest.layout.addresses.block
    for cluster, copies, eligible in ((older, 2, 0), (newest, 1, 1)):
        cluster.create_topics({"t": TopicSpec(replication_factor=copies)})
        assert produce(cluster, "t", 10) == 10
        assert levels_in_force(cluster).get(ELR, 0) == eligible
        assert cluster.environment()["class-data archive"] == "used by every node"
    assert (older.environment()["kafka"], newest.environment()["kafka"]) == (OLDER, NEWEST)
    assert produce(older, "t", 5) == 5
    assert [next(iter(c.partition_ends(["t"]).values())).high_watermark for c in (older, newest)] == [15, 10]
    block = older.layout.addresses.block
    assert block in lease_holders()
    began = time.monotonic()
    older.stop()
    assert time.monotonic() - began < 10
    assert block not in lease_holders()
    assert produce(newest, "t", 5) == 5
    older.remove_data()
    assert sorted(path.name for path in (older.nodes_dir / "1").iterdir()) == [
        "hosts",
        "server.log",
        "server.properties",
        "stdout.log",
    ]


def test_a_setting_that_kafka_cannot_bear_is_reported_with_its_log_at_once(clusters: Clusters) -> None:
    cluster = clusters.make(brokers=1, combined=True, config={"num.io.threads": "-3"})
    began = time.monotonic()
    with pytest.raises(NodeDied, match=r"(?s)died by itself: exit status 1.*num\.io\.threads"):
        cluster.start()
    assert time.monotonic() - began < 20
    cluster.stop()


def test_kafkas_own_timing_works_too_and_an_archive_that_is_not_used_is_noticed(
    clusters: Clusters, installs: Callable[[str], Installation], tmp_path: Path
) -> None:
    (useless := tmp_path / "broker.jsa").write_bytes(b"no archive at all" * 1000)
    installed = installs(NEWEST)
    archives = {**installed.archives, "broker": useless}
    clusters.install = lambda _: replace(installed, archives=archives)
    cluster = clusters.start(
        brokers=1, combined=True, timing="kafka", config={"log.segment.bytes": "1048576"}
    )
    cluster.create_topics({"t": TopicSpec(replication_factor=1)})
    assert produce(cluster, "t", 10) == 10
    assert cluster.environment()["class-data archive"] == "not used by node 1"
    assert "log.segment.bytes=1048576" in cluster.node(1).files.properties.read_text()
    assert "broker.session.timeout.ms" not in cluster.node(1).files.properties.read_text()


HARNESS = """
import sys
from pathlib import Path
from ackproof.cluster.backends.process import ProcessCluster
from ackproof.experiment.spec import ClusterSpec
from ackproof.base.processes import RunTag
folder = Path(sys.argv[2])
cluster = ProcessCluster(
    ClusterSpec(brokers=1), folder / "nodes", RunTag(sys.argv[1], folder, folder), lambda event: None
)
cluster.start()
print(cluster.layout.addresses.block, flush=True)
sys.stdin.read()
"""


def test_a_killed_harness_leaves_marked_nodes_whose_addresses_stay_theirs_until_they_are_ended(
    installs: Callable[[str], Installation], tmp_path: Path
) -> None:
    installs(NEWEST)
    run_id = f"test-orphans-{os.getpid()}"
    harness = subprocess.Popen(
        [sys.executable, "-c", HARNESS, run_id, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert harness.stdout is not None
        block = int(harness.stdout.readline())
        harness.send_signal(signal.SIGKILL)
        harness.wait(10)
        orphans = find_children(run_id)
        assert sorted(child.role for child in orphans) == ["broker-1", "controller-101"]
        assert not any(child.owner_alive for child in orphans)
        assert run_id in lease_holders()[block]
    finally:
        harness.kill()
        harness.communicate()
        ended, left = end_children(lambda child: child.run_id == run_id)
    assert (len(ended), left) == (2, [])
    assert block not in lease_holders()
