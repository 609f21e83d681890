"""Tests of faults of nodes' and clients' processes: each is confirmed and healed, the ISRs become full again, and duds
are not confirmed. Records that a killed client had sent are accounted for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ackproof.clients.workload import Workload
from ackproof.cluster.install import Installation
from ackproof.cluster.protocol import local
from ackproof.rundir.ledger import read_parts
from ackproof.rundir.outcome import TxnOutcome
from ackproof.rundir.schema import PRODUCED, TRANSACTIONS
from ackproof.rundir.timeline import NodeDied
from faultbench import Bench, duds_on, no_bite
from faultbench.clients import IN_TRANSACTIONS, LOAD, freeze_clients, kill_clients, load_on, of_library
from faultbench.duds import Dud

pytestmark = pytest.mark.cluster
KILLED = ("kill", "pause", "stop", "crash_loop", "kill_starting", "out_of_memory", "starve")


@pytest.fixture(scope="module")
def bench(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    racks = {"racks": ["a", "a", "b"], "controller_racks": ["a", "b", "b"]}
    with Bench(tmp_path_factory.mktemp("bench"), installed=installs("4.4.0"), controllers=3, **racks) as made:
        yield made


def _at_night(fault: str) -> object:
    return pytest.param(fault, marks=pytest.mark.nightly)


@pytest.mark.parametrize(
    "fault",
    [
        "kill: {target: leader(t/0)}",
        _at_night("kill: {target: followers(t/0)}"),
        _at_night("stop: {target: leader(t/0)}"),  # restart sends SIGTERM, too
        "pause: {target: leader(t/0)}",
        _at_night("pause: {target: minority}"),
        "restart: {target: follower(t/0)}",
        _at_night("kill: {target: controller}"),  # lose_quorum kills controllers with every push
        _at_night("pause: {target: controller}"),
        _at_night("kill: {target: preferred_leader(t/0)}"),
        _at_night("kill: {target: brokers}"),
        "crash_loop: {target: follower(t/0), times: 2, up: 300ms}",
        _at_night("crash_loop: {target: follower(t/0), times: 3, up: 300ms}"),
        "kill_starting: {target: leader(t/0)}",
        _at_night("kill_starting: {target: controller}"),
        "out_of_memory: {target: leader(t/0)}",
        "starve: {target: leader(t/0), share: 0.1}",
        "lose_quorum: {}",
        _at_night("lose_quorum: {by: pause}"),
        _at_night("remove_controller: {target: controller(102)}"),
        _at_night("remove_controller: {target: controller}"),
    ],
)
def test_it_bites_and_is_healed(bench: Bench, fault: str) -> None:
    bite = bench.bite(fault)
    assert bite.good, bite
    assert not [event for event in bench.node_events if isinstance(event.what, NodeDied)]


@pytest.mark.nightly  # lose_quorum kills several nodes at once with every push
def test_a_rack_is_lost_as_a_whole_and_comes_back_as_a_whole(bench: Bench) -> None:
    before = {node.id: node.pid for node in local(bench.cluster.nodes.values())}
    bite = bench.bite("kill: rack(a)")
    assert bite.good, bite
    after = {node.id: node.pid for node in local(bench.cluster.nodes.values())}
    assert {node for node, pid in after.items() if pid != before[node]} == {1, 2, 101}


def test_what_is_aimed_at_the_dead_does_not_pass_for_a_bite(bench: Bench) -> None:
    lives = bench.cluster.node(1).pid
    faults = ["kill: [broker(1), broker(2)]", *(f"{kind}: {{target: broker(2)}}" for kind in KILLED)]
    for fault, bite in bench.aimed_at_the_dead(*faults, back_within_s=60.0).items():
        assert not bite.bit, fault
        assert "nothing to break" in bite.failures[0], fault
    assert bench.cluster.node(1).pid == lives, "of several nodes none is struck when one is dead"


@pytest.mark.parametrize("dud", [*duds_on("processes"), *duds_on("crashes")])
def test_a_dud_does_not_pass_for_a_bite(bench: Bench, dud: Dud) -> None:
    no_bite(bench, dud)


# -- clients ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", ["librdkafka", pytest.param("java", marks=pytest.mark.nightly)])
def test_fenced_by_another(bench: Bench, tmp_path: Path, client: str) -> None:
    """The older of two producers with one transactional id learns that it is fenced and ends; it is not replaced."""
    with load_on(bench, tmp_path, of_library(IN_TRANSACTIONS, client)) as workload:
        bite = bench.bite("fence_producer: {client: producer(0)}", clients=workload)
        assert bite.good, bite
        assert "the coordinator's epoch of p0's id went from" in bite.witness
        assert "fence" in bite.witness, "the words of either library"
        assert bite.recovery == "p0 is gone and p1 is at work"
        assert list(workload.running()) == ["p1"]
        workload.stop()
        outcomes = read_parts(workload.run.transactions / "client=p0", TRANSACTIONS)["outcome"].to_pylist()
        # Before it is fenced, one that a slow machine delivers too late is aborted.
        assert set(outcomes[:-1]) <= {int(TxnOutcome.COMMITTED), int(TxnOutcome.ABORTED)}
        assert outcomes[-1] != int(TxnOutcome.COMMITTED)


@pytest.mark.nightly  # the next ones do the same to clients of librdkafka
def test_java_clients_die_and_freeze(bench: Bench, tmp_path: Path) -> None:
    """The witnesses of these faults use only the kernel and the counters that clients of all libraries have."""
    with load_on(bench, tmp_path, of_library(LOAD, "java")) as workload:
        for fault in ("kill_client: {client: producer(0)}", "pause_client: {client: reader(0)}"):
            bite = bench.bite(fault, clients=workload)
            assert bite.good, bite
        assert list(workload.running()) == ["r0", "p1", "p2"]


@pytest.mark.parametrize("dud", duds_on("clients"))
def test_a_dud_of_clients_does_not_pass_for_a_bite(bench: Bench, tmp_path: Path, dud: Dud) -> None:
    with load_on(bench, tmp_path, IN_TRANSACTIONS) as workload:
        no_bite(bench, dud, workload)


@pytest.fixture(scope="module")
def workload(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workload]:
    """The load for all tests below; the last test kills it."""
    with load_on(bench, tmp_path_factory.mktemp("load"), LOAD) as made:
        yield made


def test_nobody_is_fenced_without_transactions(bench: Bench, workload: Workload) -> None:
    bite = bench.bite("fence_producer: {client: producer(0)}", clients=workload, record=False, settled=False)
    assert not bite.bit
    assert "p0 has no transactional id" in str(bite.failures)


def test_who_is_not_there_is_not_struck(bench: Bench, workload: Workload) -> None:
    for fault, clients in (
        ("kill_client: {client: producer(9)}", workload),
        ("pause_client: {client: producer(9)}", workload),
        ("pause_client: {client: producer}", None),
    ):
        bite = bench.bite(fault, clients=clients, record=False, settled=False)
        assert not bite.bit
        assert bite.failures


def test_frozen_and_back(bench: Bench, workload: Workload) -> None:
    for bite in freeze_clients(bench, workload):
        assert bite.good, bite
        assert "none ran" in bite.witness
        assert "is scheduled again" in bite.recovery
    assert all(not client.killed for client in workload.clients)
    assert list(workload.running()) == ["r0", "p0", "p1"]


def test_killed_and_replaced(bench: Bench, workload: Workload) -> None:
    for bite in kill_clients(bench, workload):
        assert bite.good, bite
        assert "is gone" in bite.witness
        assert "is at work" in bite.recovery
    assert list(workload.running()) == ["r1", "p3", "p4"]
    workload.stop()
    killed = {client.id for client in workload.clients if client.killed}
    assert killed == {"p0", "p1", "p2", "r0"}
    produced = read_parts(workload.run.produced, PRODUCED)
    counts = produced.group_by(["producer", "outcome"]).aggregate([([], "count_all")]).to_pylist()
    assert {row["producer"] for row in counts if row["outcome"] == 0} == {0, 1, 2, 3, 4}
