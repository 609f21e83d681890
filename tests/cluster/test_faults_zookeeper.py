"""Tests of ZooKeeper mode on real brokers: the cluster, its znodes, and faults of processes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from ackproof.base.wait import wait_until
from ackproof.cluster.backends.process import ProcessCluster
from ackproof.cluster.install import Installation
from ackproof.cluster.metadata.zookeeper import Registration, ZooKeeper, end_session
from ackproof.experiment.backends import Need
from ackproof.experiment.spec import TopicSpec
from ackproof.network.wire import WireError
from ackproof.rundir.partition import TopicPartition
from faultbench import Bench, duds_on, no_bite
from faultbench.duds import Dud

from .conftest import OLDER, Clusters
from .helpers import produce

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def bench(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("bench")
    needs = frozenset({Need.BROKER_LINKS, Need.CLIENT_LINKS})
    with Bench(folder, installed=installs(OLDER), needs=needs, kafka=OLDER, mode="zookeeper") as made:
        yield made


def zookeeper_of(cluster: object) -> ZooKeeper:
    found = cast(ProcessCluster, cluster).quorum
    assert isinstance(found, ZooKeeper)
    return found


def test_the_znodes_agree_with_what_brokers_say(bench: Bench) -> None:
    bench.await_full_isr()
    session_of(bench, 1)
    zookeeper, place = zookeeper_of(bench.cluster), TopicPartition("t", 0)
    state = zookeeper.partitions(["t"])[place]
    said = bench.cluster.topic_state(["t"])[place]
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
        pytest.param("kill: {target: controller}", marks=pytest.mark.nightly),
        "kill: {target: zookeeper}",
        pytest.param("pause: {target: zookeeper}", marks=pytest.mark.nightly),
        "expire_session: {target: leader(t/0)}",
        pytest.param("pause: {target: follower(t/0)}", marks=pytest.mark.nightly),
        pytest.param("expire_session: {target: controller}", marks=pytest.mark.nightly),
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
def test_a_paused_broker_whose_session_ends_is_found_out(bench: Bench) -> None:
    """A paused broker cannot notice the end of its session: the znodes confirm the fault, not the broker."""
    bench.await_full_isr()
    node = bench.cluster.node(2)
    node.pause()
    try:
        assert end_session(zookeeper_of(bench.cluster).addresses, session_of(bench, 2))
        wait_until(lambda: _gone(bench, 2), what="the znode to go", timeout_s=5.0)
    finally:
        node.resume()
    node.await_ready(30.0)


@pytest.mark.parametrize("dud", duds_on("zookeeper"))
def test_a_dud_does_not_pass_for_a_bite(bench: Bench, dud: Dud) -> None:
    no_bite(bench, dud)


def test_a_broker_without_a_session_is_nothing_to_break(bench: Bench) -> None:
    bench.await_full_isr()
    node = bench.cluster.node(3)
    node.stop()
    try:
        bite = bench.bite("expire_session: {target: broker(3)}", record=False, settled=False)
    finally:
        node.start()
        node.await_ready(30.0)
    assert not bite.bit
    assert "nothing to break" in bite.failures[0]


def _gone(bench: Bench, broker: int) -> bool:
    try:
        return zookeeper_of(bench.cluster).registration(broker) is None
    except WireError:
        return False


def session_of(bench: Bench, broker: int) -> int:
    def held() -> Registration | None:
        with contextlib.suppress(WireError):
            return zookeeper_of(bench.cluster).registration(broker)
        return None

    return wait_until(held, what=f"the session of broker {broker}", timeout_s=10.0).session


@pytest.mark.parametrize(
    "fault",
    [
        "cut: {link: leader(t/0) -> zookeeper}\nfor: 5s",
        pytest.param("black_hole: {link: follower(t/0) -> zookeeper}", marks=pytest.mark.nightly),
        pytest.param("cut: {link: clients -> leader(t/0)}", marks=pytest.mark.nightly),
        pytest.param("isolate: {target: controller, from: controllers}\nfor: 5s", marks=pytest.mark.nightly),
        pytest.param("delay: {link: brokers -> zookeeper, latency: 100ms}", marks=pytest.mark.nightly),
        pytest.param("throttle: {link: brokers -> zookeeper, rate: 10KB/s}", marks=pytest.mark.nightly),
        pytest.param("slow_close: {link: brokers -> zookeeper, delay: 1s}", marks=pytest.mark.nightly),
        pytest.param("reset: {link: follower(t/0) -> zookeeper}", marks=pytest.mark.nightly),
    ],
)
def test_links_break_and_mend(bench: Bench, fault: str) -> None:
    bite = bench.bite(fault)
    assert bite.good, bite


@pytest.mark.nightly
def test_three_servers_outlive_the_one_that_leads_them(clusters: Clusters) -> None:
    cluster = clusters.start(kafka=OLDER, mode="zookeeper", controllers=3)
    cluster.create_topics({"t": TopicSpec()})
    zookeeper = zookeeper_of(cluster)
    modes = {server: zookeeper.mode(server) for server in (101, 102, 103)}
    assert sorted(modes.values()) == ["follower", "follower", "leader"]
    leader = next(server for server, mode in modes.items() if mode == "leader")
    cluster.node(leader).kill()
    assert produce(cluster, "t", 100) == 100
    cluster.node(leader).start()
    cluster.node(leader).await_ready(30.0)
    assert zookeeper.mode(leader) == "follower"
