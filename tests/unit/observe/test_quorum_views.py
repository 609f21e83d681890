"""Tests of the sampler in ZooKeeper mode: the servers' view is fresh or empty, and no sample waits for it."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ackproof.base.wait import wait_until
from ackproof.cluster.queries import PartitionState
from ackproof.experiment.spec import ClusterSpec
from ackproof.network.wire import ZOOKEEPER
from ackproof.observe.sampler import QUORUM_FRESH_S, STALE_AFTER_S, Sampler
from ackproof.rundir.clock import RunClock
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import EventKind, Timeline, read_timeline

PLACE = TopicPartition("t", 0)


def state(leader: int) -> dict[TopicPartition, PartitionState]:
    return {PLACE: PartitionState("t", 0, leader, 4 + leader, (1, 2), (leader,))}


def test_what_is_held_is_fresh_or_nothing(tmp_path: Path) -> None:
    stuck, go_on = threading.Event(), threading.Event()
    held = [state(1)]

    def held_now(_: object) -> dict[TopicPartition, PartitionState]:
        if stuck.is_set():
            go_on.wait(10.0)
        return held[0]

    cluster: Any = SimpleNamespace(
        metadata_state=held_now,
        controller=lambda: held[0][PLACE].leader,
        client_addresses=dict,
        nodes={},
        access=ZOOKEEPER,
        spec=ClusterSpec(kafka="3.9.2", mode="zookeeper"),
    )
    with Timeline(tmp_path / "t.jsonl", RunClock.start()) as timeline:
        sampler = Sampler(cluster, ["t"], tmp_path / "partitions.jsonl", timeline)
        sampler.start()

        def leader() -> int | None:
            sample = sampler.fresh(*PLACE)
            return None if sample is None else sample.leader

        wait_until(lambda: leader() == 1, what="the first look", timeout_s=5.0)
        held[0] = state(2)
        wait_until(lambda: leader() == 2, what="the next look", timeout_s=5.0)
        stuck.set()
        wait_until(lambda: leader() is None, what="nothing", timeout_s=QUORUM_FRESH_S + STALE_AFTER_S + 5.0)
        go_on.set()
        wait_until(lambda: leader() == 2, what="a look after it", timeout_s=5.0)
        sampler.stop()
        sampler.stop()
    events = read_timeline(tmp_path / "t.jsonl")[0]
    said = [event.detail["note"] for event in events if event.kind is EventKind.NOTE]
    assert said == ["ZooKeeper: the controller is 1", "ZooKeeper: the controller is 2"]
