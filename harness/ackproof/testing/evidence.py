"""Gathers evidence for a ledger: waits until the healed cluster is at rest, reads every topic back, and audits with
Spark."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from ackproof.audit.results import AuditResult
from ackproof.base.errors import AuditFailed, EvidenceMissing
from ackproof.base.wait import wait_until
from ackproof.clients.final_read import ends_of, final_read
from ackproof.clients.final_readers import FinalReadOrder, ReadOutcome
from ackproof.clients.librdkafka.adapter import installed_library, reader_config
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.ledger import ConsumedRows, ProducedRows, write_consumed, write_produced
from ackproof.rundir.outcome import ReadPhase
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.parts import ClientLibrary, mark_end
from ackproof.testing.book import Attempt, Book, Content, ProducerBook, Read
from ackproof.testing.clients import received
from ackproof.testing.cluster import KafkaCluster

Audit = Callable[[Path], AuditResult]
T = TypeVar("T")
_DESCRIBE_S: Final = 10.0
_BATCH: Final = 1000
_WAIT_S: Final = 0.05
_IDLE_S: Final = 20.0


@dataclass(frozen=True)
class Finding:
    """One finding of the audit. `anomaly`: its class. `partition`, `offset`: -1 if unknown. `detail`: what is wrong, in
    words. `attempt`: the attempt that produced its record, None if no attempt did."""

    anomaly: str
    topic: str
    partition: int
    offset: int
    detail: str
    attempt: Attempt | None


@dataclass(frozen=True)
class Evidence:
    """Findings of the audit, and the records of the final read (`final`). `copies`: number of these records by their
    content (topic, key, value)."""

    findings: tuple[Finding, ...]
    copies: Mapping[Content, int]
    final: Sequence[Read] = ()


def gather(cluster: KafkaCluster, book: Book, audit: Audit, settle_s: float) -> Evidence:
    """Wait until the cluster is at rest, at most `settle_s` seconds; read everything back, write both ledgers, audit.

    `audit` gets the run directory, audits it and returns the result. Raises `EvidenceMissing` if the final read or the
    audit is incomplete, `AuditFailed` if the audit has no counts, `WaitTimeout` if no broker describes the topics.
    """
    topics = {attempt.content.topic for attempt in [*book.attempts(), *book.not_taken()]}
    topics |= {read.topic for reads in book.readers for read in reads}
    places, copies = _describe(cluster, topics)
    reader = _FinalReader(places, cluster.bootstrap, book)
    order = FinalReadOrder(places, copies, len(book.readers), cluster.bootstrap, settle_s=settle_s)
    read = final_read(order, ends_of(cluster.cluster), cluster.clock, cluster.tag, read=reader.read)
    write_ledgers(cluster.run, book, reader.reads)
    result = audit(cluster.run.path)
    lacks = [*read.reasons, *result.reasons]
    if result.file is not None and result.file.final_read.count:
        lacks.append(f"the final read skipped {result.file.final_read.count} ranges of offsets")
    if lacks:
        text = f"the evidence is not complete: {'; '.join(lacks)} (run directory: {cluster.run.path})"
        raise AuditFailed(text, result.code) if result.file is None else EvidenceMissing(text)
    return Evidence(tuple(_findings(cluster, book)), reader.copies, reader.reads)


def _describe(
    cluster: KafkaCluster, topics: set[str]
) -> tuple[tuple[TopicPartition, ...], Mapping[str, int]]:
    """Return the partitions of these topics, and the replication factor of each topic. Topics that the cluster does not
    have are missing. Raises `WaitTimeout` if none exists, or if one that this test created is not described in time."""
    known = set(topics)

    def look() -> dict[TopicPartition, int] | None:
        states = cluster.cluster.topic_state(known)
        found = {TopicPartition(*place): len(state.replicas) for place, state in states.items()}
        missing = (known & cluster.topics.keys()) - {place.topic for place in found}
        return found if found and not missing else None

    states = wait_until(look, what=f"a broker to describe {', '.join(sorted(known))}", timeout_s=_DESCRIBE_S)
    places = tuple(sorted(states))
    return places, {place.topic: states[place] for place in places}


def _findings(cluster: KafkaCluster, book: Book) -> list[Finding]:
    import pyarrow.parquet as pq

    return [
        Finding(
            row["class"],
            row["topic"],
            row["partition"],
            row["offset"],
            row["detail"],
            book.find_attempt(row["producer"], row["seq"]),
        )
        for part in cluster.run.finding_parts
        for row in pq.read_table(part, partitioning=None).to_pylist()
    ]


class _FinalReader:
    """Final reader of the partitions `places`, in this process. `reads` and `copies` collect all records that `read`
    found. `book`: the book of the test, which decodes the records' identities."""

    def __init__(self, places: Sequence[TopicPartition], bootstrap: str, book: Book) -> None:
        self.reads: list[Read] = []
        self.copies: Counter[Content] = Counter()
        self._places = tuple(places)
        self._number = {place: number for number, place in enumerate(places)}
        self._book = book
        self._config = reader_config({}, "read_uncommitted", bootstrap, "f0", final=True)
        self._problems: dict[str, str] = {}

    def read(self, starts: tuple[int, ...], ends: tuple[int, ...]) -> ReadOutcome:
        """Read each partition from its start to its end offset. Both are in the order of `places`.

        Stops early if no record arrives for 20 s: then `ReadOutcome.positions` is below the end. If the reader cannot
        start, no exception is raised: `ReadOutcome.reasons` says why.
        """
        reached = list(starts)
        try:
            consumer = Consumer({**self._config, "log_level": 0})
        except KafkaException as error:
            return ReadOutcome(starts, {}, [f"the final reader could not start: {error}"])
        try:
            consumer.assign(
                [
                    ClientPartition(place.topic, place.partition, start)
                    for place, start, end in zip(self._places, starts, ends, strict=True)
                    if start < end
                ]
            )
            moved = time.monotonic()
            while any(at < end for at, end in zip(reached, ends, strict=True)):
                before = sum(reached)
                for message in consumer.consume(_BATCH, _WAIT_S):
                    self._take(message, reached)
                now = time.monotonic()
                if sum(reached) != before:
                    moved = now
                elif now - moved > _IDLE_S:
                    break
        finally:
            consumer.close()
        return ReadOutcome(tuple(reached), self._problems, [])

    def _take(self, message: Message, reached: list[int]) -> None:
        read = self._book.read(received(message), 0)
        place = TopicPartition(read.topic, read.partition)
        number = self._number[place]
        error = message.error()
        if error is None:
            self.reads.append(read)
            self.copies[Content(place.topic, message.key(), message.value())] += 1
            reached[number] = max(reached[number], read.offset + 1)
        elif error.code() == KafkaError._PARTITION_EOF:
            reached[number] = max(reached[number], read.offset)
        else:
            self._problems[str(place)] = error.str()


def write_ledgers(run: CaseDir, book: Book, final: Sequence[Read]) -> None:
    """Write the clients' attempts and reads, and the final read, as ledgers of the run. Older ledgers are replaced.
    Raises OSError if a file cannot be written."""
    if run.ledger.exists():
        shutil.rmtree(run.ledger)
    found = {(read.identity.producer, read.identity.seq): read.partition for read in final}
    for producer in book.producers:
        folder = run.produced / client_folder(f"p{producer.number}")
        if producer.attempts:
            write_produced(folder, 0, _produced(producer, found))
        mark_end(folder)
    for number, (reads, library) in enumerate(zip(book.readers, book.reader_libraries, strict=True)):
        folder = run.consumed / client_folder(f"r{number}")
        if reads:
            write_consumed(folder, 0, _consumed(number, ReadPhase.LIVE, reads, library))
        mark_end(folder)
    folder = run.consumed / client_folder("f0")
    if final:
        write_consumed(folder, 0, _consumed(len(book.readers), ReadPhase.FINAL, final, installed_library()))
    mark_end(folder)


def _produced(producer: ProducerBook, found: dict[tuple[int, int], int]) -> ProducedRows:
    rows = producer.attempts
    # The partition that was given or reported, else that of the final read, else -1.
    partitions = [
        row.partition if row.partition >= 0 else found.get((row.producer, row.seq), -1) for row in rows
    ]
    places, place = _numbered(
        TopicPartition(row.content.topic, partition) for row, partition in zip(rows, partitions, strict=True)
    )
    return ProducedRows(
        producer=producer.number,
        places=places,
        place=np.array(place, np.int64),
        seq=np.array([row.seq for row in rows], np.int64),
        outcome=np.array([row.outcome for row in rows], np.int8),
        error=np.array([row.code for row in rows], np.int16),
        offset=np.array([-1 if producer.offsets_lie else row.offset for row in rows], np.int64),
        sent_ns=np.array([row.sent_ns for row in rows], np.int64),
        done_ns=np.array([row.done_ns for row in rows], np.int64),
        library=producer.library,
    )


def _consumed(reader: int, phase: ReadPhase, rows: Sequence[Read], library: ClientLibrary) -> ConsumedRows:
    places, place = _numbered(TopicPartition(row.topic, row.partition) for row in rows)
    origins, origin = _numbered(row.identity.origin_topic for row in rows)
    return ConsumedRows(
        reader=reader,
        phase=phase,
        places=places,
        origins=origins,
        place=np.array(place, np.int32),
        assignment=np.array([row.assignment for row in rows], np.int32),
        read_seq=np.arange(len(rows), dtype=np.int64),
        offset=np.array([row.offset for row in rows], np.int64),
        leader_epoch=np.array([row.leader_epoch for row in rows], np.int32),
        producer=np.array([row.identity.producer for row in rows], np.int32),
        seq=np.array([row.identity.seq for row in rows], np.int64),
        origin=np.array(origin, np.int32),
        origin_partition=np.array([row.identity.origin_partition for row in rows], np.int32),
        intact=np.array([row.identity.intact for row in rows], np.bool_),
        read_ns=np.array([row.read_ns for row in rows], np.int64),
        timestamp_ms=np.array([row.timestamp_ms for row in rows], np.int64),
        library=library,
    )


def _numbered(values: Iterable[T]) -> tuple[list[T], list[int]]:
    """Return the distinct values, and for each given value its index among these."""
    number: dict[T, int] = {}
    indices = [number.setdefault(value, len(number)) for value in values]
    return list(number), indices
