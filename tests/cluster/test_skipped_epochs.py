"""A loss in Kafka as it is, told by the model before it was seen: acks=all, two in-sync replicas, nobody dies.

A leader stands still (a long pause of its JVM), is deposed and elected again by planned elections, and learns of both
at once. It takes itself for the leader that it was (`Partition.makeLeader`: `isNewLeader = !isLeader`), and counts
what a follower had in the old epoch although that one has cut it off since. So it acknowledges what one replica of the
ISR does not have, and that one leads next. The rule is `notice_skipped_epochs` in the reference implementation.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from confluent_kafka import KafkaError, Message, Producer

from ackproof.base.wait import wait_until
from ackproof.cluster import admin, queries
from ackproof.cluster.admin import Election
from ackproof.rundir.partition import TopicPartition
from ackproof.testing.cluster import KafkaCluster
from ackproof.testing.ledger import Ledger

ORDERS = TopicPartition("orders", 0)
PATIENT = {"broker.session.timeout.ms": 40_000, "replica.lag.time.max.ms": 60_000}
"""Nobody is fenced and nobody leaves the ISR while a node stands still."""
TOPIC = {"orders": {"assignment": [[1, 3, 2]], "config": {"min.insync.replicas": 2}}}
LATE = 8
"""Producers with one record each: a connection has one request in the purgatory at a time."""


def _lead(cluster: KafkaCluster, asked: int, order: Sequence[int]) -> None:
    """Make the first of `order` the leader: planned work, with the same replicas, all of them in the ISR."""
    link = cluster.cluster.running_links()[asked]

    def replicas() -> tuple[int, ...]:
        return queries.partitions(link, ["orders"])[ORDERS].replicas

    admin.reassign(link, {ORDERS: order})
    wait_until(lambda: replicas() == tuple(order), what="the order", timeout_s=10)
    admin.elect(link, ORDERS, Election.PREFERRED)
    cluster_state = queries.partitions(link, ["orders"])[ORDERS]
    wait_until(
        lambda: queries.partitions(link, ["orders"])[ORDERS].leader == order[0],
        what="the leader",
        timeout_s=10,
    )
    assert set(cluster_state.isr) == {1, 2, 3}


def _end(cluster: KafkaCluster, node: int) -> int:
    """The end of this node's log, which followers tell a debugging replica too."""
    link = cluster.cluster.running_links()[node]
    return queries.read_offsets(link.ask(queries.ask_log_ends([ORDERS])))[ORDERS]


@pytest.mark.nightly
@pytest.mark.kafka(brokers=3, controllers=1, config=PATIENT, topics=TOPIC)
def test_a_leader_that_slept_through_an_epoch_loses_what_it_acknowledges(
    kafka_cluster: KafkaCluster, ledger: Ledger
) -> None:
    cluster = kafka_cluster
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "acks": "all",
        "enable.idempotence": False,
        "linger.ms": 0,
        "request.timeout.ms": 60_000,
        "socket.timeout.ms": 60_000,
        "message.timeout.ms": 120_000,
        "topic.metadata.refresh.interval.ms": 300_000,
        "log_level": 0,
    }
    acked: list[int] = []

    def told(error: KafkaError | None, message: Message) -> None:
        assert error is None
        acked.append(message.offset() or 0)

    steady = ledger.producer(Producer(settings))
    for number in range(10):
        steady.produce("orders", f"steady-{number}")
    assert steady.flush(10) == 0

    # 3 has what comes now, and 2 has not, but for what it had asked for already.
    cluster.pause(2)
    late = [ledger.producer(Producer(settings)) for _ in range(LATE)]
    for number, producer in enumerate(late):
        producer.produce("orders", f"late-{number}", on_delivery=told)
        wait_until(lambda wanted=number: _end(cluster, 1) > 10 + wanted, what="its append", timeout_s=10)
    wait_until(lambda: _end(cluster, 3) == 10 + LATE, what="3 to have all", timeout_s=10)
    assert not acked

    # 1 sleeps through an epoch in which 3 cuts off what 2 has not.
    cluster.pause(1)
    cluster.resume(2)
    _lead(cluster, 3, [2, 1, 3])
    wait_until(lambda: _end(cluster, 3) < 10 + LATE, what="3 to cut its log", timeout_s=20)
    cluster.pause(3)
    _lead(cluster, 2, [1, 3, 2])
    cluster.resume(1)
    wait_until(
        lambda: [producer.poll(0.01) for producer in late] and len(acked) == LATE,
        what=f"{LATE} acks; {len(acked)} are there",
        timeout_s=20,
    )
    _lead(cluster, 2, [3, 1, 2])
    cluster.resume(3)
    with pytest.raises(AssertionError, match="did not keep what it acknowledged") as caught:
        ledger.assert_durable()
    assert "lost: " in str(caught.value)
