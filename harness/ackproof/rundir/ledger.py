"""The ledgers on disk: Parquet parts in `ledger/{produced,consumed}/client=<id>/` (docs/contracts.md, The ledgers).

A part appears complete or not at all: it is written under a temporary name that readers ignore, then renamed. Its rows
are sorted by topic and partition, then by seq (produced) or read_seq (consumed). A row group has whole partitions, one
or several small ones, so that a reader of one partition can skip most others by their statistics. The folder of a
client that produced or read nothing has no parts.

After the last part the client writes `_END` (see `rundir.parts`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ackproof.rundir import storage
from ackproof.rundir.arrow import group_rows, text_array, to_arrow
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import ReadPhase
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.parts import ClientLibrary, Footer
from ackproof.rundir.schema import CONSUMED, PRODUCED, TRANSACTIONS

if TYPE_CHECKING:
    import pyarrow.compute as pc

_PART: Final = "part-{:06d}.parquet"
_PARTS: Final = "part-*.parquet"
_GROUPS: Final = 64
"""Maximum number of row groups in a part."""
_SMALLEST_GROUP: Final = 1024
_FINAL_COLUMNS: Final = ["offset", "producer", "seq", "intact", "timestamp_ms"]
_BLOCK_ROWS: Final = 2_000_000

_STATISTICS: Final = frozenset(PRODUCED.names + CONSUMED.names) - {
    "origin_topic",
    "origin_partition",
    "intact",
    "timestamp_ms",
}
"""Columns whose Parquet statistics are written. They let readers skip row groups."""
_DICTIONARY: Final = ["topic", "origin_topic", "partition"]
_RISING: Final = frozenset(
    {
        "seq", "offset", "sent_ns", "done_ns", "txn", "read_seq", "read_ns", "timestamp_ms", "batch", "delivered_ns",
        "processed_ns", "begun_ns", "number", "commit", "log_offset", "decided_at",
    }
)  # fmt: skip
"""Columns whose values differ little from row to row, so that delta encoding halves their size on disk."""
_GREATEST_GROUP: Final = 1 << 20
"""Maximum number of rows of a row group of `write_table`."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ProducedRows:
    """Rows of one producer for the produced ledger, in order of seq. Arrays have one element per row.

    `place`: index into `places`. `outcome`: an `Outcome`. `error`: error code of Kafka or of the library, 0: none.
    `offset`: -1: unknown. Times are ns since the run's start; `done_ns` -1: no delivery report.
    """

    producer: int
    places: Sequence[TopicPartition]
    place: Ints
    seq: Ints
    outcome: npt.NDArray[np.int8]
    error: npt.NDArray[np.int16]
    offset: Ints
    sent_ns: Ints
    done_ns: Ints
    txn: Ints | None = None
    """Transaction number of each row; None: the producer uses no transactions."""
    library: ClientLibrary | None = None
    """The client library that sent the records. The Parquet footer names it."""


class TxnRow(NamedTuple):
    """One transaction: a row of `schema.TRANSACTIONS`. `outcome`: a `TxnOutcome`. `first_seq`: seq of its first record.
    Times are ns since the run's start, -1: it did not happen; `commit_ns`: request of the commit."""

    producer: int
    txn: int
    outcome: int
    first_seq: int
    begun_ns: int
    commit_ns: int
    ended_ns: int


def write_transactions(folder: Path, rows: Sequence[TxnRow], library: ClientLibrary | None = None) -> Path:
    """Write a producer's table of transactions, at least one, as the only part in its `folder`. Return the part's path.
    `library`: the client library to name in the footer; None: the footer names none. Raises OSError if it cannot be
    written."""
    columns = [
        pa.array(column, field.type)
        for column, field in zip(zip(*rows, strict=True), TRANSACTIONS, strict=True)
    ]
    return _write(folder, 0, pa.Table.from_arrays(columns, schema=TRANSACTIONS), [0], library)


@dataclass(frozen=True)
class ConsumedRows:
    """Rows of one reader for the consumed ledger, in order of read_seq. Arrays have one element per row.

    `phase`: a `ReadPhase`. `place`: index into `places`, of the partition that the record was read from. `producer`,
    `seq`, `origin`, `origin_partition`, `intact`: what its value states (`payload.Identity`); `origin` is an index into
    the topic names `origins`. `assignment`: number of the reader's assignment. `leader_epoch`: -1 if the broker did not
    send it. `read_ns`: ns since the run's start. `timestamp_ms`: the record's timestamp, ms since the Unix epoch.
    """

    reader: int
    phase: int
    places: Sequence[TopicPartition]
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
    library: ClientLibrary | None = None
    """The client library that read the records. The Parquet footer names it."""


def write_produced(folder: Path, number: int, rows: ProducedRows) -> Path:
    """Write part `number` (from 0) of a producer into its folder in the produced ledger, sorted by partition and seq.
    Return the part's path. Raises OSError if it cannot be written."""
    constants = {"producer": rows.producer} | ({"txn": -1} if rows.txn is None else {})
    return _write_sorted(folder, number, rows, PRODUCED, constants)


def write_consumed(folder: Path, number: int, rows: ConsumedRows) -> Path:
    """Write part `number` (from 0) of a reader into its folder in the consumed ledger, sorted by partition and
    read_seq. Return the part's path. Raises OSError if it cannot be written."""
    return _write_sorted(folder, number, rows, CONSUMED, {"reader": rows.reader, "phase": rows.phase})


def part_path(folder: Path, number: int) -> Path:
    """Return the path of part `number` (from 0) in a client's folder, such as `part-000003.parquet`. It need not
    exist."""
    return folder / _PART.format(number)


def parts(folder: Path) -> list[Path]:
    """Return the parts in a client's folder, or the parts of all clients of a ledger, sorted by path."""
    return sorted([*folder.glob(_PARTS), *folder.glob(f"client=*/{_PARTS}")])


def read_parts(folder: Path, schema: pa.Schema) -> pa.Table:
    """Return all rows of a ledger, or of one client's folder of it, in the order of the parts; empty without parts.

    Raises OSError or ArrowException if a part cannot be read.
    """
    tables = [storage.read_table(path, schema=schema) for path in parts(folder)]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def ledger_rows(folder: Path, columns: list[str], wanted: pc.Expression) -> pa.Table:
    """Return the given columns of all ledger rows below `folder` that match `wanted`. Raises OSError or
    ArrowException if a part is unreadable or there is no part.
    """
    return storage.read_rows(parts(folder), columns, wanted)


class FinalRows:
    """Reads the rows of final reads, partition by partition. A final read reads every partition from start to end,
    after the load.

    Each pass over the ledger parts loads a block: neighbouring partitions of a topic, on average with at most about
    `_BLOCK_ROWS` rows together. It is kept until a partition of another block is requested. So small partitions share a
    pass, and memory holds one block.
    """

    def __init__(self, run: CaseDir) -> None:
        self._run = run
        self._width = 0
        """Number of partitions in a block; 0: not computed yet."""
        self._block: tuple[str, int, ReadPhase] | None = None
        self._tables: dict[tuple[object, ...], pa.Table] = {}

    def read_partition(self, place: TopicPartition, phase: ReadPhase = ReadPhase.FINAL) -> pa.Table:
        """Return the rows of a partition's final read, by default of the read at read_uncommitted.

        Columns: offset, producer, seq, intact, timestamp_ms. The table is empty if nothing was read. Raises OSError or
        ArrowException if a part cannot be read.
        """
        self._width = self._width or self._partitions_of_a_block()
        block = place.topic, place.partition // self._width, phase
        if block != self._block:
            self._tables, self._block = self._read(*block), block
        return self._tables.get((place.partition,), CONSUMED.empty_table()).select(_FINAL_COLUMNS)

    def _read(self, topic: str, number: int, phase: ReadPhase) -> dict[tuple[object, ...], pa.Table]:
        import pyarrow.compute as pc  # imported here because writers of ledgers do not need it

        begin = number * self._width
        wanted = (
            (pc.field("phase") == int(phase))
            & (pc.field("topic") == topic)
            & (pc.field("partition") >= begin)
            & (pc.field("partition") < begin + self._width)
        )
        names = [*_FINAL_COLUMNS, "partition"]
        files = parts(self._run.consumed)
        return group_rows(storage.read_rows(files, names, wanted, CONSUMED), ["partition"]) if files else {}

    def _partitions_of_a_block(self) -> int:
        rows = highest = 0
        for path in parts(self._run.consumed):
            with storage.open_parquet(path) as file:
                rows += file.metadata.num_rows
                spans = [footer.numbers.get("partition", (0, 0)) for footer in Footer.read_all(file.metadata)]
                highest = max([highest, *(int(last) for _, last in spans)])
        return max(1, int(_BLOCK_ROWS * (highest + 1) // max(1, rows)))


def remove_unfinished(folder: Path) -> int:
    """Remove the unfinished parts that a killed writer left in a client's folder. Return their number."""
    leftovers = list(folder.glob(".part-*.tmp"))
    for path in leftovers:
        path.unlink(missing_ok=True)
    return len(leftovers)


def _write_sorted(
    folder: Path,
    number: int,
    rows: ProducedRows | ConsumedRows,
    schema: pa.Schema,
    constants: Mapping[str, int],
) -> Path:
    """Write the rows as one part, sorted by partition, and return its path. `constants`: values of columns that are the
    same in all rows."""
    places, count = rows.places, len(rows.place)
    by_name = sorted(range(len(places)), key=places.__getitem__)
    # numpy sorts 16-bit numbers by radix, five times as fast as longer ones
    rank = np.empty(len(places), np.uint16 if len(places) <= 1 << 16 else np.uint32)
    rank[by_name] = np.arange(len(places))
    ranks = rank[rows.place]
    order = np.argsort(ranks, kind="stable")
    lengths = np.bincount(ranks, minlength=len(places))
    topics = {topic: code for code, topic in enumerate(sorted({topic for topic, _ in places}))}
    columns: list[pa.Array] = []
    for name, type_ in zip(schema.names, schema.types, strict=True):
        if name == "topic":
            codes = np.array([topics[places[at][0]] for at in by_name], np.int32)
            columns.append(_coded(np.repeat(codes, lengths), list(topics)))
        elif name == "partition":
            numbers = np.array([places[at][1] for at in by_name], np.int32)
            columns.append(to_arrow(np.repeat(numbers, lengths)))
        elif name in constants:
            columns.append(to_arrow(np.full(count, constants[name]), type_))
        elif name == "origin_topic" and isinstance(rows, ConsumedRows):
            columns.append(_coded(rows.origin[order], rows.origins))
        else:
            columns.append(to_arrow(getattr(rows, name)[order], type_))
    # Texts stay dictionary-encoded until Parquet writes them.
    fields = [
        pa.field(field.name, column.type, field.nullable)
        for field, column in zip(schema, columns, strict=True)
    ]
    table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    return _write(folder, number, table, _row_groups(lengths.tolist()), rows.library)


def _row_groups(lengths: Sequence[int]) -> list[int]:
    """Return the first row of each row group. `lengths`: number of rows of each partition, in order.

    A row group has whole partitions. It ends after the partition with which it has at least `_SMALLEST_GROUP` rows and
    at least 1 / `_GROUPS` of all rows.
    """
    smallest = max(_SMALLEST_GROUP, -(-sum(lengths) // _GROUPS))
    bounds, at = [0], 0
    for length in lengths:
        if length and at - bounds[-1] >= smallest:
            bounds.append(at)
        at += length
    return bounds


def _sort_by_place(table: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows sorted by partition, one table for each row group of a file. Rows of a partition keep their order.

    A row group has whole partitions (`_row_groups`). One with more than `_GREATEST_GROUP` rows is cut into pieces of
    that size. A table without rows gives one empty row group.
    """
    parts = group_rows(table, ["topic", "partition"])
    places = sorted(parts)
    ordered = pa.concat_tables([parts[place] for place in places] or [table])
    for begin, end in pairwise([*_row_groups([len(parts[place]) for place in places]), len(ordered)]):
        for at in range(begin, max(end, 1), _GREATEST_GROUP):
            yield ordered.slice(at, min(end - at, _GREATEST_GROUP))


def write_table(path: Path, table: pa.Table, *, by_place: bool = False) -> None:
    """Write a table with its schema as a Parquet file, in place of an existing file. `by_place`: sort the rows by
    partition, so that a reader of some partitions need not decode the others. Raises OSError if it cannot be
    written."""
    with storage.create_parquet(path, table.schema, **column_encodings(table.schema)) as file:
        for row_group in _sort_by_place(table) if by_place else [table]:
            file.write_table(row_group)


def column_encodings(schema: pa.Schema, repeating: Sequence[str] | None = None) -> dict[str, Any]:
    """Return options of a Parquet writer: the columns `_RISING` are written as differences from row to row, the columns
    `repeating` in dictionaries. `repeating` None: all columns that are not written as differences."""
    rising = [name for name in schema.names if name in _RISING]
    others = [name for name in schema.names if name not in _RISING]
    return {
        "use_dictionary": others if repeating is None else repeating,
        "column_encoding": dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
    }


def _coded(codes: npt.NDArray[np.int32], names: Sequence[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(to_arrow(codes), text_array(names))


def _write(
    folder: Path, number: int, table: pa.Table, bounds: list[int], library: ClientLibrary | None
) -> Path:
    """Write a part whose row groups begin at the rows `bounds`, and return its path. `library`: the client library to
    name in the footer; None: none."""
    folder.mkdir(parents=True, exist_ok=True)
    path = part_path(folder, number)
    temporary = folder / f".{path.name}.{os.getpid()}.tmp"
    writer = pq.ParquetWriter(
        temporary,
        table.schema,
        compression="zstd",
        store_schema=False,  # so that readers get strings, as the schema says
        write_statistics=[name for name in table.column_names if name in _STATISTICS],
        **column_encodings(table.schema, _DICTIONARY),
    )
    with writer:
        for begin, stop in zip(bounds, [*bounds[1:], len(table)], strict=True):
            writer.write_table(table.slice(begin, stop - begin), row_group_size=max(1, stop - begin))
        if library is not None:
            writer.add_key_value_metadata(library.metadata())
    temporary.replace(path)
    return path
