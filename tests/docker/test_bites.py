"""Tests of faults in containers: each is confirmed and healed, the ISRs become full again, and duds are not
confirmed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ackproof.cluster.install import Installation
from ackproof.rundir.partition import TopicPartition
from faultbench import Bench, duds_on, no_bite
from faultbench.code import HALT
from faultbench.duds import Dud

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def bench(installed: Callable[[], Installation], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    topics: dict[str, object] = {"t": {"assignment": [[1, 2, 3]], "config": {"min.insync.replicas": 1}}}
    folder = tmp_path_factory.mktemp("bench")
    with Bench(folder, backend="docker", installed=installed(), topics=topics) as made:
        yield made


def _at_night(fault: str) -> object:
    return pytest.param(fault, marks=pytest.mark.nightly)


@pytest.mark.parametrize(
    "fault",
    [
        "kill: {target: leader(t/0)}",
        HALT,
        _at_night("stop: {target: leader(t/0)}"),
        "pause: {target: leader(t/0)}",
        _at_night("restart: {target: follower(t/0)}"),
        _at_night("pause: {target: minority}"),
        _at_night("kill: {target: controller}"),
        _at_night("kill: {target: brokers}"),
        _at_night("crash_loop: {target: follower(t/0), times: 3, up: 300ms}"),
        _at_night("kill_starting: {target: leader(t/0)}"),
        _at_night("out_of_memory: {target: leader(t/0)}"),
        _at_night("starve: {target: leader(t/0), share: 0.1}"),
        _at_night("lose_quorum: {}"),
        _at_night("lose_quorum: {by: pause}"),
        # Requests to brokers are the same on processes.
        _at_night("elect_preferred: {partition: t/0}"),
        _at_night("reassign: {partition: t/0, to: [2, 1]}"),
        _at_night("reassign: {partition: t/0, to: [1, 2, 3]}"),
        _at_night("set: {topic: t, config: {min.insync.replicas: 2}}"),
    ],
)
def test_it_bites_and_is_healed(bench: Bench, fault: str) -> None:
    if fault.startswith("elect_preferred"):
        _let_another_be_preferred(bench)
    bite = bench.bite(fault)
    assert bite.good, bite


def _let_another_be_preferred(bench: Bench) -> None:
    """Reassign t/0 so that another broker than the leader is preferred; which one leads depends on earlier faults."""
    leader = bench.cluster.topic_state(["t"])[TopicPartition("t", 0)].leader
    order = [*(node for node in (1, 2, 3) if node != leader), leader]
    bench.bite(f"reassign: {{partition: t/0, to: {order}}}", record=False)


@pytest.mark.nightly  # on processes with every push
def test_what_is_aimed_at_the_dead_does_not_pass_for_a_bite(bench: Bench) -> None:
    faults = [f"{kind}: {{target: broker(2)}}" for kind in ("kill", "pause")]
    for fault, bite in bench.aimed_at_the_dead(*faults).items():
        assert not bite.bit, fault
        assert "nothing to break" in bite.failures[0], fault


@pytest.mark.parametrize("dud", duds_on("processes", nightly=True))
def test_a_dud_does_not_pass_for_a_bite(bench: Bench, dud: Dud) -> None:
    no_bite(bench, dud)
