"""ZooKeeper mode on real brokers: the cluster, its znodes, and the faults of processes in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import pytest

from ackproof.cluster.launch import Installation
from ackproof.cluster.process import ProcessCluster
from ackproof.cluster.protocol import TopicPartition
from ackproof.cluster.zookeeper import ZooKeeper
from ackproof.plan.spec import TopicSpec
from faultbench import Bench

from .conftest import OLDER, Clusters
from .helpers import produce

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def bench(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("bench")
    with Bench(folder, installed=installs(OLDER), kafka=OLDER, mode="zookeeper") as made:
        yield made


def keeper(cluster: object) -> ZooKeeper:
    found = cast(ProcessCluster, cluster).keeper
    assert isinstance(found, ZooKeeper)
    return found


def test_the_znodes_agree_with_what_brokers_say(bench: Bench) -> None:
    bench.await_full_isr()
    zookeeper, place = keeper(bench.cluster), TopicPartition("t", 0)
    state = zookeeper.state(place)
    said = bench.cluster.topic_state(["t"])[place]
    assert state is not None
    assert (state.leader, state.leader_epoch, set(state.isr)) == (
        said.leader,
        said.leader_epoch,
        set(said.isr),
    )
    assert bench.cluster.controller() in (1, 2, 3)
    assert {node.id for node in bench.cluster.controllers()} == {101}
    held = [zookeeper.registration(broker) for broker in (1, 2, 3)]
    assert len({each.session for each in held if each is not None}) == 3
    assert zookeeper.mode(101) == "standalone"


@pytest.mark.parametrize(
    "fault",
    [
        "kill: {target: controller}",
        "pause: {target: follower(t/0)}",
        "kill: {target: zookeeper}",
        "pause: {target: zookeeper}",
        pytest.param("kill: {target: leader(t/0)}", marks=pytest.mark.nightly),
        pytest.param("stop: {target: leader(t/0)}", marks=pytest.mark.nightly),
        pytest.param("stop: {target: zookeeper}", marks=pytest.mark.nightly),
        pytest.param("pause: {target: controller}", marks=pytest.mark.nightly),
    ],
)
def test_it_bites_and_is_healed(bench: Bench, fault: str) -> None:
    bite = bench.bite(fault, name=f"{fault.replace('{', '').replace('}', '')} (ZooKeeper mode)")
    assert bite.good, bite


@pytest.mark.nightly
def test_three_servers_outlive_the_one_that_leads_them(clusters: Clusters) -> None:
    cluster = clusters.start(kafka=OLDER, mode="zookeeper", controllers=3)
    cluster.create_topics({"t": TopicSpec()})
    zookeeper = keeper(cluster)
    modes = {server: zookeeper.mode(server) for server in (101, 102, 103)}
    assert sorted(modes.values()) == ["follower", "follower", "leader"]
    leader = next(server for server, mode in modes.items() if mode == "leader")
    cluster.node(leader).kill()
    assert produce(cluster, "t", 100) == 100
    cluster.node(leader).start()
    cluster.node(leader).await_ready(30.0)
    assert zookeeper.mode(leader) == "follower"
