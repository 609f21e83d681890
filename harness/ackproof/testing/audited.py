"""Chooses the audited client for a client by its library: confluent-kafka, kafka-python or aiokafka."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from confluent_kafka import Consumer, DeserializingConsumer, Producer, SerializingProducer

from ackproof.testing.book import Book
from ackproof.testing.clients import (
    AuditedConsumer,
    AuditedDeserializingConsumer,
    AuditedProducer,
    AuditedSerializingProducer,
)
from ackproof.testing.proxy import AuditedClient

if TYPE_CHECKING:
    from ackproof.testing.aio import AuditedAioConsumer, AuditedAioProducer
    from ackproof.testing.kafka_python import AuditedKafkaConsumer, AuditedKafkaProducer

AnyAuditedProducer: TypeAlias = "AuditedProducer | AuditedKafkaProducer | AuditedAioProducer"
AnyAuditedConsumer: TypeAlias = "AuditedConsumer | AuditedKafkaConsumer | AuditedAioConsumer"
_KNOWN: Final = {
    ("kafka", "KafkaProducer"),
    ("kafka", "KafkaConsumer"),
    ("aiokafka", "AIOKafkaProducer"),
    ("aiokafka", "AIOKafkaConsumer"),
}
_EXPECTED: Final = (
    "expected a {kind} of confluent_kafka, kafka-python or aiokafka, or a configuration of confluent_kafka"
)


def audit_producer(given: Any, book: Book) -> AnyAuditedProducer:  # noqa: ANN401 — any library's producer
    """Return a proxy that records what this producer sends. A mapping configures a `confluent_kafka.Producer`. Raises
    TypeError for any object that is no producer of a supported library, and for a producer that is audited already.
    """
    __tracebackhide__ = True
    if isinstance(given, Mapping):
        return AuditedProducer(given, book)
    match _class_of(given, "producer"):
        case ("kafka", "KafkaProducer"):
            from ackproof.testing.kafka_python import AuditedKafkaProducer

            return AuditedKafkaProducer(given, book)
        case ("aiokafka", "AIOKafkaProducer"):
            from ackproof.testing.aio import AuditedAioProducer

            return AuditedAioProducer(given, book)
    if isinstance(given, SerializingProducer):
        return AuditedSerializingProducer(given, book)
    if isinstance(given, Producer):
        return AuditedProducer(given, book)
    raise TypeError(f"{_EXPECTED.format(kind='Producer')}, not {given!r}")


def audit_consumer(given: Any, book: Book) -> AnyAuditedConsumer:  # noqa: ANN401 — any library's consumer
    """Return a proxy that records what this consumer reads. A mapping configures a `confluent_kafka.Consumer`. Raises
    TypeError for any object that is no consumer of a supported library, and for a consumer that is audited already.
    """
    __tracebackhide__ = True
    if isinstance(given, Mapping):
        return AuditedConsumer(given, book)
    match _class_of(given, "consumer"):
        case ("kafka", "KafkaConsumer"):
            from ackproof.testing.kafka_python import AuditedKafkaConsumer

            return AuditedKafkaConsumer(given, book)
        case ("aiokafka", "AIOKafkaConsumer"):
            from ackproof.testing.aio import AuditedAioConsumer

            return AuditedAioConsumer(given, book)
    if isinstance(given, DeserializingConsumer):
        return AuditedDeserializingConsumer(given, book)
    if isinstance(given, Consumer):
        return AuditedConsumer(given, book)
    raise TypeError(f"{_EXPECTED.format(kind='Consumer')}, not {given!r}")


def _class_of(given: object, kind: str) -> tuple[str, str] | None:
    """Return (library, class) of a client of kafka-python or aiokafka, without importing either; None for other
    objects.

    Raises TypeError for an audited client, and for asyncio clients of confluent_kafka.
    """
    __tracebackhide__ = True
    ancestors = type(given).__mro__
    if AuditedClient in ancestors:
        raise TypeError(f"this {kind} is audited already")
    classes = {(one.__module__.partition(".")[0], one.__name__) for one in ancestors}
    if known := classes & _KNOWN:
        return known.pop()
    if inspect.isawaitable(given) or any(name.startswith("AIO") for _, name in classes):
        raise TypeError(
            f"asyncio clients of confluent_kafka are not supported: hand over a plain confluent_kafka.{kind.title()}, "
            "and let coroutines call it in threads, as in await asyncio.to_thread(client.poll)"
        )
    return None
