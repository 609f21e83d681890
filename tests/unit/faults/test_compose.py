"""Faults on a node, link or partition that another fault affects already: each works as if it were alone."""

from __future__ import annotations

import shutil
import threading
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event as Flag
from types import SimpleNamespace
from typing import Any

import pytest

from ackproof.base.errors import AckproofError, FaultNotConfirmed
from ackproof.base.wait import wait_until
from ackproof.cluster import admin, queries
from ackproof.cluster.clocks import ClockReading
from ackproof.cluster.protocol import NodeState
from ackproof.cluster.queries import PartitionState
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.fault import Grip
from ackproof.experiment.roles import Role, RoleKind
from ackproof.faults import clocks
from ackproof.faults.clocks import ClockJump
from ackproof.faults.context import Holds
from ackproof.faults.crashes import Starve
from ackproof.faults.disks.flip_bits import FlipBits
from ackproof.faults.planned.reassignments import Reassign
from ackproof.faults.planned.topics import SetConfig
from ackproof.faults.processes import Pause
from ackproof.network.wire import Unreachable
from ackproof.rundir.partition import TopicPartition
from fault_stand import expect, make, make_batch, wait_shortly
from local_node import OnThisMachine

PLACE = TopicPartition("t", 0)


@dataclass
class Node(OnThisMachine):
    """A fake node with a clock, shifted by `off` seconds, and with a replica in `folder`. `looks`: the shift at each
    reading of the clock so far. `answers` False: readings raise OSError."""

    id: int
    is_broker: bool = True
    folder: Path | None = None
    pid: int = 1
    now: NodeState = NodeState.RUNNING
    off: float = 0.0
    answers: bool = True
    looks: list[float] = field(default_factory=list)

    def state(self) -> NodeState:
        return self.now

    def await_ready(self, timeout_s: float) -> None:
        """Return at once: the node is always ready."""

    @property
    def disk(self) -> Any:  # type: ignore[override]
        return SimpleNamespace(partition=lambda *_: self.folder)

    def kill(self) -> None:
        raise AssertionError("nobody is to be struck here")

    start = terminate = kill

    def pause(self) -> None:
        self.now = NodeState.STOPPED if self.now is NodeState.RUNNING else self.now

    def resume(self) -> None:
        self.now = NodeState.RUNNING if self.now is NodeState.STOPPED else self.now

    def shift(self, seconds: float) -> None:
        self.off = seconds

    def read(self) -> ClockReading:
        self.looks.append(self.off)
        if not self.answers:
            raise OSError("it is gone")
        return ClockReading(self.off - 0.01, self.off + 0.01)


@dataclass
class Cluster:
    """A cluster in which every broker shows the partition in the state `shown`."""

    nodes: dict[int, Node]
    shown: PartitionState

    def topic_state(self, topics: object) -> dict[TopicPartition, PartitionState]:
        return {PLACE: self.shown}

    def running_links(self) -> dict[int, Any]:
        return {number: SimpleNamespace(ask=lambda asked: asked) for number in self.nodes}

    def brokers(self) -> list[Node]:
        return list(self.nodes.values())

    spec = SimpleNamespace(metadata=SimpleNamespace(broker_controls=False))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    wait_shortly(monkeypatch, 0.2)
    monkeypatch.setattr(clocks, "clock_of", lambda node: node)
    made = Cluster({number: Node(number) for number in (1, 2, 3)}, _make_state((1, 2, 3)))
    monkeypatch.setattr(queries, "brokers", lambda link, timeout_s: frozenset({1, 2, 3}))
    monkeypatch.setattr(queries, "partitions", lambda link, topics: {PLACE: made.shown})
    monkeypatch.setattr(queries, "ask_log_ends", lambda places: places)
    monkeypatch.setattr(queries, "read_offsets", lambda places: dict.fromkeys(places, 7))
    monkeypatch.setattr(admin, "reassign", lambda link, moves: None)
    monkeypatch.setattr(admin, "reassignments", lambda link: {})
    return made


def _make_state(replicas: tuple[int, ...], isr: tuple[int, ...] = (1, 2, 3)) -> PartitionState:
    return PartitionState("t", 0, replicas[0], 0, replicas, isr)


CASE = SimpleNamespace(experiment=SimpleNamespace(topics={"t": ExperimentSpec}))
BROKER, FOLLOWER = Role(RoleKind.BROKER, node=1), Role(RoleKind.FOLLOWER, "t", 0)


def _move(cluster: Cluster, holds: Holds, number: int, to: tuple[int, ...]) -> Any:
    return make(Reassign, cluster=cluster, holds=holds, number=number, partition=PLACE, to=to)


def test_a_reassignment_is_through_when_the_later_one_of_its_partition_is(cluster: Cluster) -> None:
    holds = Holds()
    first, second = _move(cluster, holds, 1001, (2, 1, 3)), _move(cluster, holds, 1002, (3, 1, 2))
    first.inject()
    cluster.shown = _make_state((2, 1, 3))
    first.confirm()
    second.inject()
    with pytest.raises(FaultNotConfirmed, match=r"\[3, 1, 2\] were asked for, and there is .*\(2, 1, 3\)"):
        first.confirm_healed()
    cluster.shown = _make_state((3, 1, 2))
    assert "fault 1.2 has asked for these since" in first.confirm_healed()
    assert "since" not in second.confirm_healed()


def test_a_reassignment_that_found_nothing_to_move_awaits_nothing(cluster: Cluster) -> None:
    move = _move(cluster, Holds(), 1001, (1, 2, 3))
    with pytest.raises(FaultNotConfirmed, match="nothing to move"):
        move.inject()
    cluster.shown = _make_state((1, 2, 3), isr=(1,))
    assert (move.heal(), move.confirm_healed()) == ("nothing to undo", "nothing was asked for")


def test_a_broker_that_ends_while_it_is_asked_is_replaced_by_another(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def reassign(link: object, moves: object) -> None:
        asked.append(link)
        if len(asked) == 1:
            del cluster.nodes[1]
            raise Unreachable("the node closed the connection")

    monkeypatch.setattr(admin, "reassign", reassign)
    move = _move(cluster, Holds(), 1, (2, 1, 3))
    assert "asked broker 2" in move.inject()
    monkeypatch.setattr(admin, "reassign", lambda link, moves: _refuse("the node closed the connection"))
    with pytest.raises(FaultNotConfirmed, match="the node closed the connection"):
        _move(cluster, Holds(), 2, (3, 2, 1)).inject()


def test_settings_are_put_back_by_the_first_broker_that_runs_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Healing waits for a broker if other faults have ended all of them."""
    asked: list[object] = []
    setting = admin.Setting("1", own=False)
    monkeypatch.setattr(admin, "describe_config", lambda link, owner, names: {"flush.ms": setting})
    monkeypatch.setattr(admin, "alter_config", lambda link, changes: asked.append(changes))
    change = make(SetConfig, cluster=cluster, holds=Holds(), topic="t", config={"flush.ms": "9"})
    change.inject()
    gone = dict(cluster.nodes)
    cluster.nodes.clear()
    threading.Timer(0.1, cluster.nodes.update, (gone,)).start()
    assert change.heal() == "asked broker 1 to put topic t back: flush.ms inherited"
    assert len(asked) == 2
    cluster.nodes.clear()
    with pytest.raises(FaultNotConfirmed, match="no broker runs that could be asked"):
        change.heal()


def _refuse(why: str) -> None:
    raise Unreachable(why)


def test_the_log_of_a_broker_that_another_fault_has_is_asked_for_when_it_is_free(cluster: Cluster) -> None:
    holds = Holds()
    move = _move(cluster, holds, 1001, (2, 1, 3))
    move.inject()
    cluster.shown = _make_state((2, 1, 3))
    holds.take(1, 1002, Grip.DOWN)
    threading.Timer(0.1, lambda: holds.release(1, 1002)).start()
    assert "log ends 2: 7, 1: 7, 3: 7" in move.confirm_healed()
    assert not holds.others(1, 1001)


def _jump(cluster: Cluster, holds: Holds, number: int, by: float) -> Any:
    return make(
        ClockJump, cluster.nodes[1], cluster=cluster, holds=holds, number=number, target=BROKER, by=by
    )


def test_jumps_of_one_clock_add_up_and_each_is_undone_alone(cluster: Cluster) -> None:
    holds, clock = Holds(), cluster.nodes[1]
    first, second = _jump(cluster, holds, 1, 30.0), _jump(cluster, holds, 2, -600.0)
    for jump, off in ((first, 30.0), (second, -570.0)):
        jump.inject()
        assert clock.off == off
        assert f"off by {off:+.1f} s" in jump.confirm()
    first.heal()
    assert "off by -600.0 s" in first.confirm_healed()
    second.heal()
    assert clock.off == 0.0
    assert "off by +0.0 s" in second.confirm_healed()


def test_a_clock_that_another_jump_did_not_move_is_no_bite(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds = Holds()
    _jump(cluster, holds, 1, 30.0).inject()
    second = _jump(cluster, holds, 2, 600.0)
    monkeypatch.setattr(cluster.nodes[1], "shift", lambda seconds: None)
    second.inject()
    with pytest.raises(FaultNotConfirmed, match=r"off by \+630 s.*off by \+30\.0 s"):
        second.confirm()


def test_a_clock_is_looked_at_when_the_fault_that_took_its_node_lets_go(cluster: Cluster) -> None:
    holds, node = Holds(), cluster.nodes[1]
    jump = _jump(cluster, holds, 1, 30.0)
    jump.inject()
    node.answers = False
    holds.take(1, 2, Grip.DOWN)

    def back() -> None:
        node.answers = True
        holds.release(1, 2)

    threading.Timer(0.5, back).start()
    assert "off by +30.0 s" in jump.confirm()


@pytest.mark.parametrize("others", ["behind", "held"])
def test_a_flipped_bit_that_nobody_could_replace_is_flipped_back(
    cluster: Cluster, tmp_path: Path, others: str
) -> None:
    holds, node = Holds(), cluster.nodes[1]
    node.folder = tmp_path
    log = tmp_path / f"{0:020}.log"
    log.write_bytes(whole := make_batch(0) + make_batch(5))
    rot = make(FlipBits, node, cluster=cluster, holds=holds, case=CASE, target=FOLLOWER)
    rot.inject()
    assert "does not hold on broker" in rot.confirm()
    if others == "behind":
        cluster.shown = _make_state((1, 2, 3), isr=(1, 2))
    else:
        holds.take(3, 2, Grip.DOWN)
    assert "bit flipped back on broker" in rot.heal()
    assert log.read_bytes() == whole


@pytest.mark.parametrize("broken_by_another", [True, False])
def test_a_rotten_replica_on_a_disk_that_another_fault_broke_waits_for_that_to_be_mended(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken_by_another: bool
) -> None:
    holds, node = Holds(), cluster.nodes[1]
    node.folder = tmp_path / "t-0"
    node.folder.mkdir()
    (node.folder / f"{0:020}.log").write_bytes(make_batch(0))
    rot = make(FlipBits, node, cluster=cluster, holds=holds, case=CASE, target=FOLLOWER)
    rot.inject()
    remove, tried = shutil.rmtree, Flag()

    def broken(folder: Path) -> None:
        tried.set()
        if holds.others(1, 1) or not broken_by_another:
            raise OSError(5, "Input/output error")
        remove(folder)

    monkeypatch.setattr("shutil.rmtree", broken)
    monkeypatch.setattr(Node, "kill", lambda self: setattr(self, "now", NodeState.GONE))
    monkeypatch.setattr(Node, "start", lambda self: setattr(self, "now", NodeState.RUNNING))
    if not broken_by_another:
        with pytest.raises(AckproofError, match="could not be removed"):
            rot.heal()
        return
    holds.take(1, 2, Grip.DOWN)
    done: list[str] = []
    healing = threading.Thread(target=lambda: done.append(rot.heal()))
    healing.start()
    assert tried.wait(5)
    assert not done
    holds.release(1, 2)
    healing.join(5)
    assert "removed its replica" in done[0]
    assert not node.folder.exists()
    assert node.now is NodeState.RUNNING


def test_a_log_that_was_cut_meanwhile_is_left_as_it_is(cluster: Cluster, tmp_path: Path) -> None:
    node = cluster.nodes[1]
    node.folder = tmp_path
    log = tmp_path / f"{0:020}.log"
    log.write_bytes(make_batch(0) + make_batch(5))
    rot = make(FlipBits, node, cluster=cluster, case=CASE, target=FOLLOWER)
    rot.inject()
    log.write_bytes(another := make_batch(0) + make_batch(5, 5, b"s" * 40))
    cluster.shown = _make_state((1, 2, 3), isr=(1,))
    assert "flipped back on no node" in rot.heal()
    assert log.read_bytes() == another


def _starve(cluster: Cluster, holds: Holds) -> Any:
    return make(Starve, cluster.nodes[1], cluster=cluster, holds=holds, target=BROKER, share=0.5)


def test_a_starved_node_can_be_paused_and_stands_still_until_that_heals(cluster: Cluster) -> None:
    holds, node = Holds(), cluster.nodes[1]
    starve = _starve(cluster, holds)
    starve.inject()
    wait_until(lambda: node.now is NodeState.STOPPED, what="its turn to stand", timeout_s=5)
    pause = make(Pause, node, cluster=cluster, holds=holds, number=2, target=BROKER)
    pause.inject()
    pause.confirm()
    starve.heal()
    assert node.now is NodeState.STOPPED
    assert pause.heal() == "SIGCONT to 1"
    assert node.now is NodeState.RUNNING


@pytest.mark.parametrize("by_a_fault", [True, False])
def test_a_starved_process_that_ended_is_the_doing_of_the_fault_that_took_it(
    cluster: Cluster, by_a_fault: bool
) -> None:
    holds, node = Holds(), cluster.nodes[1]
    starve = _starve(cluster, holds)
    starve.inject()
    if by_a_fault:
        holds.take(1, 2, Grip.DOWN)
        holds.release(1, 2)
    node.pid += 1
    words, why = "the process of node 1 had ended", "did not hold: node 1 is another process"
    expect(starve.heal, by_a_fault, words, why)


def test_settings_that_nobody_could_be_asked_for_await_nobody(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise Unreachable("connection refused")

    monkeypatch.setattr(admin, "describe_config", refused)
    change = make(SetConfig, cluster=cluster, holds=Holds(), topic="t", config={"flush.messages": "1"})
    with pytest.raises(FaultNotConfirmed, match="connection refused"):
        change.inject()
    assert (change.heal(), change.confirm_healed()) == ("nothing to undo", "nothing was asked for")
