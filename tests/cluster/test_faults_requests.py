"""Tests of faults of single requests: each affects only its API and is healed; a proxy without effect is not
confirmed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from ackproof.base.processes import end_children
from ackproof.base.wait import wait_until
from ackproof.cluster.install import Installation
from ackproof.experiment.backends import LINKS, REQUESTS
from ackproof.experiment.links import APIS, Flow
from ackproof.network.mesh import CLIENTS, Link
from ackproof.network.requests.links import RequestProxy
from ackproof.network.requests.questions import QuestionPlan
from ackproof.rundir.timeline import EventKind, ProxyDied
from faultbench import Bench, duds_on, no_bite
from faultbench.duds import Dud
from faultbench.requests import REQUEST_FAULTS

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def bench(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    with Bench(
        tmp_path_factory.mktemp("requests"), installed=installs("4.4.0"), needs=frozenset(REQUESTS)
    ) as made:
        yield made


@pytest.mark.parametrize("fault", REQUEST_FAULTS)
def test_it_bites_and_is_healed(bench: Bench, fault: str) -> None:
    bite = bench.bite(fault)
    assert bite.good, bite


@pytest.mark.parametrize("dud", duds_on("requests"))
def test_a_dud_does_not_pass_for_a_bite(bench: Bench, dud: Dud) -> None:
    no_bite(bench, dud)


def ask_all(bench: Bench, release: str, flows: frozenset[Flow]) -> None:
    """Send a question for each API of this release on each of the `flows` that carry it. Assert that each is answered,
    its control request too, and that no node ends."""
    requests, active = bench.cluster.requests, bench.cluster.controller()
    assert requests is not None and active is not None
    other = next((node.id for node in bench.cluster.controllers() if node.id != active), active)
    links = {
        Flow.CLIENTS: Link(CLIENTS, 2),
        Flow.BROKERS: Link(1, 2),
        Flow.CONTROLLERS: Link(2, active),
        Flow.QUORUM: Link(other, active),
    }
    for api in APIS.values():
        for flow in sorted(flows & api.flows) if api.sent_in(release) else ():
            asked, control = requests.ask(links[flow], api, QuestionPlan(5.0))
            assert asked.answered and asked.arrived == 1 and control.answered, (api, flow, asked, control)
    bench.cluster.check()


@pytest.mark.nightly
def test_every_question_is_answered_where_its_api_is_sent(bench: Bench) -> None:
    ask_all(bench, "4.4.0", frozenset(Flow) - {Flow.QUORUM})


@pytest.mark.nightly
def test_and_by_the_oldest_release(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, needs = tmp_path_factory.mktemp("older"), frozenset(REQUESTS)
    older = {"kafka": "3.9.2", "controllers": 3}
    with Bench(folder, installed=installs("3.9.2"), needs=needs, **older) as one:
        ask_all(one, "3.9.2", frozenset(Flow))
        bite = one.bite(
            "lose_request: {link: clients -> leader(t/0), api: Produce, side: response, times: 1}"
        )
        assert bite.good, bite


@pytest.mark.nightly
def test_a_proxy_that_ends_is_told_at_once_and_replaced(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("ends")
    with Bench(folder, installed=installs("4.4.0"), needs=frozenset(REQUESTS), brokers=3) as one:

        def bites() -> bool:
            told = folder / "fault-1.jsonl"
            return told.exists() and EventKind.FAULT_CONFIRMED in told.read_text(encoding="utf-8")

        def end() -> None:
            wait_until(bites, what="the fault", timeout_s=30.0)
            end_children(lambda child: child.role == RequestProxy.ROLE and child.directory == folder)

        thread = threading.Thread(target=end)
        thread.start()
        bite = one.bite(
            "{hold_request: {link: followers(t/0) -> leader(t/0), api: Fetch}, for: 20s}", then=thread.join
        )
        assert not bite.healed and "the request proxy ended by itself (exit -9)" in bite.failures[0]
        assert bite.isr_back, bite
        assert [event.what for event in one.node_events if isinstance(event.what, ProxyDied)]
        one.cluster.check()


@pytest.mark.nightly
def test_it_stacks_with_toxiproxy(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> None:
    needs = frozenset(REQUESTS) | LINKS
    with Bench(tmp_path_factory.mktemp("stacked"), installed=installs("4.4.0"), needs=needs) as one:
        for fault in (
            "hold_request: {link: followers(t/0) -> leader(t/0), api: Fetch}",
            "cut: {link: followers(t/0) -> leader(t/0)}",
            "delay: {link: clients -> leader(t/0), latency: 100ms}",
            "lose_request: {link: clients -> leader(t/0), api: Produce, side: response}",
        ):
            bite = one.bite(fault)
            assert bite.good, bite


@pytest.mark.nightly
def test_controllers_among_themselves(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("quorum")
    with Bench(folder, installed=installs("4.4.0"), needs=frozenset(REQUESTS), controllers=3) as one:
        ask_all(one, "4.4.0", frozenset({Flow.QUORUM}))
        bite = one.bite("hold_request: {link: controllers -> controller, api: Fetch, side: response}")
        assert bite.good, bite
