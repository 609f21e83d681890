"""A confluent-kafka producer whose every attempt is written down."""

from __future__ import annotations

import contextlib
import gc
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Producer

from ackproof.clients.librdkafka.adapter import resend_after_s
from ackproof.rundir.outcome import Outcome
from ackproof.testing.audited import Audited, plain
from ackproof.testing.book import NOT_TAKEN, Attempt, Book, Content, known
from ackproof.testing.identity import HEADER, Headers, encode, others

if TYPE_CHECKING:
    from confluent_kafka import Message

OnDelivery: TypeAlias = "Callable[[KafkaError | None, Message], object]"
ONLY_ERRORS = "delivery.report.only.error"
_UNASSIGNED = -1


class HiddenCallback(TypeError):
    """It cannot be told whether a producer has a delivery callback of its own."""


def configured_callback(producer: Producer) -> OnDelivery | None:
    """The `on_delivery` of the configuration that `producer` was made with, None if it has none.

    The client library does not tell. But the garbage collector knows what a producer holds: its delivery callback,
    then those for errors, throttling and statistics. Of all these only the first is called with two arguments.
    Raises `HiddenCallback` where that does not decide.
    """
    held = [one for one in gc.get_referents(producer) if _is_callback(one)]
    sure = [one for one in held if _takes(one, 2) and not _takes(one, 1)]
    if sure:
        found: OnDelivery = sure[0]
        return found
    if any(_takes(one, 2) for one in held):
        raise HiddenCallback(
            "a callback of this producer's configuration takes any arguments, so that it cannot be told from a "
            "delivery callback; hand the configuration over instead: ledger.producer({...})"
        )
    return None


def _is_callback(held: object) -> bool:
    # A subclass in Python refers to its class and its attributes too.
    return callable(held) and not isinstance(held, type)


def _takes(callback: Callable[..., object], arguments: int) -> bool:
    try:
        inspect.signature(callback).bind(*[None] * arguments)
    except TypeError:
        return False
    except ValueError:  # a builtin that does not say
        return True
    return True


class AuditedProducer(Audited[Producer]):
    """A producer. Its delivery callback is ours, which calls theirs."""

    def __init__(self, given: Producer | Mapping[str, Any], book: Book) -> None:
        __tracebackhide__ = True
        self._book = book
        self._own = book.new_producer()
        self._transaction = -1
        self._only_errors = False
        self._resend_after_s = 0.0
        if isinstance(given, Mapping):
            config = dict(given)
            # Ours must be told of successes; theirs is not, as they wished.
            self._only_errors = str(config.pop(ONLY_ERRORS, False)).lower() == "true"
            self._default: OnDelivery | None = config.get("on_delivery")
            self._resend_after_s = resend_after_s({"enable.idempotence": False, **_plain(config)})
            super().__init__(Producer(config))
        else:
            advice = "sent as bytes: serialise in your code and hand over a plain Producer"
            super().__init__(plain(given, Producer, "SerializingProducer", advice))
            self._default = configured_callback(self._real)

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
        """As `Producer.produce`. Raises what that raises."""
        theirs = callback or on_delivery or self._default
        content = Content(topic, as_bytes(key), as_bytes(value))
        book, own = self._book, self._own
        options: dict[str, Any] = {"value": value, "key": key}
        if partition != _UNASSIGNED:
            options["partition"] = partition
        if timestamp:
            options["timestamp"] = timestamp
        # The next attempt's seq is known only when this one is accepted, or refused for good.
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
                attempt.taken, attempt.error = False, NOT_TAKEN
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
        """As `Producer.produce_batch`, one record after another: a batch of it has no room for headers."""
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
        """As `Producer.begin_transaction`."""
        self._real.begin_transaction()
        self._transaction += 1

    def abort_transaction(self, *timeout: float) -> None:
        """As `Producer.abort_transaction`. What was in the transaction is given up on purpose."""
        for attempt in self._own.attempts:
            if attempt.transaction == self._transaction >= 0:
                attempt.given_up = True
        self._real.abort_transaction(*timeout)

    def unreported(self) -> int:
        """How many accepted attempts have no report."""
        return sum(not attempt.known for attempt in self._own.attempts)

    def _reporter(self, attempt: Attempt, theirs: OnDelivery | None) -> OnDelivery:
        def report(error: KafkaError | None, message: Message) -> None:
            self._book.report(
                attempt,
                0 if error is None else error.code(),
                "" if error is None else f"{error.name()}: {error.str()}",
                partition=known(message.partition()),
                offset=message.offset(),
                resend_after_s=self._resend_after_s,
            )
            if theirs is not None and not (self._only_errors and attempt.outcome is Outcome.ACKED):
                theirs(error, message)

        return report

    def end(self) -> None:
        """The test is over: let the client go."""
        with contextlib.suppress(RuntimeError, KafkaException):  # it is closed
            self._real.purge()
        super().end()

    def __len__(self) -> int:
        return len(self._real)

    def __bool__(self) -> bool:
        return True


def as_bytes(part: str | bytes | None) -> bytes | None:
    """A key or value as it is sent."""
    if isinstance(part, str):
        return part.encode()
    return None if part is None else bytes(part)


def _plain(config: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    return {name: value for name, value in config.items() if isinstance(value, (str, int, float, bool))}
