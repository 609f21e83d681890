"""Tests of faults of single requests between containers, and of clients, also on links with other faults."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from ackproof.cluster.install import Installation
from ackproof.experiment.backends import LINKS, REQUESTS, Need
from ackproof.experiment.links import APIS
from ackproof.network.mesh import Delay, Link
from ackproof.network.requests.questions import QuestionPlan
from ackproof.rundir.partition import TopicPartition
from faultbench import Bench, duds_on, no_bite
from faultbench.duds import Dud
from faultbench.links import tables_of
from faultbench.requests import REQUEST_FAULTS

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(os.geteuid() != 0, reason="links of containers are laid by root"),
]


@pytest.fixture(scope="module")
def bench(installed: Callable[[], Installation], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    needs = frozenset(REQUESTS) | LINKS | {Need.PACKETS}
    folder = tmp_path_factory.mktemp("bench")
    with Bench(folder, backend="docker", installed=installed(), needs=needs) as made:
        yield made
    assert tables_of(os.getpid()) == []


OF_A_PARTITION = "hold_request: {link: followers(t/0) -> leader(t/0), api: Fetch, partition: t/0}"
"""A fault that runs in containers at night only; on processes it runs with every push."""


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, marks=pytest.mark.nightly) if fault == OF_A_PARTITION else fault
        for fault in REQUEST_FAULTS
    ],
)
def test_it_bites_and_is_healed(bench: Bench, fault: str) -> None:
    bite = bench.bite(fault)
    assert bite.good, bite


@pytest.mark.parametrize("dud", duds_on("requests", nightly=True))
def test_a_dud_does_not_pass_for_a_bite(bench: Bench, dud: Dud) -> None:
    no_bite(bench, dud)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "fault",
    [
        "cut: {link: followers(t/0) -> leader(t/0)}",
        "loss: {link: follower(t/0) -> leader(t/0), share: 50%}",
        "delay: {link: follower(t/0) -> leader(t/0), latency: 100ms}",
        "delay: {link: clients -> leader(t/0), latency: 100ms}",
    ],
)
def test_what_breaks_links_bites_there(bench: Bench, fault: str) -> None:
    bite = bench.bite(fault)
    assert bite.good, bite


@pytest.mark.nightly
def test_both_at_once_on_one_link_and_after_a_restart(bench: Bench) -> None:
    """The request proxy gets the traffic of a link that the mesh delays. A restarted node's new namespace is redirected
    again."""
    bench.await_full_isr()
    mesh, requests = bench.cluster.mesh, bench.cluster.requests
    assert mesh is not None and requests is not None
    place = TopicPartition("t", 0)
    state = bench.cluster.topic_state(["t"])[place]
    follower = next(one for one in state.replicas if one != state.leader)
    link = Link(follower, state.leader)
    hold = f"hold_request: {{link: broker({follower}) -> broker({state.leader}), api: Fetch}}"
    mesh.impose("test", link, Delay(0.2))
    try:
        assert mesh.probe(link, timeout_s=3.0).seconds >= 0.2
        asked, control = requests.ask(link, APIS["Fetch"], QuestionPlan(5.0))
        assert asked.answered and asked.arrived == 1 and control.answered
        assert asked.seconds >= 0.2
        bite = bench.bite(hold, settled=False)
        assert bite.bit and bite.healed, bite
        node = bench.cluster.node(follower)
        node.stop()
        node.start()
        node.await_ready(60.0)
        assert mesh.probe(link, timeout_s=3.0).seconds >= 0.2
    finally:
        mesh.lift("test", link)
    bite = bench.bite(hold)
    assert bite.good, bite
