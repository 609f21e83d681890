"""Test of a case in which Kafka forgets the eligible leader replicas (KIP-966), which the model predicted.

All replicas of a partition are stopped cleanly, one after the other. With ELR its ISR is empty then, and the last
replicas are eligible: any of them may lead, and nothing is lost. But before 4.3 the controller empties the ELR when a
replica is assigned to another log dir (`handleAssignReplicasToDirs`). Then the partition has no leader: availability is
lost.

The other case, min.insync.replicas set while there is no leader, is `experiments/forgotten-elr.yaml`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ackproof.base.errors import WaitTimeout
from ackproof.base.wait import wait_until
from ackproof.cluster import admin
from ackproof.cluster.backends.process import ProcessCluster
from ackproof.cluster.queries import PartitionState
from ackproof.experiment.spec import TopicSpec
from ackproof.rundir.partition import TopicPartition

from .conftest import Clusters
from .helpers import await_full_isr, partition_of, produce

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]
ORDERS = TopicPartition("orders", 0)
SESSION_S = 3.0
NOBODY_FOR_S = 3 * SESSION_S
"""Seconds without a leader after which none is expected any more: an eligible replica leads within one session."""


def _cluster(clusters: Clusters, kafka: str, log_dirs: int = 1) -> ProcessCluster:
    cluster = clusters.start(
        kafka=kafka,
        brokers=3,
        controllers=1,
        log_dirs=log_dirs,
        config={"broker.session.timeout.ms": int(SESSION_S * 1000)},
        features={"eligible.leader.replicas.version": 1},
    )
    topic = TopicSpec.model_validate(
        {"assignment": [[1, 2, 3]], "config": {"min.insync.replicas": 2}, "partitions": 1}
    )
    cluster.create_topics({"orders": topic})
    assert produce(cluster, "orders", 100) == 100
    return cluster


def _stop(cluster: ProcessCluster, node: int) -> None:
    """Stop a node cleanly. If another broker still runs, wait until the node has left the ISR."""
    assert cluster.node(node).stop()
    if cluster.running_links():
        _until(cluster, lambda state: node not in state.isr)


def _start(cluster: ProcessCluster, *nodes: int) -> None:
    for node in nodes:
        cluster.node(node).start()
    for node in nodes:
        cluster.node(node).await_ready(30.0)


def _until(cluster: ProcessCluster, look: Callable[[PartitionState], bool]) -> PartitionState:
    wait_until(
        lambda: look(partition_of(cluster, "orders")),
        what="the partition",
        timeout_s=20.0,
        state=lambda: str(partition_of(cluster, "orders")),
    )
    return partition_of(cluster, "orders")


def _nobody_leads(cluster: ProcessCluster) -> None:
    with pytest.raises(WaitTimeout):
        wait_until(
            lambda: partition_of(cluster, "orders").leader > 0, what="a leader", timeout_s=NOBODY_FOR_S
        )


@pytest.mark.parametrize(("kafka", "forgotten"), [("4.2.2", True), ("4.4.0", False)])
def test_a_replica_goes_to_another_log_dir(clusters: Clusters, kafka: str, forgotten: bool) -> None:
    cluster = _cluster(clusters, kafka, log_dirs=2)
    for node in (3, 2):
        _stop(cluster, node)
    state = _until(cluster, lambda state: bool(state.eligible))
    assert (state.leader, state.isr, state.eligible) == (1, (1,), (2,))
    link = cluster.running_links()[1]
    where = {path: held for path, held in admin.log_dirs(link).items() if Path(path).is_dir()}
    (other,) = [path for path, held in where.items() if ORDERS not in held]
    admin.move_log_dir(link, ORDERS, other)
    wait_until(lambda: ORDERS in admin.log_dirs(link)[other], what="the move", timeout_s=30.0)
    epoch = state.leader_epoch
    if forgotten:
        _until(cluster, lambda state: not state.eligible)
    # The leader ends too. Whoever was eligible leads as soon as it is back, or nobody does.
    _stop(cluster, 1)
    _start(cluster, 2)
    if not forgotten:
        assert _until(cluster, lambda state: state.leader == 2).leader_epoch > epoch
        return
    _nobody_leads(cluster)
    _start(cluster, 1, 3)
    await_full_isr(cluster, "orders")
