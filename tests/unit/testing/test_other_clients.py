"""Audited clients of kafka-python, aiokafka, and confluent-kafka with serializers, on librdkafka's mock cluster."""

from __future__ import annotations

import asyncio
import json
import socket
import warnings
from collections.abc import Iterator
from contextlib import suppress

import aiokafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError
from confluent_kafka import Consumer, DeserializingConsumer, Producer, SerializingProducer, TopicPartition
from confluent_kafka.error import ValueDeserializationError, ValueSerializationError
from confluent_kafka.serialization import IntegerSerializer, StringDeserializer, StringSerializer

from ackproof.base.errors import BadInput
from ackproof.rundir.outcome import Outcome
from ackproof.testing.audited import audit_consumer, audit_producer
from ackproof.testing.book import Book

with warnings.catch_warnings(action="ignore"):  # on Python 3.11 kafka-python calls what is deprecated there
    import kafka
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.serializer import JsonSerializer

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")
MOCK = {"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0, "linger.ms": 0}
OLD = {
    "api_version": (2, 3)
}  # kafka-python cannot read what the mock cluster answers to its newest ApiVersions
ORDER = {"id": 7}


@pytest.fixture
def book() -> Book:
    return Book("0123456789abcdef", 0)


@pytest.fixture
def cluster() -> Iterator[str]:
    """Address of a mock cluster, which runs as long as the producer that holds it."""
    holder = Producer(MOCK)
    metadata = holder.list_topics("t", timeout=10)
    (broker,) = metadata.brokers.values()
    yield f"{broker.host}:{broker.port}"


def raw(cluster: str, count: int) -> list[tuple[bytes | None, bytes | None, list[str]]]:
    """Read `count` records of t/0 with a client that is not audited. Return key, value and header names of each."""
    consumer = Consumer({"bootstrap.servers": cluster, "group.id": "raw", "log_level": 0})
    consumer.assign([TopicPartition("t", 0, 0)])
    found: list[tuple[bytes | None, bytes | None, list[str]]] = []
    while len(found) < count:
        if (message := consumer.poll(10)) is not None and message.error() is None:
            found.append((message.key(), message.value(), [name for name, _ in message.headers() or []]))
    consumer.close()
    return found


def read_all(book: Book) -> list[tuple[int, int, bool]]:
    (reads,) = book.readers
    return [(read.identity.seq, read.assignment, read.identity.intact) for read in reads]


def test_a_serializing_producer_and_a_deserializing_consumer(book: Book, cluster: str) -> None:
    settings = {"bootstrap.servers": cluster, "log_level": 0}
    whole = {**settings, "key.serializer": StringSerializer(), "value.serializer": IntegerSerializer()}
    producer = audit_producer(SerializingProducer(whole), book)
    assert isinstance(producer, SerializingProducer)
    told: list[object] = []
    producer.produce("t", "key", 7, 0, on_delivery=lambda error, _: told.append(error), headers={"a": b"1"})
    with pytest.raises(ValueSerializationError):
        producer.produce("t", key="key", value="no number", partition=0)
    producer.produce_batch("t", [{"value": b"as it is"}], 0)
    producer.flush(10)
    assert [attempt.content for attempt in book.attempts()] == [
        ("t", b"key", b"\x00\x00\x00\x07"),
        ("t", None, b"as it is"),
    ]
    assert {attempt.outcome for attempt in book.attempts()} == {Outcome.ACKED}
    assert told == [None]
    assert raw(cluster, 2)[0] == (b"key", b"\x00\x00\x00\x07", ["a", "ackproof"])
    reading = {**settings, "group.id": "g", "key.deserializer": StringDeserializer()}

    def refuse(value: bytes, _: object) -> str:
        raise ValueError(value)

    consumer = audit_consumer(DeserializingConsumer({**reading, "value.deserializer": refuse}), book)
    consumer.assign([TopicPartition("t", 0, 0)])
    with pytest.raises(ValueDeserializationError):
        consumer.poll(10)
    consumer.close()
    assert read_all(book) == [(0, 1, True)]
    other = audit_consumer(DeserializingConsumer(reading), book)
    other.assign([TopicPartition("t", 0, 0)])
    message = other.poll(10)
    assert message is not None and message.error() is None
    assert (message.key(), message.headers()) == ("key", [("a", b"1")])
    other.close()
    producer.end()
    with pytest.raises(RuntimeError, match="the test is over"):
        producer.produce("t", "key", 8)


def test_kafka_python(book: Book, cluster: str) -> None:
    producer = audit_producer(
        KafkaProducer(
            **OLD, bootstrap_servers=cluster, value_serializer=JsonSerializer(), max_request_size=2000
        ),
        book,
    )
    assert isinstance(producer, KafkaProducer)
    future = producer.send("t", ORDER, b"key", [("a", b"1")], partition=0)
    assert future.get(10).offset == 0
    producer.send("t", value=[1], partition=0)
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="Circular"):
        producer.send("t", endless, partition=0)
    with pytest.raises(kafka.errors.MessageSizeTooLargeError):
        producer.send("t", "x" * 5000, partition=0)
    producer.settle(10)
    first, second, refused = book.attempts()
    assert first.content == ("t", b"key", b'{"id": 7}')
    assert (first.partition, first.offset, first.outcome) == (0, 0, Outcome.ACKED)
    assert second.outcome is Outcome.ACKED
    assert (refused.outcome, refused.code) == (Outcome.FAILED, 10)
    assert book.producers[0].library == ("kafka-python", kafka.__version__)
    assert raw(cluster, 2)[0] == (b"key", b'{"id": 7}', ["a", "ackproof"])
    consumer = audit_consumer(
        KafkaConsumer(**OLD, bootstrap_servers=cluster, value_deserializer=JsonSerializer()), book
    )
    place = kafka.TopicPartition("t", 0)
    consumer.assign([place])
    consumer.seek(place, 0)
    found = next(consumer)
    assert (found.key, found.value, found.headers) == (b"key", ORDER, [("a", b"1")])
    consumer.seek(place, 0)
    again: list[object] = []
    while len(again) < 2:
        again += [one.value for ones in consumer.poll(timeout_ms=5000).values() for one in ones]
    assert again == [ORDER, [1]]
    assert read_all(book) == [(0, 1, True), (0, 2, True), (1, 2, True)]
    consumer.end()
    producer.end()


def test_kafka_python_without_a_broker_is_indeterminate_or_had_no_room(book: Book) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes connections and answers nothing
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        producer = audit_producer(KafkaProducer(**OLD, bootstrap_servers=servers, max_block_ms=100), book)
        with pytest.raises(kafka.errors.KafkaTimeoutError):
            producer.send("t" * 9, b"no metadata", partition=99)
        producer.end()
    future = producer.audited.send  # the real one is closed
    with pytest.raises(kafka.errors.IllegalStateError):
        future("t", b"x")
    assert [attempt.taken for attempt in book.not_taken()] == [False]


async def _send_and_read(book: Book, cluster: str) -> None:
    given = AIOKafkaProducer(
        bootstrap_servers=cluster,
        value_serializer=lambda value: json.dumps(value).encode(),
        max_request_size=2000,
    )
    producer = audit_producer(given, book)
    assert isinstance(producer, AIOKafkaProducer)
    async with producer as same:
        assert same is producer
        metadata = await producer.send_and_wait("t", ORDER, b"key", 0, headers=[("a", b"1")])
        assert metadata.offset == 0
        future = await producer.send("t", [1], partition=0)
        future.cancel()
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send("t", "x" * 5000, partition=0)
        with pytest.raises(TypeError, match="one by one"):
            await producer.send_batch(producer.create_batch(), "t", partition=0)
        with suppress(asyncio.CancelledError):
            await future
        await producer.flush()
    consumer = audit_consumer(
        AIOKafkaConsumer(bootstrap_servers=cluster, value_deserializer=json.loads), book
    )
    place = aiokafka.TopicPartition("t", 0)
    async with consumer:
        consumer.assign([place])
        consumer.seek(place, 0)
        found = await anext(consumer)
        assert (found.key, found.value, found.headers) == (b"key", ORDER, (("a", b"1"),))
        consumer.seek(place, 0)
        again: list[object] = []
        while len(again) < 2:
            for records in (await consumer.getmany(timeout_ms=5000)).values():
                again += [one.value for one in records]
        assert again == [ORDER, [1]]


def test_aiokafka(book: Book, cluster: str) -> None:
    asyncio.run(_send_and_read(book, cluster))
    first, second, refused = book.attempts()
    assert first.content == ("t", b"key", b'{"id": 7}')
    assert (first.partition, first.offset, first.outcome) == (0, 0, Outcome.ACKED)
    assert second.outcome is Outcome.ACKED, "who does not wait for an outcome does not change it"
    assert (refused.outcome, refused.code) == (Outcome.FAILED, 10)
    assert raw(cluster, 2)[0] == (b"key", b'{"id": 7}', ["a", "ackproof"])
    assert read_all(book) == [(0, 1, True), (0, 2, True), (1, 2, True)]
    assert book.reader_libraries == [("aiokafka", aiokafka.__version__)]


def test_aiokafka_is_flushed_in_its_loop_or_asks_for_it(book: Book, cluster: str) -> None:
    async def send() -> None:
        async with audit_producer(
            AIOKafkaProducer(bootstrap_servers=cluster, linger_ms=300), book
        ) as producer:
            await producer.send("t", b"one", partition=0)
            with pytest.raises(BadInput, match=r"1 records .* asyncio\.to_thread"):
                producer.settle(10)
            await asyncio.to_thread(producer.settle, 10)
            assert book.attempts()[0].outcome is Outcome.ACKED

    asyncio.run(send())


def test_a_started_aiokafka_consumer_with_deserializers_is_refused(book: Book, cluster: str) -> None:
    async def hand_over() -> None:
        async with AIOKafkaConsumer(bootstrap_servers=cluster, value_deserializer=json.loads) as consumer:
            with pytest.raises(TypeError, match=r"before its start\(\)"):
                audit_consumer(consumer, book)
            await asyncio.sleep(0)  # aiokafka cannot end a task that has not begun
        async with AIOKafkaConsumer(bootstrap_servers=cluster) as consumer:
            audit_consumer(consumer, book)
            await asyncio.sleep(0)

    asyncio.run(hand_over())


@pytest.mark.parametrize("audit", [audit_producer, audit_consumer])
def test_an_audited_client_is_refused(audit: object, book: Book) -> None:
    client = (
        audit_producer(MOCK, book)
        if audit is audit_producer
        else audit_consumer({**MOCK, "group.id": "g"}, book)
    )
    with pytest.raises(TypeError, match="audited already"):
        audit(client, book)  # type: ignore[operator]
