"""Duds of quorum faults and planned work: a request that had no effect must not be confirmed."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ackproof.base.errors import FaultNotConfirmed, WaitTimeout
from ackproof.cluster import admin, install, queries
from ackproof.cluster.protocol import NodeState
from ackproof.cluster.queries import PartitionEnds, PartitionState, Quorum, Voter
from ackproof.experiment.fault import Grip
from ackproof.experiment.kafka import KRAFT, KafkaBuild
from ackproof.experiment.roles import Role, RoleKind
from ackproof.experiment.spec import ClusterSpec, TopicSpec
from ackproof.faults import rolling as rollouts
from ackproof.faults.context import FaultContext, Holds
from ackproof.faults.planned import topics, views
from ackproof.faults.planned.topics import Recreate
from ackproof.faults.quorum import LoseQuorum, RemoveController
from ackproof.faults.rolling import Upgrade
from ackproof.network.wire import Unreachable
from ackproof.rundir.partition import TopicPartition
from fake_nodes import FakeNode
from fault_stand import make, wait_shortly

PLACE = TopicPartition("t", 0)


@dataclass
class Node(FakeNode):
    """A fake node that is ready while it runs, and whose log (`log`) names its release."""

    log: str = "Kafka version: 4.3.0"

    def await_ready(self, timeout_s: float) -> None:
        if self.now is not NodeState.RUNNING:
            raise WaitTimeout("not ready")

    def log_tail(self, lines: int = 20) -> str:
        return self.log


@dataclass
class FakeCluster:
    """A fake cluster with fixed answers, whatever is requested of it. `active`: id of the active controller.
    `releases`: release of each node whose build was changed."""

    nodes: dict[int, Node]
    active: int | None = 101
    ends: dict[TopicPartition, PartitionEnds] = field(default_factory=dict)
    releases: dict[int, str] = field(default_factory=dict)
    spec: ClusterSpec = field(default_factory=ClusterSpec)

    def controller(self) -> int | None:
        return self.active

    def running_links(self) -> dict[int, Any]:
        return {1: "link 1", 2: "link 2"}

    def partition_ends(self, topics: object) -> dict[TopicPartition, PartitionEnds]:
        return self.ends

    def use_build(self, node_id: int, build: KafkaBuild) -> None:
        self.releases[node_id] = build.version

    def create_topics(self, topics: object, timeout_s: float) -> None:
        """Do nothing: the fake accepts the request without effect."""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_shortly(monkeypatch, 0.5)
    monkeypatch.setattr(queries, "brokers", lambda link, timeout_s: frozenset({1, 2}))


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster({node: Node(node, is_broker=node < 100) for node in (1, 2, 101, 102, 103)})


CASE = SimpleNamespace(experiment=SimpleNamespace(topics={"t": TopicSpec()}))
CONTROLLER = Role(RoleKind.CONTROLLER, node=102)


@pytest.mark.parametrize("by", ["kill", "pause"])
def test_a_quorum_that_somebody_leads_is_not_lost(cluster: FakeCluster, by: Any) -> None:
    controllers = [cluster.nodes[node] for node in (101, 102, 103)]
    lost = make(LoseQuorum, *controllers, cluster=cluster, by=by)
    lost.inject()
    with pytest.raises(FaultNotConfirmed, match=r"no controller to lead the quorum.*active controller: 101"):
        lost.confirm()
    cluster.active = None
    assert "controller 103 knows no leader" in lost.confirm()
    with pytest.raises(FaultNotConfirmed, match="a controller to lead the quorum"):
        lost.heal()
        lost.confirm_healed()


@pytest.mark.parametrize(("by", "state"), [("kill", "gone"), ("pause", "stopped")])
def test_a_signal_that_misses_loses_no_quorum(cluster: FakeCluster, by: Any, state: str) -> None:
    cluster.active = None
    cluster.nodes[102].deaf = True
    controllers = [cluster.nodes[node] for node in (101, 102, 103)]
    lost = make(LoseQuorum, *controllers, cluster=cluster, by=by)
    lost.inject()
    with pytest.raises(FaultNotConfirmed, match=f"node 102 to be {state}"):
        lost.confirm()


@pytest.fixture
def voting(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The voters that every broker lists, which a test changes. Changes by requests are accepted without effect."""
    ids = [101, 102, 103]

    def find_quorum(link: object, *, directories: bool) -> Quorum:
        return Quorum(101, 1, tuple(Voter(node, uuid.UUID(int=node)) for node in ids))

    monkeypatch.setattr(queries, "quorum", find_quorum)
    monkeypatch.setattr(admin, "features", lambda link: SimpleNamespace(finalised={KRAFT: 1}))
    monkeypatch.setattr(admin, "remove_voter", lambda link, member: None)
    monkeypatch.setattr(admin, "add_voter", lambda link, member: None)
    return iter([ids])


def test_a_controller_that_still_votes_was_not_removed(
    cluster: FakeCluster, voting: Iterator[list[int]]
) -> None:
    ids = next(voting)
    removal = make(RemoveController, cluster.nodes[102], cluster=cluster, target=CONTROLLER)
    removal.inject()
    with pytest.raises(FaultNotConfirmed, match="list controller 102 no longer among the voters"):
        removal.confirm()
    ids.remove(102)
    assert "voters 101, 103" in removal.confirm()
    removal.heal()
    with pytest.raises(FaultNotConfirmed, match="list controller 102 among the voters"):
        removal.confirm_healed()


def test_who_does_not_vote_cannot_be_removed(cluster: FakeCluster, voting: Iterator[list[int]]) -> None:
    next(voting).remove(102)
    removal = make(RemoveController, cluster.nodes[102], cluster=cluster, target=CONTROLLER)
    with pytest.raises(FaultNotConfirmed, match="is no voter: nothing to remove"):
        removal.inject()


def test_a_topic_that_others_still_show_was_not_deleted(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = {PLACE: PartitionState("t", 0, 1, 0, (1, 2), (1, 2))}
    monkeypatch.setattr(topics.queries, "delete_topics", lambda link, topics, timeout_s: None)
    monkeypatch.setattr(topics.queries, "partitions", lambda link, topics: shown)
    again = make(Recreate, cluster=cluster, case=CASE, topic="t")
    with pytest.raises(FaultNotConfirmed, match="nothing to delete"):
        again.inject()
    cluster.ends = {PLACE: PartitionEnds(1, 0, 0, 9, 9, 9)}
    again.inject()
    with pytest.raises(FaultNotConfirmed, match="another broker to show no topic t"):
        again.confirm()
    shown.clear()
    assert "no topic t" in again.confirm()
    cluster.ends = {PLACE: PartitionEnds(1, 0, 7, 9, 9, 9)}
    again.heal()
    with pytest.raises(FaultNotConfirmed, match="does not begin at offset 0"):
        again.confirm_healed()


def _upgrade(cluster: FakeCluster) -> Any:
    return make(Upgrade, cluster=cluster, to="4.3.1")


def test_a_node_that_starts_on_the_old_release_is_no_upgrade(cluster: FakeCluster) -> None:
    with pytest.raises(FaultNotConfirmed, match=r"of release 4\.3\.1.*it logged \['4\.3\.0'\]"):
        _upgrade(cluster).inject()
    assert cluster.releases == {102: "4.3.1"}


def test_a_roll_out_that_never_bit_has_healed_when_its_nodes_answer(cluster: FakeCluster) -> None:
    """A storm counts it as missed. Its healing is confirmed when the nodes answer, although none was restarted."""
    upgrade = _upgrade(cluster)
    with pytest.raises(FaultNotConfirmed):
        upgrade.inject()
    assert upgrade.heal() == "went through node none"
    assert "answers, registered and unfenced" in upgrade.confirm_healed()
    cluster.nodes[102].now = NodeState.GONE
    with pytest.raises(FaultNotConfirmed, match="node 102 to be running"):
        upgrade.confirm_healed()


def test_a_node_that_does_not_go_down_is_no_upgrade(cluster: FakeCluster) -> None:
    for node in cluster.nodes.values():
        node.deaf = True
    with pytest.raises(FaultNotConfirmed, match="node 102 to shut down"):
        _upgrade(cluster).inject()


def test_levels_that_do_not_rise_are_no_upgrade(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "features", lambda link: SimpleNamespace(finalised={}))
    monkeypatch.setattr(admin, "raise_features", lambda link, levels: None)
    monkeypatch.setattr(rollouts, "await_all_in_sync", lambda context: "all in sync")
    monkeypatch.setattr(install, "release_levels", lambda build: {"metadata.version": 30})
    for node in cluster.nodes.values():
        node.log = "Kafka version: 4.3.1"
    upgrade = _upgrade(cluster)
    upgrade.inject()
    assert "node 102 started as Kafka 4.3.1" in upgrade.confirm()
    upgrade.heal()
    with pytest.raises(FaultNotConfirmed, match=r"another broker to say that metadata\.version=30"):
        upgrade.confirm_healed()


def test_who_lives_is_asked_and_another_who_lives_witnesses(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def brokers(link: str, timeout_s: float) -> frozenset[int]:
        if link == "link 1":
            raise Unreachable("it only starts")
        return frozenset({2, 3, 4})  # broker 5 answers, and is fenced

    monkeypatch.setattr(queries, "brokers", brokers)
    monkeypatch.setattr(
        cluster, "running_links", lambda: {number: f"link {number}" for number in (1, 2, 3, 4, 5)}
    )
    holds = Holds()
    context = FaultContext(cast(Any, cluster), threading.Event(), holds=holds)
    look = views.views(context)
    assert (look.asked, look.witness) == (2, 4)
    holds.take(2, 7, Grip.DOWN)
    look = views.views(context)
    assert (look.asked, look.witness) == (3, 4)
    monkeypatch.setattr(cluster, "running_links", lambda: {1: "link 1"})
    assert views.views(context).name == "broker 1 (the only broker that runs)"
