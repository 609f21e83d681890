"""Roll-outs under load: every node goes down and comes back, one after the other, and the cluster is well again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ackproof.cluster.admin import features
from ackproof.cluster.install import Installation
from ackproof.experiment.releases import ELR, METADATA, features_of
from faultbench import Bench, duds_on, no_bite, planned
from faultbench.duds import Dud

pytestmark = pytest.mark.cluster

TOPICS: dict[str, object] = {"t": {"config": {"min.insync.replicas": 1}}}


@pytest.fixture(scope="module")
def bench(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    with Bench(
        tmp_path_factory.mktemp("bench"), installed=installs("4.3.1"), brokers=4, topics=TOPICS
    ) as made:
        yield made


@pytest.mark.nightly
def test_a_rolling_restart(bench: Bench) -> None:
    before = {node.id: node.pid for node in bench.cluster.nodes.values()}
    bite = bench.bite("rolling_restart: {target: brokers}")
    assert bite.good, bite
    assert "every broker shows" in bite.recovery
    for node in bench.cluster.brokers():
        assert node.pid != before[node.id]
    assert all(node.pid == before[node.id] for node in bench.cluster.controllers())


@pytest.mark.parametrize("drain", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_broker_is_taken_out(bench: Bench, drain: bool) -> None:
    bite = planned.decommission(bench, drain)
    assert bite.good, bite


def test_what_is_aimed_at_the_dead_is_no_rollout(bench: Bench) -> None:
    faults = ("rolling_restart: {target: brokers}", "decommission: {target: broker(2)}")
    for fault, bite in bench.aimed_at_the_dead(*faults).items():
        assert not bite.bit, fault
        assert "nothing to break" in bite.failures[0], fault


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("old", "new"), [("3.9.2", "4.0.2"), ("3.9.2", "4.3.1"), ("4.2.1", "4.3.1"), ("4.3.0", "4.3.1")]
)
def test_an_upgrade(installs: Callable[[str], Installation], tmp_path: Path, old: str, new: str) -> None:
    installs(new)
    with Bench(tmp_path, installed=installs(old), kafka=old, controllers=3, topics=TOPICS) as bench:
        before = features(bench.cluster.running_links()[1]).finalised
        assert before[METADATA] == features_of(old)[METADATA][1]
        bite = bench.bite(f"upgrade: {{to: '{new}'}}", name=f"upgrade from {old} to {new}")
        assert bite.good, bite
        after = features(bench.cluster.running_links()[2])
        assert after.finalised[METADATA] == features_of(new)[METADATA][1]
        assert after.finalised.get(ELR, 0) == (0 if new.startswith("4.0") else 1)
        assert f"started as Kafka {new}" in bite.recovery


@pytest.mark.parametrize("dud", duds_on("rollouts"))
def test_a_dud_does_not_pass_for_a_bite(bench: Bench, dud: Dud) -> None:
    no_bite(bench, dud)


@pytest.mark.parametrize("dud", duds_on("an older release"))
def test_a_dud_does_not_pass_for_an_upgrade(
    installs: Callable[[str], Installation], tmp_path: Path, dud: Dud
) -> None:
    with Bench(tmp_path, installed=installs("4.2.1"), kafka="4.2.1", topics=TOPICS) as bench:
        no_bite(bench, dud)
