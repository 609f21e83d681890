"""Chooses the audited client for a client by its library: confluent-kafka, kafka-python or aiokafka."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
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
_PLAIN: Final = {"Producer": AuditedProducer, "Consumer": AuditedConsumer}
"""Proxies for clients that are made from a configuration, by kind of client."""
_CONFLUENT: Final[Mapping[str, Mapping[type, type]]] = {
    "Producer": {SerializingProducer: AuditedSerializingProducer, Producer: AuditedProducer},
    "Consumer": {DeserializingConsumer: AuditedDeserializingConsumer, Consumer: AuditedConsumer},
}
"""Classes of confluent_kafka and their proxies, by kind of client; subclasses come first."""
_OTHERS: Final = {
    ("kafka", "KafkaProducer"): ("kafka_python", "AuditedKafkaProducer"),
    ("kafka", "KafkaConsumer"): ("kafka_python", "AuditedKafkaConsumer"),
    ("aiokafka", "AIOKafkaProducer"): ("aio", "AuditedAioProducer"),
    ("aiokafka", "AIOKafkaConsumer"): ("aio", "AuditedAioConsumer"),
}
"""Modules and proxies of the other libraries, by library and class. Neither library is imported before it is used."""


def audit_producer(given: Any, book: Book) -> AnyAuditedProducer:  # noqa: ANN401 — any library's producer
    """Return a proxy that records what this producer sends. A mapping configures a `confluent_kafka.Producer`. Raises
    TypeError for any object that is no producer of a supported library, and for a producer that is audited already.
    Also raises it for a confluent_kafka producer whose delivery callback cannot be identified.
    """
    __tracebackhide__ = True
    proxy: AnyAuditedProducer = _proxy_for(given, "Producer")(given, book)
    return proxy


def audit_consumer(given: Any, book: Book) -> AnyAuditedConsumer:  # noqa: ANN401 — any library's consumer
    """Return a proxy that records what this consumer reads. A mapping configures a `confluent_kafka.Consumer`. Raises
    TypeError for any object that is no consumer of a supported library, and for a consumer that is audited already.
    Also raises it for a started consumer of aiokafka with deserializers.
    """
    __tracebackhide__ = True
    proxy: AnyAuditedConsumer = _proxy_for(given, "Consumer")(given, book)
    return proxy


def _proxy_for(given: object, kind: str) -> Any:  # noqa: ANN401 — the class of any library's proxy
    """Return the class of the proxy for this client (`kind`: Producer, Consumer). Raises TypeError if there is none."""
    __tracebackhide__ = True
    if isinstance(given, Mapping):
        return _PLAIN[kind]
    ancestors = type(given).__mro__
    if AuditedClient in ancestors:
        raise TypeError(f"this {kind.lower()} is audited already")
    classes = {(one.__module__.partition(".")[0], one.__name__) for one in ancestors}
    known = next(iter(classes & _OTHERS.keys()), None)
    if known is not None and known[1].endswith(kind):
        module, proxy = _OTHERS[known]
        return getattr(import_module(f"ackproof.testing.{module}"), proxy)
    if known is None and (inspect.isawaitable(given) or any(name.startswith("AIO") for _, name in classes)):
        raise TypeError(
            f"asyncio clients of confluent_kafka are not supported: hand over a plain confluent_kafka.{kind}, "
            "and let coroutines call it in threads, as in await asyncio.to_thread(client.poll)"
        )
    for real, own in _CONFLUENT[kind].items():
        if isinstance(given, real):
            return own
    raise TypeError(
        f"expected a {kind} of confluent_kafka, kafka-python or aiokafka, or a configuration of confluent_kafka, "
        f"not {given!r}"
    )
