"""Faults of the workload's clients on a real cluster: what a killed one had sent is accounted for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ackproof.cluster.install import Installation
from ackproof.rundir.ledger import read_parts
from ackproof.rundir.outcome import TxnOutcome
from ackproof.rundir.schema import PRODUCED, TRANSACTIONS
from ackproof.workload.clients import Workload
from faultbench import Bench, duds_on, no_bite
from faultbench.clients import IN_TRANSACTIONS, LOAD, freeze_clients, kill_clients, load_on
from faultbench.duds import Dud

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def bench(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("bench"), installed=installs("4.3.1")) as made:
        yield made


@pytest.fixture
def workload(bench: Bench, tmp_path: Path) -> Iterator[Workload]:
    with load_on(bench, tmp_path, LOAD) as made:
        yield made


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


def test_frozen_and_back(bench: Bench, workload: Workload) -> None:
    for bite in freeze_clients(bench, workload):
        assert bite.good, bite
        assert "none ran" in bite.witness
        assert "is scheduled again" in bite.recovery
    workload.stop()
    assert all(not client.killed for client in workload.clients)


def test_fenced_by_another(bench: Bench, tmp_path: Path) -> None:
    """Two producers with one transactional id: the older is told so and ends, and nobody else takes its place."""
    with load_on(bench, tmp_path, IN_TRANSACTIONS) as workload:
        bite = bench.bite("fence_producer: {client: producer(0)}", clients=workload)
        assert bite.good, bite
        assert "the coordinator's epoch of p0's id went from" in bite.witness
        assert "fenced" in bite.witness
        assert bite.recovery == "p0 is gone and p1 is at work"
        assert list(workload.running()) == ["p1"]
        workload.stop()
        outcomes = read_parts(workload.run.transactions / "client=p0", TRANSACTIONS)["outcome"].to_pylist()
        assert set(outcomes[:-1]) <= {int(TxnOutcome.COMMITTED)}
        assert outcomes[-1] != int(TxnOutcome.COMMITTED)


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


@pytest.mark.parametrize("dud", duds_on("clients"))
def test_a_dud_does_not_pass_for_a_bite(bench: Bench, tmp_path: Path, dud: Dud) -> None:
    with load_on(bench, tmp_path, IN_TRANSACTIONS) as workload:
        no_bite(bench, dud, workload)
