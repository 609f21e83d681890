"""Tests of each rule that an observed change can break: its source and text, on both sides of its limit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ackproof_model.replay.account import BrokenRule, find_broken_rule, plain, state_of
from ackproof_reference.metadata import NO_LEADER, Metadata, Partition, Registration

OLD = Partition(replicas=(1, 2, 3), leader=1, leader_epoch=4, epoch=9, isr=(1, 2))
BROKERS = (Registration(1, 11, fenced=True), Registration(2, 12), Registration(3, 13))
ALTER = "ReplicationControlManager.validateAlterPartitionData"
ELECT = "PartitionChangeBuilder.electAnyLeader"


def after(old: Partition = OLD, **changes: object) -> Partition:
    return old._replace(**{"epoch": old.epoch + 1, **changes})  # type: ignore[arg-type]


def rule(
    seen: Partition,
    old: Partition = OLD,
    *,
    brokers: tuple[Registration, ...] = BROKERS,
    unclean: bool = False,
    named: int = 2,
) -> BrokenRule:
    return find_broken_rule(Metadata(old, brokers), seen, unclean, named)


NOBODY = OLD._replace(leader=NO_LEADER, isr=(2,))
ALONE = OLD._replace(isr=(1,))
STATES = "leader 1 in epoch 4, partition epoch 9, replicas [1, 2, 3], ISR {1, 2}"


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (
            lambda: rule(after(epoch=11, leader=9)),
            BrokenRule(
                "partition epoch",
                "KIP-497; org.apache.kafka.metadata.PartitionRegistration.merge",
                "the partition epoch went from 9 to 11: each change takes the next one",
            ),
        ),
        (
            lambda: rule(after(leader=9, leader_epoch=5)),
            BrokenRule(
                "election of a stranger", ELECT, "broker 9 has no replica and was elected", certain=True
            ),
        ),
        (
            lambda: rule(after(leader=3, leader_epoch=5)),
            BrokenRule(
                "election out of the ISR",
                f"KIP-106, KIP-966; {ELECT}",
                "broker 3 was elected, and ISR {1, 2} and ELR {} have it not; unclean elections are off",
            ),
        ),
        (
            lambda: rule(
                after(leader=2, leader_epoch=5), brokers=(BROKERS[0], Registration(2, 12, stopping=True))
            ),
            BrokenRule(
                "election of a fenced broker",
                "KIP-631; ClusterControlManager.isActive",
                "broker 2 was elected while it was fenced or on its way out",
            ),
        ),
        (
            lambda: rule(after(leader=2, leader_epoch=6)),
            BrokenRule(
                "leader epoch",
                "KIP-101; org.apache.kafka.metadata.PartitionRegistration.merge",
                "the leader epoch went from 4 to 6 with another leader",
            ),
        ),
        (
            lambda: rule(after(leader=2)),
            BrokenRule(
                "leader epoch",
                "KIP-101; org.apache.kafka.metadata.PartitionRegistration.merge",
                "the leader epoch went from 4 to 4 with another leader",
            ),
        ),
        (
            lambda: rule(after(leader_epoch=3)),
            BrokenRule(
                "leader epoch",
                "KIP-101; org.apache.kafka.metadata.PartitionRegistration.merge",
                "the leader epoch went from 4 to 3 with the same leader",
            ),
        ),
        (
            lambda: rule(after(isr=(1, 2, 8, 7))),
            BrokenRule(
                "ISR beyond the replicas", ALTER, "the ISR has {7, 8}, who hold no replica", certain=True
            ),
        ),
        (
            lambda: rule(after(isr=(2,))),
            BrokenRule(
                "leader out of its ISR", ALTER, "broker 1 leads, and the ISR {2} has it not", certain=True
            ),
        ),
        (
            lambda: rule(after(isr=(1, 2, 3)), brokers=(*BROKERS[:2], Registration(3, 13, fenced=True))),
            BrokenRule(
                "fenced broker joined the ISR",
                f"KIP-841, KIP-903; {ALTER}",
                "{3} joined the ISR while fenced, unregistered or on the way out",
            ),
        ),
        (
            lambda: rule(after(NOBODY, isr=(2, 3)), NOBODY),
            BrokenRule(
                "ISR grown without a leader",
                f"KIP-497; {ALTER}",
                "{3} joined the ISR, and nobody led to ask for it",
            ),
        ),
        (
            lambda: rule(after(leader=2, leader_epoch=5), named=3),
            BrokenRule(
                "another leader than the reference names",
                "KIP-966; PartitionChangeBuilder.electLeader",
                "broker 2 was elected where the reference names broker 3",
            ),
        ),
        (
            lambda: rule(after(leader=NO_LEADER, leader_epoch=5), named=2),
            BrokenRule(
                "another leader than the reference names",
                "KIP-966; PartitionChangeBuilder.electLeader",
                "nobody was elected where the reference names broker 2",
            ),
        ),
        (
            lambda: rule(after(leader=2, leader_epoch=5)),
            BrokenRule(
                "no such step",
                "PartitionChangeBuilder; ReplicationControlManager",
                f"no step of the protocol leads from {STATES} to leader 2 in epoch 5, partition epoch 10, "
                "replicas [1, 2, 3], ISR {1, 2}",
            ),
        ),
    ],
    ids=lambda one: one.text[:50] if isinstance(one, BrokenRule) else "",
)
def test_a_broken_rule_is_named(broken: Callable[[], BrokenRule], expected: BrokenRule) -> None:
    assert broken() == expected


@pytest.mark.parametrize(
    ("seen", "old", "unclean"),
    [
        pytest.param(
            after(leader=3, leader_epoch=5, isr=(3,)), OLD, True, id="an unclean election that is on"
        ),
        pytest.param(
            after(ALONE, leader=2, leader_epoch=5, isr=(2,)),
            ALONE._replace(isr=(), elr=(2,)),
            False,
            id="from the ELR, where nobody is in sync",
        ),
        pytest.param(
            after(NOBODY, leader=3, leader_epoch=5, isr=(3,)),
            NOBODY._replace(last_known_leader=3),
            False,
            id="the last known leader",
        ),
        pytest.param(after(leader_epoch=5), OLD, False, id="an epoch that rises with the same leader"),
        pytest.param(after(NOBODY, isr=(2,)), NOBODY, False, id="an ISR that does not grow without a leader"),
        pytest.param(
            after(NOBODY, leader=2, leader_epoch=5, isr=(2, 3)),
            NOBODY,
            False,
            id="one that leads from now on",
        ),
        pytest.param(after(isr=(1, 2, 3)), OLD, False, id="an active broker joins"),
        pytest.param(
            after(replicas=(1, 2, 4), leader=2, leader_epoch=5), OLD, False, id="replicas that are others now"
        ),
    ],
)
def test_what_breaks_no_rule_by_itself_is_only_no_step(
    seen: Partition, old: Partition, unclean: bool
) -> None:
    brokers = (*BROKERS, Registration(4, 14))
    assert rule(seen, old, brokers=brokers, unclean=unclean, named=seen.leader).rule == "no such step"


def test_the_elr_is_not_asked_while_somebody_is_in_sync() -> None:
    old = OLD._replace(elr=(3,))
    assert rule(after(old, leader=3, leader_epoch=5), old).rule == "election out of the ISR"


def test_a_replica_that_is_only_about_to_be_one_may_lead() -> None:
    seen = after(replicas=(1, 2, 3, 4), leader=4, leader_epoch=5)
    brokers = (*BROKERS, Registration(4, 14))
    assert rule(seen, brokers=brokers).rule == "election out of the ISR"


def test_states_are_told_in_full() -> None:
    assert plain(OLD) == STATES
    moving = OLD._replace(elr=(3,), last_known_leader=2, adding=(4,), removing=(1,), recovering=True)
    assert plain(moving) == (
        f"{STATES}, ELR {{3}}, last known leader 2, adding {{4}}, removing {{1}}, recovering"
    )
    assert plain(OLD._replace(removing=(1,))) == f"{STATES}, adding {{}}, removing {{1}}"
    assert plain(OLD._replace(adding=(4,))) == f"{STATES}, adding {{4}}, removing {{}}"
    brokers = (BROKERS[0], BROKERS[1], Registration(3, 13, stopping=True))
    assert state_of(Metadata(OLD, brokers)) == (
        f"{STATES}; broker 1 fenced (epoch 11); broker 2 active (epoch 12); "
        "broker 3 in controlled shutdown (epoch 13)"
    )


def test_one_of_two_who_joined_was_on_its_way_out() -> None:
    """One of the two brokers that joined is stopping; that the other one may join does not excuse it."""
    seen, out = after(ALONE, isr=(1, 2, 3)), Registration(3, 13, stopping=True)
    found = rule(seen, ALONE, brokers=(*BROKERS[:2], out))
    assert found.rule == "fenced broker joined the ISR"
    assert found.text == "{3} joined the ISR while fenced, unregistered or on the way out"
