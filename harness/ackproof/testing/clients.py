"""Audited clients of confluent-kafka: they record every attempt of a producer and every read of a consumer."""

from __future__ import annotations

import contextlib
import gc
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from confluent_kafka import (
    Consumer,
    DeserializingConsumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    SerializingProducer,
    TopicPartition,
)
from confluent_kafka.error import ConsumeError, KeySerializationError, ValueSerializationError
from confluent_kafka.serialization import MessageField, SerializationContext

from ackproof.base.errors import BadInput
from ackproof.clients.librdkafka.adapter import installed_library, resend_after_s
from ackproof.rundir.outcome import Outcome
from ackproof.testing.book import Attempt, Book, Content, Headers, Received, as_bytes, or_unknown, others
from ackproof.testing.proxy import AuditedClient, AuditedReader

OnDelivery: TypeAlias = "Callable[[KafkaError | None, Message], object]"
ONLY_ERRORS = "delivery.report.only.error"
_UNASSIGNED = -1


def _configured_callback(producer: Producer) -> OnDelivery | None:
    """Return the `on_delivery` of the configuration that the producer was made with, None if it has none.

    The client library has no method for this. But the garbage collector lists what a producer refers to: its delivery
    callback, then those for errors, throttling and statistics. Only the delivery callback takes two arguments. Raises
    TypeError if this does not identify it.
    """
    # A subclass in Python refers to its class and its attributes too.
    held = [one for one in gc.get_referents(producer) if callable(one) and not isinstance(one, type)]
    for one in held:
        if _takes(one, 2) and not _takes(one, 1):
            return cast("OnDelivery", one)
    if any(_takes(one, 2) for one in held):
        raise TypeError(
            "a callback of this producer's configuration takes any arguments, so that it cannot be told from a "
            "delivery callback; hand the configuration over instead: ledger.producer({...})"
        )
    return None


def _takes(callback: Callable[..., object], arguments: int) -> bool:
    try:
        inspect.signature(callback).bind(*[None] * arguments)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return True
    return True


class AuditedProducer(AuditedClient[Producer]):
    """Proxy of a Producer that records every produce call in the `Book` of the test. Its own delivery callback calls
    the user's callback."""

    def __init__(self, given: Producer | Mapping[str, Any], book: Book) -> None:
        __tracebackhide__ = True
        self._book = book
        self._own = book.new_producer(installed_library())
        self._only_errors = False
        self._resend_after_s = 0.0
        if isinstance(given, Mapping):
            config = dict(given)
            # The book needs reports of success. The user's callback gets them only as the user configured.
            self._only_errors = str(config.pop(ONLY_ERRORS, False)).lower() == "true"
            self._default: OnDelivery | None = config.get("on_delivery")
            plain_values = {
                name: value for name, value in config.items() if isinstance(value, str | int | float)
            }
            self._resend_after_s = resend_after_s({"enable.idempotence": False, **plain_values})
            super().__init__(Producer(config))
        else:
            super().__init__(given)
            self._default = _configured_callback(self._real)

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = _UNASSIGNED,
        callback: OnDelivery | None = None,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: Headers = None,
    ) -> None:
        """Produce a record like `Producer.produce`, whose arguments it takes and whose errors it raises. Add the header
        `ackproof`, and record the attempt. A record for which the queue is full (BufferError) is no attempt."""
        self._produce(topic, value, key, partition, callback or on_delivery, timestamp, headers)

    def _produce(
        self,
        topic: str,
        value: str | bytes | None,
        key: str | bytes | None,
        partition: int,
        callback: OnDelivery | None,
        timestamp: int,
        headers: Headers,
    ) -> None:
        content = Content(topic, as_bytes(key), as_bytes(value))
        book, own = self._book, self._own
        options: dict[str, Any] = {"value": value, "key": key}
        if partition != _UNASSIGNED:
            options["partition"] = partition
        if timestamp:
            options["timestamp"] = timestamp
        # Hold the lock: the next attempt gets its seq after the library has accepted or refused this one.
        with book.lock:
            attempt = book.attempt(own, content, partition)
            options["headers"] = book.with_identity(attempt, headers)
            options["on_delivery"] = self._reporter(attempt, callback or self._default)
            try:
                self._offer(topic, options)
            except BufferError:
                book.not_taken_by_library(own, attempt, "BufferError: the client's queue was full")
                raise
            except KafkaException as error:
                own.attempts.append(attempt)
                why = error.args[0]
                book.refused(attempt, why.code(), f"{why.name()}: refused before it was sent")
                raise
            own.attempts.append(attempt)
            book.changes += 1

    def _offer(self, topic: str, options: Mapping[str, Any]) -> None:
        self._real.produce(topic, **options)

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = _UNASSIGNED,
        callback: OnDelivery | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> int:
        """Produce records with the arguments of `Producer.produce_batch`, but one by one, because batches take no
        headers. Return the number of accepted records; the others get an `_error`."""
        count = 0
        for message in messages:
            try:
                self._produce(
                    topic,
                    message.get("value"),
                    message.get("key"),
                    message.get("partition", partition),
                    message.get("callback") or callback or on_delivery,
                    message.get("timestamp", 0),
                    None,
                )
            except BufferError:
                message["_error"] = KafkaError(KafkaError._QUEUE_FULL)
            except KafkaException as error:
                message["_error"] = error.args[0]
            else:
                count += 1
        return count

    def begin_transaction(self) -> None:
        """Begin a transaction, as `Producer.begin_transaction` does, and give it a number in the ledger."""
        self._real.begin_transaction()
        self._own.begin_transaction()

    def abort_transaction(self, *timeout: float) -> None:
        """Abort the transaction, as `Producer.abort_transaction` does. Its records then count as given up:
        they may be missing.
        """
        self._own.give_up_transaction()
        self._real.abort_transaction(*timeout)

    def settle(self, timeout_s: float) -> None:
        """Flush; after `timeout_s` seconds purge the remaining records, whose outcome stays unknown.

        Raises `BadInput` if records have no delivery report although the producer's queue is empty. There are two
        possible causes: the producer reports errors only (delivery.report.only.error), or a delivery callback raised an
        exception.
        """
        try:
            if self._real.flush(timeout_s):
                self._real.purge()
                self._real.flush(1.0)
        except RuntimeError:  # the producer was closed
            return
        if not len(self._real) and (silent := self._own.count_unreported()):
            raise BadInput(
                f"{silent} records have no delivery report, though their producer waits for none. It reports "
                "errors only (delivery.report.only.error), or a delivery callback raised. "
                "In the first case hand its configuration over instead: ledger.producer({...})"
            )

    def _reporter(self, attempt: Attempt, theirs: OnDelivery | None) -> OnDelivery:
        def report(error: KafkaError | None, message: Message) -> None:
            self._book.report(
                attempt,
                0 if error is None else error.code(),
                "" if error is None else f"{error.name()}: {error.str()}",
                partition=or_unknown(message.partition()),
                offset=message.offset(),
                resend_after_s=self._resend_after_s,
            )
            if theirs is not None and not (self._only_errors and attempt.outcome is Outcome.ACKED):
                theirs(error, message)

        return report

    def end(self) -> None:
        with contextlib.suppress(RuntimeError, KafkaException):  # it is closed
            self._real.purge()
        super().end()

    def __len__(self) -> int:
        return len(self._real)

    def __bool__(self) -> bool:
        return True


class AuditedSerializingProducer(AuditedProducer):
    """Proxy of a SerializingProducer: it serializes records in the same way, and records the bytes."""

    def __init__(self, given: SerializingProducer[Any, Any], book: Book) -> None:
        super().__init__(given, book)
        self._serialize_key, self._serialize_value = given._key_serializer, given._value_serializer

    def produce(  # type: ignore[override]
        self,
        topic: str,
        key: object = None,
        value: object = None,
        partition: int = _UNASSIGNED,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: Headers = None,
    ) -> None:
        """Serialize and produce a record, and record the attempt. Raises as `SerializingProducer.produce`
        does; a record that cannot be serialized is no attempt.
        """
        context = SerializationContext(topic, MessageField.KEY, headers)  # type: ignore[arg-type]
        raw_key = _serialize(self._serialize_key, key, context, KeySerializationError)
        context.field = MessageField.VALUE
        raw = _serialize(self._serialize_value, value, context, ValueSerializationError)
        self._produce(topic, raw, raw_key, partition, on_delivery, timestamp, headers)

    def _offer(self, topic: str, options: Mapping[str, Any]) -> None:
        if isinstance(self._real, SerializingProducer):
            Producer.produce(self._real, topic, **options)
        else:
            self._real.produce(topic, **options)


def _serialize(
    serializer: Callable[[object, SerializationContext], Any] | None,
    part: object,
    context: SerializationContext,
    failure: type[Exception],
) -> Any:  # noqa: ANN401 — what the serializer returns
    """Return a key or value as a SerializingProducer sends it; unchanged without a serializer. If the serializer fails,
    raises `failure`, as the SerializingProducer does."""
    if serializer is None:
        return part
    try:
        return serializer(part, context)
    except Exception as error:
        raise failure(error) from error


OnRebalance: TypeAlias = Callable[[Any, list[TopicPartition]], object]


def _group_of(consumer: Consumer) -> str:
    """Return the `group.id` of a consumer. The library has no method for it. But its group metadata begins with
    `CGMDv2:`, the generation (4 bytes) and the group, up to a zero byte (rdkafka_cgrp.c)."""
    packed: bytes = consumer.consumer_group_metadata()
    return packed[11:].partition(b"\0")[0].decode()


class AuditedConsumer(AuditedReader[Consumer]):
    """Proxy of a Consumer that records every read in the `Book` of the test, and removes the header `ackproof` from
    messages."""

    SEEKS = frozenset({"seek", "assign", "incremental_assign"})

    def __init__(self, given: Consumer | Mapping[str, Any], book: Book) -> None:
        __tracebackhide__ = True
        real = Consumer(dict(given)) if isinstance(given, Mapping) else given
        super().__init__(real, book, installed_library(), _group_of(real))

    def poll(self, *args: Any, **options: Any) -> Message | None:  # noqa: ANN401 — as the consumer takes it
        """Return a message and record the read, unless it is an error; None after the time-out of `Consumer.poll`."""
        if (message := self._real.poll(*args, **options)) is not None:
            self._take(message)
        return message

    def consume(self, *args: Any, **options: Any) -> list[Message]:  # noqa: ANN401 — as the consumer takes it
        """Return messages, as `Consumer.consume` does, and record a read for each message that is no error."""
        messages = self._real.consume(*args, **options)
        for message in messages:
            self._take(message)
        return messages

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: OnRebalance | None = None,
        on_revoke: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        """Subscribe, as `Consumer.subscribe` does. Each assignment by the group gets a new number in the ledger. The
        callbacks get this proxy."""

        def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
            self._assignment += 1
            if on_assign is not None:
                on_assign(self, partitions)

        callbacks: dict[str, Any] = {"on_assign": assigned}
        for name, theirs in (("on_revoke", on_revoke), ("on_lost", on_lost)):
            if theirs is not None:
                callbacks[name] = self._with_us(theirs)
        self._real.subscribe(list(topics), **callbacks)

    def _with_us(self, theirs: OnRebalance) -> OnRebalance:
        return lambda _, partitions: theirs(self, partitions)

    def _take(self, message: Message) -> None:
        if message.error() is not None:
            return
        self._record(received(message))
        if headers := message.headers():
            theirs = others(headers)
            if len(theirs) != len(headers):
                message.set_headers(theirs)


class AuditedDeserializingConsumer(AuditedConsumer):
    """Proxy of a DeserializingConsumer: it records the received bytes, then deserializes them in the same way."""

    def poll(self, timeout: float = -1) -> Message | None:
        """Return a deserialized message and record the read; None after `timeout` seconds. Raises as
        `DeserializingConsumer.poll` does.
        """
        if not isinstance(self._real, DeserializingConsumer):  # the test is over
            return self._real.poll(timeout)
        message = Consumer.poll(self._real, timeout)
        if message is None:
            return None
        if (error := message.error()) is not None:
            raise ConsumeError(error, kafka_message=message)
        self._take(message)
        return self._real._deserialize(message)


def received(message: Message) -> Received:
    """Return a message of confluent-kafka as the ledger stores it. An unknown partition, offset or leader epoch is
    -1."""
    return Received(
        message.topic() or "",
        or_unknown(message.partition()),
        or_unknown(message.offset()),
        or_unknown(message.leader_epoch()),
        message.timestamp()[1],
        message.headers(),  # type: ignore[arg-type]
        message.key(),
        message.value(),
    )
