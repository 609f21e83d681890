"""Tests of faults of clients whose brokers are containers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ackproof.cluster.install import Installation
from faultbench import Bench
from faultbench.clients import IN_TRANSACTIONS, LOAD, freeze_clients, kill_clients, load_on

pytestmark = [pytest.mark.docker, pytest.mark.nightly]


@pytest.fixture(scope="module")
def bench(installed: Callable[[], Installation], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("bench"), backend="docker", installed=installed()) as made:
        yield made


def test_killed_and_frozen(bench: Bench, tmp_path: Path) -> None:
    with load_on(bench, tmp_path, LOAD) as workload:
        bites = [*freeze_clients(bench, workload), *kill_clients(bench, workload)]
    assert all(bite.good for bite in bites), bites


def test_fenced_by_another(bench: Bench, tmp_path: Path) -> None:
    with load_on(bench, tmp_path, IN_TRANSACTIONS) as workload:
        bite = bench.bite("fence_producer: {client: producer}", clients=workload)
    assert bite.good, bite
