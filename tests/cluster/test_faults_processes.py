"""Faults of processes: each bites, is healed, and the ISRs are full again; duds do not pass for bites."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ackproof.cluster.install import Installation
from faultbench import Bench, duds_on, no_bite
from faultbench.duds import Dud

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def bench(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("bench"), installed=installs("4.3.1")) as made:
        yield made


@pytest.mark.parametrize(
    "fault",
    [
        "kill: {target: leader(t/0)}",
        "kill: {target: followers(t/0)}",
        "stop: {target: leader(t/0)}",
        "pause: {target: leader(t/0)}",
        "pause: {target: minority}",
        "restart: {target: follower(t/0)}",
        "kill: {target: controller}",
        "pause: {target: controller}",
    ],
)
def test_it_bites_and_is_healed(bench: Bench, fault: str) -> None:
    bite = bench.bite(fault)
    assert bite.good, bite


def test_what_is_aimed_at_the_dead_does_not_pass_for_a_bite(bench: Bench) -> None:
    faults = [f"{kind}: {{target: broker(2)}}" for kind in ("kill", "pause", "stop")]
    for fault, bite in bench.aimed_at_the_dead(*faults).items():
        assert not bite.bit, fault
        assert "nothing to break" in bite.failures[0], fault


@pytest.mark.parametrize("dud", duds_on("processes"))
def test_a_dud_does_not_pass_for_a_bite(bench: Bench, dud: Dud) -> None:
    no_bite(bench, dud)
