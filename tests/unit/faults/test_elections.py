"""Elections and decommissions on fake brokers: they are confirmed only if another broker than the asked one shows the
change. Also: which brokers take the replicas of one that leaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster import admin, queries
from ackproof.cluster.protocol import NodeState
from ackproof.cluster.queries import PartitionState
from ackproof.experiment.roles import Role, RoleKind
from ackproof.faults.planned.decommission import Decommission
from ackproof.faults.planned.partitions import ElectPreferred, ElectUnclean
from ackproof.rundir.partition import TopicPartition
from fake_nodes import FakeNode
from fault_stand import make, wait_shortly

PLACE = TopicPartition("t", 0)


@dataclass
class Cluster:
    """Fake brokers; a link is its broker's number. `shown`: partitions as each shows them. `asked`: requests so far."""

    nodes: dict[int, FakeNode]
    shown: dict[int, dict[TopicPartition, PartitionState]]
    asked: list[tuple[object, ...]] = field(default_factory=list)
    spec = SimpleNamespace(metadata=SimpleNamespace(broker_controls=False))
    access = SimpleNamespace(describes_partitions=True)

    def topic_state(self, topics: object) -> dict[TopicPartition, PartitionState]:
        return self.shown[min(self.shown)]

    def running_links(self) -> dict[int, Any]:
        return {number: number for number, node in self.nodes.items() if node.now is NodeState.RUNNING}

    def admin_link(self) -> object:
        return min(self.running_links(), default=None)

    def show(self, place: TopicPartition, state: PartitionState) -> None:
        for shown in self.shown.values():
            shown[place] = state


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    wait_shortly(monkeypatch, 0.1)
    made = Cluster(
        {number: FakeNode(number) for number in range(1, 6)}, {number: {} for number in range(1, 6)}
    )
    monkeypatch.setattr(queries, "brokers", lambda link, timeout_s: frozenset(made.nodes))
    monkeypatch.setattr(queries, "partitions", lambda link, topics: made.shown[link])
    monkeypatch.setattr(admin, "elect", lambda *words: made.asked.append(words))
    monkeypatch.setattr(admin, "reassign", lambda *words: made.asked.append(words))
    return made


def _state(leader: int, epoch: int, isr: tuple[int, ...], replicas: tuple[int, ...] = (1, 2, 3)) -> Any:
    return PartitionState("t", 0, leader, epoch, replicas, isr)


def _election(cluster: Cluster, kind: type[ElectPreferred | ElectUnclean]) -> Any:
    return make(kind, cluster=cluster, partition=PLACE)


SECOND_LEADS, NOBODY_LEADS = _state(2, 4, (1, 2, 3)), _state(-1, 4, (3,))
PREFERRED, UNCLEAN = ElectPreferred, ElectUnclean


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [(PREFERRED, SECOND_LEADS, _state(1, 5, (1, 2, 3))), (UNCLEAN, NOBODY_LEADS, _state(2, 5, (2,)))],
    ids=["preferred", "unclean"],
)
def test_an_election_that_another_broker_shows(cluster: Cluster, kind: Any, before: Any, after: Any) -> None:
    cluster.show(PLACE, before)
    election = _election(cluster, kind)
    election.inject()
    assert cluster.asked == [(1, PLACE, election.election)]
    assert election.election.name == kind.__name__.removeprefix("Elect").upper()
    cluster.show(PLACE, after)
    assert f"leader of t/0 {before.leader} → {after.leader}, epoch 4 → 5" in election.confirm()


@pytest.mark.parametrize(
    ("kind", "before", "after", "why"),
    [
        (PREFERRED, SECOND_LEADS, SECOND_LEADS, "to show a new leader"),
        (PREFERRED, SECOND_LEADS, _state(1, 4, (1, 2, 3)), "to show a new leader"),
        (PREFERRED, SECOND_LEADS, _state(3, 5, (1, 2, 3)), "to show a new leader"),
        (UNCLEAN, NOBODY_LEADS, _state(-1, 5, (3,)), "to show a new leader"),
        (UNCLEAN, NOBODY_LEADS, _state(2, 4, (2,)), "to show a new leader"),
        (UNCLEAN, NOBODY_LEADS, _state(3, 5, (3,)), "that election was clean"),
    ],
    ids=["as before", "no epoch", "another", "nobody", "no epoch, unclean", "clean"],
)
def test_an_election_that_did_not_come(
    cluster: Cluster, kind: Any, before: Any, after: Any, why: str
) -> None:
    cluster.show(PLACE, before)
    election = _election(cluster, kind)
    election.inject()
    cluster.show(PLACE, after)
    with pytest.raises(FaultNotConfirmed, match=why):
        election.confirm()


def test_an_election_that_only_the_asked_broker_shows(cluster: Cluster) -> None:
    cluster.show(PLACE, SECOND_LEADS)
    election = _election(cluster, PREFERRED)
    election.inject()
    cluster.shown[1][PLACE] = _state(1, 5, (1, 2, 3))
    with pytest.raises(FaultNotConfirmed, match="another broker to show a new leader"):
        election.confirm()


@pytest.mark.parametrize(
    ("kind", "before", "why"),
    [
        (PREFERRED, _state(1, 4, (1, 2, 3)), "nothing to elect"),
        (PREFERRED, _state(2, 4, (2, 3)), "is not in sync"),
        (UNCLEAN, _state(0, 4, (0,), (0, 1)), "takes a leaderless partition"),
    ],
    ids=["leads already", "not in sync", "has a leader"],
)
def test_an_election_that_would_change_nothing_is_not_asked_for(
    cluster: Cluster, kind: Any, before: Any, why: str
) -> None:
    cluster.show(PLACE, before)
    with pytest.raises(FaultNotConfirmed, match=why):
        _election(cluster, kind).inject()
    assert cluster.asked == []


def _leaving(cluster: Cluster, *nodes: int, drain: bool = True) -> Any:
    leaving = [cluster.nodes[node] for node in nodes]
    return make(Decommission, *leaving, cluster=cluster, target=Role(RoleKind.BROKER, node=2), drain=drain)


HELD = {0: (1, 2, 3), 1: (2, 3, 4), 2: (2, 1, 5), 3: (1, 3, 4)}
"""Replicas by partition. Of the brokers other than 2, broker 1 and 3 have three each, 4 has two, 5 one."""
MOVED = {0: (1, 5, 3), 1: (5, 3, 4), 2: (4, 1, 5), 3: (1, 3, 4)}
"""Replicas after broker 2 has left: the broker with the fewest replicas gets the next one; of several, the lowest
id."""


def _holding(cluster: Cluster, held: dict[int, tuple[int, ...]]) -> None:
    for partition, replicas in held.items():
        state = PartitionState("t", partition, replicas[0], 1, replicas, replicas)
        cluster.show(TopicPartition("t", partition), state)


@pytest.mark.parametrize("drain", [True, False])
def test_who_takes_the_replicas(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, drain: bool) -> None:
    _holding(cluster, HELD)
    states: list[NodeState] = []

    def reassign(link: object, moves: dict[TopicPartition, tuple[int, ...]]) -> None:
        states.append(cluster.nodes[2].now)
        assert moves == {TopicPartition("t", n): MOVED[n] for n in (0, 1, 2)}
        _holding(cluster, MOVED)

    monkeypatch.setattr(admin, "reassign", reassign)
    leaving = _leaving(cluster, 2, drain=drain)
    assert leaving.inject().endswith("; 3 replicas went to other brokers")
    assert states == [NodeState.RUNNING if drain else NodeState.GONE]
    assert cluster.nodes[2].told == ["terminate" if drain else "kill"]
    assert "no replica on [2], all ISRs full" in leaving.confirm()


def test_who_is_not_drained_is_not_shut_down(cluster: Cluster) -> None:
    _holding(cluster, HELD)
    with pytest.raises(FaultNotConfirmed, match="all replicas of broker 2 to be elsewhere"):
        _leaving(cluster, 2).inject()
    assert cluster.nodes[2].told == []


@pytest.mark.parametrize(
    ("node", "state"),
    [(5, _state(1, 1, (1, 2, 3))), (5, _state(1, 1, (1, 3), (1, 5, 3)))],
    ids=["still there", "not in sync"],
)
def test_what_the_last_broker_that_stays_does_not_show(cluster: Cluster, node: int, state: Any) -> None:
    _holding(cluster, {0: (1, 3, 4)})
    leaving = _leaving(cluster, 2)
    leaving.inject()
    assert cluster.asked == []  # it held nothing
    cluster.shown[node][PLACE] = state
    with pytest.raises(FaultNotConfirmed, match="to be elsewhere, in sync"):
        leaving.confirm()


def test_one_that_lives_on_has_not_been_taken_out(cluster: Cluster) -> None:
    _holding(cluster, MOVED)
    cluster.nodes[2].deaf = True
    leaving = _leaving(cluster, 2)
    leaving.inject()
    with pytest.raises(FaultNotConfirmed, match="node 2 to be"):
        leaving.confirm()


def test_nobody_could_take_them(cluster: Cluster) -> None:
    _holding(cluster, {0: (1, 2, 3)})
    with pytest.raises(
        FaultNotConfirmed, match="no broker could take the replica of t/0 that broker 2 holds"
    ):
        _leaving(cluster, 2, 4, 5).inject()
