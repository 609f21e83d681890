"""Tests of reassignments: how they begin, end and are cancelled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackproof_reference import controller
from ackproof_reference.messages import AlterPartition
from ackproof_reference.metadata import Metadata, Partition, Registration
from ackproof_reference.rules import Rules, rules_of
from partition import metadata, partition

ONE = Rules()
NO_ELR = Rules(elr=False, unclean_shutdown_detection=False)
UNCLEAN = replace(NO_ELR, unclean_election=True)
MOVING = Partition((3, 2, 1), 1, 4, 7, (1, 2), adding=(3,), removing=(1,))


def proposal(*isr: int, **more: object) -> AlterPartition:
    return AlterPartition(1, 0, 0, 0, isr, (0,) * len(isr))._replace(**more)


def test_a_reassignment_adds_first_and_removes_when_the_target_is_in_sync() -> None:
    before = metadata(partition(replicas=(1, 2), isr=(1, 2)))
    moving = controller.reassign(before, (3, 2), ONE)
    assert moving.partition == Partition((3, 2, 1), 1, 0, 1, (1, 2), adding=(3,), removing=(1,))
    done, _ = controller.alter_partition(moving, proposal(1, 2, 3, partition_epoch=1), ONE)
    assert done.partition == Partition((3, 2), 3, 1, 2, (3, 2))


PAST_KEPT = Partition((1, 2, 4, 3), 1, 4, 7, (1, 3), adding=(4,), removing=(3,))
"""A reassignment that replaces broker 3 by broker 4. Broker 2, which is kept, is down."""


def four(moving: Partition) -> Metadata:
    """Return metadata with four brokers, of which broker 2 is down."""
    return Metadata(moving, tuple(Registration(node, 0, node == 2) for node in (1, 2, 3, 4)))


@pytest.mark.parametrize(
    ("version", "done"), [("3.9.2", False), ("4.2.1", False), ("4.3.0", True), ("9.1", True)]
)
def test_a_reassignment_ends_past_a_kept_replica_since_4_3(version: str, done: bool) -> None:
    """Source: KAFKA-19975; PartitionReassignmentReplicas.maybeCompleteReassignment of 4.2.1 and 4.3.1."""
    rules = rules_of(version, elr=False)
    request = proposal(1, 3, 4, partition_epoch=7, leader_epoch=4)
    made = controller.alter_partition(four(PAST_KEPT), request, rules)[0].partition
    assert (made.replicas, set(made.isr)) == (((1, 2, 4), {1, 4}) if done else ((1, 2, 4, 3), {1, 3, 4}))


def test_a_replica_that_such_a_reassignment_removed_stays_eligible() -> None:
    """Observed on 4.4.0: leader 2 proposes ISR {2, 1} while broker 3, which is kept, is not in sync
    (maybePopulateTargetElr)."""
    moving = Partition((3, 1, 2), 2, 0, 8, (2,), (3,), adding=(1,), removing=(2,))
    before = Metadata(moving, tuple(Registration(node, 0, False) for node in (1, 2, 3)))
    rules = replace(rules_of("4.4.0"), min_insync=2)
    request = proposal(2, 1, partition_epoch=8, leader_epoch=0)._replace(leader=2)
    made = controller.alter_partition(before, request, rules)[0].partition
    assert (made.replicas, made.leader, made.isr, set(made.elr)) == ((3, 1), 1, (1,), {2, 3})
    assert (made.adding, made.removing) == ((), ())


def test_a_reassignment_never_ends_before_the_added_replica_is_in_sync() -> None:
    request = proposal(1, partition_epoch=7, leader_epoch=4)
    made = controller.alter_partition(four(PAST_KEPT), request, NO_ELR)[0].partition
    assert (made.replicas, made.adding) == ((1, 2, 4, 3), (4,))


def test_a_reassignment_to_fewer_replicas_waits_for_the_whole_target() -> None:
    fewer = Partition((2, 4, 1, 3), 1, 4, 7, (1, 3), adding=(4,), removing=(1, 3))
    request = proposal(1, 3, 4, partition_epoch=7, leader_epoch=4)
    made = controller.alter_partition(four(fewer), request, NO_ELR)[0].partition
    assert (made.replicas, set(made.isr)) == ((2, 4, 1, 3), {1, 3, 4})


def test_a_reassignment_that_removes_only_ends_at_once() -> None:
    done = controller.reassign(metadata(partition()), (1, 2), ONE)
    assert (done.partition.replicas, done.partition.isr) == ((1, 2), (1, 2))
    assert (done.partition.removing, done.partition.leader_epoch) == ((), 1)


def test_a_reassignment_to_the_same_changes_nothing() -> None:
    before = metadata(partition())
    assert controller.reassign(before, (1, 2, 3), ONE) == before


def test_a_reassignment_that_adds_only_ends_when_all_are_in_sync() -> None:
    moving = controller.reassign(metadata(partition(replicas=(1, 2), isr=(1, 2))), (1, 2, 3), ONE)
    assert (moving.partition.replicas, moving.partition.adding) == ((1, 2, 3), (3,))
    done, _ = controller.alter_partition(moving, proposal(1, 2, 3, partition_epoch=1), ONE)
    assert (done.partition.adding, done.partition.leader_epoch) == ((), 0)


def test_another_reassignment_takes_the_place_of_one_under_way() -> None:
    """Source: changePartitionReassignment of 4.3.1. Broker 3, which was being added, counts as a present replica."""
    moving = controller.reassign(metadata(partition(replicas=(1, 2), isr=(1, 2))), (3, 2), ONE)
    other = controller.reassign(moving, (1, 3), ONE).partition
    assert (other.replicas, other.adding, other.removing) == ((1, 3, 2), (3,), (2,))
    kept = controller.reassign(moving, (3, 2, 1), ONE).partition
    assert (kept.replicas, kept.adding, kept.removing) == ((3, 2, 1), (3,), (1,))


def test_who_was_being_added_stays_in_the_isr_when_the_move_is_turned_back() -> None:
    """A replica in the ISR has all acknowledged records, so it stays in the ISR until the reassignment ends."""
    moving = metadata(Partition((3, 2, 1), 1, 4, 7, (3, 1), adding=(3,), removing=(1,)))
    back = controller.reassign(moving, (2, 1), ONE).partition
    assert (back.replicas, back.isr, back.adding, back.removing) == ((2, 1, 3), (3, 1), (3,), (3,))
    zookeeper = controller.reassign(moving, (2, 1), replace(ONE, moves_from_all=False)).partition
    assert (zookeeper.replicas, zookeeper.isr, zookeeper.adding, zookeeper.removing) == ((2, 1), (1,), (), ())


@pytest.mark.parametrize(("version", "state"), [("4.2", ((1, 2), (), ())), ("4.3", ((1, 2, 3), (3,), (3,)))])
def test_a_reassignment_back_to_where_it_began_ends_before_4_3_only(
    version: str, state: tuple[tuple[int, ...], ...]
) -> None:
    """Since 4.3 the reassignment never ends: broker 3 is both added and removed, and must be in the ISR."""
    rules = rules_of(version)
    before = metadata(partition(replicas=(1, 2), isr=(1, 2)))
    back = controller.reassign(controller.reassign(before, (3, 2), rules), (1, 2), rules).partition
    assert (back.replicas, back.adding, back.removing) == state


# Taken back


def test_a_move_that_is_cancelled_leaves_the_replicas_of_before() -> None:
    after = controller.cancel_reassignment(metadata(MOVING), ONE).partition
    assert after == Partition((2, 1), 1, 5, 8, (1, 2))


def test_a_leader_that_was_being_added_is_followed_by_one_of_before() -> None:
    led = MOVING._replace(leader=3, isr=(3, 2))
    assert controller.cancel_reassignment(metadata(led), ONE).partition == Partition((2, 1), 2, 5, 8, (2,))


def test_where_nobody_goes_the_leader_epoch_rises_with_another_leader_only() -> None:
    removing = Partition((1, 2, 3), 1, 4, 7, (1, 3), removing=(3,))
    after = controller.cancel_reassignment(metadata(removing), ONE).partition
    assert after == Partition((1, 2, 3), 1, 4, 8, (1, 3))
    leaderless = metadata(removing._replace(leader=-1), fenced=(1,))
    after = controller.cancel_reassignment(leaderless, NO_ELR).partition
    assert (after.leader, after.leader_epoch) == (3, 5)
    adding = Partition((1, 2, 3), 1, 4, 7, (1, 2), adding=(3,))
    assert controller.cancel_reassignment(metadata(adding), ONE).partition == Partition(
        (1, 2), 1, 5, 8, (1, 2)
    )


def test_without_a_move_there_is_nothing_to_cancel() -> None:
    before = metadata(partition())
    assert controller.cancel_reassignment(before, ONE) is before


@pytest.mark.parametrize("rules", [ONE, NO_ELR])
def test_a_move_goes_on_while_only_new_replicas_are_in_sync(rules: Rules) -> None:
    """Only an unclean election could cancel the reassignment (PartitionReassignmentRevert)."""
    before = metadata(MOVING._replace(leader=3, isr=(3,)))
    assert controller.cancel_reassignment(before, rules) is before


def test_with_unclean_elections_the_first_of_before_becomes_the_isr() -> None:
    before = MOVING._replace(leader=3, isr=(3,))
    after = controller.cancel_reassignment(metadata(before), UNCLEAN).partition
    assert after == Partition((2, 1), 2, 5, 8, (2,))
    dead = controller.cancel_reassignment(metadata(before, fenced=(2,)), UNCLEAN).partition
    assert (dead.leader, dead.isr, dead.recovering) == (1, (1,), True)


def test_another_minimum_makes_nobody_eligible() -> None:
    """A change of min.insync.replicas clears the ELR and the last known leader (KIP-966)."""
    eligible = metadata(partition(isr=(1,), elr=(2,), version=3))
    assert controller.clear_eligible(eligible).partition == partition(isr=(1,), version=4)
    last = metadata(partition(leader=-1, isr=(), last=2, version=3))
    assert controller.clear_eligible(last).partition == partition(leader=-1, isr=(), version=4)
    before = metadata(partition())
    assert controller.clear_eligible(before) is before
