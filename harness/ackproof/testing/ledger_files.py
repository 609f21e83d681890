"""A book and a final read → both ledgers, in the documented schema."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

import numpy as np

from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.ledger import ConsumedRows, ProducedRows, mark_end, write_consumed, write_produced
from ackproof.rundir.outcome import ReadPhase
from ackproof.rundir.partition import TopicPartition
from ackproof.testing.book import Attempt, Book, ProducerBook, Read
from ackproof.testing.final_reader import FinalRecord


def write_ledgers(
    run: CaseDir, book: Book, places: Sequence[TopicPartition], final: Sequence[FinalRecord]
) -> None:
    """Write them in place of older ones."""
    if run.ledger.exists():
        shutil.rmtree(run.ledger)
    found = {(r.identity.producer, r.identity.seq): places[r.place].partition for r in final}
    for producer in book.producers:
        folder = run.produced / client_folder(f"p{producer.number}")
        if producer.attempts:
            write_produced(folder, 0, _produced(producer, found))
        mark_end(folder)
    for reader in book.readers:
        folder = run.consumed / client_folder(f"r{reader.number}")
        if reader.reads:
            write_consumed(folder, 0, _consumed(reader.number, ReadPhase.LIVE, reader.reads))
        mark_end(folder)
    folder = run.consumed / client_folder("f0")
    if final:
        reads = [_as_read(record, places) for record in final]
        write_consumed(folder, 0, _consumed(len(book.readers), ReadPhase.FINAL, reads))
    mark_end(folder)


def partition_of(attempt: Attempt, found: dict[tuple[int, int], int]) -> int:
    """As given or reported, else where the final read found it, else -1."""
    if attempt.partition >= 0:
        return attempt.partition
    return found.get((attempt.producer, attempt.seq), -1)


def _produced(producer: ProducerBook, found: dict[tuple[int, int], int]) -> ProducedRows:
    rows = producer.attempts
    where = [TopicPartition(row.content.topic, partition_of(row, found)) for row in rows]
    places = list(dict.fromkeys(where))
    number = {place: index for index, place in enumerate(places)}
    return ProducedRows(
        producer=producer.number,
        places=places,
        place=np.array([number[place] for place in where], np.int64),
        seq=np.array([row.seq for row in rows], np.int64),
        outcome=np.array([row.outcome for row in rows], np.int8),
        error=np.array([row.code for row in rows], np.int16),
        offset=np.array([-1 if producer.offsets_lie else row.offset for row in rows], np.int64),
        sent_ns=np.array([row.sent_ns for row in rows], np.int64),
        done_ns=np.array([row.done_ns for row in rows], np.int64),
    )


def _as_read(record: FinalRecord, places: Sequence[TopicPartition]) -> Read:
    topic, partition = places[record.place]
    return Read(
        0,
        topic,
        partition,
        record.offset,
        record.leader_epoch,
        record.identity,
        record.read_ns,
        record.timestamp_ms,
    )


def _consumed(reader: int, phase: ReadPhase, rows: Sequence[Read]) -> ConsumedRows:
    where = [TopicPartition(row.topic, row.partition) for row in rows]
    places = list(dict.fromkeys(where))
    number = {place: index for index, place in enumerate(places)}
    origins = list(dict.fromkeys(row.identity.origin_topic for row in rows))
    origin = {topic: index for index, topic in enumerate(origins)}
    return ConsumedRows(
        reader=reader,
        phase=phase,
        places=places,
        origins=origins,
        place=np.array([number[place] for place in where], np.int32),
        assignment=np.array([row.assignment for row in rows], np.int32),
        read_seq=np.arange(len(rows), dtype=np.int64),
        offset=np.array([row.offset for row in rows], np.int64),
        leader_epoch=np.array([row.leader_epoch for row in rows], np.int32),
        producer=np.array([row.identity.producer for row in rows], np.int32),
        seq=np.array([row.identity.seq for row in rows], np.int64),
        origin=np.array([origin[row.identity.origin_topic] for row in rows], np.int32),
        origin_partition=np.array([row.identity.origin_partition for row in rows], np.int32),
        intact=np.array([row.identity.intact for row in rows], np.bool_),
        read_ns=np.array([row.read_ns for row in rows], np.int64),
        timestamp_ms=np.array([row.timestamp_ms for row in rows], np.int64),
    )
