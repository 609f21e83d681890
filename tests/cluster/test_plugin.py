"""Tests of the pytest plugin's fixtures on real clusters: faults by role, and the ledger of a user's own clients."""

from __future__ import annotations

import re

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from ackproof.base.errors import AckproofError, BadInput, EvidenceMissing
from ackproof.cluster.protocol import NodeState
from ackproof.rundir.documents import AuditFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import read_parts
from ackproof.rundir.parts import has_end
from ackproof.rundir.schema import CONSUMED, PRODUCED
from ackproof.rundir.timeline import EventKind, read_timeline
from ackproof.testing.cluster import KafkaCluster
from ackproof.testing.ledger import Ledger

pytestmark = pytest.mark.cluster

ORDERS = {"orders": {"config": {"min.insync.replicas": 2}}}


class Sender:
    """A user's producer. It sends a record until that is acknowledged; with `careful` False it ignores the outcome."""

    def __init__(self, producer: Producer, *, careful: bool) -> None:
        self.producer = producer
        self.careful = careful

    def send(self, value: str) -> None:
        while True:
            errors: list[KafkaError | None] = []

            def delivered(
                error: KafkaError | None, _: Message, told: list[KafkaError | None] = errors
            ) -> None:
                told.append(error)

            self.producer.produce("orders", value, key="k", on_delivery=delivered)
            self.producer.flush()
            if errors[0] is None or not self.careful:
                return


def _settings(cluster: KafkaCluster, **more: str | int) -> dict[str, str | int | bool]:
    return {
        "bootstrap.servers": cluster.bootstrap,
        "topic.metadata.refresh.interval.ms": 100,
        "log_level": 0,
        **more,
    }


@pytest.mark.nightly
@pytest.mark.kafka(brokers=3, controllers=1, topics=ORDERS)
def test_faults_by_role(kafka_cluster: KafkaCluster) -> None:
    cluster = kafka_cluster
    first = cluster.leader("orders")
    assert cluster.isr("orders/0") == (1, 2, 3)
    assert cluster.kill("leader(orders/0)") == (first,)
    assert cluster.cluster.node(first).state() is NodeState.GONE
    second = cluster.await_leader("orders", other_than=first)
    assert second != first
    with pytest.raises(AckproofError, match="nothing to break"):
        cluster.kill(first)
    assert cluster.start(first) == (first,)
    cluster.await_isr("orders")
    followers = cluster.pause("followers(orders/0)")
    assert len(followers) == 2
    assert second not in followers
    assert {cluster.cluster.node(node).state() for node in followers} == {NodeState.STOPPED}
    assert cluster.resume() == followers
    assert cluster.restart("controller") == (101,)
    assert cluster.stop(3) == (3,)
    with pytest.raises(BadInput, match="no node is stopped"):
        cluster.resume()
    with pytest.raises(BadInput, match="did you mean 'leader'"):
        cluster.kill("leeder(orders/0)")
    cluster.heal()
    cluster.heal()
    cluster.create_topic("more", partitions=2, config={"retention.ms": -1})
    cluster.await_isr("more")
    events, _ = read_timeline(cluster.run.timeline)
    assert sum(event.kind is EventKind.FAULT_CONFIRMED for event in events) == 4
    assert "kill leader(orders/0)" in cluster.troubles()


@pytest.mark.kafka(topics=ORDERS, controllers=1, faults=["isolate", "clock_jump", "power_loss", "cut"])
def test_any_fault_of_the_catalogue_for_a_block(kafka_cluster: KafkaCluster, ledger: Ledger) -> None:
    cluster = kafka_cluster
    impatient = _settings(cluster, **{"message.timeout.ms": 1500})
    careless = Sender(ledger.producer(Producer(impatient)), careful=False)
    careless.send("before")
    leader = cluster.leader("orders/0")
    with cluster.fault("isolate", "leader(orders/0)", from_="clients") as hit:
        assert hit == (leader,)
        careless.send("meanwhile")
    careless.send("after")
    with (
        cluster.fault("clock_jump", leader, by="1h"),
        cluster.fault("cut", link="follower(orders/0) -> leader(orders/0)"),
    ):
        careless.send("an hour later")
    with cluster.fault("power_loss", "follower(orders/0)") as hit:
        assert {cluster.cluster.node(node).state() for node in hit} == {NodeState.GONE}
    with cluster.fault(
        "storm", menu={"pause": 1, "kill": 1}, count=2, roles=["broker"], lasting="0.3s..0.6s"
    ):
        pass
    lossy = cluster.fault("loss", link="clients -> leader(orders/0)", share="30%")
    with pytest.raises(BadInput, match=re.escape("faults=['loss']")), lossy:
        pytest.fail("entered")
    with pytest.raises(AckproofError, match="no workload"), cluster.fault("kill_client", client="producer"):
        pytest.fail("entered")
    with pytest.raises(AssertionError) as caught:
        ledger.assert_durable()
    assert "value b'meanwhile'" in str(caught.value)
    assert "isolate leader(orders/0)" in str(caught.value)
    events, _ = read_timeline(cluster.run.timeline)
    for kind in (EventKind.FAULT_CONFIRMED, EventKind.FAULT_RECOVERED):
        assert {event.fault for event in events if event.kind is kind} >= {1, 2, 3, 4, 5}


@pytest.mark.kafka(topics=ORDERS)
def test_a_producer_that_swallows_errors_is_found(kafka_cluster: KafkaCluster, ledger: Ledger) -> None:
    impatient = _settings(kafka_cluster, **{"message.timeout.ms": 700})
    careless = Sender(ledger.producer(Producer(impatient)), careful=False)
    for number in range(30):
        careless.send(f"order-{number}")
    ledger.assert_durable()
    kafka_cluster.pause("leader(orders/0)")
    careless.send("order-a")
    # Bytes that the paused broker already has in its socket are a record once it goes on: this one never got there.
    kafka_cluster.pause("followers(orders/0)")
    careless.send("order-b")
    with pytest.raises(AssertionError) as caught:
        ledger.assert_durable()
    text = str(caught.value)
    assert "order-b" in text
    assert "_MSG_TIMED_OUT" in text
    assert "swallowed: " in text
    assert "lost" not in text
    assert "pause leader(orders/0)" in text
    for value in ("order-a", "order-b"):
        ledger.gave_up(value)
    careful = Sender(ledger.producer(impatient), careful=True)
    kafka_cluster.pause("leader(orders/0)")
    careful.send("order-c")
    ledger.assert_durable()
    run = CaseDir(ledger.run)
    produced = read_parts(run.produced, PRODUCED)
    assert produced.num_rows >= 33
    assert has_end(run.produced / "client=p0")
    assert has_end(run.consumed / "client=f0")
    assert run.audit_json.exists()


@pytest.mark.kafka(brokers=2, topics={"orders": {}})
def test_what_acks_1_loses_is_named(kafka_cluster: KafkaCluster, ledger: Ledger) -> None:
    # acks=all: the followers have it before they are paused, also where nobody had fetched yet.
    steady = ledger.producer(Producer(_settings(kafka_cluster, acks="all")))
    steady.produce("orders", "before")
    assert steady.flush(10) == 0
    kafka_cluster.pause("followers(orders/0)")
    producer = ledger.producer(Producer(_settings(kafka_cluster, acks=1)))
    # What a follower has asked for already goes into its socket, and it has it when it goes on: the first few.
    for number in range(50):
        producer.produce("orders", f"tail-{number}")
        assert producer.flush(5) == 0
    killed = kafka_cluster.kill("leader(orders/0)")
    kafka_cluster.resume()
    kafka_cluster.await_leader("orders", other_than=killed[0])
    with pytest.raises(AssertionError) as caught:
        ledger.assert_durable()
    text = str(caught.value)
    assert "lost: " in text
    audited = AuditFile.load(CaseDir(ledger.run).audit_json)
    assert 40 <= audited.counts["lost"] <= 50
    assert re.search(r"orders/0 offset 1\d: value b'tail-\d+' \(p1 #\d+, sent at", text)
    assert f"… and {audited.counts['lost'] - 10} more" in text
    assert "did not keep what it acknowledged" in text
    assert "swallowed" not in text
    ledger.assert_no_duplicates(by_content=True)


@pytest.mark.kafka(brokers=1, combined=True, topics={"orders": {"partitions": 2}, "none": {}})
def test_own_consumers_and_what_is_by_content(kafka_cluster: KafkaCluster, ledger: Ledger) -> None:
    with pytest.raises(EvidenceMissing, match="nothing went through"):
        ledger.assert_durable()
    seen: list[str] = []
    settings = _settings(kafka_cluster) | {"on_delivery": lambda error, message: seen.append(message.topic())}
    producer = ledger.producer(Producer(settings))
    for number in range(100):
        producer.produce("orders", f"{number}", headers={"trace": b"1"} if number % 2 else None)
    producer.produce("orders", "0")
    producer.flush()
    assert seen == ["orders"] * 101
    assert isinstance(producer, Producer)
    consumer = ledger.consumer(
        Consumer(_settings(kafka_cluster) | {"group.id": "g", "auto.offset.reset": "earliest"})
    )
    assigned: list[object] = []
    consumer.subscribe(["orders"], on_assign=lambda who, _: assigned.append(who))
    values: set[bytes | None] = set()
    headers: set[str] = set()
    count = 0
    while count < 101:
        for message in consumer.consume(50, 1.0):
            assert message.error() is None
            values.add(message.value())
            headers.add(str(message.headers()))
            count += 1
    assert assigned == [consumer]
    assert len(values) == 100
    assert headers <= {"None", "[]", "[('trace', b'1')]"}
    ledger.assert_durable()
    ledger.assert_no_duplicates()
    ledger.assert_read_in_order()
    with pytest.raises(AssertionError, match="2 copies"):
        ledger.assert_no_duplicates(by_content=True)
    consumed = read_parts(CaseDir(ledger.run).consumed, CONSUMED)
    assert sorted(set(consumed["phase"].to_pylist())) == [0, 1]
    assert all(consumed["intact"].to_pylist())
    assert min(consumed["producer"].to_pylist()) == 0
    # Another client that is not the ledger's: its records are nobody's business here.
    other = Producer(_settings(kafka_cluster))
    other.produce("orders", "somebody else's")
    other.flush()
    producer.produce("orders", "last")
    ledger.assert_durable()
    producer.produce("orders", "and this")
    with pytest.raises(EvidenceMissing, match="did not settle"):
        ledger.assert_durable(settle_s=0.0)
    consumer.close()
