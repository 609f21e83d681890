"""Tests of the fixture `ledger` with serializing clients, kafka-python and aiokafka: correct ones, then a lie of
each."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

import aiokafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import DeserializingConsumer, SerializingProducer, TopicPartition
from confluent_kafka.serialization import StringDeserializer, StringSerializer

from ackproof.testing.cluster import KafkaCluster
from ackproof.testing.ledger import Ledger

with warnings.catch_warnings(action="ignore"):  # on Python 3.11 kafka-python calls what is deprecated there
    import kafka
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.serializer import DefaultSerializer, JsonSerializer

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings(
        "ignore:unclosed:ResourceWarning"
    ),  # kafka-python's sockets that found no broker
]
COUNT = 20
Send = Callable[[str], Awaitable[None]]


@pytest.fixture(autouse=True)
def lost_sockets(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Collect the garbage after each test, without warnings of sockets that kafka-python left open when it found no
    broker. kafka-python's log is suppressed: pytest would keep its lines, which refer to these sockets."""
    caplog.set_level(logging.CRITICAL, logger="kafka")
    yield
    with warnings.catch_warnings(action="ignore"):
        gc.collect()


def confluent(cluster: KafkaCluster, ledger: Ledger) -> Send:
    settings = {"bootstrap.servers": cluster.bootstrap, "message.timeout.ms": 1500, "log_level": 0}
    producer = ledger.producer(SerializingProducer({**settings, "value.serializer": StringSerializer()}))

    async def send(value: str) -> None:
        producer.produce("orders", value=value)
        await asyncio.to_thread(producer.flush)

    return send


def kafka_python(cluster: KafkaCluster, ledger: Ledger) -> Send:
    given = KafkaProducer(
        bootstrap_servers=cluster.bootstrap,
        value_serializer=JsonSerializer(),
        request_timeout_ms=1000,
        delivery_timeout_ms=1500,
        max_block_ms=1500,
    )
    producer = ledger.producer(given)

    async def send(value: str) -> None:
        with suppress(kafka.errors.KafkaError):  # the lie: what came of it is not looked at
            await asyncio.to_thread(lambda: producer.send("orders", value).get(5))

    return send


async def of_aiokafka(cluster: KafkaCluster, ledger: Ledger) -> tuple[AIOKafkaProducer, Send]:
    given = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap,
        value_serializer=lambda value: json.dumps(value).encode(),
        request_timeout_ms=1500,
    )
    producer = ledger.producer(given)
    await producer.start()

    async def send(value: str) -> None:
        with suppress(aiokafka.errors.KafkaError):  # the lie: what came of it is not looked at
            await producer.send_and_wait("orders", value)

    return producer, send


@pytest.mark.kafka(topics={"orders": {}}, brokers=1, combined=True)
async def test_a_lie_of_each_library_is_found(kafka_cluster: KafkaCluster, ledger: Ledger) -> None:
    aio, send_aio = await of_aiokafka(kafka_cluster, ledger)
    senders = {
        "confluent": confluent(kafka_cluster, ledger),
        "kafka-python": kafka_python(kafka_cluster, ledger),
        "aiokafka": send_aio,
    }
    for number in range(COUNT):
        for name, send in senders.items():
            await send(f"{name}-{number}")
    await asyncio.to_thread(ledger.assert_durable)
    await read_and_lie(kafka_cluster, ledger)
    kafka_cluster.kill("brokers")
    for name, send in senders.items():
        await send(f"{name}-swallowed")
    with pytest.raises(AssertionError) as caught:
        await asyncio.to_thread(ledger.assert_durable)
    assert "swallowed: 3" in str(caught.value)
    for name in senders:
        assert f"{name}-swallowed" in str(caught.value)
    await aio.stop()


async def read_and_lie(cluster: KafkaCluster, ledger: Ledger) -> None:
    """Let each consumer read all records; then let its library go back without reporting it."""
    whole = 3 * COUNT
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "log_level": 0}
    confluents = ledger.consumer(
        DeserializingConsumer({**settings, "value.deserializer": StringDeserializer()})
    )
    confluents.assign([TopicPartition("orders", 0, 0)])
    place = kafka.TopicPartition("orders", 0)
    pythons = ledger.consumer(
        KafkaConsumer(bootstrap_servers=cluster.bootstrap, value_deserializer=DefaultSerializer())
    )
    pythons.assign([place])
    pythons.seek_to_beginning()
    aio = ledger.consumer(
        AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap, value_deserializer=bytes.decode)
    )
    await aio.start()
    aio_place = aiokafka.TopicPartition(*place)
    aio.assign([aio_place])
    await aio.seek_to_beginning()

    async def read(count: int) -> None:
        for _ in range(count):
            assert await asyncio.to_thread(confluents.poll, 10) is not None
            assert isinstance(next(pythons).value, str)
            assert isinstance((await anext(aio)).value, str)

    await read(whole)
    await asyncio.to_thread(ledger.assert_read_in_order)
    confluents.audited.seek(TopicPartition("orders", 0, 1))
    pythons.audited.seek(place, 1)
    aio.audited.seek(aio_place, 1)
    await read(1)
    with pytest.raises(AssertionError, match="rewound: 3"):
        await asyncio.to_thread(ledger.assert_read_in_order)
    confluents.close()
    await aio.stop()
