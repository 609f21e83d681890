"""`findings/*.parquet`: how many of each class, where the lost records were, and the rows that a page can carry.

Two passes over row groups: the first reads class and place only, the second the wanted rows with their text. Memory
is bounded by `MAX_RANGED` and the number of rows asked for, whatever the audit found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ackproof.rundir.schema import FINDINGS

RANGED: Final = ("lost", "vanished")
"""Classes whose places are shown as ranges."""
MAX_RANGED: Final = 2_000_000
ORDER: Final = (
    "lost",
    "vanished",
    "overwritten",
    "conflict",
    "resurrected",
    "phantom",
    "corrupted",
    "misrouted",
    "duplicate",
    "displaced",
    "reordered",
    "skipped",
    "rewound",
)
"""What a reader wants to see first; classes not named come after these, `surfaced` last."""
_PLACES: Final = ("class", "topic", "partition", "producer", "offset", "seq")


@dataclass(frozen=True)
class Range:
    """A stretch of findings of one class. By offset where it is known, else by the producer's seq (then with gaps)."""

    anomaly: str
    topic: str
    partition: int
    producer: int | None
    first: int
    last: int
    count: int


@dataclass
class Findings:
    """What the audit wrote down for one case."""

    counts: dict[str, int] = field(default_factory=dict)
    ranges: tuple[Range, ...] = ()
    ranged_all: bool = True
    rows: pa.Table | None = None
    """Rows to embed, columns as in `FINDINGS`."""

    @property
    def total(self) -> int:
        """Rows in all files."""
        return sum(self.counts.values())

    @property
    def embedded(self) -> int:
        """Rows that the page carries."""
        return self.rows.num_rows if self.rows is not None else 0

    def embedded_of(self) -> dict[str, int]:
        """Rows that the page carries, per class."""
        return _count(self.rows.column("class")) if self.rows is not None else {}


def read_findings(folder: Path, max_rows: int, first: Sequence[str], absent: list[str]) -> Findings | None:
    """Read a case's findings. `first` names the classes that matter most. None when there is no such folder."""
    if not folder.is_dir():
        absent.append("findings/: missing, so single records cannot be shown")
        return None
    files = _readable(folder, absent)
    found = Findings()
    ranged: list[pa.Table] = []
    room = MAX_RANGED
    for batch in _batches(files, _PLACES, absent):
        for name, count in _count(batch.column("class")).items():
            found.counts[name] = found.counts.get(name, 0) + count
        wanted = batch.filter(pc.is_in(batch.column("class"), pa.array(RANGED)))
        if wanted.num_rows > room:
            found.ranged_all = False
        if wanted.num_rows and room:
            ranged.append(wanted.slice(0, room))
            room -= ranged[-1].num_rows
    if ranged:
        found.ranges = tuple(ranges_of(pa.concat_tables(ranged)))
    quota = _quotas(found.counts, max_rows, first)
    if quota:
        found.rows = _rows(files, quota, list(quota), absent)
    return found


def _readable(folder: Path, absent: list[str]) -> list[Path]:
    files = []
    for path in sorted(folder.glob("**/*.parquet")):
        try:
            names = set(pq.read_schema(path).names)
        except (OSError, pa.ArrowException) as error:
            absent.append(f"findings/{path.name}: cannot be read: {_first_line(error)}")
            continue
        missing = [name for name in FINDINGS.names if name not in names]
        if missing:
            absent.append(f"findings/{path.name}: has no column {', '.join(missing)}")
        else:
            files.append(path)
    return files


def _batches(files: Sequence[Path], columns: Sequence[str], absent: list[str]) -> Iterator[pa.Table]:
    for path in files:
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=131_072, columns=list(columns)):
                    yield pa.Table.from_batches([batch]).select(list(columns))
        except (OSError, pa.ArrowException) as error:
            sentence = f"findings/{path.name}: breaks off: {_first_line(error)}"
            if sentence not in absent:
                absent.append(sentence)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _count(column: pa.ChunkedArray) -> dict[str, int]:
    return {row["values"]: row["counts"] for row in pc.value_counts(column).to_pylist()}


def _quotas(counts: Mapping[str, int], max_rows: int, first: Sequence[str]) -> dict[str, int]:
    """How many rows of each class the page carries, the most wanted class first."""
    order = [*first, *ORDER]

    def rank(name: str) -> tuple[int, str]:
        return (order.index(name) if name in order else len(order) + (name == "surfaced"), name)

    quota: dict[str, int] = {}
    for name in sorted(counts, key=rank):
        quota[name] = min(counts[name], max_rows)
        max_rows -= quota[name]
    return {name: rows for name, rows in quota.items() if rows}


def _rows(
    files: Sequence[Path], quota: Mapping[str, int], order: Sequence[str], absent: list[str]
) -> pa.Table:
    left = dict(quota)
    taken: dict[str, list[pa.Table]] = {name: [] for name in order}
    for batch in _batches(files, FINDINGS.names, absent):
        for name in _count(batch.column("class")):
            if left.get(name):
                part = batch.filter(pc.equal(batch.column("class"), name)).slice(0, left[name])
                left[name] -= part.num_rows
                taken[name].append(part)
        if not any(left.values()):
            break
    keys = [(name, "ascending") for name in ("topic", "partition", "offset", "producer", "seq")]
    parts = [pa.concat_tables(parts).sort_by(keys) for parts in taken.values() if parts]
    return pa.concat_tables(parts) if parts else FINDINGS.empty_table()


def ranges_of(table: pa.Table) -> list[Range]:
    """Stretches of consecutive offsets; where offsets are unknown, stretches of a producer's seq with small gaps.

    A producer counts over all its partitions, so that neighbours within one partition are a few numbers apart: gaps
    up to four times the number of partitions (at least 16) stay within a stretch.
    """
    known = table.filter(pc.greater_equal(table.column("offset"), 0))
    unknown = table.filter(pc.less(table.column("offset"), 0))
    found: list[Range] = []
    for (anomaly, topic, partition), part in _groups(known, ("class", "topic", "partition")):
        for first, last, count in stretches(part.column("offset"), 1):
            found.append(Range(str(anomaly), str(topic), int(partition), None, first, last, count))
    partitions = len(set(zip(*(unknown.column(n).to_pylist() for n in ("topic", "partition")), strict=True)))
    gap = max(16, 4 * partitions)
    for (anomaly, topic, partition, producer), part in _groups(
        unknown, ("class", "topic", "partition", "producer")
    ):
        for first, last, count in stretches(part.column("seq"), gap):
            found.append(Range(str(anomaly), str(topic), int(partition), int(producer), first, last, count))
    return sorted(
        found, key=lambda r: (RANGED.index(r.anomaly), r.topic, r.partition, r.producer or -1, r.first)
    )


def _groups(table: pa.Table, keys: Sequence[str]) -> Iterator[tuple[tuple[str | int, ...], pa.Table]]:
    distinct = table.group_by(list(keys)).aggregate([])
    for row in distinct.to_pylist():
        part = table
        for key in keys:
            part = part.filter(pc.equal(part.column(key), row[key]))
        yield tuple(row[key] for key in keys), part


def stretches(column: pa.ChunkedArray, gap: int) -> list[tuple[int, int, int]]:
    """(first, last, how many) of each run of numbers that lie at most `gap` apart."""
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks)
    ordered = values.take(pc.sort_indices(values))
    breaks = pc.indices_nonzero(pc.fill_null(pc.greater(pc.pairwise_diff(ordered), gap), False)).to_pylist()
    starts = [0, *breaks]
    ends = [*breaks, len(ordered)]
    return [
        (ordered[start].as_py(), ordered[end - 1].as_py(), end - start)
        for start, end in zip(starts, ends, strict=True)
        if end > start
    ]
