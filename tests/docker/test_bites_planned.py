"""Tests of planned work, storms, a user's commands and clock jumps in containers: each is confirmed and healed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ackproof.cluster.install import Installation
from ackproof.experiment.backends import Need
from faultbench import Bench, duds_on, no_bite, planned
from faultbench.duds import Dud

pytestmark = [pytest.mark.docker, pytest.mark.nightly]


@pytest.fixture(scope="module")
def bench(installed: Callable[[], Installation], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    topics: dict[str, object] = {"t": {"assignment": [[1, 2, 3]], "config": {"min.insync.replicas": 1}}}
    with Bench(
        tmp_path_factory.mktemp("bench"),
        backend="docker",
        installed=installed(),
        needs=frozenset({Need.CLOCKS}),
        topics=topics,
        brokers=4,
        controllers=3,
        log_dirs=2,
    ) as made:
        yield made


def test_reassignments_and_elections_in_turn(bench: Bench) -> None:
    for fault in planned.REASSIGNMENTS:
        bite = bench.bite(fault)
        assert bite.good, bite


def test_an_unclean_election_by_hand(bench: Bench) -> None:
    bite = planned.elect_unclean(bench)
    assert bite.good, bite


def test_commands_of_a_users_own(bench: Bench) -> None:
    bite = planned.freeze_by_command(bench, 2)
    assert bite.good, bite


def test_a_storm(bench: Bench) -> None:
    bite = planned.storm(bench)
    assert bite.good, bite


@pytest.mark.parametrize(
    "fault",
    [
        "clock_jump: {target: leader(t/0), by: 1h}",
        "move_log_dir: {partition: t/0, target: followers(t/0)}",
        "remove_controller: {target: controller}",
        "recreate: {topic: t}",
        "rolling_restart: {target: brokers}",
    ],
)
def test_it_bites_and_is_healed(bench: Bench, fault: str) -> None:
    bite = bench.bite(fault)
    assert bite.good, bite


@pytest.mark.parametrize("drain", [True, False])
def test_a_broker_is_taken_out(bench: Bench, drain: bool) -> None:
    bite = planned.decommission(bench, drain)
    assert bite.good, bite


@pytest.mark.parametrize("dud", duds_on("planned", nightly=True))
def test_a_dud_does_not_pass_for_a_bite(bench: Bench, dud: Dud) -> None:
    no_bite(bench, dud)
