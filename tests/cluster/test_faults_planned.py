"""Tests of planned work and roll-outs under load. Each is confirmed by another broker than the one that got the
request."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ackproof.base.wait import wait_until
from ackproof.cluster import admin
from ackproof.cluster.install import Installation
from faultbench import Bench, duds_on, no_bite, planned
from faultbench.duds import Dud, without_broker_4
from faultbench.planned import PLACE

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def bench(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    topics: dict[str, object] = {
        "t": {"assignment": [[1, 2, 3]], "config": {"min.insync.replicas": 1}},
    }
    folder = tmp_path_factory.mktemp("bench")
    with Bench(folder, installed=installs("4.4.0"), brokers=4, topics=topics) as made:
        yield made


def test_reassignments_and_elections_in_turn(bench: Bench) -> None:
    """Each fault starts from the assignment that the one before it left."""
    for fault in planned.REASSIGNMENTS:
        bite = bench.bite(fault)
        assert bite.good, bite
        assert "metadata of broker" in bite.witness
    state = bench.cluster.topic_state(["t"])[PLACE]
    assert state.replicas == (1, 2, 3)


@pytest.mark.parametrize(
    "fault",
    [
        "set: {topic: t, config: {min.insync.replicas: 2}}",
        pytest.param(
            "set: {topic: t, config: {unclean.leader.election.enable: true}}", marks=pytest.mark.nightly
        ),
        "set: {broker: 2, config: {log.cleaner.threads: 2}}",
        "set: {config: {message.max.bytes: 2000000}}",
    ],
)
def test_settings_change_and_are_put_back(bench: Bench, fault: str) -> None:
    bite = bench.bite(fault)
    assert bite.good, bite
    assert bite.witness.startswith("DescribeConfigs at broker")


@pytest.mark.nightly
def test_an_unclean_election_by_hand(bench: Bench) -> None:
    bite = planned.elect_unclean(bench)
    assert bite.good, bite


def test_commands_of_a_users_own(bench: Bench) -> None:
    bite = planned.freeze_by_command(bench, 2)
    assert bite.good, bite


@pytest.mark.nightly
def test_a_storm(bench: Bench) -> None:
    bite = planned.storm(bench)
    assert bite.good, bite


CHANGES_NOTHING = {
    "elect_preferred: {partition: t/0}": "nothing to elect",
    "elect_unclean: {partition: t/0}": "takes a leaderless partition",
    "reassign: {partition: t/0, to: [1, 2, 3]}": "nothing to move",
    "set: {topic: t, config: {min.insync.replicas: 1}}": "in force already",
    "set: {broker: 2, config: {num.partitions: 5}}": "num.partitions",
    "cancel_reassign: {partition: t/0, to: [3, 2, 1], throttle: 1GB}": "nothing to cancel",
}
"""Faults without effect while t/0 is on brokers 1, 2 and 3, and broker 1 leads; the last one changes that order."""


def test_what_changes_nothing_does_not_pass_for_a_bite(bench: Bench) -> None:
    bench.bite("reassign: {partition: t/0, to: [1, 2, 3]}", record=False)
    bench.bite("elect_preferred: {partition: t/0}", record=False)
    for fault, why in CHANGES_NOTHING.items():
        bite = bench.bite(fault, record=False)
        assert not bite.bit, bite
        assert why in bite.failures[0]


def test_a_topic_is_deleted_and_created_again(bench: Bench) -> None:
    bite = bench.bite("recreate: {topic: t}")
    assert bite.good, bite
    assert "no topic t" in bite.witness
    assert "t/0: 0 to" in bite.recovery
    assert bench.cluster.topic_state(["t"])[PLACE].leader_epoch == 0


@pytest.mark.nightly
def test_a_rolling_restart(bench: Bench) -> None:
    before = {node.id: node.pid for node in bench.cluster.nodes.values()}
    bite = bench.bite("rolling_restart: {target: brokers}")
    assert bite.good, bite
    assert "every broker shows" in bite.recovery
    for node in bench.cluster.brokers():
        assert node.pid != before[node.id]
    assert all(node.pid == before[node.id] for node in bench.cluster.controllers())


@pytest.mark.parametrize("drain", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_broker_is_taken_out(bench: Bench, drain: bool) -> None:
    bite = planned.decommission(bench, drain)
    assert bite.good, bite


def test_what_is_aimed_at_the_dead_is_no_rollout(bench: Bench) -> None:
    faults = ("rolling_restart: {target: brokers}", "decommission: {target: broker(2)}")
    for fault, bite in bench.aimed_at_the_dead(*faults).items():
        assert not bite.bit, fault
        assert "nothing to break" in bite.failures[0], fault


@pytest.mark.parametrize("dud", [*duds_on("planned"), *duds_on("rollouts")])
def test_a_dud_does_not_pass_for_a_bite(bench: Bench, dud: Dud) -> None:
    no_bite(bench, dud)


@pytest.mark.nightly
def test_a_move_that_is_turned_back_half_way_does_not_end_by_itself(bench: Bench) -> None:
    """A bug of Kafka in KRaft: the replica that was being added is then both added and removed, and the reassignment
    never ends."""
    link = bench.cluster.running_links()[1]
    with without_broker_4(bench):
        admin.reassign(link, {PLACE: (4, 2, 1)})
        admin.reassign(link, {PLACE: (1, 2, 3)})
        bench.mend()
        bench.await_full_isr()  # nothing is left to wait for, and yet:
        assert admin.reassignments(link)[PLACE] == admin.Reassignment((1, 2, 3, 4), (4,), (4,))
        admin.reassign(link, {PLACE: None})
        wait_until(lambda: not admin.reassignments(link), what="the move to be cancelled", timeout_s=10.0)
    assert bench.cluster.topic_state(["t"])[PLACE].replicas == (1, 2, 3)
