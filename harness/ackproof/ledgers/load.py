"""Rows of a ledger by bucket (all rows of one partition in one directory). `read_piece` reads them from parts;
`SpillFile` writes them to a temporary file, from which another task reads them (`Spilled.load`).

One call decodes each row group once, with only the columns that are needed. Ranges of a hot bucket that share a row
group decode it once each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from ackproof.ledgers.directory import CUT_KEYS, LedgerKind, Part, Rejected, RowGroup, describe_unreadable
from ackproof.ledgers.rows import (
    COMMITTED,
    FINAL,
    LIVE,
    PRODUCED,
    Array,
    Bools,
    Rows,
    Schema,
    constant_column,
    is_constant,
    squeeze,
)
from ackproof.rundir import storage
from ackproof.rundir.arrow import to_numpy
from ackproof.rundir.outcome import Outcome, ReadPhase
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.storage import locate

Stream = Literal["produced", "live", "final", "live committed", "committed"]
STREAMS: dict[Stream, Schema] = {
    "produced": PRODUCED,
    "live": LIVE,
    "final": FINAL,
    "live committed": LIVE,
    "committed": COMMITTED,
}
PHASES: dict[ReadPhase, Stream] = {
    ReadPhase.LIVE: "live",
    ReadPhase.FINAL: "final",
    ReadPhase.LIVE_COMMITTED: "live committed",
    ReadPhase.FINAL_COMMITTED: "committed",
}
_LIVE_PHASES = {int(ReadPhase.LIVE), int(ReadPhase.LIVE_COMMITTED)}
_FINAL_PHASES = {int(ReadPhase.FINAL), int(ReadPhase.FINAL_COMMITTED)}

EVERY_COLUMN = frozenset(chain.from_iterable(STREAMS.values()))
STAMPS = frozenset({"sent_ns", "timestamp_ms"})
"""Columns that only the check of timestamps needs."""
_BATCH_ROWS = 1 << 20
_TEXTS: dict[LedgerKind, list[str]] = {"produced": ["topic"], "consumed": ["topic", "origin_topic"]}
_DERIVED = {"at_ns", "latency_ns"}
"""Columns that no part stores: they are computed from `sent_ns` and `done_ns`."""


class UnreadablePart(Exception):
    """Raised for a file that has a valid footer but unreadable data. The audit is then repeated without the file."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)  # pass both, so that the exception can be pickled
        self.path = path
        self.reason = reason


class UntrustedStatistics(Exception):
    """Raised for a file whose Parquet statistics contradict its data. The text is the path of the file."""


@dataclass(frozen=True)
class Piece:
    """Row groups of one part of a ledger, which are read together."""

    part: Part
    groups: tuple[RowGroup, ...]

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.groups)


def read_piece(
    piece: Piece, needed: Set[str] = EVERY_COLUMN
) -> Iterator[tuple[Stream, TopicPartition, Rows]]:
    """Yield (stream, partition, rows) of a piece; the stream is `produced` or the kind of read (`STREAMS`). The rows of
    one stream and partition are in the order of the file, and may come in several batches. Values of columns that are
    not `needed` mean nothing. Raises `UnreadablePart`, `UntrustedStatistics`, and `Rejected` for a null, an unknown
    outcome or an unknown phase."""
    groups = [group for group in piece.groups if group.rows]
    if not groups:
        return
    part = piece.part
    columns = _columns_of(part, groups, needed)
    try:
        # Opening again is cheaper than decoding, and the file may have changed or gone since its footer was read.
        with storage.open_parquet(part.path, read_dictionary=_TEXTS[part.kind], pre_buffer=False) as file:
            for batch in file.iter_batches(
                batch_size=_BATCH_ROWS,
                row_groups=[group.number for group in groups],
                columns=columns,
                use_threads=False,
            ):
                if batch.num_rows:
                    yield from _split_batch(part, batch, needed)
    except (OSError, pa.ArrowException) as error:
        raise UnreadablePart(part.path, describe_unreadable(error)) from error


def _columns_of(part: Part, groups: Sequence[RowGroup], needed: Set[str]) -> list[str]:
    wanted: list[str] = []
    if part.kind == "produced":
        txn = any(group.transactional for group in groups)
        wanted += [name for name in PRODUCED if name not in _DERIVED and (txn or name != "txn")]
    else:
        phases = {group.phase for group in groups}
        if not phases <= _LIVE_PHASES:
            wanted += FINAL
        if not phases <= _FINAL_PHASES:
            wanted += LIVE
        if int(ReadPhase.FINAL_COMMITTED) in phases:
            wanted.append("read_ns")
    wanted = [name for name in wanted if name in needed and name != "astray"]
    if part.kind == "produced":
        wanted += ["outcome", *(["sent_ns", "done_ns"] if needed & _DERIVED else [])]
    else:
        astray = "astray" in needed and not phases <= _LIVE_PHASES
        wanted += ["phase", *(["origin_topic", "origin_partition"] if astray else [])]
    return list(dict.fromkeys(["topic", "partition", *wanted, *part.unsure]))


def _split_batch(
    part: Part, batch: pa.RecordBatch, needed: Set[str]
) -> Iterator[tuple[Stream, TopicPartition, Rows]]:
    has = batch.schema.names
    for name in has:
        if batch.column(name).null_count:
            raise Rejected(f"{part.path}: column {name} has a null")
    topics, topic = distinct_strings(batch.column("topic"))
    partition = _numbers(batch, "partition")
    columns = {name: _numbers(batch, name) for name in {**PRODUCED, **LIVE, **COMMITTED} if name in has}
    if part.kind == "produced":
        _check_range(part, columns["outcome"], "outcome", max(Outcome))
        if "sent_ns" in has and "done_ns" in has:
            sent, done = _numbers(batch, "sent_ns"), _numbers(batch, "done_ns")
            reported = done >= 0
            columns["at_ns"] = np.where(reported, done, sent)
            timed = reported & (columns["outcome"] == Outcome.ACKED)
            columns["latency_ns"] = np.where(timed, np.maximum(done - sent, 0), -1)
        # a column of -1 takes neither time nor room
        columns.setdefault("txn", constant_column(-1, "i8", batch.num_rows))
        whole = _complete(columns, "produced", batch)
        for place, rows in split_by_place(whole, topics, topic, partition):
            yield "produced", place, rows
        return
    phase = _numbers(batch, "phase")
    _check_range(part, phase, "phase", max(ReadPhase))
    if "origin_topic" in has and "origin_partition" in has:
        columns["astray"] = _astray(batch, topics, topic, partition)
    for value, stream in PHASES.items():
        which = phase == value
        if not which.any():
            continue
        if not columns.keys() >= STREAMS[stream].keys() & needed:
            raise UntrustedStatistics(part.path)  # by its statistics it holds no row of this phase
        chosen = _complete(columns, stream, batch)
        at = slice(None) if which.all() else which
        chosen = {name: column[at] for name, column in chosen.items()}
        for place, rows in split_by_place(chosen, topics, topic[at], partition[at]):
            yield stream, place, rows


def _complete(columns: Mapping[str, Array], stream: Stream, batch: pa.RecordBatch) -> dict[str, Array]:
    """Return all columns of a stream, converted to the stream's types. Columns that are missing in `columns` are filled
    with 0."""
    return {
        name: columns[name].astype(type_, copy=False)
        if name in columns
        else constant_column(0, type_, batch.num_rows)
        for name, type_ in STREAMS[stream].items()
    }


def _numbers(batch: pa.RecordBatch, name: str) -> Array:
    return to_numpy(batch.column(name))


def distinct_strings(column: pa.Array) -> tuple[list[str], Array]:
    """Return the distinct strings of a column, and for each row the index of its string among them."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    words: list[str] = column.dictionary.to_pylist()
    codes = to_numpy(column.indices)
    if len(set(words)) != len(words):
        distinct = list(dict.fromkeys(words))
        number = {word: code for code, word in enumerate(distinct)}
        return distinct, np.asarray([number[word] for word in words], dtype=np.int64)[codes]
    return words, codes


def _check_range(part: Part, column: Array, name: str, most: int) -> None:
    wrong = (column < 0) | (column > most)
    if wrong.any():
        raise Rejected(f"{part.path}: column {name} holds {int(column[wrong][0])}, which is unknown")


def _astray(batch: pa.RecordBatch, topics: list[str], topic: Array, partition: Array) -> Bools:
    """Return True for each row whose payload names another partition than the one it was read from. An unknown origin
    ('' and -1) counts as equal."""
    origins, origin = distinct_strings(batch.column("origin_topic"))
    origin_partition = _numbers(batch, "origin_partition")
    number = {word: code for code, word in enumerate(topics)}
    # A topic that no row of this batch was read from gets an unused number, so that it differs from every partition.
    code_of_origin = np.asarray([number.get(word, len(topics)) for word in origins], dtype=np.int64)
    topic_known = np.asarray([word != "" for word in origins], dtype=np.bool_)
    other_topic = topic_known[origin] & (code_of_origin[origin] != topic)
    other_partition = (origin_partition != -1) & (origin_partition != partition)
    both: Bools = other_topic | other_partition
    return both


def split_by_place(
    columns: Mapping[str, Array], topics: Sequence[str], topic: Array, partition: Array
) -> Iterator[tuple[TopicPartition, Rows]]:
    """Yield (partition, rows) for each partition; rows keep their order. `columns`: columns of the rows, by name.
    `topic`: for each row, the index of its topic in `topics`. `partition`: for each row, its partition number. There
    must be at least one row."""
    length = len(topic)
    least, greatest = int(partition.min()), int(partition.max())
    if least == greatest and topic[0] == topic[-1] and bool((topic == topic[0]).all()):
        place = TopicPartition(topics[int(topic[0])], least)
        yield place, Rows(columns, length)
        return
    width = greatest - least + 1
    if width * len(topics) <= 1 << 16:
        # numpy sorts 16-bit numbers by radix sort, which keeps the order of the file within each partition.
        code = (topic.astype(np.int64) * width + (partition.astype(np.int64) - least)).astype(np.uint16)
        order = np.argsort(code, kind="stable")
        sorted_code = code[order]
    else:
        order = np.lexsort((partition, topic))
        sorted_code = np.zeros(length, dtype=np.int64)
        changes = (np.diff(topic[order]) != 0) | (np.diff(partition[order]) != 0)
        sorted_code[1:] = np.cumsum(changes)
    starts = np.concatenate(([0], np.flatnonzero(sorted_code[1:] != sorted_code[:-1]) + 1, [length]))
    grouped = Rows({name: squeeze(column) for name, column in columns.items()}, length).take(order)
    for start, stop in pairwise(starts.tolist()):
        first = int(order[start])
        place = TopicPartition(topics[int(topic[first])], int(partition[first]))
        yield place, grouped.slice(start, stop)


@dataclass(frozen=True)
class SpilledColumn:
    """One column of rows in a temporary file. `type`: numpy type in memory. `stored`: numpy type in the file; None: the
    column is not in the file, because all its values are `base`. `base`: number to add to the values in the file."""

    name: str
    type: str
    stored: str | None
    base: int


@dataclass(frozen=True)
class Spilled:
    """Location of rows that were written to a temporary file, column after column, without a header.

    `start`: position of the first byte in the file. Constant columns are not in the file but in `columns`. `spans`:
    least and greatest value of each column that is one of the `CUT_KEYS`; empty without rows.
    """

    path: str
    start: int
    rows: int
    columns: tuple[SpilledColumn, ...]
    spans: Mapping[str, tuple[int, int]]

    def load(self) -> Rows:
        """Return the rows, read back from the file. Raises OSError if it cannot be read."""
        columns: dict[str, Array] = {}
        with locate(self.path).open("rb") as file:
            file.seek(self.start)
            for column in self.columns:
                if column.stored is None:
                    columns[column.name] = constant_column(column.base, column.type, self.rows)
                    continue
                raw = np.empty(self.rows, column.stored)
                if file.readinto(raw.view(np.uint8).data) != raw.nbytes:
                    raise OSError(f"{self.path}: cut short")
                wide = raw.astype(column.type, copy=False)
                columns[column.name] = wide + column.base if column.base else wide
        return Rows(columns, self.rows)


class SpillFile:
    """Writes rows that do not stay in memory to the temporary file `path`, in place of an existing file. The
    constructor raises OSError if the file cannot be opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb")
        self._position = 0

    def add(self, rows: Rows) -> Spilled:
        """Append rows to the file. Return their location (`Spilled.load` reads them back). Raises OSError,
        such as a full disk.
        """
        start = self._position
        columns: list[SpilledColumn] = []
        spans = {
            name: (int(rows[name].min()), int(rows[name].max()))
            for name in rows.columns.keys() & set(chain.from_iterable(CUT_KEYS.values()))
            if len(rows)
        }
        for name, column in rows.columns.items():
            thin = squeeze(column)
            if is_constant(thin):
                columns.append(SpilledColumn(name, thin.dtype.str, None, int(thin[0])))
                continue
            raw, base = _narrow(thin)
            columns.append(SpilledColumn(name, thin.dtype.str, raw.dtype.str, base))
            self._file.write(raw.view(np.uint8).data)
            self._position += raw.nbytes
        return Spilled(str(self._path), start, len(rows), tuple(columns), spans)

    def close(self) -> None:
        self._file.close()


def _narrow(column: Array) -> tuple[Array, int]:
    """Return the column reduced to 32-bit differences from its least value, and that value. If they do not
    fit: the column itself, and 0.
    """
    if column.dtype == np.int64 and len(column):
        least = int(column.min())
        if not (int(column.max()) - least) >> 32:
            return (column - least).astype(np.uint32), least
    return np.ascontiguousarray(column), 0
