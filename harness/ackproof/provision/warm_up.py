"""Ordinary use of a cluster, so that what nodes load for it gets into their class-data archives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ackproof.provision.failure import ProvisionFailed

if TYPE_CHECKING:
    from confluent_kafka import Producer

_TOPIC = "warm-up"
_RECORDS = 200
_TIMEOUT_S = 30.0

Settings = dict[str, str | int | float | bool]


def warm_up(bootstrap: str, *, leader: int, follower: int) -> None:
    """Create a topic, produce (plainly, compressed, in a transaction), read in a group, commit.

    `leader` leads one partition and follows in the other. Raises `ProvisionFailed` if the cluster does not play.
    """
    from confluent_kafka import KafkaException

    try:
        _create(bootstrap, leader, follower)
        _produce(bootstrap)
        _consume(bootstrap)
    except KafkaException as error:
        raise ProvisionFailed(f"a cluster for class-data archives does not work: {error}") from error


def _create(bootstrap: str, leader: int, follower: int) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    assignment = [[leader, follower], [follower, leader]]
    topic = NewTopic(_TOPIC, num_partitions=len(assignment), replica_assignment=assignment)
    admin = AdminClient(_settings(bootstrap))  # has to live until the answer is there
    admin.create_topics([topic])[_TOPIC].result(_TIMEOUT_S)


def _produce(bootstrap: str) -> None:
    from confluent_kafka import Producer

    kinds: tuple[Settings, ...] = ({"acks": "all", "compression.type": "lz4"}, {"acks": "1"})
    for settings in kinds:
        _send(Producer({**_settings(bootstrap), **settings}))
    producer = Producer({**_settings(bootstrap), "transactional.id": "warm-up"})
    producer.init_transactions(_TIMEOUT_S)
    producer.begin_transaction()
    _send(producer)
    producer.commit_transaction(_TIMEOUT_S)


def _send(producer: Producer) -> None:
    for number in range(_RECORDS):
        producer.produce(_TOPIC, b"x" * 100, partition=number % 2)
    if left := producer.flush(_TIMEOUT_S):
        raise ProvisionFailed(f"{left} records were not acknowledged within {_TIMEOUT_S:g} s")


def _consume(bootstrap: str) -> None:
    from confluent_kafka import Consumer

    group: Settings = {"group.id": "warm-up", "auto.offset.reset": "earliest"}
    consumer = Consumer({**_settings(bootstrap), **group})
    try:
        consumer.subscribe([_TOPIC])
        if not consumer.consume(_RECORDS, _TIMEOUT_S):
            raise ProvisionFailed(f"no record came back within {_TIMEOUT_S:g} s")
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def _settings(bootstrap: str) -> Settings:
    # quick to notice new leaders and coordinators; librdkafka's own complaints while nodes start are not news
    return {
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        "topic.metadata.refresh.interval.ms": 200,
        "topic.metadata.refresh.fast.interval.ms": 50,
        "retry.backoff.ms": 50,
        "fetch.error.backoff.ms": 50,
    }
