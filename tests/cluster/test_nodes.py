"""Tests of the operations on nodes, one after the other on one cluster of one controller and three brokers."""

from __future__ import annotations

import itertools
import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ackproof.base.errors import BadInput, NodeDied
from ackproof.base.wait import wait_until
from ackproof.cluster import queries
from ackproof.cluster.backends.process import ProcessCluster
from ackproof.cluster.protocol import NodeState
from ackproof.cluster.queries import PartitionEnds
from ackproof.experiment.spec import TopicSpec
from ackproof.observe.sampler import Sampler
from ackproof.rundir.clock import RunClock
from ackproof.rundir.observed import read_samples
from ackproof.rundir.timeline import EventKind, Timeline, read_timeline
from ackproof.rundir.timeline import NodeDied as NodeDiedEvent
from looks import told_now

from .conftest import Clusters
from .helpers import await_full_isr, await_leader, partition_of, produce

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(module_clusters: Clusters) -> ProcessCluster:
    cluster = module_clusters.start(racks=("north", "south"))
    cluster.create_topics({"orders": TopicSpec(partitions=1), "spread": TopicSpec(partitions=6)})
    return cluster


@pytest.fixture
def watched(cluster: ProcessCluster, tmp_path: Path) -> Iterator[tuple[Sampler, Path]]:
    with Timeline(tmp_path / "timeline.jsonl", RunClock.start()) as timeline:
        sampler = Sampler(cluster, ["orders", "spread"], tmp_path / "partitions.jsonl", timeline)
        sampler.start()
        yield sampler, tmp_path
        sampler.stop()


@pytest.fixture(autouse=True)
def whole_again(cluster: ProcessCluster) -> Iterator[None]:
    """After each test, start and resume all nodes, and wait until all ISRs are full."""
    yield
    for node in cluster.nodes.values():
        node.resume()
        if node.state() is NodeState.GONE:
            node.start()
    for node in cluster.nodes.values():
        node.await_ready(30)
    await_full_isr(cluster, "orders")
    await_full_isr(cluster, "spread")


def test_it_is_what_was_asked_for(cluster: ProcessCluster) -> None:
    environment = cluster.environment()
    assert environment["kafka"] == "4.4.0"
    assert environment["class-data archive"] == "used by every node"
    assert cluster.controller() == 101
    assert [node.id for node in cluster.brokers()] == [1, 2, 3]
    assert set(partition_of(cluster, "orders").replicas) == {1, 2, 3}
    assert cluster.bootstrap.count(",") == 2
    quorum = queries.quorum(next(iter(cluster.running_links().values())))
    assert (quorum.leader, [voter.node for voter in quorum.voters]) == (101, [101])


def test_each_node_leaves_its_settings_names_and_logs(cluster: ProcessCluster) -> None:
    for node in cluster.nodes.values():
        folder = node.files.folder
        assert {"server.properties", "hosts", "server.log", "stdout.log", "data"} <= {
            path.name for path in folder.iterdir()
        }
        assert "node-101.test" in node.files.hosts.read_text()
        assert "started" in node.files.log.read_text()
        assert node.files.stdout.read_text() == "", "the JVM has nothing to complain of"


def at_rest(ends: PartitionEnds) -> bool:
    return ends.high_watermark == ends.last_stable == ends.log_end >= 0


def test_offsets_are_the_leaders(cluster: ProcessCluster) -> None:
    before = cluster.partition_ends(["orders"])
    assert produce(cluster, "orders", 100) == 100
    (ends,) = cluster.partition_ends(["orders"]).values()
    (old,) = before.values()
    wait_until(
        lambda: at_rest(next(iter(cluster.partition_ends(["orders"]).values()))), what="rest", timeout_s=5
    )
    assert ends.log_end == old.log_end + 100
    assert (ends.start, ends.leader) == (0, partition_of(cluster, "orders").leader)


def test_what_kafka_refuses_is_bad_input_in_its_words(cluster: ProcessCluster) -> None:
    with pytest.raises(BadInput, match=r"topic t cannot be created: INVALID_CONFIG.*no\.such\.setting"):
        cluster.create_topics({"t": TopicSpec(config={"no.such.setting": "1"})})
    with pytest.raises(BadInput, match="INVALID_REPLICATION_FACTOR"):
        cluster.create_topics({"t": TopicSpec(replication_factor=9)})
    with pytest.raises(BadInput, match="TOPIC_ALREADY_EXISTS"):
        cluster.create_topics({"orders": TopicSpec()})


def test_an_assignment_and_settings_are_kept_and_a_topic_can_go(cluster: ProcessCluster) -> None:
    cluster.create_topics(
        {"placed": TopicSpec(assignment=((3, 1), (2, 3)), config={"min.insync.replicas": "2"})}
    )
    assert [state.replicas for state in cluster.topic_state(["placed"]).values()] == [(3, 1), (2, 3)]
    queries.delete_topics(next(iter(cluster.running_links().values())), ["placed"], 5.0)
    wait_until(lambda: not cluster.topic_state(["placed"]), what="the topic to go", timeout_s=10)


def test_the_leader_is_killed_and_comes_back(
    cluster: ProcessCluster, watched: tuple[Sampler, Path], module_clusters: Clusters
) -> None:
    sampler, folder = watched
    assert produce(cluster, "orders", 50) == 50
    old = partition_of(cluster, "orders")
    node = cluster.node(old.leader)
    first_pid = node.pid
    node.kill()
    wait_until(lambda: node.state() is NodeState.GONE, what="the end", timeout_s=5)
    new = await_leader(cluster, "orders", other_than=old.leader)
    wait_until(lambda: sampler.latest("orders", 0).leader == new, what="a sample of it", timeout_s=2)
    assert told_now(sampler, "isr", 0) == 2
    assert produce(cluster, "orders", 50) == 50
    node.start()
    node.await_ready(30)
    assert node.pid != first_pid
    await_full_isr(cluster, "orders")
    wait_until(lambda: told_now(sampler, "isr", 0) == 3, what="a sample of it", timeout_s=2)
    events, whole = read_timeline(folder / "timeline.jsonl")
    assert whole
    of_orders = [event for event in events if event.topic == "orders"]
    leaders = [event.detail["leader"] for event in of_orders if event.kind is EventKind.LEADER]
    isrs = [len(event.detail["isr"]) for event in of_orders if event.kind is EventKind.ISR]
    assert (leaders[0], leaders[-1]) == (old.leader, new)
    assert (isrs[0], min(isrs), isrs[-1]) == (3, 2, 3)
    told = [e.what.KIND for e in module_clusters.events_of(cluster) if e.node == node.id]
    assert told[-3:] == [EventKind.NODE_STARTED, EventKind.NODE_ENDED, EventKind.NODE_STARTED]


def test_a_short_pause_of_followers_leaves_them_in_sync_and_lag_is_seen(
    cluster: ProcessCluster, watched: tuple[Sampler, Path]
) -> None:
    sampler, _ = watched
    before = partition_of(cluster, "orders")
    followers = [cluster.node(i) for i in before.replicas if i != before.leader]
    for node in followers:
        node.pause()
    wait_until(
        lambda: all(node.state() is NodeState.STOPPED for node in followers), what="stops", timeout_s=5
    )
    assert produce(cluster, "orders", 500, acks="1") == 500
    wait_until(lambda: told_now(sampler, "lag", 0) == 500, what="a lag of 500", timeout_s=2)
    for node in followers:
        node.resume()
    wait_until(lambda: told_now(sampler, "lag", 0) == 0, what="no lag", timeout_s=5)
    after = partition_of(cluster, "orders")
    assert (after.leader, after.leader_epoch, set(after.isr)) == (
        before.leader,
        before.leader_epoch,
        {1, 2, 3},
    )


def test_a_long_pause_of_the_leader_moves_it_and_sampling_goes_on(
    cluster: ProcessCluster, watched: tuple[Sampler, Path]
) -> None:
    sampler, folder = watched
    old = partition_of(cluster, "orders").leader
    cluster.node(old).pause()
    paused = time.monotonic_ns() - sampler._timeline.clock.origin_ns
    new = await_leader(cluster, "orders", other_than=old)
    wait_until(lambda: sampler.latest("orders", 0).leader == new, what="a sample of it", timeout_s=2)
    resumed = time.monotonic_ns() - sampler._timeline.clock.origin_ns
    cluster.node(old).resume()
    cluster.node(old).await_ready(20)
    await_full_isr(cluster, "orders")
    times = sorted(
        sample.t_ns
        for sample in read_samples(folder / "partitions.jsonl")
        if sample.topic == "orders" and paused <= sample.t_ns <= resumed
    )
    assert len(times) / ((resumed - paused) / 1e9) >= 5, "samples a second while the leader stood still"
    assert max(later - sooner for sooner, later in itertools.pairwise(times)) < 0.6e9


def test_a_graceful_stop_hands_leadership_over_first(cluster: ProcessCluster) -> None:
    old = partition_of(cluster, "orders").leader
    assert cluster.node(old).stop() is True
    assert await_leader(cluster, "orders", other_than=old, timeout_s=2)
    cluster.check()


def test_the_controller_can_be_killed_and_brokers_stay(cluster: ProcessCluster) -> None:
    before = partition_of(cluster, "orders")
    cluster.node(101).kill()
    assert wait_until(lambda: cluster.controller() is None, what="no controller", timeout_s=5)
    assert produce(cluster, "orders", 10) == 10
    cluster.node(101).start()
    cluster.node(101).await_ready(30)
    assert cluster.controller() == 101
    wait_until(lambda: all(node.alive for node in cluster.brokers()), what="brokers", timeout_s=1)
    assert partition_of(cluster, "orders").leader_epoch >= before.leader_epoch


def test_a_death_by_itself_is_noticed_at_once_and_ends_every_wait(
    cluster: ProcessCluster, module_clusters: Clusters
) -> None:
    node = cluster.node(3)
    node.await_ready(10)
    assert node.pid is not None
    kernel, process = select.poll(), os.pidfd_open(node.pid)
    kernel.register(process, select.POLLIN)
    gone: list[float] = []
    looked: list[float] = []

    def noticed() -> NodeDied | None:
        # When the last thread has ended; the first is a zombie before, as long as the kernel takes memory apart.
        if not gone and kernel.poll(0):
            gone.append(time.monotonic())
        looked.append(time.monotonic())
        return node.death

    os.kill(node.pid, signal.SIGKILL)
    death = wait_until(noticed, what="the death", timeout_s=5, interval_s=0.001)
    os.close(process)
    # What keeps this thread, which looks each millisecond, from looking keeps the watcher's from running, too.
    stood_still = max(after - before for before, after in itertools.pairwise([*looked, time.monotonic()]))
    assert not gone or time.monotonic() - gone[0] < 0.3 + stood_still
    assert "node 3 (broker-3" in str(death)
    assert "died by itself: SIGKILL; last log lines:\n[20" in str(death)
    event = module_clusters.events_of(cluster)[-1]
    assert isinstance(event.what, NodeDiedEvent)
    assert (event.node, event.what.status) == (3, "SIGKILL")
    assert "INFO" in event.what.log
    for wait in (
        cluster.check,
        lambda: node.await_ready(30),
        lambda: cluster.create_topics({"x": TopicSpec()}),
    ):
        began = time.monotonic()
        with pytest.raises(NodeDied):
            wait()
        assert time.monotonic() - began < 1
    node.start()
    cluster.check()


def test_sampling_is_cheap(cluster: ProcessCluster, tmp_path: Path) -> None:
    with Timeline(tmp_path / "timeline.jsonl", RunClock.start()) as timeline:
        sampler = Sampler(cluster, ["spread"], tmp_path / "partitions.jsonl", timeline, hz=50)
        began, cpu = time.monotonic(), time.process_time()
        sampler.start()
        wait_until(lambda: time.monotonic() - began > 2, what="2 s", timeout_s=5, interval_s=0.1)
        sampler.stop()
        used = time.process_time() - cpu
    looks = len({sample.t_ns for sample in read_samples(tmp_path / "partitions.jsonl")})
    print(
        f"\n{used / looks * 1000:.2f} ms of CPU per look at 6 partitions on 3 brokers, {looks / 2:.0f} looks/s"
    )
    assert used / looks < 0.005
