"""Tests of faults of links between nodes and of single packets: each is confirmed and healed, the ISRs become full
again, and duds are not confirmed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from ackproof.cluster.install import Installation
from ackproof.experiment.backends import LINKS, Need
from faultbench import Bench, duds_on, no_bite
from faultbench.duds import Dud
from faultbench.links import LINK_FAULTS, PACKET_FAULTS, tables_of

pytestmark = pytest.mark.cluster
ROOT = os.geteuid() == 0
OF_THE_NIGHT = (
    "isolate: {target: leader(t/0), from: peers}",  # silent: true has the same links and more
    "split: {groups: [minority, majority]}",  # with every push in containers, and bridge here
)
needs_root = pytest.mark.skipif(not ROOT, reason="packet rules are root's")


@pytest.fixture(scope="module")
def bench(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    needs = LINKS | ({Need.PACKETS} if ROOT else set())
    with Bench(tmp_path_factory.mktemp("bench"), installed=installs("4.4.0"), needs=needs) as made:
        yield made
    assert not ROOT or tables_of(os.getpid()) == []


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, marks=pytest.mark.nightly) if fault in OF_THE_NIGHT else fault
        for fault in LINK_FAULTS
    ],
)
def test_it_bites_and_is_healed(bench: Bench, fault: str) -> None:
    bite = bench.bite(fault)
    assert bite.good, bite


@needs_root
@pytest.mark.parametrize(
    "fault",
    [
        *PACKET_FAULTS,
        pytest.param("loss: {link: followers(t/0) -> leader(t/0), share: 100%}", marks=pytest.mark.nightly),
    ],
)
def test_packets_are_lost_and_come_again(bench: Bench, fault: str) -> None:
    bite = bench.bite(fault)
    assert bite.good, bite


@pytest.mark.parametrize("dud", duds_on("links"))
def test_a_dud_does_not_pass_for_a_bite(bench: Bench, dud: Dud) -> None:
    no_bite(bench, dud)


@needs_root
@pytest.mark.parametrize("dud", duds_on("packets"))
def test_a_dud_of_packets_does_not_pass_for_a_bite(bench: Bench, dud: Dud) -> None:
    no_bite(bench, dud)


def test_a_link_to_the_dead_is_nothing_to_break(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.await_full_isr()
    node = bench.cluster.node(2)
    node.stop()
    monkeypatch.setattr("faultbench.bench.ISR_BACK_WITHIN_S", 0.0)
    try:
        bite = bench.bite("cut: {link: broker(1) -> broker(2)}", record=False, settled=False)
    finally:
        node.start()
        node.await_ready(30.0)
    assert not bite.bit
    assert "nothing to break" in bite.failures[0]
    assert "node 2 is gone" in bite.failures[0]
