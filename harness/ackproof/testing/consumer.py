"""A confluent-kafka consumer whose every record is written down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from confluent_kafka import Consumer, Message, TopicPartition

from ackproof.testing.audited import Audited, plain
from ackproof.testing.book import Book
from ackproof.testing.identity import others

OnRebalance: TypeAlias = Callable[[Any, list[TopicPartition]], object]


class AuditedConsumer(Audited[Consumer]):
    """A consumer. The header `ackproof` is taken off what it reads."""

    def __init__(self, given: Consumer | Mapping[str, Any], book: Book) -> None:
        __tracebackhide__ = True
        self._book = book
        self._own = book.new_reader()
        self._assignment = 0
        advice = "read as bytes: hand over a plain Consumer and deserialise in your code"
        super().__init__(
            Consumer(dict(given))
            if isinstance(given, Mapping)
            else plain(given, Consumer, "DeserializingConsumer", advice)
        )

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
        self._own.reads.append(self._book.read(message, self._assignment))
        self._book.changes += 1
        if headers := message.headers():
            theirs = others(headers)
            if len(theirs) != len(headers):
                message.set_headers(theirs)
