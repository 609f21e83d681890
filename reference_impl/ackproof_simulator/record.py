"""Writes a simulated run as a run directory: ledgers, samples, final read and logs on disk, in the files of a real run.

Until here a batch is one object; only these files have a row per record."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import ackproof
from ackproof.rundir.documents import Client, FinalReadFile, PartitionRead
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.ledger import (
    ConsumedRows,
    ProducedRows,
    write_consumed,
    write_produced,
    write_transactions,
)
from ackproof.rundir.outcome import Outcome, ReadPhase
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.parts import ClientLibrary, mark_end
from ackproof.rundir.payload import UNKNOWN_CONTENT
from ackproof.rundir.replicas import BATCHES, EpochStart, Replica, ReplicasFile
from ackproof_reference.log import DATA
from ackproof_simulator.clock import MS, SECOND
from ackproof_simulator.producers import PURGED, ClientBatch, Producer
from ackproof_simulator.readers import ReadBatch
from ackproof_simulator.run import Simulation
from ackproof_simulator.transactional import TransactionalProducer

Ints = npt.NDArray[np.int64]
_LIBRARY = ClientLibrary("ackproof_simulator", ackproof.__version__)
LOOK_NS = SECOND // 5
"""Nanoseconds between two samples of the partitions, as on real brokers."""


def clients_of(simulation: Simulation) -> tuple[Client, ...]:
    """Return all clients of the run for `case.json`. The final reader comes last; with transactions two come last, at
    read_uncommitted and at read_committed."""
    world = simulation.world
    topics = simulation.case.experiment.topic_names()
    everything = tuple(simulation.case.experiment.topics)
    readers = [
        Client(
            id=f"r{r.number}",
            kind="reader",
            reader=r.number,
            topics=everything,
            isolation=simulation.case.experiment.workload.consumers.isolation,
            killed=r.host.id in world.killed,
        )
        for r in world.readers
    ]
    producers = [
        Client(
            id=f"p{p.number}",
            kind="producer",
            producer=p.number,
            topics=topics,
            killed=p.host.id in world.killed,
        )
        for p in world.producers
    ]
    first = len(world.readers)
    final = Client(id="f0", kind="final", reader=first, topics=everything, isolation="read_uncommitted")
    if world.coordinator is None:
        return (*readers, *producers, final)
    second = final.model_copy(update={"id": "f1", "reader": first + 1, "isolation": "read_committed"})
    return (*readers, *producers, final, second)


def write_ledgers(simulation: Simulation, run: CaseDir) -> None:
    """Write the ledgers of produced and read records and of transactions, one part per client that has rows; clients
    that were killed get no end mark. Raises OSError if a file cannot be written."""
    world = simulation.world
    places = [partition.place for partition in world.partitions]
    for producer in world.producers:
        folder = run.produced / client_folder(f"p{producer.number}")
        folder.mkdir(parents=True, exist_ok=True)
        if producer.batches:
            write_produced(folder, 0, _produced(producer, places))
        if producer.host.id not in world.killed:
            mark_end(folder)
        if isinstance(producer, TransactionalProducer) and producer.txns:
            write_transactions(
                run.transactions / client_folder(f"p{producer.number}"), producer.rows(), _LIBRARY
            )
    for reader in world.readers:
        phase = ReadPhase.LIVE_COMMITTED if reader.committed else ReadPhase.LIVE
        _write_reads(simulation, run, f"r{reader.number}", reader.number, phase, reader.handed)
        if reader.host.id not in world.killed:
            mark_end(run.consumed / client_folder(f"r{reader.number}"))
    now = world.clock.now
    final = [
        ReadBatch(at, 1, batch, now)
        for at, place in enumerate(simulation.final)
        for batch in place.batches
        if batch.kind == DATA
    ]
    _write_reads(simulation, run, "f0", len(world.readers), ReadPhase.FINAL, final)
    mark_end(run.consumed / client_folder("f0"))
    if world.coordinator is not None:
        committed = [one for one in final if simulation.final[one.place].is_handed(one.batch)]
        _write_reads(simulation, run, "f1", len(world.readers) + 1, ReadPhase.FINAL_COMMITTED, committed)
        mark_end(run.consumed / client_folder("f1"))


def _seqs(batch: ClientBatch) -> Ints:
    return batch.first + batch.step * np.arange(batch.count, dtype=np.int64)


def _spread(batches: Sequence[ClientBatch], values: Sequence[int]) -> Ints:
    return np.repeat(np.array(values, np.int64), [batch.count for batch in batches])


def _produced(producer: Producer, places: Sequence[TopicPartition]) -> ProducedRows:
    batches = producer.batches
    seq = np.concatenate([_seqs(batch) for batch in batches])
    within = np.concatenate([np.arange(batch.count, dtype=np.int64) for batch in batches])
    offset = _spread(batches, [batch.offset for batch in batches])
    offset = np.where(offset >= 0, offset + within, -1)
    unknown = int(Outcome.INDETERMINATE)
    outcome = _spread(batches, [unknown if batch.outcome is None else batch.outcome for batch in batches])
    error = _spread(batches, [PURGED if batch.outcome is None else batch.error for batch in batches])
    place = _spread(batches, [producer.lines[batch.place].place for batch in batches])
    done = _spread(batches, [batch.done for batch in batches])
    order = np.argsort(seq, kind="stable")
    return ProducedRows(
        producer=producer.number,
        places=places,
        place=place[order],
        seq=seq[order],
        outcome=outcome[order].astype(np.int8),
        error=error[order].astype(np.int16),
        offset=offset[order],
        sent_ns=producer.sent_times(seq[order]),
        done_ns=done[order],
        txn=_spread(batches, [batch.txn for batch in batches])[order],
        library=_LIBRARY,
    )


def _write_reads(
    simulation: Simulation,
    run: CaseDir,
    client: str,
    reader: int,
    phase: ReadPhase,
    reads: Sequence[ReadBatch],
) -> None:
    folder = run.consumed / client_folder(client)
    folder.mkdir(parents=True, exist_ok=True)
    if not reads:
        return
    world = simulation.world
    places = [partition.place for partition in world.partitions]
    topics = sorted({topic for topic, _ in places})
    number = {topic: at for at, topic in enumerate(topics)}
    batches = [simulation.client_batch(at, batch) for at, _, batch, _ in reads]
    lengths = [batch.length for _, _, batch, _ in reads]

    def spread(values: Sequence[int]) -> Ints:
        return np.repeat(np.array(values, np.int64), lengths)

    within = np.concatenate([np.arange(length, dtype=np.int64) for length in lengths])
    seq = np.concatenate([_seqs(batch) for batch in batches])
    producers = world.producers
    made = np.concatenate([producers[b.producer].sent_times(_seqs(b)) for b in batches])
    place = spread([at for at, _, _, _ in reads])
    write_consumed(
        folder,
        0,
        ConsumedRows(
            reader=reader,
            phase=int(phase),
            places=places,
            origins=topics,
            place=place.astype(np.int32),
            assignment=spread([assignment for _, assignment, _, _ in reads]).astype(np.int32),
            read_seq=np.arange(len(seq), dtype=np.int64),
            offset=spread([batch.base for _, _, batch, _ in reads]) + within,
            leader_epoch=spread([batch.epoch for _, _, batch, _ in reads]).astype(np.int32),
            producer=spread([batch.producer for batch in batches]).astype(np.int32),
            seq=seq,
            origin=spread([number[places[at][0]] for at, _, _, _ in reads]).astype(np.int32),
            origin_partition=spread([places[at][1] for at, _, _, _ in reads]).astype(np.int32),
            intact=np.ones(len(seq), np.bool_),
            read_ns=spread([read_ns for _, _, _, read_ns in reads]),
            timestamp_ms=made // MS,
            library=_LIBRARY,
        ),
    )


def write_final_read(simulation: Simulation, run: CaseDir) -> None:
    """Write `observed/final-read.json`: for each partition the offsets that the final read covered, and the reason if
    its read is not complete. Raises OSError if the file cannot be written."""
    partitions = []
    for partition, place in zip(simulation.world.partitions, simulation.final, strict=True):
        partitions.append(
            PartitionRead(
                topic=partition.topic,
                partition=partition.number,
                start=place.start,
                end=place.end,
                epoch=place.epoch,
                epoch_after=place.epoch,
                position=place.end,
                complete=not place.why,
                reason=place.why,
                records=sum(batch.length for batch in place.batches if batch.kind == DATA),
            )
        )
    committed = [
        one.model_copy(update={"records": sum(b.length for b in place.batches if place.is_handed(b))})
        for one, place in zip(partitions, simulation.final, strict=True)
        if simulation.world.coordinator is not None
    ]
    FinalReadFile(
        complete=simulation.complete,
        reasons=tuple(simulation.reasons),
        partitions=tuple(partitions),
        committed=tuple(committed),
    ).save(run.final_read)


def write_replicas(simulation: Simulation, run: CaseDir) -> None:
    """Write `observed/replicas.*`: the contents of the log of each assigned replica, with which the final read is
    compared. Raises OSError if a file cannot be written."""
    world = simulation.world
    replicas, rows = [], []
    for partition in world.partitions:
        for broker in sorted(partition.image.partition.replicas):
            log = partition.log(broker)
            replicas.append(
                Replica(
                    node=broker,
                    topic=partition.topic,
                    partition=partition.number,
                    folder=f"{partition.topic}-{partition.number}",
                    log_start=log.start,
                    log_end=log.end,
                    high_watermark=log.high_watermark,
                    recovery_point=log.flushed,
                    epochs=tuple(EpochStart(epoch=e.epoch, start=e.start) for e in log.epochs),
                    records=sum(batch.length for batch in log.batches),
                    topic_id=world.journal.topic_ids[partition.topic],
                )
            )
            # One value per column of `BATCHES`, in its order.
            rows += [
                (
                    broker, partition.topic, partition.number, batch.base, batch.next - 1, batch.epoch,
                    batch.length, batch.kind != DATA, batch.transactional, batch.producer, batch.producer_epoch,
                    batch.sequence & 0x7FFFFFFF, 0, zlib.crc32(repr(batch).encode()), True, UNKNOWN_CONTENT, 0, -1,
                )
                for batch in log.batches
            ]  # fmt: skip
    ReplicasFile(replicas=tuple(replicas)).save(run.replicas)
    columns = list(zip(*rows, strict=True)) or [()] * len(BATCHES)
    table = pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, BATCHES, strict=True)], schema=BATCHES
    )
    pq.write_table(table, run.replica_batches, compression="zstd")
