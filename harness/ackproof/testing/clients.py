"""Audited clients: confluent-kafka's producer and consumer, with every attempt and every read written down.

After its test an audited client drops the real client. Otherwise the real client's threads would go on trying to reach
a cluster that is gone, and log to standard error, for as long as a failed test's traceback holds the proxy.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeAlias, TypeVar, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ackproof.clients.librdkafka.adapter import resend_after_s
from ackproof.rundir.outcome import Outcome
from ackproof.testing.book import (
    HEADER,
    Attempt,
    Book,
    Content,
    Headers,
    encode,
    or_unknown,
    others,
)

if TYPE_CHECKING:
    from confluent_kafka import Message

Client = TypeVar("Client", Producer, Consumer)


class _EndedClient:
    """Replacement for a client after its test, for threads that still use it. They get no records and no
    error.
    """

    def poll(self, timeout: float = -1) -> None:
        threading.Event().wait(timeout if timeout >= 0 else None)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[object]:
        self.poll(timeout)
        return []

    def flush(self, timeout: float = -1) -> int:
        return 0

    def close(self) -> None:
        return

    def produce(self, topic: str, **options: object) -> NoReturn:
        raise RuntimeError("the test is over, and its cluster is gone")

    def __len__(self) -> int:
        return 0

    def __enter__(self) -> _EndedClient:
        return self

    def __exit__(self, *_: object) -> None:
        return


class AuditedClient(Generic[Client]):
    """Proxy of a Confluent client. It forwards each method that a subclass does not override."""

    _real: Client
    _kind: type

    def __init__(self, real: Client) -> None:
        self._real = real
        self._kind = type(real)

    @property  # type: ignore[misc]  # typeshed has a setter
    def __class__(self) -> type:
        """Class of the real client, so that `isinstance` holds."""
        return self._kind

    @property
    def audited(self) -> Client:
        return self._real

    def end(self) -> None:
        self._real = cast("Client", _EndedClient())

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 — whatever the client has
        return getattr(self._real, name)

    def __enter__(self) -> Any:  # noqa: ANN401 — what the client returns
        self._real.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:  # noqa: ANN401 — whatever the client says
        return self._real.__exit__(kind, error, trace)


def plain(given: object, kind: type[Client], coding: str, advice: str) -> Client:
    """Return the given client if it is a Producer or Consumer (`kind`) that works on bytes. Raises
    TypeError otherwise.

    `coding`: name of the serializing or deserializing class, which is refused with the text `advice`. asyncio
    clients are refused too.
    """
    __tracebackhide__ = True
    ancestors = type(given).__mro__
    if inspect.isawaitable(given) or any(one.__name__.startswith("AIO") for one in ancestors):
        raise TypeError(
            f"asyncio clients are not supported yet: hand over a plain confluent_kafka.{kind.__name__}, and let "
            f"coroutines call it in threads: await asyncio.to_thread(client.{'flush' if kind is Producer else 'poll'})"
        )
    if coding in {one.__name__ for one in ancestors}:
        raise TypeError(f"the ledger audits what is {advice}")
    if not isinstance(given, kind):
        raise TypeError(f"expected a confluent_kafka.{kind.__name__} or its configuration, not {given!r}")
    return given


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
    """Proxy of a Producer that records every produce call in the book. Its delivery callback calls the
    user's.
    """

    def __init__(self, given: Producer | Mapping[str, Any], book: Book) -> None:
        __tracebackhide__ = True
        self._book = book
        self._own = book.new_producer()
        self._transaction = -1
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
            advice = "sent as bytes: serialise in your code and hand over a plain Producer"
            super().__init__(plain(given, Producer, "SerializingProducer", advice))
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
        """Produce a record like `Producer.produce`, whose arguments it takes and whose errors it raises. Add the
        header `ackproof`, and record the attempt."""
        theirs = callback or on_delivery or self._default
        content = Content(topic, as_bytes(key), as_bytes(value))
        book, own = self._book, self._own
        options: dict[str, Any] = {"value": value, "key": key}
        if partition != _UNASSIGNED:
            options["partition"] = partition
        if timestamp:
            options["timestamp"] = timestamp
        # Hold the lock: the next attempt gets its seq after the library has accepted or refused this one.
        with book.lock:
            attempt = Attempt(
                own.number, len(own.attempts), content, partition, book.now(), transaction=self._transaction
            )
            header = encode(
                book.run_id, own.number, attempt.seq, topic, partition, content.key, content.value
            )
            options["headers"] = [*others(headers), (HEADER, header)]
            options["on_delivery"] = self._reporter(attempt, theirs)
            try:
                self._real.produce(topic, **options)
            except BufferError:
                attempt.taken, attempt.error = False, "BufferError: the client's queue was full"
                own.not_taken.append(attempt)
                book.changes += 1
                raise
            except KafkaException as error:
                own.attempts.append(attempt)
                why = error.args[0]
                book.refused(attempt, why.code(), f"{why.name()}: refused before it was sent")
                raise
            own.attempts.append(attempt)
            book.changes += 1

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = _UNASSIGNED,
        callback: OnDelivery | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> int:
        """Produce records like `Producer.produce_batch`, whose arguments it takes, but one by one, because
        that takes no headers. Return the number of accepted records; the others get an `_error`."""
        count = 0
        for message in messages:
            try:
                self.produce(
                    topic,
                    message.get("value"),
                    message.get("key"),
                    message.get("partition", partition),
                    message.get("callback") or callback,
                    on_delivery,
                    message.get("timestamp", 0),
                )
            except BufferError:
                message["_error"] = KafkaError(KafkaError._QUEUE_FULL)
            except KafkaException as error:
                message["_error"] = error.args[0]
            else:
                count += 1
        return count

    def begin_transaction(self) -> None:
        """Begin a transaction, as `Producer.begin_transaction` does, and number it."""
        self._real.begin_transaction()
        self._transaction += 1

    def abort_transaction(self, *timeout: float) -> None:
        """Abort the transaction, as `Producer.abort_transaction` does. Its records then count as given up:
        they may be missing.
        """
        for attempt in self._own.attempts:
            if attempt.transaction == self._transaction >= 0:
                attempt.given_up = True
        self._real.abort_transaction(*timeout)

    def count_unreported(self) -> int:
        return sum(not attempt.known for attempt in self._own.attempts)

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


def as_bytes(part: str | bytes | None) -> bytes | None:
    """Return a key or value as the bytes that librdkafka sends: text in UTF-8; None stays None."""
    if isinstance(part, str):
        return part.encode()
    return None if part is None else bytes(part)


OnRebalance: TypeAlias = Callable[[Any, list[TopicPartition]], object]


class AuditedConsumer(AuditedClient[Consumer]):
    """Proxy of a Consumer that records every read in the book, and removes the header `ackproof` from
    messages.
    """

    def __init__(self, given: Consumer | Mapping[str, Any], book: Book) -> None:
        __tracebackhide__ = True
        self._book = book
        self._reads = book.new_reader()
        self._assignment = 0
        advice = "read as bytes: hand over a plain Consumer and deserialise in your code"
        super().__init__(
            Consumer(dict(given))
            if isinstance(given, Mapping)
            else plain(given, Consumer, "DeserializingConsumer", advice)
        )

    def poll(self, *args: Any, **options: Any) -> Message | None:  # noqa: ANN401 — as the consumer takes it
        """Return a message and record the read, unless it is an error; None after the time-out of `Consumer.poll`."""
        if (message := self._real.poll(*args, **options)) is not None:
            self._take(message)
        return message

    def consume(self, *args: Any, **options: Any) -> list[Message]:  # noqa: ANN401 — as the consumer takes it
        """Return messages, as `Consumer.consume` does, and record the reads, without errors among them."""
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
        """Subscribe, as `Consumer.subscribe` does. Each assignment by the group gets a new number in the
        ledger.
        """

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

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Assign partitions, as `Consumer.assign` does. This begins a new assignment."""
        self._assignment += 1
        self._real.assign(partitions)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Assign further partitions, as `Consumer.incremental_assign` does. This begins a new assignment."""
        self._assignment += 1
        self._real.incremental_assign(partitions)

    def seek(self, partition: TopicPartition) -> None:
        """Seek, as `Consumer.seek` does. This begins a new assignment: a lower offset is not reported as
        rewound.
        """
        self._assignment += 1
        self._real.seek(partition)

    def _take(self, message: Message) -> None:
        if message.error() is not None:
            return
        self._reads.append(self._book.read(message, self._assignment))
        self._book.changes += 1
        if headers := message.headers():
            theirs = others(headers)
            if len(theirs) != len(headers):
                message.set_headers(theirs)
