"""The ledgers on disk: Parquet parts in `ledger/{produced,consumed}/client=<id>/` (DESIGN §5).

A part appears whole or not at all: it is written under a name that no reader of parts takes for one, then renamed.
Its rows are sorted by topic, partition and order (seq of a produced row, read_seq of a consumed one), with a row
group per partition, so that a reader of one partition can pass over the others by their statistics; partitions
with few rows share a group. A client that produced or read nothing leaves a folder without parts.

`END` is an empty file: its client closed in good order. It comes after the last part.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ackproof.rundir.schema import CONSUMED, PRODUCED, TRANSACTIONS

END: Final = "END"
_PART: Final = "part-{:06d}.parquet"
_PARTS: Final = "part-*.parquet"
_GROUPS: Final = 64
"""Row groups of a part at most."""
_SMALLEST_GROUP: Final = 1024

_STATISTICS: Final = frozenset({"topic", "partition", "phase", "txn", "seq", "offset"})
"""By which readers pass over row groups. Least and greatest of the other columns help nobody, and cost a fifth of the
writing."""
_DICTIONARY: Final = ["topic", "origin_topic", "partition"]
_RISING: Final = frozenset(
    {"seq", "offset", "sent_ns", "done_ns", "txn", "read_seq", "read_ns", "timestamp_ms"}
)
"""Columns whose values differ little from row to row: as differences they take half the room and time."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ProducedRows:
    """Rows of one producer, in order of seq. `place` is an index into `places`; times count from the run's start."""

    producer: int
    places: Sequence[tuple[str, int]]
    place: Ints
    seq: Ints
    outcome: npt.NDArray[np.int8]
    error: npt.NDArray[np.int16]
    offset: Ints
    sent_ns: Ints
    done_ns: Ints
    txn: Ints | None = None
    """Transaction of each row; None: there are none."""


class TxnRow(NamedTuple):
    """One transaction, as in `schema.TRANSACTIONS`."""

    producer: int
    txn: int
    outcome: int
    first_seq: int
    begun_ns: int
    commit_ns: int
    ended_ns: int


def write_transactions(folder: Path, rows: Sequence[TxnRow]) -> Path:
    """Write the one part of a producer's table of transactions; its path."""
    columns = [
        pa.array(column, field.type)
        for column, field in zip(zip(*rows, strict=True), TRANSACTIONS, strict=True)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    path = part_path(folder, 0)
    temporary = path.with_name(f".{path.name}.tmp")
    pq.write_table(pa.Table.from_arrays(columns, schema=TRANSACTIONS), temporary, compression="zstd")
    temporary.replace(path)
    return path


@dataclass(frozen=True)
class ConsumedRows:
    """Rows of one reader, in order of read_seq. `place` and `origin` are indices into `places` and `origins`."""

    reader: int
    phase: int
    places: Sequence[tuple[str, int]]
    origins: Sequence[str]
    place: npt.NDArray[np.int32]
    assignment: npt.NDArray[np.int32]
    read_seq: Ints
    offset: Ints
    leader_epoch: npt.NDArray[np.int32]
    producer: npt.NDArray[np.int32]
    seq: Ints
    origin: npt.NDArray[np.int32]
    origin_partition: npt.NDArray[np.int32]
    intact: npt.NDArray[np.bool_]
    read_ns: Ints
    timestamp_ms: Ints


def write_produced(folder: Path, number: int, rows: ProducedRows) -> Path:
    """Write a part of the produced ledger; its path."""
    by_place = _sorted(rows.place, rows.places)
    order = by_place.order
    count = len(order)
    topics, partitions = _topic_columns(by_place, rows.places)
    columns = [
        _column(np.full(count, rows.producer, np.int32)),
        _column(rows.seq[order]),
        topics,
        partitions,
        _column(rows.outcome[order]),
        _column(rows.error[order]),
        _column(rows.offset[order]),
        _column(rows.sent_ns[order]),
        _column(rows.done_ns[order]),
        _column(np.full(count, -1, np.int64) if rows.txn is None else rows.txn[order]),
    ]
    return _write(folder, number, _table(columns, PRODUCED), by_place.bounds)


def write_consumed(folder: Path, number: int, rows: ConsumedRows) -> Path:
    """Write a part of the consumed ledger; its path."""
    by_place = _sorted(rows.place, rows.places)
    order = by_place.order
    count = len(order)
    topics, partitions = _topic_columns(by_place, rows.places)
    columns = [
        _column(np.full(count, rows.reader, np.int32)),
        _column(np.full(count, rows.phase, np.int8)),
        _column(rows.assignment[order]),
        _column(rows.read_seq[order]),
        topics,
        partitions,
        _column(rows.offset[order]),
        _column(rows.leader_epoch[order]),
        _column(rows.producer[order]),
        _column(rows.seq[order]),
        _texts(rows.origin[order], rows.origins),
        _column(rows.origin_partition[order]),
        _bits(rows.intact[order]),
        _column(rows.read_ns[order]),
        _column(rows.timestamp_ms[order]),
    ]
    return _write(folder, number, _table(columns, CONSUMED), by_place.bounds)


def part_path(folder: Path, number: int) -> Path:
    """The file of part `number` in a client's folder."""
    return folder / _PART.format(number)


def parts(folder: Path) -> list[Path]:
    """The parts of a client's folder, or of all clients of a ledger, by name."""
    return sorted([*folder.glob(_PARTS), *folder.glob(f"client=*/{_PARTS}")])


def read_parts(folder: Path, schema: pa.Schema) -> pa.Table:
    """All rows of a client's folder or of a whole ledger, part by part; empty if there are none."""
    tables = [pq.read_table(path, schema=schema, partitioning=None) for path in parts(folder)]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def mark_end(folder: Path) -> None:
    """Say that the client of this folder closed in good order."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / END).touch()


def has_end(folder: Path) -> bool:
    """Whether the client of this folder closed in good order."""
    return (folder / END).exists()


def remove_unfinished(folder: Path) -> int:
    """Remove parts that a killed writer had begun; how many."""
    leftovers = list(folder.glob(".part-*.tmp"))
    for path in leftovers:
        path.unlink(missing_ok=True)
    return len(leftovers)


class _Sorted(NamedTuple):
    """Rows by (topic, partition). Run i of them, `lengths[i]` rows, is of place `places[i]`."""

    order: npt.NDArray[np.intp]
    places: npt.NDArray[np.integer]
    lengths: Ints
    bounds: list[int]
    """Where row groups begin."""


def _sorted(place: npt.NDArray[np.integer], places: Sequence[tuple[str, int]]) -> _Sorted:
    """The stable order by (topic, partition)."""
    # numpy sorts numbers of 16 bits by radix, five times as fast as longer ones
    by_name = np.empty(len(places), np.uint16 if len(places) <= 1 << 16 else np.uint32)
    by_name[np.array(sorted(range(len(places)), key=places.__getitem__), np.int32)] = np.arange(len(places))
    order = np.argsort(by_name[place], kind="stable")
    ordered = place[order]
    begins = np.flatnonzero(np.diff(ordered, prepend=-1))
    lengths = np.diff(begins, append=len(ordered))
    smallest = max(_SMALLEST_GROUP, -(-len(ordered) // _GROUPS))
    bounds = [0]
    for begin in begins.tolist():
        if begin - bounds[-1] >= smallest:
            bounds.append(begin)
    return _Sorted(order, ordered[begins], lengths, bounds)


def _topic_columns(rows: _Sorted, places: Sequence[tuple[str, int]]) -> tuple[pa.Array, pa.Array]:
    names = sorted({topic for topic, _ in places})
    code = {topic: number for number, topic in enumerate(names)}
    topic_of = np.array([code[topic] for topic, _ in places], np.int32)
    partition_of = np.array([partition for _, partition in places], np.int32)
    topics, partitions = (np.repeat(of[rows.places], rows.lengths) for of in (topic_of, partition_of))
    return _texts(topics, names), _column(partitions)


# pa.array() would load pandas wherever it is installed, which takes a client most of a second at its end: the
# buffers of numpy are handed over as they are.


def _column(values: npt.NDArray[np.generic]) -> pa.Array:
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))]
    )


def _bits(values: npt.NDArray[np.bool_]) -> pa.Array:
    packed = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(packed)])


def _texts(codes: npt.NDArray[np.int32], names: Sequence[str]) -> pa.Array:
    raw = [name.encode() for name in names]
    offsets = np.cumsum([0, *map(len, raw)], dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(raw))]
    texts = pa.Array.from_buffers(pa.string(), len(raw), buffers)
    return pa.DictionaryArray.from_arrays(_column(codes), texts)


def _table(columns: list[pa.Array], schema: pa.Schema) -> pa.Table:
    """A table of this schema, but for its texts, which stay dictionaries until Parquet has them as such."""
    fields = [
        pa.field(field.name, column.type, field.nullable)
        for field, column in zip(schema, columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _write(folder: Path, number: int, table: pa.Table, bounds: list[int]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = part_path(folder, number)
    temporary = folder / f".{path.name}.{os.getpid()}.tmp"
    writer = pq.ParquetWriter(
        temporary,
        table.schema,
        compression="zstd",
        store_schema=False,  # so that readers see texts, as the contract says
        use_dictionary=_DICTIONARY,
        write_statistics=[name for name in table.column_names if name in _STATISTICS],
        column_encoding={name: "DELTA_BINARY_PACKED" for name in table.column_names if name in _RISING},
    )
    with writer:
        for begin, stop in zip(bounds, [*bounds[1:], len(table)], strict=True):
            writer.write_table(table.slice(begin, stop - begin), row_group_size=max(1, stop - begin))
    temporary.replace(path)
    return path
