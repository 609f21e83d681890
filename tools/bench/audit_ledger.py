"""Ledgers for the audit benchmarks: 8 producers, 12 partitions, 3 live readers and a final reader.

`own`: written as ackproof writes its ledgers (a row group per partition). `hot`: likewise, all rows in one partition.
`foreign`: as other tools write them, rows in order of time, all partitions mixed in each row group."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ackproof.rundir.ledger import ConsumedRows, ProducedRows, write_consumed, write_produced
from ackproof.rundir.schema import CONSUMED, PRODUCED

Layout = Literal["own", "foreign", "hot"]

PRODUCERS, PARTITIONS, READERS = 8, 12, 3
ROWS = 3.2
"""Ledger rows per produced record: 1 of the producer, 1 of the final read, 1.2 of live readers."""
TOPIC = "orders"
PLACES = [(TOPIC, partition) for partition in range(PARTITIONS)]
"""Partitions of the topic, as (topic, partition). A `hot` ledger uses only the first."""
FINAL_READER = 100


@dataclass(frozen=True)
class Planted:
    """Numbers of planted anomalies, by class. The audit must count exactly these, and each corrupted record as lost
    too."""

    lost: int
    duplicate: int
    corrupted: int
    phantom: int
    surfaced: int
    skipped: int


def written(root: Path, records: int, layout: Layout) -> tuple[Path, Planted]:
    """Return the folder of a ledger of `records` produced records below `root`, and what is planted in it. An existing
    ledger is used again."""
    directory = root / f"{layout}-{records}"
    note = directory / "planted.json"
    if not note.exists():
        planted = write(directory, records, layout)
        note.write_text(json.dumps(asdict(planted)))
    return directory, Planted(**json.loads(note.read_text()))


def written_groups(root: Path, deliveries: int, commit: str) -> tuple[Path, dict[str, int]]:
    """Return the folder of a run with one consumer group, and the planted findings by class. An existing run below
    `root` is used again.

    It has one commit per ten deliveries, and is written as ackproof writes its ledgers. `commit`: the group's commit
    mode."""
    directory = root / f"{commit}-{deliveries}"
    note = directory / "planted-classes.json"
    if not note.exists():
        from ackproof.judge import prepare_audit
        from planted_groups import PlantedGroups

        group = PlantedGroups(deliveries // 10, partitions=10, members=4, commit=commit, producers=PRODUCERS)
        group.plant_all(100)
        for table, time in ((group.deliveries, "delivered_ns"), (group.commits, "begun_ns")):
            order = np.argsort(table.columns[time], kind="stable")
            table.there = table.there[order]
            for name, column in table.columns.items():
                table.columns[name] = column if isinstance(column, str) else column[order]
        group.write(directory)
        prepare_audit([directory])
        note.write_text(json.dumps(group.expected))
    return directory, json.loads(note.read_text())


def write(directory: Path, records: int, layout: Layout, seed: int = 7, part_rows: int = 250_000) -> Planted:
    """Write a ledger with `records` produced rows, about as many rows of the final read, and 1.2 times as many of live
    readers. Return what is planted in it. `part_rows`: greatest number of rows per file of a producer; files of readers
    have up to twice as many."""
    partitions = 1 if layout == "hot" else PARTITIONS
    rng = np.random.default_rng(seed)
    share = max(1, records // 8000)
    order = np.arange(records)
    producer = (order % PRODUCERS).astype(np.int32)
    seq = order // PRODUCERS
    partition = rng.integers(0, partitions, records).astype(np.int32)
    sent = order * 5_000 + rng.integers(0, 2_000, records)
    outcome = np.zeros(records, dtype=np.int8)
    kind = rng.permutation(records)
    lost, surfaced, broken = kind[:share], kind[share : 3 * share], kind[3 * share : 3 * share + 20]
    outcome[surfaced] = 2
    # Of each partition: the log as it stands at the end.
    logs = []
    offset = np.full(records, -1, dtype=np.int64)
    duplicated = 0
    gone = np.zeros(records, dtype=np.bool_)
    gone[lost] = True
    for number in range(partitions):
        here = np.flatnonzero(partition == number)
        offset[here] = np.arange(len(here))
        twice = rng.choice(here[~gone[here]], share * 3 // partitions, replace=False)
        duplicated += len(twice)
        logs.append(np.concatenate([here, twice]))
    offset[surfaced] = -1
    done = np.where(outcome == 0, sent + rng.integers(500_000, 5_000_000, records), -1)
    _write_produced(directory, layout, part_rows, producer, seq, partition, outcome, offset, sent, done)
    final = []
    for number, log in enumerate(logs):
        at = np.arange(len(log))
        kept = ~gone[log]
        final.append((np.full(kept.sum(), number), at[kept], log[kept]))
    phantoms = 50
    _write_reads(directory, layout, part_rows, FINAL_READER, 1, final, producer, seq, broken, phantoms)
    skipped = 0
    for reader in range(READERS):
        mine = []
        for number in range(reader * partitions // READERS, (reader + 1) * partitions // READERS):
            places, at, log = final[number]
            passed = np.sort(rng.choice(np.arange(1, len(log) - 1), 10, replace=False))
            kept = np.ones(len(log), dtype=np.bool_)
            kept[passed] = False
            skipped += int((~np.isin(log[passed], broken)).sum())
            mine.append((places[kept], at[kept], log[kept]))
        if not mine:
            continue
        again = [
            (places[-len(at) // 5 :], at[-len(at) // 5 :], log[-len(at) // 5 :]) for places, at, log in mine
        ]
        _write_reads(directory, layout, part_rows, reader, 0, mine, producer, seq, broken, 0, again)
    return Planted(len(lost), duplicated, len(broken), phantoms, len(surfaced), skipped)


def _write_produced(directory, layout, part_rows, producer, seq, partition, outcome, offset, sent, done):
    for number in range(PRODUCERS):
        mine = np.flatnonzero(producer == number)
        folder = directory / "ledger" / "produced" / f"client=p{number}"
        for part, begin in enumerate(range(0, len(mine), part_rows)):
            rows = mine[begin : begin + part_rows]
            if layout != "foreign":
                write_produced(
                    folder,
                    part,
                    ProducedRows(
                        number, PLACES, partition[rows], seq[rows], outcome[rows],
                        np.zeros(len(rows), np.int16), offset[rows], sent[rows], done[rows],
                    ),
                )  # fmt: skip
                continue
            _write(
                folder,
                part,
                PRODUCED,
                {
                    "producer": producer[rows],
                    "seq": seq[rows],
                    "topic": _texts(np.zeros(len(rows), np.int32)),
                    "partition": partition[rows],
                    "outcome": outcome[rows],
                    "error": np.zeros(len(rows), np.int16),
                    "offset": offset[rows],
                    "sent_ns": sent[rows],
                    "done_ns": done[rows],
                    "txn": np.full(len(rows), -1),
                },
            )


def _write_reads(
    directory, layout, part_rows, reader, phase, logs, producer, seq, broken, phantoms, again=()
):
    """Write the reads of one reader: batches of 500 records from each partition in turn, as a consumer gets them."""
    pieces = []
    for assignment, of_assignment in enumerate((logs, again)):
        if not of_assignment:
            continue
        place, at, log = (np.concatenate(column) for column in zip(*of_assignment, strict=True))
        rank = np.concatenate([np.arange(len(one[1])) for one in of_assignment])
        order = np.lexsort((rank, place, rank // 500))
        pieces.append((np.full(len(order), assignment, np.int32), place[order], at[order], log[order]))
    assignment, place, at, log = (np.concatenate(column) for column in zip(*pieces, strict=True))
    count = len(log)
    read_producer, read_seq_of = producer[log].copy(), seq[log].copy()
    if phantoms:
        read_producer = np.append(read_producer, np.full(phantoms, 99, np.int32)).astype(np.int32)
        read_seq_of = np.append(read_seq_of, np.arange(phantoms))
        assignment = np.append(assignment, np.zeros(phantoms, np.int32)).astype(np.int32)
        place = np.append(place, np.zeros(phantoms, np.int64))
        at = np.append(at, at[place[:count] == 0].max() + 1 + np.arange(phantoms))
    intact = np.ones(len(at), dtype=np.bool_)
    intact[:count] = ~np.isin(log, broken)
    place = place.astype(np.int32)
    folder = directory / "ledger" / "consumed" / f"client=r{reader}"
    for part, begin in enumerate(range(0, len(at), 2 * part_rows)):
        rows = slice(begin, min(begin + 2 * part_rows, len(at)))
        length = rows.stop - rows.start
        number = np.arange(rows.start, rows.stop)
        if layout != "foreign":
            write_consumed(
                folder,
                part,
                ConsumedRows(
                    reader, phase, PLACES, [TOPIC], place[rows], assignment[rows], number, at[rows],
                    np.zeros(length, np.int32), read_producer[rows], read_seq_of[rows], np.zeros(length, np.int32),
                    place[rows], intact[rows], number * 2_000, number // 1000,
                ),
            )  # fmt: skip
            continue
        _write(
            folder,
            part,
            CONSUMED,
            {
                "reader": np.full(length, reader, np.int32),
                "phase": np.full(length, phase, np.int8),
                "assignment": assignment[rows],
                "read_seq": number,
                "topic": _texts(np.zeros(length, np.int32)),
                "partition": place[rows],
                "offset": at[rows],
                "leader_epoch": np.zeros(length, np.int32),
                "producer": read_producer[rows],
                "seq": read_seq_of[rows],
                "origin_topic": _texts(np.zeros(length, np.int32)),
                "origin_partition": place[rows],
                "intact": intact[rows],
                "read_ns": number * 2_000,
                "timestamp_ms": number // 1000,
            },
        )


def _texts(codes):
    return pa.DictionaryArray.from_arrays(pa.array(codes), [TOPIC]).cast(pa.string())


def _write(folder: Path, part: int, schema: pa.Schema, columns) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_arrays([pa.array(columns[name]) for name in schema.names], schema=schema)
    pq.write_table(table, folder / f"part-{part:06d}.parquet", compression="zstd")
