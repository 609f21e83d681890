"""Faults of a node's files: confirmed if the files on disk show the effect, and only then."""

from __future__ import annotations

import os
import shutil
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster.disks.log import CLEAN_SHUTDOWN
from ackproof.cluster.disks.node_disk import NodeDisk
from ackproof.cluster.protocol import NodeState
from ackproof.cluster.queries import PartitionState
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.roles import Role, RoleKind
from ackproof.faults import crashes
from ackproof.faults.crashes import STARTED, KillStarting
from ackproof.faults.disks import disk as disks
from ackproof.faults.disks import log_files
from ackproof.faults.disks.disk import EmptyDisk
from ackproof.faults.disks.log_files import DeleteCheckpoint, TruncateSegment
from ackproof.faults.disks.power_loss import flush_settings
from ackproof.rundir.partition import TopicPartition
from fake_nodes import FakeNode
from fault_stand import expect, make, make_batch

PLACE = TopicPartition("t", 0)
BATCH = 101
"""Size in bytes of a batch of five records (`make_batch`)."""


class Node(FakeNode):
    """A fake node with a disk. `lines`: lines of its log. `laid`: an entry for each formatting of the disk."""

    def __init__(self, data: Path) -> None:
        super().__init__(1)
        self.lines: list[str] = []
        self.laid: list[str] = []
        self.disk = NodeDisk(data, (data,), data, lambda: self.laid.append("laid"))  # type: ignore[assignment]

    def log_tail(self, lines: int = 20) -> str:
        return "\n".join(self.lines[-lines:])


@dataclass
class Cluster:
    """A cluster of one node. `shown`: partitions as the node describes them."""

    node: Node
    shown: dict[TopicPartition, PartitionState] = field(default_factory=dict)

    def topic_state(self, topics: object) -> dict[TopicPartition, PartitionState]:
        return self.shown


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node with two segments of t/0 (the second has two batches), two checkpoints, and the mark of a clean stop."""
    replica = tmp_path / "data" / "t-0"
    replica.mkdir(parents=True)
    (replica / f"{0:020}.log").write_bytes(make_batch(0))
    (replica / f"{5:020}.log").write_bytes(make_batch(5) + make_batch(10))
    for folder, name in (
        (replica.parent, "recovery-point-offset-checkpoint"),
        (replica, "leader-epoch-checkpoint"),
    ):
        (folder / name).write_text("0\n0\n")
    (replica.parent / CLEAN_SHUTDOWN).write_text("")
    return Node(replica.parent)


def _done(node: Node, kind: type[FaultSpec], cluster: Cluster | None = None, **body: object) -> Any:
    case = SimpleNamespace(experiment=SimpleNamespace(topics={"t": None}))
    leader = Role(RoleKind.LEADER, *PLACE)
    return make(kind, node, cluster=cluster or Cluster(node), case=case, target=leader, **body)


def _segment(node: Node, base: int) -> Path:
    return node.disk.data / "t-0" / f"{base:020}.log"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("segment", "base", "ends"),
    [
        ("active", 5, "up to offset 15, now 201 B with whole batches up to 10"),
        ("closed", 0, "up to offset 5, now 100 B with whole batches up to 0"),
    ],
)
def test_a_segment_is_shorter_and_holds_fewer_records(node: Node, segment: str, base: int, ends: str) -> None:
    cut = _done(node, TruncateSegment, segment=segment, bytes=1)
    cut.inject()
    assert node.told == ["kill"]
    assert _segment(node, base).stat().st_size == BATCH * (2 if base else 1) - 1
    assert cut.confirm().endswith(ends)
    # With the mark of a clean shutdown the node would check none of its files.
    assert not (node.disk.data / CLEAN_SHUTDOWN).exists()  # type: ignore[attr-defined]


def test_a_part_of_a_batch_is_cut_off_with_the_last_complete_one(node: Node) -> None:
    """A segment may end with a partial batch. It is cut off, and `bytes` of the last complete batch."""
    with _segment(node, 5).open("ab") as log:
        log.write(b"\0" * 30)
    cut = _done(node, TruncateSegment, bytes=10)
    cut.inject()
    assert _segment(node, 5).stat().st_size == 2 * BATCH - 10
    assert cut.confirm().endswith(f"up to offset 15, now {2 * BATCH - 10} B with whole batches up to 10")


@pytest.mark.parametrize("dud", ["whole", "alive"])
def test_a_segment_that_lost_no_record_was_not_cut(
    node: Node, monkeypatch: pytest.MonkeyPatch, dud: str
) -> None:
    if dud == "whole":
        monkeypatch.setattr(os, "truncate", lambda path, size: None)
    cut = _done(node, TruncateSegment, bytes=10)
    cut.inject()
    if dud == "alive":
        monkeypatch.setattr(log_files, "GONE_WITHIN_S", 0.05)
        node.now = NodeState.RUNNING
    with pytest.raises(FaultNotConfirmed, match="node 1 to be" if dud == "alive" else "no record is gone"):
        cut.confirm()


def test_what_is_not_there_cannot_be_cut(node: Node) -> None:
    _segment(node, 0).unlink()
    with pytest.raises(FaultNotConfirmed, match="has no closed segment yet"):
        _done(node, TruncateSegment, segment="closed").inject()
    shutil.rmtree(_segment(node, 0).parent)
    with pytest.raises(FaultNotConfirmed, match="has no replica of t/0 on its disk"):
        _done(node, TruncateSegment).inject()
    assert node.told == []


@pytest.mark.parametrize(
    ("file", "path"),
    [("recovery-point", "recovery-point-offset-checkpoint"), ("leader-epoch", "t-0/leader-epoch-checkpoint")],
    ids=["of the log dir", "of the partition"],
)
def test_a_checkpoint_is_gone(node: Node, file: str, path: str) -> None:
    gone = _done(node, DeleteCheckpoint, file=file)
    gone.inject()
    at = node.disk.data / path  # type: ignore[attr-defined]
    assert not at.exists()
    assert "1 file(s)" in gone.confirm()
    at.write_text("")
    with pytest.raises(FaultNotConfirmed, match="still has"):
        gone.confirm()


def test_a_checkpoint_that_is_not_there_is_no_reason_to_kill(node: Node) -> None:
    with pytest.raises(FaultNotConfirmed, match="has no log-start-offset-checkpoint to delete"):
        _done(node, DeleteCheckpoint, file="log-start-offset").inject()
    assert node.told == []


def test_a_disk_is_empty(node: Node) -> None:
    emptied = _done(node, EmptyDisk)
    emptied.inject()
    assert list(node.disk.data.iterdir()) == []  # type: ignore[attr-defined]
    assert "had 2 segments" in emptied.confirm()
    emptied.heal()
    assert (node.laid, node.now) == (["laid"], NodeState.RUNNING)


@pytest.mark.parametrize(("how", "ends"), [("live", "kill"), ("stopped", "terminate")])
def test_a_disk_comes_back_as_it_was_copied(node: Node, how: str, ends: str) -> None:
    data = node.disk.data  # type: ignore[attr-defined]
    before = {path.relative_to(data): path.read_bytes() for path in data.rglob("*") if path.is_file()}
    emptied = _done(node, EmptyDisk, restore=how)
    emptied.inject()
    assert node.told == [ends]
    assert list(data.iterdir()) == []
    assert "2 segments, its copy has 2 segments" in emptied.confirm()
    (data / "written-since").write_text("by one that another fault started")
    assert "put the copy of" in emptied.heal()
    assert {path.relative_to(data): path.read_bytes() for path in data.rglob("*") if path.is_file()} == before
    assert not node.disk.copies[data].exists()  # type: ignore[attr-defined]
    assert node.laid == []


def test_a_live_copy_is_as_old_as_is_asked(node: Node) -> None:
    data = node.disk.data  # type: ignore[attr-defined]
    emptied = _done(node, EmptyDisk, restore="live", age=0.5)
    later = threading.Timer(0.2, (data / "written-since").touch)
    later.start()
    emptied.inject()
    later.join()
    assert list(data.iterdir()) == []
    emptied.heal()
    assert (data / "t-0").exists()
    assert not (data / "written-since").exists()


@pytest.mark.parametrize("when", ["never made", "not put back"])
def test_a_copy_that_is_not_whole_is_told(node: Node, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    emptied = _done(node, EmptyDisk, restore="live")
    if when == "never made":
        monkeypatch.setattr(disks, "copy_folder", lambda *_: None)
    emptied.inject()
    if when == "never made":
        with pytest.raises(FaultNotConfirmed, match="no whole copy"):
            emptied.confirm()
        return
    monkeypatch.setattr(disks, "copy_folder", lambda *_: None)
    with pytest.raises(FaultNotConfirmed, match="disk has 0 segments, 0 bytes, and its copy 2"):
        emptied.heal()


@pytest.mark.parametrize("dud", ["a file is left", "nothing was there"])
def test_a_disk_that_was_not_emptied(node: Node, dud: str) -> None:
    data = node.disk.data  # type: ignore[attr-defined]
    if dud == "nothing was there":
        shutil.rmtree(data / "t-0")
    emptied = _done(node, EmptyDisk)
    emptied.inject()
    if dud == "a file is left":
        (data / "meta.properties").write_text("")
    with pytest.raises(FaultNotConfirmed, match="still has meta" if dud == "a file is left" else "no log on"):
        emptied.confirm()


def test_a_disk_that_was_never_emptied_is_not_formatted(node: Node) -> None:
    node.deaf = True
    emptied = _done(node, EmptyDisk)
    assert emptied._mend(node) == ""
    assert node.laid == []


def _make_state(leader: int, isr: tuple[int, ...], replicas: tuple[int, ...] = (1, 2)) -> PartitionState:
    return PartitionState("t", 0, leader, 1, replicas, isr)


@pytest.mark.parametrize(
    ("shown", "back"),
    [
        (_make_state(2, (2, 1)), True),
        (_make_state(2, (2,)), False),
        (_make_state(-1, (1,)), False),
        (_make_state(2, (2,), (2, 3)), True),
        (None, False),
    ],
    ids=["in sync", "behind", "no leader", "of others", "nobody tells"],
)
def test_it_is_healed_when_its_replicas_are_in_sync(
    node: Node, monkeypatch: pytest.MonkeyPatch, shown: PartitionState | None, back: bool
) -> None:
    monkeypatch.setattr(disks, "BACK_WITHIN_S", 0.05)
    cluster = Cluster(node, {} if shown is None else {PLACE: shown})
    gone = _done(node, DeleteCheckpoint, cluster, file="recovery-point")
    gone.inject()
    gone.heal()
    words = f"in the ISR of all its {int(shown is not None and 1 in shown.replicas)} partition(s)"
    expect(gone.confirm_healed, back, words, "the replicas of 1 to be in sync")


def test_one_that_runs_again_is_ended_before_its_disk_is_mended(node: Node) -> None:
    """A node that another fault's healing has started is killed first: no broker may write to a disk under repair."""
    emptied = _done(node, EmptyDisk)
    emptied.inject()
    node.now, node.told = NodeState.RUNNING, []
    emptied.heal()
    assert node.told == ["kill", "start"]


OLD = ["[1] shutting down", "Picked up JAVA_TOOL_OPTIONS"]
LINE = "[2] starting"


@pytest.mark.parametrize(
    ("lines", "believed"),
    [([*OLD, LINE], True), ([*OLD, LINE, f"[3] {STARTED}"], False), ([LINE], True)],
    ids=["starts", "has started", "a new file"],
)
def test_it_was_killed_before_it_had_started(
    node: Node, monkeypatch: pytest.MonkeyPatch, lines: list[str], believed: bool
) -> None:
    node.lines = [f"[0] {STARTED}", *OLD]

    def start() -> None:
        node._become("start", NodeState.RUNNING)
        node.lines = ([] if lines == [LINE] else node.lines[:1]) + lines

    monkeypatch.setattr(node, "start", start)
    killed = _done(node, KillStarting, up=0.0)
    killed.inject()
    assert node.told == ["kill", "start", "kill"]
    expect(
        killed.confirm,
        believed,
        "begins a start and does not end it",
        "node 1 had started before it was killed",
    )


def test_one_that_says_nothing_was_not_seen_to_start(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crashes, "LOGS_WITHIN_S", 0.05)
    node.lines = list(OLD)
    with pytest.raises(FaultNotConfirmed, match="node 1 to log that it starts"):
        _done(node, KillStarting).inject()


def test_settings_that_make_kafka_fsync_are_found_wherever_they_stand() -> None:
    cluster = SimpleNamespace(
        config={"log.flush.interval.ms": "9"}, broker_config={2: {"log.flush.interval.messages": "1"}}
    )
    topics = {"t": SimpleNamespace(config={"flush.messages": "1", "min.insync.replicas": "2"})}
    assert flush_settings(cast(Any, SimpleNamespace(cluster=cluster, topics=topics))) == [
        "log.flush.interval.ms",
        "log.flush.interval.messages",
        "flush.messages",
    ]
