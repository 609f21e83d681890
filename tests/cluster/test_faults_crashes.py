"""Crash loops, deaths during start-up, out of memory, starvation, a lost quorum: bite, heal, ISRs full; and duds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ackproof.cluster.install import Installation
from ackproof.faults.crashes import out_of_memory as crashes
from ackproof.faults.crashes import starve as starvation
from ackproof.rundir.timeline import NodeDied
from faultbench import Bench

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


@pytest.mark.nightly
def test_a_node_that_has_started_was_not_killed_while_starting(bench: Bench) -> None:
    bite = bench.bite("kill_starting: {target: broker(1), up: 25s}", record=False)
    assert not bite.bit
    assert "had started before it was killed" in bite.failures[0]


def test_a_heap_that_holds_is_no_bite(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crashes, "REQUEST_BYTES", 1 << 10)
    monkeypatch.setattr(crashes, "OUT_WITHIN_S", 0.5)
    monkeypatch.setattr("ackproof.faults.processes.GONE_WITHIN_S", 0.5)
    monkeypatch.setattr(crashes.OutOfMemoryInjection, "_fill", lambda *_: None)
    bite = bench.bite("out_of_memory: {target: broker(1)}", record=False)
    assert not bite.bit
    assert "to be gone" in bite.failures[0]


def test_a_cycle_that_reaches_nobody_is_no_bite(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starvation, "LOOK_S", 0.3)
    monkeypatch.setattr(starvation.StarveInjection, "_cycle", lambda _: None)
    bite = bench.bite("starve: {target: broker(1)}", record=False)
    assert not bite.bit
    assert "stood still for 0%" in bite.failures[0]


def test_what_is_aimed_at_the_dead_does_not_pass_for_a_bite(bench: Bench) -> None:
    faults = [
        f"{kind}: {{target: broker(2)}}"
        for kind in ("crash_loop", "kill_starting", "out_of_memory", "starve")
    ]
    for fault, bite in bench.aimed_at_the_dead(*faults, back_within_s=60.0).items():
        assert not bite.bit, fault
        assert "nothing to break" in bite.failures[0], fault
