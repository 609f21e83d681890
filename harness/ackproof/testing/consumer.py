"""A confluent-kafka consumer whose every record is written down; to the code under test it is the consumer itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeAlias, cast

from confluent_kafka import Consumer, Message, TopicPartition

from ackproof.testing.book import Book, Read
from ackproof.testing.ended import EndedClient
from ackproof.testing.identity import identity_of, others

OnRebalance: TypeAlias = Callable[[Any, list[TopicPartition]], object]


class AuditedConsumer:
    """Everything but what is defined here goes to the consumer as it is. The header `ackproof` is taken off."""

    def __init__(self, given: Consumer | Mapping[str, Any], book: Book) -> None:
        self._book = book
        self._own = book.new_reader()
        self._assignment = 0
        if isinstance(given, Mapping):
            self._real = Consumer(dict(given))
        else:
            _refuse_deserializing(given)
            self._real = given
        self._kind = type(self._real)

    @property  # type: ignore[misc]  # typeshed has a setter
    def __class__(self) -> type:
        """It passes for a consumer where somebody asks."""
        return self._kind

    @property
    def audited(self) -> Consumer:
        """The consumer itself."""
        return self._real

    def poll(self, *args: Any, **options: Any) -> Message | None:  # noqa: ANN401 — as the consumer takes it
        """As `Consumer.poll`."""
        message = self._real.poll(*args, **options)
        if message is not None:
            self._take(message)
        return message

    def consume(self, *args: Any, **options: Any) -> list[Message]:  # noqa: ANN401 — as the consumer takes it
        """As `Consumer.consume`."""
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
        """As `Consumer.subscribe`; each assignment that follows is a new one in the ledger."""

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
        """As `Consumer.assign`."""
        self._assignment += 1
        self._real.assign(partitions)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """As `Consumer.incremental_assign`."""
        self._assignment += 1
        self._real.incremental_assign(partitions)

    def seek(self, partition: TopicPartition) -> None:
        """As `Consumer.seek`."""
        self._assignment += 1
        self._real.seek(partition)

    def _take(self, message: Message) -> None:
        if message.error() is not None:
            return
        book, own = self._book, self._own
        headers = message.headers()
        identity = identity_of(book.run_id, headers, message.key(), message.value())  # type: ignore[arg-type]
        epoch, (_, timestamp) = message.leader_epoch(), message.timestamp()
        own.reads.append(
            Read(
                self._assignment,
                message.topic() or "",
                _number(message.partition()),
                _number(message.offset()),
                _number(epoch),
                identity,
                book.now(),
                timestamp,
            )
        )
        book.changes += 1
        if headers:
            theirs = others(headers)
            if len(theirs) != len(headers):
                message.set_headers(theirs)

    def end(self) -> None:
        """The test is over: let the client go."""
        self._real = cast("Consumer", EndedClient())

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 — whatever the consumer has
        return getattr(self._real, name)

    def __enter__(self) -> AuditedConsumer:
        self._real.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:  # noqa: ANN401 — whatever the consumer says
        return self._real.__exit__(kind, error, trace)


def _number(said: int | None) -> int:
    return -1 if said is None else said


def _refuse_deserializing(consumer: object) -> None:
    names = {kind.__name__ for kind in type(consumer).__mro__}
    if "DeserializingConsumer" in names:
        raise TypeError(
            "the ledger audits what is read as bytes: hand over a plain Consumer and deserialise in your code"
        )
    if not isinstance(consumer, Consumer):
        raise TypeError(f"expected a confluent_kafka.Consumer or its configuration, not {consumer!r}")
