"""A confluent-kafka producer whose every attempt is written down; to the code under test it is the producer itself."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from confluent_kafka import KafkaError, KafkaException, Producer

from ackproof.rundir.outcome import Outcome
from ackproof.testing.book import NOT_TAKEN, Attempt, Book, Content
from ackproof.testing.callbacks import OnDelivery, config_callback, configured_callback
from ackproof.testing.ended import EndedClient
from ackproof.testing.identity import HEADER, Headers, encode, others
from ackproof.workload.settings import resend_after_s

if TYPE_CHECKING:
    from confluent_kafka import Message

ONLY_ERRORS = "delivery.report.only.error"
_UNASSIGNED = -1


class AuditedProducer:
    """Everything but what is defined here goes to the producer as it is."""

    def __init__(self, given: Producer | Mapping[str, Any], book: Book) -> None:
        self._book = book
        self._own = book.new_producer()
        self._transaction = -1
        self._only_errors = False
        self._resend_after_s = 0.0
        if isinstance(given, Mapping):
            config = dict(given)
            # Ours must be told of successes; theirs is not, as they wished.
            self._only_errors = str(config.pop(ONLY_ERRORS, False)).lower() == "true"
            self._default = config_callback(config)
            self._resend_after_s = resend_after_s({"enable.idempotence": False, **_plain(config)})
            self._real = Producer(config)
        else:
            _refuse_serializing(given)
            self._default = configured_callback(given)
            self._real = given
        self._kind = type(self._real)

    @property  # type: ignore[misc]  # typeshed has a setter
    def __class__(self) -> type:
        """It passes for a producer where somebody asks."""
        return self._kind

    @property
    def audited(self) -> Producer:
        """The producer itself."""
        return self._real

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
        content = Content(topic, _bytes(key), _bytes(value))
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
            partition = message.partition()
            self._book.report(
                attempt,
                0 if error is None else error.code(),
                "" if error is None else f"{error.name()}: {error.str()}",
                partition=-1 if partition is None else partition,
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
        self._real = cast("Producer", EndedClient())

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 — whatever the producer has
        return getattr(self._real, name)

    def __len__(self) -> int:
        return len(self._real)

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> AuditedProducer:
        self._real.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:  # noqa: ANN401 — whatever the producer says
        return self._real.__exit__(kind, error, trace)


def _bytes(part: str | bytes | None) -> bytes | None:
    if isinstance(part, str):
        return part.encode()
    return None if part is None else bytes(part)


def _plain(config: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    return {name: value for name, value in config.items() if isinstance(value, (str, int, float, bool))}


def _refuse_serializing(producer: object) -> None:
    names = {kind.__name__ for kind in type(producer).__mro__}
    if "SerializingProducer" in names:
        raise TypeError(
            "the ledger audits what is sent as bytes: serialise in your code and hand over a plain Producer"
        )
    if not isinstance(producer, Producer):
        raise TypeError(f"expected a confluent_kafka.Producer or its configuration, not {producer!r}")
