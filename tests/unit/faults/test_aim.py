"""Resolution of roles to nodes (`find_holders`): the present holders, and () for a role without a holder."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ackproof.base.errors import WaitTimeout
from ackproof.cluster.queries import PartitionState
from ackproof.experiment.roles import Role, RoleKind
from ackproof.faults import holders as aim
from ackproof.faults.holders import find_holders
from ackproof.rundir.partition import TopicPartition

PLACE = TopicPartition("t", 1)
OTHER = TopicPartition("t", 0)


@dataclass
class Cluster:
    """Brokers 4 to 7; broker 5 leads t/1. `active`: answers to successive questions for the active controller; the last
    one repeats. `tells`: False if no broker describes any partition."""

    active: list[int | None] = field(default_factory=lambda: [102])
    zookeeper: bool = False
    tells: bool = True

    def brokers(self) -> list[Any]:
        return [SimpleNamespace(id=number) for number in (4, 5, 6, 7)]

    def controllers(self) -> list[Any]:
        return [SimpleNamespace(id=number) for number in (101, 102, 103)]

    def topic_state(self, topics: object) -> dict[TopicPartition, PartitionState]:
        known = {
            OTHER: PartitionState("t", 0, 4, 0, (4,), (4,)),
            PLACE: PartitionState("t", 1, 5, 0, (6, 5, 4), (5, 6)),
        }
        return known if self.tells else {}

    def controller(self) -> int | None:
        return self.active.pop(0) if len(self.active) > 1 else self.active[0]

    @property
    def spec(self) -> Any:
        racks = {4: "a", 5: "b", 6: "a", 7: "b", 101: "a", 102: "b", 103: "c"}
        members = SimpleNamespace(racks=racks)
        return SimpleNamespace(metadata=SimpleNamespace(broker_controls=self.zookeeper), members=members)


def _hit(
    role: Role, order: tuple[int, ...] = (7, 4, 6, 5), cluster: Cluster | None = None
) -> tuple[int, ...]:
    return find_holders(cast(Any, cluster or Cluster()), role, order, threading.Event())


@pytest.mark.parametrize(
    ("kind", "who"),
    [
        (RoleKind.LEADER, (5,)),
        (RoleKind.FOLLOWERS, (4, 6)),
        (RoleKind.FOLLOWER, (4,)),
        (RoleKind.ISR, (5, 6)),
        (RoleKind.PREFERRED_LEADER, (6,)),
    ],
    ids=["leader", "followers", "follower", "isr", "preferred"],
)
def test_who_holds_a_partition(kind: RoleKind, who: tuple[int, ...]) -> None:
    assert _hit(Role(kind, *PLACE)) == who


@pytest.mark.parametrize(
    ("kind", "who"),
    [
        (RoleKind.CONTROLLER, (102,)),
        (RoleKind.CONTROLLERS, (101, 102, 103)),
        (RoleKind.BROKER, (7,)),
        (RoleKind.BROKERS, (4, 5, 6, 7)),
        (RoleKind.MINORITY, (7,)),
        (RoleKind.MAJORITY, (4, 5, 6)),
    ],
    ids=["controller", "controllers", "broker", "brokers", "minority", "majority"],
)
def test_who_is_what(kind: RoleKind, who: tuple[int, ...]) -> None:
    assert _hit(Role(kind)) == who


@pytest.mark.parametrize(
    ("text", "who"),
    [
        ("rack(c)", (103,)),
        ("rack(leader(t/1))", (5, 7, 102)),
        ("rack(followers(t/1))", (4, 6, 101)),
        ("rack(broker)", (5, 7, 102)),
        ("[leader(t/1), leader(t/0), controller]", (4, 5, 102)),
        ("[rack(c), broker(6)]", (6, 103)),
    ],
)
def test_who_is_in_a_rack_or_on_a_list(text: str, who: tuple[int, ...]) -> None:
    assert _hit(Role.parse(text)) == who


def test_a_draw_of_other_numbers_is_one_of_places() -> None:
    """In a cluster of someone else, drawn numbers are positions among brokers; those beyond the last are left out."""
    assert _hit(Role(RoleKind.BROKER), (2, 4, 3, 1)) == (5,)
    assert _hit(Role(RoleKind.BROKER), (6, 4)) == (6,)  # these are numbers that there are
    assert _hit(Role(RoleKind.BROKER), (9, 0, 3)) == (6,)
    assert _hit(Role(RoleKind.MINORITY), (1, 2, 3, 4)) == (4,)


def test_a_controller_that_is_nobody() -> None:
    """In KRaft mode no controller is awaited. With ZooKeeper, a broker takes over soon, and is awaited."""
    soon: list[int | None] = [None, None, 6]
    assert _hit(Role(RoleKind.CONTROLLER), cluster=Cluster(list(soon))) == ()
    assert _hit(Role(RoleKind.CONTROLLER), cluster=Cluster(list(soon), zookeeper=True)) == (6,)
    assert _hit(Role(RoleKind.CONTROLLER, node=103), cluster=Cluster([None])) == (103,)
    for text in ("[controller, broker(4)]", "rack(controller)"):
        assert _hit(Role.parse(text), cluster=Cluster([None])) == ()


def test_a_partition_that_nobody_tells_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aim, "RESOLVE_WITHIN_S", 0.05)
    with pytest.raises(WaitTimeout, match="a broker to say who is leader"):
        _hit(Role(RoleKind.LEADER, *PLACE), cluster=Cluster(tells=False))
    assert _hit(Role(RoleKind.CONTROLLER), cluster=Cluster([None], zookeeper=True)) == ()
