"""Tests of the partition changes that the replay allows in ZooKeeper mode: elections, shutdowns, changes of the ISR."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ackproof.rundir.clock import WallClock
from ackproof.rundir.metadata import PartitionChanged
from ackproof.rundir.timeline import Event, EventKind
from ackproof_model.replay.account import Account, BrokenRule
from ackproof_model.replay.metadata import _Replay
from ackproof_model.replay.steps import same, zookeeper_steps
from ackproof_reference.metadata import Metadata, Partition, Registration
from ackproof_reference.rules import Rules, rules_of

BEFORE = Partition(replicas=(1, 2, 3), leader=1, leader_epoch=4, epoch=9, isr=(1, 2, 3))
RULES = rules_of("3.9-zk")
UNCLEAN = Rules(**{**vars(RULES), "unclean_election": True})


def _causes(
    after: Partition,
    gone: tuple[int, ...] = (),
    before: Partition = BEFORE,
    rules: Rules = RULES,
    stopping: tuple[int, ...] = (),
) -> set[str]:
    brokers = tuple(
        Registration(node, node, fenced=node in gone, stopping=node in stopping) for node in (1, 2, 3)
    )
    return {
        step.cause
        for step in zookeeper_steps(Metadata(before, brokers), after, rules)
        if same(step.partition, after)
    }


def _after(leader: int, isr: tuple[int, ...], leader_epoch: int = 5) -> Partition:
    return BEFORE._replace(leader=leader, isr=isr, leader_epoch=leader_epoch, epoch=10)


def test_who_led_and_is_gone_is_replaced_by_the_first_of_the_assignment_in_the_isr() -> None:
    assert "leader's broker gone" in _causes(_after(2, (2, 3)), gone=(1,))
    assert _causes(_after(3, (2, 3)), gone=(1,)) == set()


def test_then_the_broker_leaves_the_isr_of_what_others_lead_and_the_epoch_rises() -> None:
    assert "replica offline" in _causes(_after(1, (1, 2)), gone=(3,))
    assert "replica offline" not in _causes(_after(1, (1, 2), leader_epoch=4), gone=(3,))


def test_what_a_leader_asks_for_raises_no_leader_epoch() -> None:
    assert _causes(_after(1, (1, 2), leader_epoch=4)) == {"ISR shrunk by its leader"}


def test_the_last_of_the_isr_stays_in_it_and_leads_no_more() -> None:
    alone = BEFORE._replace(isr=(1,))
    assert "replica offline" in _causes(_after(-1, (1,)), gone=(1,), before=alone)
    assert _causes(_after(-1, ()), gone=(1,), before=alone) == set()


@pytest.mark.parametrize(("rules", "causes"), [(RULES, set()), (UNCLEAN, {"unclean election"})])
def test_someone_out_of_the_isr_leads_only_with_unclean_elections(rules: Rules, causes: set[str]) -> None:
    alone = BEFORE._replace(isr=(1,))
    assert _causes(_after(2, (2,)), gone=(1,), before=alone, rules=rules) == causes


@pytest.mark.parametrize(("stopping", "causes"), [((2,), {"unclean election"}), ((), set())])
def test_who_is_in_shutdown_is_not_elected(stopping: tuple[int, ...], causes: set[str]) -> None:
    alone = BEFORE._replace(isr=(1,))
    assert _causes(_after(3, (3,)), (1,), alone, UNCLEAN, stopping) == causes
    live = Metadata(alone, tuple(Registration(node, node, fenced=node == 1) for node in (1, 2, 3)))
    after = _after(3, (3,))
    steps = zookeeper_steps(live, after, UNCLEAN, leaving=stopping)
    assert {step.cause for step in steps if same(step.partition, after)} == causes


def test_a_preferred_leader_keeps_the_isr() -> None:
    led = BEFORE._replace(leader=2)
    assert "preferred election" in _causes(_after(1, (1, 2, 3)), before=led)


def test_who_shuts_down_leaves_the_isr_with_its_leadership() -> None:
    assert "broker 1 in controlled shutdown" in _causes(_after(2, (2, 3)))
    assert _causes(_after(2, (1, 2, 3))) == set()


def test_who_is_gone_stays_in_the_isr_when_another_shuts_down_and_is_not_elected() -> None:
    assert "broker 1 in controlled shutdown" in _causes(_after(3, (2, 3)), gone=(2,))
    assert _causes(_after(2, (2, 3)), gone=(2,)) == set()


def test_who_was_out_of_the_isr_does_not_follow_who_shuts_down() -> None:
    smaller = BEFORE._replace(isr=(1, 3))
    assert "broker 1 in controlled shutdown" in _causes(_after(3, (3,)), before=smaller)
    assert _causes(_after(2, (2, 3)), before=smaller) == set()


def test_a_leader_elected_uncleanly_is_recovering_until_it_asks_for_another_isr() -> None:
    alone = BEFORE._replace(isr=(1,))
    recovering = _after(2, (2,))._replace(recovering=True)
    assert _causes(recovering, gone=(1,), before=alone, rules=UNCLEAN) == {"unclean election"}
    recovered = recovering._replace(isr=(2, 3), epoch=11, recovering=False)
    assert _causes(recovered, gone=(1,), before=recovering) == {"ISR grown by its leader"}


@pytest.mark.parametrize(
    ("ended_ms", "kind", "leaving"),
    [
        (4999, EventKind.NODE_ENDED, set()),
        (5000, EventKind.NODE_ENDED, {2}),
        (35_001, EventKind.NODE_ENDED, {2}),
        (35_002, EventKind.NODE_ENDED, set()),
        (5000, EventKind.NODE_DIED, set()),
    ],
    ids=["before", "now", "within its time", "later", "by itself"],
)
def test_who_ends_soon_after_a_change_may_have_been_in_shutdown(
    ended_ms: int, kind: EventKind, leaving: set[int]
) -> None:
    """A controlled shutdown takes at most 30 s. A broker that had ended before the change was in no shutdown any
    more."""
    ended = Event(t_ns=ended_ms * 1_000_000, wall_ns=0, kind=kind, node=2, detail={})
    observed = SimpleNamespace(node_ends=[ended], written_within=WallClock(0, 0).written_within)
    change = PartitionChanged(
        offset=1, epoch=1, timestamp_ms=5000, topic="t", partition=0, leader=1, leader_epoch=1,
        partition_epoch=1, replicas=(1, 2), isr=(1,),
    )  # fmt: skip
    assert _Replay(cast(Any, observed), cast(Any, None), cast(Any, None))._leaving(change) == leaving


@pytest.mark.parametrize("zookeeper", [True, False])
def test_a_record_with_state_and_assignment_is_proof_and_that_of_one_znode_is_not(zookeeper: bool) -> None:
    change = PartitionChanged(
        offset=1, epoch=1, timestamp_ms=5000, topic="t", partition=0, leader=1, leader_epoch=4,
        partition_epoch=10, replicas=(1, 2), isr=(1, 2, 3),
    )  # fmt: skip
    observed, image, account = SimpleNamespace(t_ns=int), SimpleNamespace(zookeeper=zookeeper), Account([])
    broken = BrokenRule("ISR beyond the replicas", "s", "t", certain=True)
    _Replay(cast(Any, observed), account, cast(Any, image))._forbid(broken, Metadata(BEFORE, ()), change)
    (step,) = account.forbidden
    assert step.certain is not zookeeper
