"""Audited clients of confluent-kafka on librdkafka's mock cluster: what the user's code gets, and what is recorded."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import Mock

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ackproof.rundir.outcome import Outcome
from ackproof.testing.audited import audit_consumer, audit_producer
from ackproof.testing.book import Book
from ackproof.testing.clients import AuditedConsumer, AuditedProducer

RUN = "0123456789abcdef"
MOCK = {"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0, "linger.ms": 0}
NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "message.timeout.ms": 20}

Told = list[tuple[str | None, bytes | None]]


@pytest.fixture
def book() -> Book:
    return Book(RUN, 0)


@pytest.fixture
def told() -> Told:
    return []


def _tell(told: Told):
    def on_delivery(error: KafkaError | None, message: Message) -> None:
        told.append((None if error is None else error.name(), message.value()))

    return on_delivery


def test_their_callbacks_are_called_and_every_attempt_is_written_down(book: Book, told: Told) -> None:
    producer = AuditedProducer(Producer(MOCK), book)
    producer.produce("t", "one", on_delivery=_tell(told))
    producer.produce("t", b"two", "key", 0, _tell(told))
    producer.produce("t", value=None, key=b"key", callback=_tell(told), headers=[("a", b"1")], timestamp=5)
    producer.produce("t", "four")
    assert len(producer) == 4
    assert producer.flush(10) == 0
    assert sorted(told, key=str) == sorted([(None, b"one"), (None, b"two"), (None, None)], key=str)
    attempts = book.attempts()
    assert [attempt.seq for attempt in attempts] == [0, 1, 2, 3]
    assert {attempt.outcome for attempt in attempts} == {Outcome.ACKED}
    assert attempts[1].partition == 0
    assert all(attempt.partition >= 0 and attempt.done_ns > attempt.sent_ns for attempt in attempts)
    assert attempts[2].content == ("t", b"key", None)


@pytest.mark.parametrize("form", [dict, Producer])
def test_a_callback_of_the_configuration_is_called(form: type, book: Book, told: Told) -> None:
    errors = []
    config = {**NOWHERE, "on_delivery": _tell(told), "error_cb": errors.append, "stats_cb": errors.append}
    producer = AuditedProducer(form(config), book)
    producer.produce("t", "one")
    own: Told = []
    producer.produce("t", "two", on_delivery=_tell(own))
    producer.flush(10)
    assert told == [("_MSG_TIMED_OUT", b"one")]
    assert own == [("_MSG_TIMED_OUT", b"two")]
    assert [attempt.outcome for attempt in book.attempts()] == [Outcome.INDETERMINATE] * 2
    assert book.attempts()[0].error.startswith("_MSG_TIMED_OUT")


def test_a_producer_with_other_callbacks_has_no_delivery_callback(book: Book) -> None:
    errors = []

    class Own(Producer):
        attribute = len

    producer = AuditedProducer(
        Own({**NOWHERE, "error_cb": errors.append, "stats_cb": lambda text: None}), book
    )
    producer.produce("t", "one")
    producer.flush(10)
    assert book.attempts()[0].known


def test_a_callback_that_cannot_be_told_from_others_is_refused(book: Book) -> None:
    config = {**NOWHERE, "error_cb": Mock()}
    with pytest.raises(TypeError, match=r"ledger.producer\(\{"):
        AuditedProducer(Producer(config), book)
    AuditedProducer(config, book)


def test_errors_only_stays_their_business(book: Book, told: Told) -> None:
    producer = AuditedProducer({**MOCK, "delivery.report.only.error": True, "on_delivery": _tell(told)}, book)
    producer.produce("t", "fine")
    producer.flush(10)
    assert told == []
    assert book.attempts()[0].outcome is Outcome.ACKED


def test_back_pressure_is_no_attempt_but_is_remembered(book: Book) -> None:
    producer = AuditedProducer(
        {**NOWHERE, "queue.buffering.max.messages": 1, "message.timeout.ms": 5000}, book
    )
    producer.produce("t", "one")
    with pytest.raises(BufferError):
        producer.produce("t", "two")
    assert [attempt.content.value for attempt in book.attempts()] == [b"one"]
    assert [attempt.content.value for attempt in book.not_taken()] == [b"two"]
    producer.purge()
    producer.flush(5)
    producer.produce("t", "three")
    assert [attempt.seq for attempt in book.attempts()] == [0, 1]
    producer.purge()


def test_a_local_refusal_is_a_failed_attempt(book: Book) -> None:
    producer = AuditedProducer({**MOCK, "message.max.bytes": 1000}, book)
    with pytest.raises(KafkaException):
        producer.produce("t", "x" * 5000)
    (attempt,) = book.attempts()
    assert attempt.outcome is Outcome.FAILED
    assert "MSG_SIZE_TOO_LARGE" in attempt.error


def test_what_cannot_be_produced_raises_as_it_would(book: Book) -> None:
    producer = AuditedProducer(MOCK, book)
    with pytest.raises(TypeError):
        producer.produce("t", bytearray(b"not taken"))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        producer.produce()  # type: ignore[call-arg]
    assert book.attempts() == []


def test_a_batch_goes_one_by_one(book: Book, told: Told) -> None:
    producer = AuditedProducer(MOCK, book)
    messages = [{"value": "a", "callback": _tell(told)}, {"value": b"b", "key": "k", "partition": 0}, {}]
    assert producer.produce_batch("t", messages, on_delivery=_tell(told)) == 3
    producer.flush(10)
    assert len(told) == 3
    assert len(book.attempts()) == 3


def test_everything_else_passes_through(book: Book) -> None:
    with AuditedProducer(Producer(MOCK), book) as producer:
        assert isinstance(producer, Producer)
        assert bool(producer)
        assert producer.poll(0) == 0
        assert producer.list_topics("t", timeout=5).topics
    with pytest.raises(AttributeError):
        _ = producer.nonsense


def test_an_aborted_transaction_is_given_up(book: Book) -> None:
    producer = AuditedProducer({**MOCK, "transactional.id": "x"}, book)
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("t", "kept")
    producer.commit_transaction(10)
    producer.begin_transaction()
    producer.produce("t", "dropped")
    producer.abort_transaction(10)
    assert [attempt.given_up for attempt in book.attempts()] == [False, True]


@pytest.mark.parametrize("what", [5, None, object()])
def test_what_is_no_client_is_refused(what: object, book: Book) -> None:
    with pytest.raises(TypeError, match="expected"):
        audit_producer(what, book)
    with pytest.raises(TypeError, match="expected"):
        audit_consumer(what, book)


def test_confluents_asyncio_clients_are_refused_with_the_way_around(book: Book) -> None:
    from confluent_kafka.aio import AIOConsumer, AIOProducer

    async def made() -> None:
        """Stand for a coroutine that makes a client."""

    coroutine = made()
    with pytest.raises(TypeError, match=r"not supported: .* asyncio\.to_thread\(client\.poll\)"):
        audit_producer(coroutine, book)
    coroutine.close()
    for kind, audit in ((AIOProducer, audit_producer), (AIOConsumer, audit_consumer)):
        with pytest.raises(
            TypeError, match=r"not supported: hand over a plain confluent_kafka\.(Producer|Consumer)"
        ):
            audit(object.__new__(kind), book)


@pytest.fixture
def cluster() -> Iterator[str]:
    """Address of a mock cluster, which runs as long as the producer that holds it."""
    holder = Producer(MOCK)
    metadata = holder.list_topics("t", timeout=10)
    (broker,) = metadata.brokers.values()
    yield f"{broker.host}:{broker.port}"


def test_what_a_consumer_reads_is_written_down_and_their_headers_are_as_they_sent_them(
    book: Book, cluster: str
) -> None:
    settings = {"bootstrap.servers": cluster, "log_level": 0}
    producer = AuditedProducer(settings, book)
    for number in range(3):
        producer.produce("t", str(number), partition=0, headers={"a": b"1"} if number else None)
    producer.flush(10)
    plain = Producer(settings)
    plain.produce("t", "foreign", partition=0)
    plain.flush(10)
    consumer = AuditedConsumer({**settings, "group.id": "g", "enable.partition.eof": True}, book)
    assert isinstance(consumer, Consumer)
    consumer.assign([TopicPartition("t", 0, 0)])
    first = consumer.poll(10)
    assert first is not None
    rest = []
    while len(rest) < 3:
        rest += [message for message in consumer.consume(10, 1) if message.error() is None]
    assert [message.headers() or None for message in [first, *rest]] == [
        None,
        [("a", b"1")],
        [("a", b"1")],
        None,
    ]
    consumer.seek(TopicPartition("t", 0, 1))
    again = consumer.poll(10)
    while again is None or again.error() is not None:
        again = consumer.poll(10)
    (reads,) = book.readers
    assert [read.identity.seq for read in reads] == [0, 1, 2, -1, 1]
    assert [read.assignment for read in reads] == [1, 1, 1, 1, 2]
    assert all(read.identity.intact for read in reads)
    consumer.close()


def test_after_its_test_a_client_is_nothing(book: Book) -> None:
    producer = AuditedProducer(Producer(MOCK), book)
    consumer = AuditedConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}, book)
    producer.end()
    consumer.end()
    producer.poll(0)
    assert producer.flush() == 0
    assert consumer.poll(0) is None
    assert consumer.consume(5, 0) == []
    consumer.close()
    with pytest.raises(RuntimeError, match="the test is over"):
        producer.produce("t", "x")
