"""Crash loops, deaths during start-up, out of memory, starvation, a lost quorum: bite, heal, ISRs full; and duds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ackproof.cluster.install import Installation
from ackproof.rundir.timeline import NodeDied
from faultbench import Bench, duds_on, no_bite
from faultbench.duds import Dud

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def bench(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("bench"), installed=installs("4.3.1"), controllers=3) as made:
        yield made


@pytest.mark.parametrize(
    "fault",
    [
        "kill: {target: preferred_leader(t/0)}",
        pytest.param("kill: {target: brokers}", marks=pytest.mark.nightly),
        "crash_loop: {target: follower(t/0), times: 3, up: 300ms}",
        "kill_starting: {target: leader(t/0)}",
        pytest.param("kill_starting: {target: controller}", marks=pytest.mark.nightly),
        "out_of_memory: {target: leader(t/0)}",
        "starve: {target: leader(t/0), share: 0.1}",
        "lose_quorum: {}",
        pytest.param("lose_quorum: {by: pause}", marks=pytest.mark.nightly),
        pytest.param("remove_controller: {target: controller(102)}", marks=pytest.mark.nightly),
        pytest.param("remove_controller: {target: controller}", marks=pytest.mark.nightly),
    ],
)
def test_it_bites_and_is_healed(bench: Bench, fault: str) -> None:
    bite = bench.bite(fault)
    assert bite.good, bite
    assert not [event for event in bench.node_events if isinstance(event.what, NodeDied)]


@pytest.mark.parametrize("dud", duds_on("crashes"))
def test_a_dud_does_not_pass_for_a_bite(bench: Bench, dud: Dud) -> None:
    no_bite(bench, dud)


def test_what_is_aimed_at_the_dead_does_not_pass_for_a_bite(bench: Bench) -> None:
    faults = [
        f"{kind}: {{target: broker(2)}}"
        for kind in ("crash_loop", "kill_starting", "out_of_memory", "starve")
    ]
    for fault, bite in bench.aimed_at_the_dead(*faults, back_within_s=60.0).items():
        assert not bite.bit, fault
        assert "nothing to break" in bite.failures[0], fault
