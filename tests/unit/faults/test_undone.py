"""Requests for a change, and the undoing of a change, while brokers and controllers end."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Flag
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ackproof.base.errors import AckproofError, FaultNotConfirmed, Interrupted
from ackproof.cluster import admin, queries
from ackproof.cluster.queries import PartitionState
from ackproof.faults.context import FaultContext, Holds
from ackproof.faults.driver import FaultDriver
from ackproof.faults.life import OVER
from ackproof.faults.planned import views
from ackproof.faults.planned.reassignments import (
    CancelledReassignment,
    CancelReassign,
    Reassign,
)
from ackproof.faults.processes import KillInjection
from ackproof.network.wire import Refused, Unreachable
from ackproof.plan.cases import cases, load
from ackproof.rundir.clock import RunClock
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import Note, Timeline, read_timeline
from fake_nodes import FakeCluster, FakeNode
from fault_stand import make, wait_shortly

PLACE = TopicPartition("t", 0)
SHOWN = PartitionState("t", 0, 1, 0, (1, 2, 3), (1, 2, 3))
FAULTS = """\
name: t
topics: {orders: {}}
workload: {duration: 1s}
faults:
  - kill: {target: broker(1)}
    at: 0ms
    restart_after: 1ms
  - pause: {target: broker(2)}
    at: 0ms
    for: 300ms
"""


@dataclass
class Cluster:
    """Fake brokers, which answer while they are in `nodes`."""

    nodes: dict[int, str]

    def topic_state(self, topics: object) -> dict[TopicPartition, PartitionState]:
        return {PLACE: SHOWN}

    def running_links(self) -> dict[int, str]:
        return self.nodes

    spec = SimpleNamespace(metadata=SimpleNamespace(broker_controls=False))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    wait_shortly(monkeypatch, 0.2)
    monkeypatch.setattr(queries, "brokers", lambda link, timeout_s: frozenset({1, 2, 3}))
    monkeypatch.setattr(queries, "partitions", lambda link, topics: {PLACE: SHOWN})
    monkeypatch.setattr(admin, "reassign", lambda link, moves: None)
    monkeypatch.setattr(admin, "reassignments", lambda link: {})
    return Cluster({1: "1", 2: "2", 3: "3"})


def _move(cluster: Cluster, throttle: int | None = None) -> Any:
    return make(Reassign, cluster=cluster, holds=Holds(), partition=PLACE, to=(2, 1, 3), throttle=throttle)


def _refuse(why: str) -> None:
    raise Unreachable(why)


class WithZooKeeper(Cluster):
    """A cluster with ZooKeeper: only its controller (`named`), at first broker 3, accepts changes."""

    spec = SimpleNamespace(metadata=SimpleNamespace(broker_controls=True, session="session"))
    named = 3

    def controller(self) -> int:
        return self.named


@pytest.fixture
def controlled(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> WithZooKeeper:
    monkeypatch.setattr(views, "longest_time_out", lambda spec, name: 200)
    return WithZooKeeper(cluster.nodes)


def _end_the_controller(cluster: WithZooKeeper, after_s: float = 0.05) -> None:
    """End broker 3, the controller. Broker 1 becomes the controller after `after_s` seconds."""
    del cluster.nodes[3]
    threading.Timer(after_s, setattr, (cluster, "named", 1)).start()


def test_a_controller_that_died_is_awaited_by_who_asks_for_a_change(controlled: WithZooKeeper) -> None:
    move = _move(controlled)
    _end_the_controller(controlled)
    assert "asked broker 1" in move.inject()


def test_nobody_who_could_be_asked_is_no_end_of_a_move(controlled: WithZooKeeper) -> None:
    move = _move(controlled)
    move.inject()
    _end_the_controller(controlled)
    assert move.heal() == "it is through"


def test_a_controller_that_nobody_replaces_is_told_within_the_bound(controlled: WithZooKeeper) -> None:
    del controlled.nodes[3]
    with pytest.raises(FaultNotConfirmed, match=r"waited .* for a broker that takes changes"):
        views.views(FaultContext(cast(Any, controlled), threading.Event(), holds=Holds()))


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str | None]]:
    """The changes of all brokers' settings that were requested so far."""
    asked: list[dict[str, str | None]] = []
    monkeypatch.setattr(
        admin,
        "alter_config",
        lambda link, changes: asked.append(changes[admin.Owner(admin.ResourceType.BROKER, "")]),
    )
    return asked


LIFTED = dict.fromkeys(("leader.replication.throttled.rate", "follower.replication.throttled.rate"))


def test_a_throttle_is_lifted_where_the_move_could_not_be_asked_for(
    cluster: Cluster, changes: list[dict[str, str | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "reassign", lambda link, moves: _refuse("the node closed the connection"))
    move = _move(cluster, 1000)
    with pytest.raises(FaultNotConfirmed):
        move.inject()
    move.heal()
    assert changes == [dict.fromkeys(LIFTED, "1000"), LIFTED]


def test_a_throttle_is_lifted_where_the_move_does_not_end(
    cluster: Cluster, changes: list[dict[str, str | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "reassignments", lambda link: {PLACE: None})
    move = _move(cluster, 1000)
    move.inject()
    assert move.heal() == "it was not through after 90 s at 1000 bytes a second; throttle lifted"
    assert changes[-1] == LIFTED
    assert move.put_back() == ""
    with pytest.raises(FaultNotConfirmed, match="on the replicas that were asked for"):
        move.confirm_healed()


@pytest.mark.parametrize("seen", [True, False])
def test_a_storm_takes_a_move_that_completed_before_it_was_cancelled_and_a_file_does_not(
    cluster: Cluster, changes: list[dict[str, str | None]], monkeypatch: pytest.MonkeyPatch, seen: bool
) -> None:
    """`seen`: True if the controller's list shows the completion; False if only the refused cancellation does."""
    del changes
    if not seen:

        def reassign(_link: object, moves: dict[object, object]) -> None:
            if None in moves.values():
                raise Refused("reassignment", 85)

        monkeypatch.setattr(admin, "reassign", reassign)
        monkeypatch.setattr(CancelledReassignment, "_goes_on", lambda self: True)
    for number in (1001, 1):
        move = make(
            CancelReassign,
            cluster=cluster,
            number=number,
            holds=Holds(),
            partition=PLACE,
            to=(2, 1, 3),
            throttle=1000,
        )
        move.inject()
        if number > 1:
            did = f"the reassignment of {PLACE} completed before it was cancelled: use a smaller throttle"
            assert move.heal() == f"{did}; throttle lifted"
        else:
            with pytest.raises(FaultNotConfirmed, match="completed before it was cancelled"):
                move.heal()


def test_a_throttle_is_lifted_when_the_run_is_stopped(
    cluster: Cluster, changes: list[dict[str, str | None]]
) -> None:
    move = _move(cluster, 1000)
    move.inject()
    move.context.stop.set()
    with pytest.raises(Interrupted):
        move.heal()
    assert changes[-1] == LIFTED


def test_a_throttle_that_nobody_could_lift_is_lifted_at_the_end(
    cluster: Cluster, changes: list[dict[str, str | None]]
) -> None:
    move = _move(cluster, 1000)
    move.inject()
    gone = dict(cluster.nodes)
    cluster.nodes.clear()
    with pytest.raises(FaultNotConfirmed):
        move.heal()
    cluster.nodes.update(gone)
    assert len(changes) == 1
    assert move.put_back() == "throttle lifted"
    assert changes[-1] == LIFTED
    assert move.put_back() == ""


def test_what_could_not_heal_is_put_back_when_all_faults_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, told = tmp_path / "e.yaml", tmp_path / "timeline.jsonl"
    file.write_text(FAULTS, encoding="utf-8")
    timeline = Timeline(told, RunClock.start())
    context = FaultContext(FakeCluster({1: FakeNode(1), 2: FakeNode(2)}), Flag(), holds=Holds())  # type: ignore[arg-type]
    driver = FaultDriver(
        cases(load(file))[0], context, cast(Any, None), timeline, lambda role, _: (int(str(role)[-2]),)
    )
    there: list[bool] = []

    def heal(injection: KillInjection) -> str:
        raise AckproofError("nobody could be asked")

    def put_back(injection: KillInjection) -> str:
        there.append(driver.stages()[2] in OVER)
        return "throttle lifted"

    monkeypatch.setattr(KillInjection, "heal", heal)
    monkeypatch.setattr(KillInjection, "put_back", put_back)
    driver.start()
    driver.heal_all()
    driver.heal_all()
    timeline.close()
    assert there == [True]
    notes = [event.what.note for event in read_timeline(told)[0] if isinstance(event.what, Note)]
    assert notes == ["fault 1: throttle lifted"]
