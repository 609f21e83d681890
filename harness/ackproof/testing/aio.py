"""Audited clients of aiokafka: they record every attempt of an AIOKafkaProducer and every read of an AIOKafkaConsumer.

Their serializers and deserializers work as before; the ledger records the bytes. A record that `send` refuses has
failed: it was never sent. aiokafka may send any other record again for as long as it tries, so that an error of its
future is not definite: the record is indeterminate.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn

import aiokafka
from aiokafka.errors import KafkaError, KafkaTimeoutError
from aiokafka.producer.producer import TransactionContext

from ackproof.base.errors import BadInput
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
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

LIBRARY: Final = ClientLibrary("aiokafka", aiokafka.__version__)
_CANCELLED: Final = "send() was cancelled"


class AuditedAioProducer(AuditedClient["AIOKafkaProducer"]):
    """Proxy of an `aiokafka.AIOKafkaProducer` that records every record that is sent."""

    def __init__(self, given: AIOKafkaProducer, book: Book) -> None:
        super().__init__(given)
        self._book = book
        self._own = book.new_producer(LIBRARY)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._serialize_key, self._serialize_value = given._key_serializer, given._value_serializer
        given._key_serializer = given._value_serializer = None

    async def send(
        self,
        topic: str,
        value: Any = None,  # noqa: ANN401 — what its serializer takes
        key: Any = None,  # noqa: ANN401 — what its serializer takes
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = None,
    ) -> asyncio.Future[Any]:
        """Send a record with the header `ackproof` and record the attempt. Returns and raises as
        `AIOKafkaProducer.send` does; a record that cannot be serialized is no attempt.

        The returned future may be cancelled: the record's outcome is recorded all the same. If this call itself is
        cancelled, the record stays indeterminate.
        """
        raw_key = key if self._serialize_key is None else self._serialize_key(key)
        raw = value if self._serialize_value is None else self._serialize_value(value)
        self._loop = asyncio.get_running_loop()
        own, book = self._own, self._book
        attempt = book.attempt(own, Content(topic, as_bytes(raw_key), as_bytes(raw)), or_unknown(partition))
        attempt.error = _CANCELLED  # until there is a future
        own.attempts.append(attempt)
        book.changes += 1
        identified = book.with_identity(attempt, headers)
        try:
            future = await self._real.send(topic, raw, raw_key, partition, timestamp_ms, identified)
        except (KafkaError, AssertionError, RuntimeError, TypeError, ValueError) as error:
            no_room = isinstance(error, KafkaTimeoutError)
            why = "no room, or no metadata" if no_room else "refused before it was sent"
            book.refused(attempt, kafka_code(error), f"{type(error).__name__}: {why}")
            raise
        attempt.error = "no report came"
        future.add_done_callback(self._reporter(attempt))
        return asyncio.shield(future)

    async def send_and_wait(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 — as `send` takes it
        """Send a record and return its metadata, as `AIOKafkaProducer.send_and_wait` does."""
        return await (await self.send(*args, **options))

    async def send_batch(self, *_: object, **__: object) -> NoReturn:
        """Raise TypeError: the ledger does not see the records of a batch."""
        raise TypeError("the ledger cannot audit send_batch(): send the records one by one, with send()")

    async def begin_transaction(self) -> None:
        """Begin a transaction, as `AIOKafkaProducer.begin_transaction` does, and give it a number in the ledger."""
        await self._real.begin_transaction()
        self._own.begin_transaction()

    async def abort_transaction(self) -> None:
        """Abort the transaction, as `AIOKafkaProducer.abort_transaction` does. Its records then count as given up: they
        may be missing."""
        self._own.give_up_transaction()
        await self._real.abort_transaction()

    def transaction(self) -> TransactionContext:
        """Return an asynchronous context manager for one transaction, as `AIOKafkaProducer.transaction` does."""
        return TransactionContext(self)

    async def __aenter__(self) -> AuditedAioProducer:
        await self._real.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._real.stop()

    def settle(self, timeout_s: float) -> None:
        """Flush for at most `timeout_s` seconds, in the producer's event loop. Records without an outcome by then stay
        indeterminate. Raises `BadInput` if records have no outcome yet and the calling thread runs that event loop: the
        loop could send nothing during the call."""
        loop, silent = self._loop, self._own.count_unreported()
        if loop is None or loop.is_closed() or not silent:
            return
        with suppress(TimeoutError, KafkaError):
            if not loop.is_running():
                loop.run_until_complete(asyncio.wait_for(self._real.flush(), timeout_s))
            elif asyncio._get_running_loop() is loop:
                raise BadInput(
                    f"{silent} records of an aiokafka producer have no outcome yet, and this call stops the event "
                    "loop: flush before it, or call it in a thread: await asyncio.to_thread(ledger.assert_durable)"
                )
            else:
                asyncio.run_coroutine_threadsafe(self._real.flush(), loop).result(timeout_s)

    def end(self) -> None:
        """Do nothing: the producer ends with its event loop."""

    def _reporter(self, attempt: Attempt) -> Callable[[asyncio.Future[Any]], None]:
        def report(future: asyncio.Future[Any]) -> None:
            partition, offset = -1, None
            if future.cancelled():
                code, why = -1, "cancelled"
            elif (error := future.exception()) is not None:
                code, why = kafka_code(error), f"{type(error).__name__}: {error}"
            else:
                code, why = 0, ""
                metadata = future.result()
                partition, offset = metadata.partition, metadata.offset  # offset None with acks=0
            self._book.report(attempt, code, why, partition=partition, offset=offset, resend_after_s=0.0)

        return report


def _capture(deserializer: Callable[[Any], object]) -> Callable[[bytes | None], CapturedPart]:
    return lambda raw: CapturedPart(raw, deserializer(raw))


class AuditedAioConsumer(AuditedReader["AIOKafkaConsumer"]):
    """Proxy of an `aiokafka.AIOKafkaConsumer` that records every record that it returns, and removes the header
    `ackproof`. Raises TypeError for a consumer with deserializers that was started already.
    """

    def __init__(self, given: AIOKafkaConsumer, book: Book) -> None:
        __tracebackhide__ = True
        names = [name for name in ("_key_deserializer", "_value_deserializer") if getattr(given, name)]
        if names and given._fetcher is not None:
            raise TypeError("hand over an AIOKafkaConsumer with deserializers before its start()")
        super().__init__(given, book, LIBRARY, given._group_id or "")
        self._assigned: object = None
        for name in names:
            setattr(given, name, _capture(getattr(given, name)))

    async def getone(self, *partitions: Any) -> Any:  # noqa: ANN401 — a ConsumerRecord
        """Return a record, as `AIOKafkaConsumer.getone` does, and record the read."""
        return self._take(await self._real.getone(*partitions))

    async def getmany(self, *partitions: Any, **options: Any) -> dict[Any, list[Any]]:  # noqa: ANN401 — as it takes it
        """Return records by partition, as `AIOKafkaConsumer.getmany` does, and record the reads."""
        found = await self._real.getmany(*partitions, **options)
        return {place: [self._take(record) for record in records] for place, records in found.items()}

    def __aiter__(self) -> AuditedAioConsumer:
        self._real.__aiter__()  # raises as it does if the consumer is closed
        return self

    async def __anext__(self) -> Any:  # noqa: ANN401 — a ConsumerRecord
        return self._take(await self._real.__anext__())

    async def __aenter__(self) -> AuditedAioConsumer:
        await self._real.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._real.stop()

    def end(self) -> None:
        """Do nothing: the consumer ends with its event loop."""

    def _take(self, record: Any) -> Any:  # noqa: ANN401 — a ConsumerRecord
        # The library makes a new object for each assignment, by the group or by assign().
        assigned = self._real._subscription.subscription.assignment
        if assigned is not self._assigned:
            self._assignment += self._assigned is not None
            self._assigned = assigned
        (raw_key, key), (raw, value) = map(CapturedPart.split, (record.key, record.value))
        place = (record.topic, record.partition, record.offset, -1)
        self._record(Received(*place, record.timestamp, record.headers, raw_key, raw))
        return dataclasses.replace(record, key=key, value=value, headers=tuple(others(record.headers)))
