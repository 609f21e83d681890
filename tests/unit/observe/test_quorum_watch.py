"""The thread that looks at ZooKeeper: what it holds is fresh or nothing, and nobody waits for it."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ackproof.base.wait import wait_until
from ackproof.cluster.protocol import PartitionState
from ackproof.observe.quorum_watch import FRESH_S, QuorumWatch
from ackproof.rundir.clock import RunClock
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import Event, Timeline

PLACE = TopicPartition("t", 0)


def state(leader: int) -> dict[TopicPartition, PartitionState]:
    return {PLACE: PartitionState("t", 0, leader, 4, (1, 2), (leader,))}


def test_what_is_held_is_fresh_or_nothing(tmp_path: Path) -> None:
    stuck, go_on = threading.Event(), threading.Event()
    held = [state(1)]

    def held_now(_: object) -> dict[TopicPartition, PartitionState]:
        if stuck.is_set():
            go_on.wait(5.0)
        return held[0]

    events: list[Event] = []
    cluster: Any = SimpleNamespace(metadata_state=held_now, controller=lambda: held[0][PLACE].leader)
    with Timeline(tmp_path / "t.jsonl", RunClock.start(), events.append) as timeline:
        one = QuorumWatch(cluster, ["t"], timeline)
        assert one.latest() == {}
        one.start()
        wait_until(lambda: one.latest() == state(1), what="the first look", timeout_s=3.0)
        held[0] = state(2)
        wait_until(lambda: one.latest() == state(2), what="the next look", timeout_s=3.0)
        stuck.set()
        wait_until(lambda: one.latest() == {}, what="nothing", timeout_s=FRESH_S + 3.0)
        began = time.monotonic()
        one.latest()
        assert time.monotonic() - began < 0.1
        go_on.set()
        one.stop()
        one.stop()
    said = [event.detail["note"] for event in events]
    assert said == ["ZooKeeper: the controller is 1", "ZooKeeper: the controller is 2"]
