"""Tests of how incidents are counted from partition changes, samples and fsyncs, on both sides of each limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ackproof.experiment.case import Case
from ackproof.rundir.metadata import BrokerChanged, MetadataRecord, PartitionChanged
from ackproof.rundir.timeline import Event, EventKind
from ackproof_model.predict.cases import counted_for, scope_for
from ackproof_model.predict.incidents import _changed
from ackproof_reference.explore.scope import Budget
from ackproof_reference.metadata import NO_LEADER, Partition
from model_cases import case_of

OLD = Partition(replicas=(1, 2, 3), leader=1, leader_epoch=4, epoch=9, isr=(1, 2, 3))
LESS = OLD._replace(isr=(1,))
NOTHING = (0, 0, 0)


@pytest.mark.parametrize(
    ("old", "new", "gone", "counts"),
    [
        (OLD, {"isr": (1, 2)}, set(), (1, 0, 0)),
        (OLD, {"isr": (1,)}, set(), (2, 0, 0)),
        (OLD, {"isr": (1,)}, {3}, (1, 0, 0)),
        (OLD, {"isr": (1, 2)}, {1}, NOTHING),
        (OLD, {"isr": (1, 2), "replicas": (1, 2)}, set(), NOTHING),
        (OLD, {"isr": (2, 3), "leader": 2}, {1}, NOTHING),
        (OLD, {"isr": (2, 3), "leader": 2}, set(), NOTHING),
        (OLD, {"leader": 2}, set(), (0, 1, 0)),
        (OLD, {"leader": 2}, {1}, NOTHING),
        (OLD, {"leader": 2, "isr": (2, 3), "replicas": (2, 3)}, set(), (0, 1, 0)),
        (OLD, {"leader": NO_LEADER, "isr": (1,)}, set(), NOTHING),
        (OLD._replace(leader=NO_LEADER), {"leader": 2}, set(), NOTHING),
        (LESS, {"leader": 2, "isr": (2,)}, {1}, (0, 0, 1)),
        (LESS._replace(elr=(2,)), {"leader": 2, "isr": (2,), "elr": ()}, {1}, NOTHING),
        (LESS._replace(last_known_leader=2), {"leader": 2, "isr": (2,)}, {1}, NOTHING),
        (LESS, {"leader": 4, "isr": (4,), "replicas": (4, 2, 3), "adding": (4,)}, {1}, NOTHING),
        (LESS._replace(leader=NO_LEADER), {"leader": 1}, set(), NOTHING),
        (LESS, {"leader": NO_LEADER}, {1}, NOTHING),
    ],
    ids=[
        *("slow", "two slow", "one of two gone", "by a leader that is gone", "reassigned"),
        *("its broker is gone", "a step that is no hand-over", "handed over", "not by one that is gone"),
        *("to the new assignment", "nobody leads", "nobody led"),
        *("unclean", "eligible", "led last", "added", "led again", "leaderless"),
    ],
)
def test_what_one_change_of_a_partition_counts(
    old: Partition, new: dict[str, Any], gone: set[int], counts: tuple[int, int, int]
) -> None:
    """Counted are shrinks, leader changes and unclean elections that brokers in `gone` do not explain."""
    found = _changed(old, old._replace(**new), gone)
    assert (found.shrinks, found.hand_overs, found.unclean) == counts


@pytest.fixture
def quiet() -> Case:
    """A case whose only fault is never requested."""
    return case_of("kill: {target: leader(orders/0)}")


def _state(at: int, isr: tuple[int, ...], partition: int = 0, topic: str = "orders") -> PartitionChanged:
    return PartitionChanged(
        offset=at, epoch=1, timestamp_ms=at, topic=topic, partition=partition, leader=1, leader_epoch=0,
        partition_epoch=at, replicas=(1, 2, 3), isr=isr,
    )  # fmt: skip


def _broker(at: int, node: int, **what: bool) -> BrokerChanged:
    return BrokerChanged(offset=at, epoch=1, timestamp_ms=at, node=node, broker_epoch=1, **what)


ALL = (1, 2, 3)


@pytest.mark.parametrize(
    ("decided", "budget"),
    [
        ([_state(0, ALL), _state(1, (1, 2)), _state(2, ALL), _state(3, (1, 3))], Budget(shrinks=2)),
        ([_state(0, ALL), _state(0, ALL, 1), _state(1, (1, 2)), _state(1, (1, 2), 1)], Budget(shrinks=1)),
        ([_state(0, ALL, 0, "others"), _state(1, (1, 2), 0, "others")], Budget()),
        ([_broker(0, 2, fenced=True), _broker(1, 2, fenced=True)], Budget(cuts=1)),
        ([_broker(n, 2, fenced=n % 2 == 0) for n in range(3)], Budget(cuts=2)),
        ([_state(0, ALL), _state(1, (1, 2)), _broker(1, 3, controlled_shutdown=True)], Budget()),
        ([_state(0, ALL), _state(1, (1, 2)), _broker(2, 3, controlled_shutdown=True)], Budget(shrinks=1)),
        ([_state(0, ALL), _broker(1, 3, controlled_shutdown=True), _state(2, (1, 2))], Budget()),
        ([_broker(0, 2, controlled_shutdown=True), _broker(1, 2, fenced=True)], Budget()),
    ],
    ids=[
        *("twice", "the worst partition", "another topic", "fenced once", "fenced twice"),
        *("with a shutdown", "before one", "after one began", "fenced in shutdown"),
    ],
)
def test_what_a_metadata_log_counts(quiet: Case, decided: Sequence[MetadataRecord], budget: Budget) -> None:
    first = [_broker(-1, node, fenced=False) for node in ALL]
    assert counted_for(quiet, "orders", [], decided=[*first, *decided]).budget == budget


def _seen(kind: EventKind, partition: int = 0, topic: str = "orders", **detail: object) -> Event:
    return Event.model_validate(
        {"t_ns": 0, "wall_ns": 0, "kind": kind, "topic": topic, "partition": partition, "detail": detail}
    )


def _isr(*isr: int, **place: Any) -> Event:
    return _seen(EventKind.ISR, isr=list(isr), **place)


def _leader(leader: int, **place: Any) -> Event:
    return _seen(EventKind.LEADER, leader=leader, epoch=0, **place)


DIED = Event(t_ns=0, wall_ns=0, kind=EventKind.NODE_DIED, node=3, detail={})


@pytest.mark.parametrize(
    ("events", "budget"),
    [
        ([_isr(1, 2, 3), _isr(1)], Budget(shrinks=2)),
        ([_isr(1), _isr(1, 2, 3)], Budget()),
        ([_isr(1, 2, 3), _isr(1, 2), _isr(1, 2, 3), _isr(1, 3)], Budget(shrinks=2)),
        ([_isr(1, 2, 3), _isr(1, 2, 3, partition=1), _isr(1, 2), _isr(1, 2, partition=1)], Budget(shrinks=1)),
        ([_isr(1, 2, 3, topic="others"), _isr(1, topic="others")], Budget()),
        ([_isr(1, 2, 3), DIED, _isr(1, 2)], Budget(kills=1)),
        ([_isr(1, 2, 3), DIED, _isr(1)], Budget(kills=1, shrinks=1)),
        ([_leader(1), _leader(2), _leader(2)], Budget(cuts=1)),
        ([_leader(1), _leader(-1), _leader(1)], Budget()),
        ([_leader(1), _leader(-1), _leader(2)], Budget(cuts=1)),
        ([_leader(1), _leader(1, partition=1), _leader(2), _leader(2, partition=1)], Budget(cuts=1)),
        ([_leader(1), DIED, _leader(2)], Budget(kills=1)),
        ([_leader(1), _leader(2), DIED, _leader(1)], Budget(kills=1, cuts=1)),
    ],
    ids=[
        *("two", "grown", "twice", "the worst partition", "another topic", "with its death", "one beyond it"),
        *("moved", "nobody for a while", "nobody between", "of the worst", "by a death", "and one beyond"),
    ],
)
def test_what_samples_count_where_there_is_no_metadata_log(
    quiet: Case, events: Sequence[Event], budget: Budget
) -> None:
    assert counted_for(quiet, "orders", events).budget == budget


@pytest.mark.parametrize(
    ("config", "cluster", "fault", "kept"),
    [
        ("", "", "power_loss", False),
        ('flush.messages: "1"', "", "power_loss", True),
        ('flush.messages: "2"', "", "power_loss", False),
        ("", 'config: {log.flush.interval.messages: "1"}', "power_loss", True),
        ('flush.messages: "1000"', 'config: {log.flush.interval.messages: "1"}', "power_loss", False),
        ("", 'broker_config: {1: {log.flush.interval.messages: "1"}}', "power_loss", False),
        (
            "",
            'config: {log.flush.interval.messages: "1"}, '
            'broker_config: {2: {log.flush.interval.messages: "9"}}',
            "power_loss",
            False,
        ),
        ('flush.messages: "1"', "", "empty_disk", False),
    ],
    ids=["never", "each", "each second", "by all", "the topic's own", "by one", "by all but one", "emptied"],
)
def test_what_is_fsynced_at_once_outlives_a_loss_of_power(
    config: str, cluster: str, fault: str, kept: bool
) -> None:
    case = case_of(f"{fault}: {{target: leader(orders/0)}}", config=config, cluster=cluster)
    counted = counted_for(case, "orders")
    assert counted.budget == (Budget(kills=1) if kept else Budget(power_losses=1))
    assert any("flush.messages=1" in text for text in counted.faults) is kept


@pytest.mark.parametrize(
    ("replicas", "min_insync", "looked_at"),
    [(1, 1, (1, 1)), (2, 2, (2, 2)), (3, 3, (3, 3)), (5, 1, (3, 1)), (5, 2, (3, 2)), (5, 5, (3, 2))],
)
@pytest.mark.parametrize(("acks", "number"), [("0", 0), ("1", 1), ("all", -1)])
def test_how_large_a_world(
    replicas: int, min_insync: int, looked_at: tuple[int, int], acks: str, number: int
) -> None:
    case = case_of(acks=acks, replicas=replicas, min_insync=min_insync, cluster="brokers: 5")
    for records, most in ((1, 1), (2, 2), (3, 2)):
        scope, _ = scope_for(case, "orders", records=records)
        assert (scope.brokers, scope.rules.min_insync) == looked_at
        assert (scope.acks, scope.records, scope.settled) == (number, most, True)
