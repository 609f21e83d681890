"""Audited clients of kafka-python: they record every attempt of a KafkaProducer and every read of a KafkaConsumer.

Their serializers and deserializers work as before; the ledger records the bytes. A record that `send` refuses has
failed: it was never sent. Without room or metadata it is no attempt. kafka-python may send any other record again for
as long as it tries, so that an error of its future is not definite: the record is indeterminate.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import kafka
from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.serializer import Deserializer, Serializer

from ackproof.base.errors import WaitTimeout
from ackproof.base.wait import wait_until
from ackproof.rundir.parts import ClientLibrary
from ackproof.testing.book import (
    Attempt,
    Book,
    Content,
    Headers,
    Received,
    as_bytes,
    or_unknown,
    others,
)
from ackproof.testing.proxy import AuditedClient, AuditedReader, CapturedPart, kafka_code

if TYPE_CHECKING:
    from kafka import KafkaConsumer, KafkaProducer

LIBRARY: Final = ClientLibrary("kafka-python", kafka.__version__)
_LATE_S: Final = 1.0
"""Maximum seconds to wait for reports after a flush, and for a producer to close."""


class _Serialized(Serializer):  # type: ignore[misc]  # kafka-python has no types
    """Serializer that passes bytes through, because the proxy has already serialized them. `original`: the user's
    serializer, which is closed with it."""

    def __init__(self, original: Any) -> None:  # noqa: ANN401 — a Serializer
        self.close = original.close

    def serialize(self, topic: str, headers: object, data: Any) -> Any:  # noqa: ANN401 — bytes
        return data


class AuditedKafkaProducer(AuditedClient["KafkaProducer"]):
    """Proxy of a `kafka.KafkaProducer` that records every record that is sent."""

    def __init__(self, given: KafkaProducer, book: Book) -> None:
        super().__init__(given)
        self._book = book
        self._own = book.new_producer(LIBRARY)
        self._sending = threading.Lock()
        self._serializers = [given.config[name] for name in ("key_serializer", "value_serializer")]
        for name, serializer in zip(("key_serializer", "value_serializer"), self._serializers, strict=True):
            given.config[name] = None if serializer is None else _Serialized(serializer)

    def send(
        self,
        topic: str,
        value: Any = None,  # noqa: ANN401 — what its serializer takes
        key: Any = None,  # noqa: ANN401 — what its serializer takes
        headers: Headers = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Any:  # noqa: ANN401 — a FutureRecordMetadata
        """Send a record with the header `ackproof` and record the attempt. Returns and raises as `KafkaProducer.send`
        does. A record that cannot be serialized, or for which there is no room or no metadata, is no attempt."""
        given = list(others(headers))
        raw_key, raw = (
            part if serializer is None else self._real._serialize(serializer, topic, given, part)
            for serializer, part in zip(self._serializers, (key, value), strict=True)
        )
        own, book = self._own, self._book
        # Hold the lock: the next attempt gets its seq after the library has accepted or refused this one.
        with self._sending:
            attempt = book.attempt(
                own, Content(topic, as_bytes(raw_key), as_bytes(raw)), or_unknown(partition)
            )
            identified = book.with_identity(attempt, given)
            try:
                future = self._real.send(topic, raw, raw_key, identified, partition, timestamp_ms)
            except KafkaTimeoutError as error:
                book.not_taken_by_library(own, attempt, f"{type(error).__name__}: no room, or no metadata")
                raise
            except (KafkaError, RuntimeError, TypeError, ValueError) as error:
                own.attempts.append(attempt)
                book.refused(
                    attempt, kafka_code(error), f"{type(error).__name__}: refused before it was sent"
                )
                raise
            own.attempts.append(attempt)
            book.changes += 1
        future.add_callback(self._delivered, attempt)
        future.add_errback(self._failed, attempt)
        return future

    def begin_transaction(self) -> None:
        """Begin a transaction, as `KafkaProducer.begin_transaction` does, and give it a number in the ledger."""
        self._real.begin_transaction()
        self._own.begin_transaction()

    def abort_transaction(self) -> None:
        """Abort the transaction, as `KafkaProducer.abort_transaction` does. Its records then count as given up: they
        may be missing."""
        self._own.give_up_transaction()
        self._real.abort_transaction()

    def settle(self, timeout_s: float) -> None:
        """Flush for at most `timeout_s` seconds; if that is enough, wait up to a second more for reports. Records
        without an outcome by then stay indeterminate."""
        with suppress(KafkaTimeoutError):
            self._real.flush(timeout_s)
            with suppress(WaitTimeout):  # a record is done a moment before its report is served
                wait_until(lambda: not self._own.count_unreported(), what="reports", timeout_s=_LATE_S)

    def end(self) -> None:
        """Close the producer without sending its remaining records, because its cluster is gone."""
        with suppress(KafkaError, RuntimeError):
            if not self._real._closed:
                self._real._sender.force_close()
                self._real.close(timeout=_LATE_S)

    def _delivered(self, attempt: Attempt, metadata: Any) -> None:  # noqa: ANN401 — RecordMetadata
        self._book.report(
            attempt, 0, "", partition=metadata.partition, offset=metadata.offset, resend_after_s=0.0
        )

    def _failed(self, attempt: Attempt, error: BaseException) -> None:
        self._book.report(
            attempt,
            kafka_code(error),
            f"{type(error).__name__}: {error}",
            partition=-1,
            offset=None,
            resend_after_s=0.0,
        )


class _Capture(Deserializer):  # type: ignore[misc]  # kafka-python has no types
    """Deserializer that returns the received bytes together with the value that the user's deserializer made of
    them."""

    def __init__(self, original: Any) -> None:  # noqa: ANN401 — a Deserializer
        self._original = original

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> CapturedPart:
        return CapturedPart(data, self._original.deserialize(topic, others(headers), data))


class AuditedKafkaConsumer(AuditedReader["KafkaConsumer"]):
    """Proxy of a `kafka.KafkaConsumer` that records every record that it returns, and removes the header `ackproof`."""

    def __init__(self, given: KafkaConsumer, book: Book) -> None:
        super().__init__(given, book, LIBRARY, given.config["group_id"] or "")
        self._states: dict[object, object] = {}
        config = given._fetcher.config
        for name in ("key_deserializer", "value_deserializer"):
            if config[name] is not None:
                config[name] = _Capture(config[name])

    def poll(self, *args: Any, **options: Any) -> dict[Any, list[Any]]:  # noqa: ANN401 — as the consumer takes it
        """Return records by partition, as `KafkaConsumer.poll` does, and record the reads."""
        found = self._real.poll(*args, **options)
        return {place: [self._take(record) for record in records] for place, records in found.items()}

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:  # noqa: ANN401 — a ConsumerRecord
        return self._take(next(self._real))

    def end(self) -> None:
        """Close the consumer without a commit, because its cluster is gone."""
        with suppress(KafkaError, RuntimeError):
            self._real.close(autocommit=False, timeout_ms=0)

    def _take(self, record: Any) -> Any:  # noqa: ANN401 — a ConsumerRecord
        # A partition that the group assigns anew has a new state; one that it keeps goes on where it was.
        place = kafka.TopicPartition(record.topic, record.partition)
        state = self._real._subscription.assignment.get(place)
        if state is not None and self._states.get(place) is not state:
            self._assignment += place in self._states
            self._states[place] = state
        (raw_key, key), (raw, value) = map(CapturedPart.split, (record.key, record.value))
        place_of = (record.topic, record.partition, record.offset, or_unknown(record.leader_epoch))
        self._record(Received(*place_of, record.timestamp, record.headers, raw_key, raw))
        return record._replace(key=key, value=value, headers=others(record.headers))
