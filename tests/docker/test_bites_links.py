"""Tests of faults of links between containers: each is confirmed and healed, the ISRs become full again, and a dud is
not confirmed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from ackproof.cluster.install import Installation
from ackproof.experiment.backends import Need
from ackproof.network.mesh import Cut, Link
from faultbench import Bench, duds_on, no_bite
from faultbench.duds import Dud
from faultbench.links import LINK_FAULTS, PACKET_FAULTS, tables_of

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(os.geteuid() != 0, reason="links of containers are broken by root"),
]


@pytest.fixture(scope="module")
def bench(installed: Callable[[], Installation], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    needs = frozenset({Need.BROKER_LINKS, Need.CLIENT_LINKS, Need.PACKETS})
    folder = tmp_path_factory.mktemp("bench")
    with Bench(folder, backend="docker", installed=installed(), needs=needs) as made:
        yield made
    assert tables_of(os.getpid()) == []


OF_THE_NIGHT = (
    "isolate: {target: leader(t/0), silent: true}",
    "black_hole: {link: followers(t/0) -> leader(t/0)}",
    "isolate: {target: leader(t/0), from: peers}",
    "cut: {link: clients -> leader(t/0)}",
    "cut: {link: leader(t/0) -> controllers}",
    "detach: {target: leader(t/0)}",
    "bridge: {groups: [[1], [2]], over: broker(3)}",
    "reset: {link: follower(t/0) -> leader(t/0), both_ways: true}",
    "delay: {link: follower(t/0) -> leader(t/0), latency: 100ms, jitter: 20ms}",
    "slow_close: {link: follower(t/0) -> leader(t/0), delay: 500ms}",
    "flap: {link: follower(t/0) -> leader(t/0), down: 200ms, up: 300ms}",
    "drop_large: {link: follower(t/0) -> leader(t/0), above: 600B}",
)
"""Faults that run in containers at night only; on processes they run with every push. The other faults run in
containers with every push: at least one for each mechanism (packet rules, proxies, lost packets)."""


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, marks=pytest.mark.nightly) if fault in OF_THE_NIGHT else fault
        for fault in (
            *LINK_FAULTS,
            "delay: {link: clients -> leader(t/0), latency: 100ms}",
            *PACKET_FAULTS,
        )
    ],
)
def test_it_bites_and_is_healed(bench: Bench, fault: str) -> None:
    bite = bench.bite(fault)
    assert bite.good, bite


@pytest.mark.parametrize("dud", duds_on("packets of containers"))
def test_a_dud_does_not_pass_for_a_bite(bench: Bench, dud: Dud) -> None:
    no_bite(bench, dud)


def test_a_node_that_is_started_again_is_still_cut_off(bench: Bench) -> None:
    """A restarted node has a new namespace without rules, in which the rules in force must be set again."""
    bench.await_full_isr()
    mesh = bench.cluster.mesh
    assert mesh is not None
    link = Link(2, 3)
    mesh.impose("me", link, Cut())
    try:
        node = bench.cluster.node(2)
        node.stop()
        node.start()
        node.await_ready(60.0)
        assert not mesh.probe(link).passed
    finally:
        mesh.lift("me", link)
    assert mesh.probe(link).passed
    bench.await_full_isr()
