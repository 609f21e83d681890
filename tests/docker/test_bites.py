"""Faults of processes on containers: each bites, is healed, and the ISRs are full again; duds do not pass for bites."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ackproof.cluster.launch import Installation
from faultbench import Bench

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def bench(installed: Callable[[], Installation], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("bench"), backend="docker", installed=installed()) as made:
        yield made


@pytest.mark.parametrize(
    "fault",
    [
        "kill: {target: leader(t/0)}",
        "stop: {target: leader(t/0)}",
        "pause: {target: leader(t/0)}",
        "pause: {target: minority}",
        "restart: {target: follower(t/0)}",
        "kill: {target: controller}",
    ],
)
def test_it_bites_and_is_healed(bench: Bench, fault: str) -> None:
    bite = bench.bite(fault)
    assert bite.good, bite


@pytest.mark.parametrize("kind", ["kill", "pause"])
def test_what_is_aimed_at_the_dead_does_not_pass_for_a_bite(bench: Bench, kind: str) -> None:
    bench.await_full_isr()
    node = bench.cluster.node(2)
    node.stop()
    try:
        bite = bench.bite(f"{kind}: {{target: broker(2)}}", record=False, settled=False)
    finally:
        if not node.alive:
            node.start()
        node.await_ready(30.0)
    assert not bite.bit
    assert "nothing to break" in bite.failures[0]
