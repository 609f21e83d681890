"""The fixture `ledger`: records what your own producers and consumers do, and compares it with the cluster's logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, overload

from ackproof.base.errors import BadInput, EvidenceMissing
from ackproof.observe.committed import ask_coordinator
from ackproof.rundir.anomalies import TABLE, Anomaly
from ackproof.rundir.anomaly_terms import Concern
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition
from ackproof.testing.audited import AnyAuditedConsumer, AnyAuditedProducer, audit_consumer, audit_producer
from ackproof.testing.book import Attempt, Book, Content, Place, Read, as_bytes
from ackproof.testing.cluster import KafkaCluster
from ackproof.testing.evidence import Audit, Evidence, Finding, gather

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

Client = TypeVar("Client")
FLUSH_S: Final = 30.0
_MOST: Final = 10
_LONGEST: Final = 60
_KAFKAS: Final = frozenset(row.name for row in TABLE.values() if row.concern is Concern.DURABILITY)
"""Anomaly classes that `assert_durable` forbids. Duplicates and reordering, which retries may cause, are not among
them."""
_READERS: Final = frozenset(row.name for row in TABLE.values() if row.concern is Concern.READING)

Promise: TypeAlias = Literal["at least once", "at most once", "exactly once"]
Record: TypeAlias = tuple[Place, Attempt]
"""An acknowledged record that is in the log: its place, and the produce call that made it."""


class Ledger:
    """Record of what your clients did. Nothing is checked unless you call one of the `assert_` methods. These raise
    AssertionError if a check fails, and an `AckproofError` if the cluster cannot be healed, read back or audited."""

    def __init__(self, cluster: KafkaCluster, audit: Audit) -> None:
        self._cluster = cluster
        self._audit = audit
        self._book = Book(cluster.run_id, cluster.clock.origin_ns)
        self._producers: list[AnyAuditedProducer] = []
        self._consumers: list[AnyAuditedConsumer] = []
        self._given_up: list[tuple[bytes | None, bytes | None, str | None]] = []
        self._evidence: tuple[tuple[int, int], Evidence] | None = None

    @property
    def run(self) -> Path:
        """The run directory: ledgers, audit.json, findings, the nodes' logs."""
        return self._cluster.run.path

    @overload
    def producer(self, producer: Mapping[str, Any]) -> Producer: ...

    @overload
    def producer(self, producer: Client) -> Client: ...

    def producer(self, producer: Any) -> Any:
        """Return an audited producer, to be passed to the code under test. `producer`: your own, of confluent_kafka,
        kafka-python or aiokafka, or a configuration of a `confluent_kafka.Producer`.

        Raises TypeError for any other object, for a producer that is audited already, and for a producer of
        confluent_kafka whose delivery callback cannot be identified: then pass its configuration.
        """
        __tracebackhide__ = True
        self._producers.append(audit_producer(producer, self._book))
        return self._producers[-1]

    @overload
    def consumer(self, consumer: Mapping[str, Any]) -> Consumer: ...

    @overload
    def consumer(self, consumer: Client) -> Client: ...

    def consumer(self, consumer: Any) -> Any:
        """Return an audited consumer, to be passed to the code under test. `consumer`: your own, of confluent_kafka,
        kafka-python or aiokafka, or a configuration of a `confluent_kafka.Consumer`.

        Raises TypeError for any other object, for a consumer that is audited already, and for a consumer of aiokafka
        with deserializers that was started already.
        """
        __tracebackhide__ = True
        self._consumers.append(audit_consumer(consumer, self._book))
        return self._consumers[-1]

    def gave_up(
        self, value: str | bytes | None, *, key: str | bytes | None = None, topic: str | None = None
    ) -> None:
        """Declare that this record may be missing, because the code under test reported to its caller that it was not
        delivered.

        `value` None: a tombstone. Without `key` or `topic`: a record with this value and any key or topic.
        """
        self._given_up.append((as_bytes(value), as_bytes(key), topic))

    def assert_durable(self, *, settle_s: float = 60.0) -> None:
        """Assert that every acknowledged record is at its offset, and that the code under test swallowed no error.

        Heals the cluster, flushes the producers, and waits until all is at rest (at most `settle_s` seconds). Then
        reads the topics of this ledger back and audits them. Raises AssertionError for two reasons. (a) Acknowledged
        records are gone, moved or damaged, records are there that had failed, or two reads of an offset differ: Kafka,
        as it is configured, broke a promise. (b) Records are missing whose delivery failed or is unknown, and which
        were not given up (`gave_up`): the code under test swallowed the error. A record is not missing if one with the
        same topic, key and value is there. Records that expired or were compacted count as gone. Raises
        `EvidenceMissing` if the evidence is not enough, `NodeDied` if a node died by itself.
        """
        __tracebackhide__ = True
        evidence = self._gather(settle_s)
        if not self._book.attempts() and not self._book.not_taken():
            raise EvidenceMissing("no record went through a producer of this ledger: nothing can be said")
        # Records that no producer of this ledger wrote do not count, unless their header is broken.
        broken = [
            one
            for one in evidence.findings
            if one.anomaly in _KAFKAS and (one.anomaly != Anomaly.PHANTOM or one.attempt is not None)
        ]
        swallowed = [
            attempt
            for attempt in sorted(
                [*self._book.attempts(), *self._book.not_taken()], key=lambda one: one.sent_ns
            )
            if attempt.outcome is not Outcome.ACKED
            and attempt.content not in evidence.copies
            and not self._was_given_up(attempt)
        ]
        lines: list[str] = []
        if broken:
            lines += [
                "Kafka, as it is configured here, did not keep what it acknowledged.",
                *_findings(broken),
            ]
        if swallowed:
            count = f"{len(swallowed)} records were" if len(swallowed) > 1 else "1 record was"
            lines += [
                f"{count} not delivered, and the code under test did not say so.",
                f"swallowed: {len(swallowed)}",
                *(f"  {one.content.topic}: {_record(one)}: {one.error}" for one in swallowed[:_MOST]),
                *_more(len(swallowed)),
                "What is given up on purpose is declared: ledger.gave_up(value).",
            ]
        self._fail_with(lines)

    def assert_no_duplicates(self, *, by_content: bool = False, settle_s: float = 60.0) -> None:
        """Assert that no record is in the cluster twice. Heals, waits, reads back and audits like `assert_durable`.

        By default, several copies of one produce call are duplicates (retries of the client library). With
        `by_content`, so are records that the code under test produced again: same topic, key and value. Raises
        `EvidenceMissing` if the evidence is not enough, `NodeDied` if a node died by itself.
        """
        __tracebackhide__ = True
        evidence = self._gather(settle_s)
        lines = _findings([one for one in evidence.findings if one.anomaly == Anomaly.DUPLICATE])
        if by_content:
            several = {content: n for content, n in evidence.copies.items() if n > 1}
            if several:
                lines.append(f"by content: {len(several)} (same topic, key and value)")
                lines += [
                    f"  {content.topic}: {_content(content)}: {n} copies"
                    for content, n in list(several.items())[:_MOST]
                ]
        self._fail_with(lines)

    def assert_read_in_order(self, *, settle_s: float = 60.0) -> None:
        """Assert that no consumer of this ledger skipped a record, or went back within an assignment. Heals, waits,
        reads back and audits like `assert_durable`. Raises `EvidenceMissing` if the evidence is not enough, `NodeDied`
        if a node died by itself."""
        __tracebackhide__ = True
        evidence = self._gather(settle_s)
        if not any(self._book.readers):
            raise EvidenceMissing("no record went through a consumer of this ledger: nothing can be said")
        self._fail_with(_findings([one for one in evidence.findings if one.anomaly in _READERS]))

    def processed(self, message: Any, *, group: str | None = None) -> None:  # noqa: ANN401 — of any client library
        """Note that the code under test has processed this message, which a consumer of this ledger returned.

        `group`: the consumer's group; None: the only group in which consumers of this ledger are. Raises `BadInput` for
        None if they are in several groups or in none, TypeError for an object that is no message.
        """
        __tracebackhide__ = True
        mark_processed(self._book, message, group)

    def assert_processed(
        self,
        group: str,
        promise: Promise = "at least once",
        *,
        caught_up: bool = False,
        settle_s: float = 60.0,
    ) -> None:
        """Assert that a group of the code under test processed the acknowledged records that it committed past.

        A record counts as processed if the test marked it with `processed`. If the test marked no record of the group,
        each record that a consumer in the group returned counts as processed. "at least once": each record was
        processed; "at most once": none was processed twice; "exactly once": both. With `caught_up` the group must also
        have committed past each acknowledged record of its partitions. Close the group's consumers before the call.
        Heals, waits, reads back and audits like `assert_durable`. Raises `EvidenceMissing` if no consumer of this
        ledger is in the group, or if the group's committed offsets are not known or it has none; `NodeDied` if a node
        died by itself.
        """
        __tracebackhide__ = True
        evidence = self._gather(settle_s)
        known = sorted({name for name in self._book.reader_groups if name})
        if group not in known:
            raise EvidenceMissing(
                f"no consumer of this ledger is in group {group}, but in {', '.join(known) or 'none'}"
            )
        answer = ask_coordinator(self._cluster.cluster, group)
        if answer.reason or not answer.offsets:
            why = answer.reason or "it has committed none"
            raise EvidenceMissing(f"group {group}: no committed offsets: {why}")
        records = acknowledged_records(self._book, evidence.final)
        committed = answer.of_partition
        self._fail_with(judge_group(self._book, group, committed, records, promise, caught_up=caught_up))

    def end(self) -> None:
        for producer in self._producers:
            producer.end()
        for consumer in self._consumers:
            consumer.end()

    def _gather(self, settle_s: float) -> Evidence:
        """Heal the cluster, flush the producers, and return the evidence. It is gathered again only if a client or a
        fault did something since the last call. Raises `EvidenceMissing` if no client did anything, `NodeDied` if a
        node died by itself."""
        self._cluster.heal()
        for producer in self._producers:
            producer.settle(FLUSH_S)
        self._cluster.check()
        state = (self._book.changes, len(self._cluster.faults))
        if self._evidence is None or self._evidence[0] != state:
            if self._book.empty:
                raise EvidenceMissing("nothing went through a client of this ledger: nothing can be said")
            self._evidence = state, gather(self._cluster, self._book, self._audit, settle_s)
        return self._evidence[1]

    def _was_given_up(self, attempt: Attempt) -> bool:
        content = attempt.content
        return attempt.given_up or any(
            value == content.value and key in (None, content.key) and topic in (None, content.topic)
            for value, key, topic in self._given_up
        )

    def _fail_with(self, lines: list[str]) -> None:
        __tracebackhide__ = True
        if lines:
            faults = "; ".join(self._cluster.faults) or "none"
            raise AssertionError("\n".join([*lines, f"faults: {faults}", f"run directory: {self.run}"]))


def _content(content: Content) -> str:
    key = "" if content.key is None else f"key {_short(content.key)}, "
    return f"{key}value {_short(content.value)}"


def _short(part: bytes | None) -> str:
    text = repr(part)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}… ({len(part or b'')} bytes)"


def _record(attempt: Attempt) -> str:
    number = f"p{attempt.producer} #{attempt.seq}" if attempt.taken else f"p{attempt.producer}"
    return f"{_content(attempt.content)} ({number}, sent at {attempt.sent_ns / 1e9:.2f} s)"


def _findings(found: Sequence[Finding]) -> list[str]:
    lines: list[str] = []
    for anomaly in dict.fromkeys(one.anomaly for one in found):
        of_class = [one for one in found if one.anomaly == anomaly]
        row = TABLE.get(anomaly)
        lines.append(f"{anomaly}: {len(of_class)}" + (f" ({row.short})" if row else ""))
        lines += [f"  {_finding(one)}" for one in of_class[:_MOST]]
        lines += _more(len(of_class))
    return lines


def _finding(one: Finding) -> str:
    where = f"{one.topic}/{one.partition}" if one.partition >= 0 else one.topic
    at = f" offset {one.offset}" if one.offset >= 0 else ""
    who = f": {_record(one.attempt)}" if one.attempt is not None else ""
    detail = f" — {one.detail}" if one.detail else ""
    return f"{where}{at}{who}{detail}"


def _more(count: int) -> list[str]:
    return [f"  … and {count - _MOST} more"] if count > _MOST else []


def acknowledged_records(book: Book, final: Sequence[Read]) -> list[Record]:
    """Return the acknowledged records in the final read, except records of aborted transactions, by partition and
    offset."""
    found = []
    for read in final:
        attempt = book.find_attempt(read.identity.producer, read.identity.seq)
        if attempt is not None and attempt.outcome is Outcome.ACKED and not attempt.given_up:
            found.append((Place(read.topic, read.partition, read.offset), attempt))
    return sorted(found, key=lambda record: record[0])


def place_of(message: Any) -> Place:  # noqa: ANN401 — a message of any client library
    """Return topic, partition and offset of a message of confluent-kafka, or of a record of kafka-python or aiokafka.

    Raises TypeError for anything else.
    """
    try:
        values = [getattr(message, name) for name in Place._fields]
    except AttributeError:
        raise TypeError(f"expected a message that a consumer returned, not {message!r}") from None
    return Place(*(value() if callable(value) else value for value in values))


def mark_processed(book: Book, message: Any, group: str | None) -> None:  # noqa: ANN401 — of any client library
    """Note that a group's code processed this message. `group` None: the only group of the book's consumers. Raises
    `BadInput` if it is None and they are in several groups or in none, TypeError for an object that is no message."""
    groups = {name for name in book.reader_groups if name}
    if group is None and len(groups) != 1:
        raise BadInput(
            f"name the group: consumers of this ledger are in {', '.join(sorted(groups)) or 'none'}"
        )
    whose = group if group is not None else groups.pop()
    book.processed.append((whose, place_of(message)))


def judge_group(
    book: Book,
    group: str,
    committed: Mapping[TopicPartition, int],
    records: Sequence[Record],
    promise: Promise,
    *,
    caught_up: bool,
) -> list[str]:
    """Return lines about the records that this group did not process as `promise` says; none if all were processed so.

    Only records of partitions for which the group committed an offset are judged. A record that the group committed
    past must be processed ("at least once"). No record may be processed twice ("at most once"). A record was processed
    as often as the test marked it; without any mark for the group, as often as a consumer of the group returned it.
    `caught_up`: records that the group did not commit past are reported too.
    """
    handed = Counter(
        Place(read.topic, read.partition, read.offset)
        for reads, name in zip(book.readers, book.reader_groups, strict=True)
        if name == group
        for read in reads
    )
    marks = Counter(place for name, place in book.processed if name == group)
    done = marks or handed
    past: list[Record] = []
    ahead: list[Record] = []
    for record in records:
        topic, partition, offset = record[0]
        if (end := committed.get(TopicPartition(topic, partition))) is not None:
            (past if offset < end else ahead).append(record)
    at_least, at_most = promise != "at most once", promise != "at least once"
    missing = [record for record in past if at_least and not done[record[0]]]
    faults = {
        "committed past, never handed over": [one for one in missing if not handed[one[0]]],
        "committed past, handed over, not processed": [one for one in missing if handed[one[0]]],
        "processed more than once": [one for one in past + ahead if at_most and done[one[0]] > 1],
        "not committed past": ahead if caught_up else [],
    }
    lines = []
    for what, found in faults.items():
        if found:
            lines.append(f"{what}: {len(found)}")
            lines += [f"  {place}: {_record(attempt)}" for place, attempt in found[:_MOST]]
            lines += _more(len(found))
    offsets = ", ".join(f"{place} {offset}" for place, offset in sorted(committed.items()))
    begin = f"group {group} did not process every record {promise} (committed offsets: {offsets})."
    return [begin, *lines] if lines else []
