"""Ordinary use of a cluster, so that what nodes load for it gets into their class-data archives."""

from __future__ import annotations

from ackproof.errors import WaitTimeout

_TOPIC = "warm-up"
_TIMEOUT_S = 30.0


def warm_up(bootstrap: str, *, leader: int, follower: int) -> None:
    """Create a topic, produce (plainly, compressed, in a transaction), read in a group, commit.

    `leader` leads one partition and follows in the other. Raises KafkaException, `WaitTimeout`.
    """
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    common: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "log_level": 0}
    admin = AdminClient(common)
    topic = NewTopic(_TOPIC, num_partitions=2, replica_assignment=[[leader, follower], [follower, leader]])
    admin.create_topics([topic])[_TOPIC].result(_TIMEOUT_S)
    for settings in (
        {"acks": "all", "compression.type": "lz4"},
        {"acks": "1"},
        {"transactional.id": "warm-up"},
    ):
        producer = Producer({**common, **settings})
        transactional = "transactional.id" in settings
        if transactional:
            producer.init_transactions(_TIMEOUT_S)
            producer.begin_transaction()
        for number in range(200):
            producer.produce(_TOPIC, b"x" * 100, partition=number % 2)
        if producer.flush(_TIMEOUT_S):
            raise WaitTimeout(f"waited {_TIMEOUT_S:g} s for the acknowledgement of a few records")
        if transactional:
            producer.commit_transaction(_TIMEOUT_S)
    consumer = Consumer({**common, "group.id": "warm-up", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([_TOPIC])
        if not consumer.consume(400, _TIMEOUT_S):
            raise WaitTimeout(f"waited {_TIMEOUT_S:g} s for a few records to come back")
        consumer.commit(asynchronous=False)
        for partition in (0, 1):
            consumer.get_watermark_offsets(TopicPartition(_TOPIC, partition), timeout=_TIMEOUT_S)
    finally:
        consumer.close()
