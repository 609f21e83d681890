"""Faults of links between nodes: each bites, is healed, and the ISRs are full again; duds do not pass for bites."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ackproof.cluster.launch import Installation
from ackproof.plan.ground import Need
from faultbench import Bench

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def bench(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    needs = frozenset({Need.BROKER_LINKS, Need.CONTROLLER_LINKS, Need.CLIENT_LINKS})
    with Bench(tmp_path_factory.mktemp("bench"), installed=installs("4.3.1"), needs=needs) as made:
        yield made


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
        "slow_close: {link: follower(t/0) -> leader(t/0), delay: 500ms}",
        "flap: {link: follower(t/0) -> leader(t/0), down: 200ms, up: 300ms}",
    ],
)
def test_it_bites_and_is_healed(bench: Bench, fault: str) -> None:
    bite = bench.bite(fault)
    assert bite.good, bite
