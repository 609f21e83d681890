"""Tests of ZooKeeper mode in containers; the servers use the brokers' image."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ackproof.cluster.containers.build import build
from ackproof.cluster.containers.engine import Engine
from ackproof.cluster.install import install
from ackproof.experiment.kafka import KafkaBuild
from faultbench import Bench

pytestmark = [pytest.mark.docker, pytest.mark.nightly]
RELEASE = "3.9.2"


@pytest.fixture(scope="module")
def bench(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    build(engine, RELEASE)
    folder = tmp_path_factory.mktemp("bench")
    with Bench(
        folder,
        backend="docker",
        installed=install(KafkaBuild(RELEASE)),
        kafka=RELEASE,
        mode="zookeeper",
        controllers=3,
    ) as made:
        yield made


@pytest.mark.parametrize(
    "fault",
    [
        "kill: {target: leader(t/0)}",
        "kill: {target: controller}",
        "pause: {target: zookeeper}",
        "expire_session: {target: leader(t/0)}",
    ],
)
def test_it_bites_and_is_healed(bench: Bench, fault: str) -> None:
    bite = bench.bite(fault)
    assert bite.good, bite
