"""Tests of the controller: sessions, elections, ISR and ELR."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackproof_reference import controller
from ackproof_reference.election import Election
from ackproof_reference.messages import AlterPartition, Error
from ackproof_reference.metadata import Metadata, Registration
from ackproof_reference.rules import Rules, rules_of, without
from partition import metadata, partition

ONE = Rules()
TWO = Rules(min_insync=2)
NO_ELR = Rules(elr=False, unclean_shutdown_detection=False)
UNCLEAN = replace(NO_ELR, unclean_election=True)


def state(after: Metadata) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    of = after.partition
    return of.leader, of.leader_epoch, of.isr, of.elr


def proposal(*isr: int, **more: object) -> AlterPartition:
    return AlterPartition(1, 0, 0, 0, isr, (0,) * len(isr))._replace(**more)


# Fencing and elections


def test_a_fenced_follower_leaves_the_isr_and_the_leader_stays() -> None:
    after = controller.fence(metadata(partition()), 3, ONE)
    assert state(after) == (1, 0, (1, 2), ())
    assert (after.partition.epoch, after.registration(3).fenced) == (1, True)


def test_a_fenced_leader_is_followed_by_the_first_of_the_assignment_in_the_isr() -> None:
    after = controller.fence(metadata(partition()), 1, ONE)
    assert state(after) == (2, 1, (2, 3), ())
    assigned = partition(replicas=(1, 3, 2), isr=(2, 1, 3))
    assert controller.fence(metadata(assigned), 1, ONE).partition.leader == 3
    early = without(ONE, "assignment order")
    assert controller.fence(metadata(assigned), 1, early).partition.leader == 2


def test_who_is_fenced_or_stopping_is_not_elected() -> None:
    assert controller.fence(metadata(partition(), fenced=(2,)), 1, ONE).partition.leader == 3
    assert controller.fence(metadata(partition(), stopping=(2,)), 1, ONE).partition.leader == 3


def test_fencing_someone_out_of_the_isr_leaves_the_partition() -> None:
    before = metadata(partition(isr=(1, 2)))
    assert controller.fence(before, 3, ONE).partition == before.partition


def test_without_elr_the_last_member_stays_and_nobody_leads() -> None:
    after = controller.fence(metadata(partition(isr=(1,))), 1, NO_ELR)
    assert state(after) == (-1, 1, (1,), ())


def test_with_unclean_elections_the_first_alive_leads_alone() -> None:
    after = controller.fence(metadata(partition(isr=(1,))), 1, UNCLEAN)
    assert state(after) == (2, 1, (2,), ())
    assert after.partition.recovering
    assert controller.fence(metadata(partition(isr=(1,)), fenced=(2, 3)), 1, UNCLEAN).partition.leader == -1


def test_the_leader_epoch_rises_on_shrink_only_in_old_versions() -> None:
    assert controller.fence(metadata(partition()), 3, Rules(bump_on_shrink=True)).partition.leader_epoch == 1
    grown = controller.alter_partition(
        metadata(partition(isr=(1, 2))), proposal(1, 2, 3), Rules(bump_on_shrink=True)
    )[0]
    assert grown.partition.leader_epoch == 0


# ELR


def test_who_leaves_an_isr_below_its_minimum_stays_eligible() -> None:
    two = controller.fence(metadata(partition()), 3, TWO)
    assert state(two) == (1, 0, (1, 2), ())
    one = controller.fence(two, 2, TWO)
    assert state(one) == (1, 0, (1,), (2,))
    none = controller.fence(one, 1, TWO)
    assert state(none) == (-1, 1, (), (1, 2))
    assert none.partition.last_known_leader == 1


def test_an_eligible_replica_that_is_unfenced_leads_alone() -> None:
    before = metadata(partition(leader=-1, isr=(), elr=(1, 2), last=1), fenced=(1, 2, 3))
    assert controller.unfence(before, 3, TWO).partition.leader == -1
    after = controller.unfence(before, 2, TWO)
    assert state(after) == (2, 1, (2,), (1,))
    assert (after.partition.last_known_leader, after.partition.recovering) == (-1, False)


def test_a_recovery_that_has_begun_is_not_ended_by_a_clean_election_out_of_the_elr() -> None:
    """The leader that was elected uncleanly was fenced before it proposed an ISR, so the recovery has not ended."""
    lone = partition(leader=-1, isr=(), elr=(3,), last=3)._replace(recovering=True)
    after = controller.unfence(metadata(lone, fenced=(1, 2, 3)), 3, TWO)
    assert (after.partition.leader, after.partition.isr, after.partition.recovering) == (3, (3,), True)


def test_the_elr_is_cleared_when_the_isr_reaches_its_minimum() -> None:
    before = metadata(partition(isr=(1,), elr=(2,)))
    after, _ = controller.alter_partition(before, proposal(1, 3), TWO)
    assert state(after) == (1, 0, (1, 3), ())


def test_who_comes_back_from_an_unclean_stop_leaves_isr_and_elr() -> None:
    before = metadata(partition(isr=(1,), elr=(2, 3)), fenced=(2,))
    after, registered = controller.register(before, 2, -1, TWO)
    assert (state(after), registered) == ((1, 0, (1,), (3,)), Registration(2, 1, fenced=True))
    clean, _ = controller.register(before, 2, 0, TWO)
    assert state(clean) == (1, 0, (1,), (2, 3))
    careless, _ = controller.register(before, 2, -1, without(TWO, "unclean shutdown leaves the ELR"))
    assert state(careless) == (1, 0, (1,), (2, 3))
    unasked, _ = controller.register(before, 2, -1, replace(TWO, elr=False))
    assert state(unasked) == (1, 0, (1,), (2, 3))


def test_the_last_known_leader_is_elected_when_nobody_is_left() -> None:
    before = metadata(partition(leader=-1, isr=(), last=1), fenced=(1, 2, 3))
    assert controller.unfence(before, 2, TWO).partition.leader == -1
    assert controller.unfence(before, 2, TWO).partition.last_known_leader == 1
    after = controller.unfence(before, 1, TWO)
    assert state(after) == (1, 1, (1,), ())
    assert after.partition.recovering
    assert after.partition.last_known_leader == -1


def test_the_last_known_leader_is_elected_with_elr_and_an_empty_isr_only() -> None:
    last = metadata(partition(leader=-1, isr=(), last=1), fenced=(1, 2, 3))
    assert controller.unfence(last, 1, NO_ELR).partition.leader == -1
    member = metadata(partition(leader=-1, isr=(3,), last=1), fenced=(1, 2, 3))
    assert controller.unfence(member, 1, TWO).partition.leader == -1
    assert (
        controller.fence(metadata(partition(isr=(1,), last=2)), 1, NO_ELR).partition.last_known_leader == -1
    )


@pytest.mark.parametrize(("version", "last"), [("4.0", -1), ("4.1", 1), ("4.3", 1)])
def test_the_last_known_leader_is_written_when_nobody_leads_since_4_1(version: str, last: int) -> None:
    """Source: PartitionChangeBuilder.maybeUpdateLastKnownLeader. 4.0 writes it only when the ISR is empty."""
    rules = replace(rules_of(version, elr=True), min_insync=2)
    made = controller.fence(metadata(partition(isr=(1, 2)), stopping=(2,)), 1, rules).partition
    assert (made.leader, made.isr, made.last_known_leader) == (-1, (2,), last)


def test_an_unclean_election_clears_the_elr() -> None:
    before = metadata(partition(leader=-1, isr=(), elr=(1,), last=1), fenced=(1,))
    assert state(controller.elect(before, Election.UNCLEAN, TWO)) == (2, 1, (2,), ())


def test_who_leads_goes_on_leading_though_another_comes_first() -> None:
    after, _ = controller.alter_partition(
        metadata(partition(leader=2, isr=(1, 2))), proposal(1, 2, 3, leader=2), ONE
    )
    assert state(after) == (2, 0, (1, 2, 3), ())


def test_who_comes_back_from_an_unclean_stop_leaves_an_isr_that_still_names_it() -> None:
    after, _ = controller.register(metadata(partition(isr=(1, 2)), fenced=(2,)), 2, -1, TWO)
    assert state(after) == (1, 0, (1,), ())


def test_before_kafka_19522_it_was_elected_even_while_fenced() -> None:
    before = metadata(partition(leader=-1, isr=(), last=1), fenced=(1, 2, 3))
    bug = without(TWO, "unfenced last known leader")
    assert controller.unfence(before, 2, bug).partition.leader == 1
    eligible = metadata(partition(leader=-1, isr=(), elr=(3,), last=1), fenced=(1, 2, 3))
    assert controller.unfence(eligible, 2, bug).partition.leader == -1
    moved = metadata(partition(leader=-1, isr=(), last=1, replicas=(2, 3)), fenced=(1, 2, 3))
    assert controller.unfence(moved, 2, bug).partition.leader == -1


# Registration


def test_a_new_incarnation_is_refused_while_the_old_ones_session_lives() -> None:
    before = metadata(partition(), fenced=(3,))
    assert not controller.may_register(before, 2)
    assert controller.may_register(before, 3)


def test_unfencing_finds_a_leader_for_a_partition_without_one() -> None:
    before = metadata(partition(leader=-1, isr=(2,), epoch=3), fenced=(2,))
    assert state(controller.unfence(before, 2, NO_ELR)) == (2, 4, (2,), ())
    led = metadata(partition(), fenced=(3,))
    assert controller.unfence(led, 3, NO_ELR).partition == led.partition
    assert not controller.unfence(led, 3, NO_ELR).registration(3).fenced
    lost = metadata(partition(leader=-1, isr=(1,)), fenced=(1, 2))
    assert state(controller.unfence(lost, 2, UNCLEAN))[0] == 2


def test_a_stopping_broker_hands_over_and_leaves_the_isr() -> None:
    after = controller.begin_shutdown(metadata(partition()), 1, ONE)
    assert state(after) == (2, 1, (2, 3), ())
    assert after.registration(1).stopping


# AlterPartition


def test_half_a_decision_is_its_first_record() -> None:
    """The first record of a fencing is the partition's (handleBrokerFenced); that of a shutdown is the broker's
    (handleBrokerInControlledShutdown)."""
    before = metadata(partition())
    fenced = controller.half_fenced(before, 1, ONE)
    assert (fenced.partition, fenced.brokers) == (controller.fence(before, 1, ONE).partition, before.brokers)
    stopping = controller.half_stopping(before, 1)
    assert stopping.partition == before.partition
    assert stopping.brokers == controller.begin_shutdown(before, 1, ONE).brokers
    assert controller.begin_shutdown(stopping, 1, ONE) == controller.begin_shutdown(before, 1, ONE)


def test_an_isr_is_taken_in_assignment_order() -> None:
    before = metadata(partition(isr=(1, 2)))
    after, answer = controller.alter_partition(before, proposal(3, 1, 2), ONE)
    assert (answer.error, answer.partition) == (Error.NONE, after.partition)
    assert (after.partition.isr, after.partition.epoch) == ((1, 2, 3), 1)
    early, _ = controller.alter_partition(before, proposal(3, 1, 2), without(ONE, "assignment order"))
    assert early.partition.isr == (3, 1, 2)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"leader_epoch": 1}, Error.NOT_CONTROLLER),
        ({"leader_epoch": -1}, Error.FENCED_LEADER_EPOCH),
        ({"leader": 2}, Error.INVALID_REQUEST),
        ({"partition_epoch": 1}, Error.NOT_CONTROLLER),
        ({"partition_epoch": -1}, Error.INVALID_UPDATE_VERSION),
        ({"isr": (2, 3, 3)}, Error.INVALID_REQUEST),
        ({"isr": (1, 2, 4)}, Error.INVALID_REQUEST),
        ({"isr_epochs": (0, 0, 1)}, Error.INELIGIBLE_REPLICA),
    ],
)
def test_a_proposal_that_knows_too_little_is_refused(wrong: dict[str, object], error: Error) -> None:
    before = metadata(partition())
    after, answer = controller.alter_partition(before, proposal(1, 2, 3, **wrong), ONE)
    assert (after, answer.error, answer.partition) == (before, error, None)


@pytest.mark.parametrize("which", ["fenced", "stopping"])
def test_fenced_and_stopping_members_are_refused(which: str) -> None:
    before = metadata(partition(isr=(1, 2)), **{which: (3,)})
    assert controller.alter_partition(before, proposal(1, 2, 3), ONE)[1].error is Error.INELIGIBLE_REPLICA
    early = Rules(fencing=False)
    assert controller.alter_partition(before, proposal(1, 2, 3), early)[1].error is Error.NONE


def test_each_check_can_be_taken_away() -> None:
    before = metadata(partition(isr=(1, 2)))
    old = proposal(1, 2, 3, isr_epochs=(0, 0, 7))
    assert controller.alter_partition(before, old, without(ONE, "broker epochs"))[1].error is Error.NONE
    unchecked = without(ONE, "partition epoch compare and set")
    for epoch in (-1, 1):
        other = proposal(1, 2, 3, partition_epoch=epoch)
        assert controller.alter_partition(before, other, unchecked)[1].error is Error.NONE


def test_a_proposal_names_an_incarnation_for_each_member() -> None:
    with pytest.raises(ValueError, match="shorter"):
        controller.alter_partition(metadata(partition()), proposal(1, 2, 3, isr_epochs=(0, 0)), ONE)


def test_a_state_node_asks_for_its_version_only() -> None:
    zookeeper = Rules(alter_partition=False)
    before = metadata(partition(isr=(1, 2)), fenced=(3,))
    written = proposal(1, 2, 3, leader_epoch=-1)
    assert controller.alter_partition(before, written, zookeeper)[1].error is Error.NONE
    stale = proposal(1, 2, 3, partition_epoch=-1)
    assert controller.alter_partition(before, stale, zookeeper)[1].error is Error.INVALID_UPDATE_VERSION


def test_a_leader_after_an_unclean_election_is_recovered_by_its_first_proposal() -> None:
    before = metadata(partition(isr=(1,))._replace(recovering=True))
    after, answer = controller.alter_partition(before, proposal(1, 2), ONE)
    assert answer.error is Error.NONE
    assert not after.partition.recovering


def test_nothing_changes_when_the_isr_is_what_it_was() -> None:
    before = metadata(partition())
    assert controller.alter_partition(before, proposal(1, 2, 3), ONE)[0] == before


# Elections that are asked for


def test_the_preferred_leader_is_the_first_of_the_assignment_if_it_may() -> None:
    before = metadata(partition(leader=2))
    assert state(controller.elect(before, Election.PREFERRED, ONE)) == (1, 1, (1, 2, 3), ())
    out = metadata(partition(leader=2, isr=(2, 3)))
    assert controller.elect(out, Election.PREFERRED, ONE) == out
    fenced = metadata(partition(leader=2), fenced=(1,))
    assert controller.elect(fenced, Election.PREFERRED, ONE) == fenced


def test_an_unclean_election_is_held_only_where_nobody_leads() -> None:
    before = metadata(partition())
    assert controller.elect(before, Election.UNCLEAN, NO_ELR) == before
    lost = metadata(partition(leader=-1, isr=(1,)), fenced=(1,))
    assert state(controller.elect(lost, Election.UNCLEAN, NO_ELR)) == (2, 1, (2,), ())


def test_leadership_can_be_handed_to_a_member_of_the_isr() -> None:
    before = metadata(partition(isr=(1, 3)))
    assert controller.hand_over(before, 3, ONE).partition.leader == 3
    assert controller.hand_over(before, 2, ONE) == before
