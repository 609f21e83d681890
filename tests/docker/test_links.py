"""Faults of links between containers: each bites, is healed, and the ISRs are full again; a dud does not pass."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from ackproof.cluster.launch import Installation
from ackproof.network import packets
from ackproof.network.mesh import Cut, Link
from ackproof.plan.ground import Need
from faultbench import Bench

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(os.geteuid() != 0, reason="links of containers are broken by root"),
]


@pytest.fixture(scope="module")
def bench(installed: Callable[[], Installation], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    before = packets.tables()
    needs = frozenset({Need.BROKER_LINKS, Need.CLIENT_LINKS, Need.PACKETS})
    folder = tmp_path_factory.mktemp("bench")
    with Bench(folder, backend="docker", installed=installed(), needs=needs) as made:
        yield made
    assert packets.tables() == before


@pytest.mark.parametrize(
    "fault",
    [
        "cut: {link: follower(t/0) -> leader(t/0)}",
        "cut: {link: leader(t/0) -> controllers}",
        "cut: {link: clients -> leader(t/0)}",
        "isolate: {target: leader(t/0), from: peers}",
        "isolate: {target: leader(t/0), silent: true}",
        "split: {groups: [minority, majority]}",
        "bridge: {groups: [[1], [2]], over: broker(3)}",
        "black_hole: {link: followers(t/0) -> leader(t/0)}",
        "reset: {link: follower(t/0) -> leader(t/0), both_ways: true}",
        "throttle: {link: follower(t/0) -> leader(t/0), rate: 50KB/s}",
        "delay: {link: follower(t/0) -> leader(t/0), latency: 100ms, jitter: 20ms}",
        "delay: {link: clients -> leader(t/0), latency: 100ms}",
        "loss: {link: follower(t/0) -> leader(t/0), share: 30%}",
        "drop_large: {link: follower(t/0) -> leader(t/0), above: 600B}",
        "slow_close: {link: follower(t/0) -> leader(t/0), delay: 500ms}",
        "flap: {link: follower(t/0) -> leader(t/0), down: 200ms, up: 300ms}",
    ],
)
def test_it_bites_and_is_healed(bench: Bench, fault: str) -> None:
    bite = bench.bite(fault)
    assert bite.good, bite


def test_rules_for_another_address_do_not_pass_for_a_bite(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay = packets.PacketRules.lay

    def astray(
        self: packets.PacketRules, mark: str, streams: list[packets.Outgoing], effect: packets.Effect
    ) -> None:
        lay(self, mark, [packets.Outgoing("10.255.255.1", stream.port) for stream in streams], effect)

    monkeypatch.setattr(packets.PacketRules, "lay", astray)
    monkeypatch.setattr("ackproof.faults.links.BITES_WITHIN_S", 1.5)
    bite = bench.bite("cut: {link: follower(t/0) -> leader(t/0)}", record=False)
    assert not bite.bit
    assert "to show on" in bite.failures[0]


def test_a_node_that_is_started_again_is_still_cut_off(bench: Bench) -> None:
    """Its namespace is another one, without rules: those in force are laid again."""
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
