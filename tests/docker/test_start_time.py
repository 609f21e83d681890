"""Test of the time from launch to the first record that acks=all acknowledges on three replicas, in containers: 5 s on
a quiet machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ackproof.base.processes import RunTag
from ackproof.cluster.backends.docker import DockerCluster
from ackproof.cluster.install import Installation
from ackproof.experiment.spec import ClusterSpec, TopicSpec

pytestmark = [pytest.mark.docker, pytest.mark.alone]

RUNS = 2
BAR_S = 5.0
SLACK = 2.0
"""Factor for machines that are not quiet; load on the cores lengthens the limit further, in proportion."""


def test_one_controller_and_three_brokers_start_fast(
    installed: Callable[[], Installation], tmp_path: Path
) -> None:
    measured = []
    for number in range(RUNS):
        tag = RunTag(f"start-{os.getpid()}-{number}", tmp_path, tmp_path)
        cluster = DockerCluster(
            ClusterSpec(), tmp_path / str(number) / "nodes", tag, lambda event: None, installed=installed()
        )
        began = time.perf_counter()
        with cluster:
            cluster.start()
            ready = time.perf_counter() - began
            cluster.create_topics({"t": TopicSpec()})
            usable = time.perf_counter() - began
            producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
            producer.produce("t", b"x")
            assert producer.flush(15) == 0
            measured.append((time.perf_counter() - began, usable, ready))
            assert cluster.environment()["class-data archive"] == "used by every node"
        cluster.remove_data()
    for acked, usable, ready in measured:
        print(f"\nready {ready:.2f} s, topic usable {usable:.2f} s, first record acked {acked:.2f} s", end="")
    best = min(measured)[0]
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    print(f"\nbest of {RUNS}: {best:.2f} s, load average {load:.2f} on {cores} cores")
    assert best < BAR_S * SLACK * max(1.0, load / cores)
