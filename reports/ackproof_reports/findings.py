"""Findings of a case: counts, the rows that a page can carry, their partitions and offsets, grouped into lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.rundir import storage
from ackproof.rundir.anomalies import MISSING, Anomaly, gravity
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.schema import FINDINGS
from ackproof_reports.wording import ABSENT, number_range, one_line

MOST: Final = 200
"""Greatest number of ranges that a group keeps. `Group.total` counts all of them."""
SPANS: Final = 600
"""Greatest number of spans that a group keeps: one per column of its bar."""


@dataclass(frozen=True)
class Group:
    """Findings of one class in one partition: either all with a known offset (`producer` None), or those of one
    producer without an offset. `count`: number of findings. `first`, `last`, `ranges` and `spans` are offsets in the
    first case, else seqs of that producer.

    `ranges`: (first, last, number of findings) of each range, from the lowest; at most `MOST`. `total`: number of all
    ranges. `spans`: (first, last) of all ranges, merged to at most `SPANS`, for a drawing.
    """

    anomaly: str
    topic: str
    partition: int
    producer: int | None
    count: int
    first: int
    last: int
    ranges: tuple[tuple[int, int, int], ...]
    total: int
    spans: tuple[tuple[int, int], ...]


def groups_of(table: pa.Table) -> list[Group]:
    """Return the findings of the classes `MISSING`, grouped by class and partition. Columns of `table`: class, topic,
    partition, producer, offset (-1: unknown), seq. Raises ValueError if it has another class.

    Findings with an offset form ranges of consecutive offsets. Others form ranges of a producer's seqs. A producer
    counts its seq over all its partitions, so seqs of one partition have gaps. A range of seqs ends only at a gap above
    16, and above four times the number of partitions with findings without an offset."""
    known = pc.greater_equal(table.column("offset"), 0)
    unknown = table.filter(pc.invert(known))
    gap = max(16, 4 * unknown.group_by(["topic", "partition"]).aggregate([]).num_rows)
    found = [_group(key, part.column("offset"), 1) for key, part in _parts(table.filter(known), _PARTITION)]
    found += [
        _group(key, part.column("seq"), gap) for key, part in _parts(unknown, (*_PARTITION, "producer"))
    ]
    return sorted(
        found, key=lambda g: (MISSING.index(g.anomaly), g.topic, g.partition, g.producer or -1, g.first)
    )


def _group(key: tuple[Any, ...], column: pa.ChunkedArray, gap: int) -> Group:
    anomaly, topic, partition, *producer = key
    numbers = column.combine_chunks()
    numbers = numbers.take(pc.sort_indices(numbers))
    first, last = numbers[0].as_py(), numbers[-1].as_py()
    ranges, total = stretches(numbers, gap, MOST)
    spans, _ = stretches(numbers, max(gap, (last - first) // SPANS), SPANS + 1)
    return Group(
        anomaly=anomaly,
        topic=topic,
        partition=partition,
        producer=producer[0] if producer else None,
        count=len(numbers),
        first=first,
        last=last,
        ranges=tuple(ranges),
        total=total,
        spans=tuple((start, end) for start, end, _ in spans),
    )


_PARTITION: Final = ("class", "topic", "partition")


def _parts(table: pa.Table, keys: Sequence[str]) -> Iterator[tuple[tuple[str | int, ...], pa.Table]]:
    for row in table.group_by(list(keys)).aggregate([]).to_pylist():
        part = table
        for key in keys:
            part = part.filter(pc.equal(part.column(key), row[key]))
        yield tuple(row[key] for key in keys), part


def stretches(numbers: pa.Array, gap: int, most: int) -> tuple[list[tuple[int, int, int]], int]:
    """Return the first `most` runs of sorted numbers, each as (first, last, count), and the number of all runs. A
    difference above `gap` between two numbers ends a run."""
    if not len(numbers):
        return [], 0
    apart = pc.fill_null(pc.greater(pc.pairwise_diff(numbers), gap), False)
    breaks = pc.indices_nonzero(apart)
    total = len(breaks) + 1
    starts = [0, *breaks.slice(0, most).to_pylist()]
    ends = [*starts[1:], len(numbers)]
    found = [
        (numbers[start].as_py(), numbers[end - 1].as_py(), end - start)
        for start, end in zip(starts[:most], ends[:most], strict=True)
    ]
    return found, total


MOST_ROWS: Final = 20_000
"""Greatest number of findings from which the first lines are made."""
_SAME: Final = (*_PARTITION, "detail")

Row = Mapping[str, Any]  # a row of Arrow, as its own to_pylist gives it; it does not leave this module


@dataclass
class Line:
    """Consecutive findings that the report shows as one line."""

    rows: list[Row] = field(default_factory=list)

    @property
    def anomaly(self) -> str:
        return str(self.rows[0]["class"])

    @property
    def place(self) -> str:
        return f"{self.rows[0]['topic']}/{self.rows[0]['partition']}"

    @property
    def detail(self) -> str:
        """Detail of the findings as text. For duplicates with another copy in the same partition, the offsets of those
        other copies instead."""
        others = [row["other"] for row in self.rows if row["other"] >= 0]
        if not others:
            return one_line(str(self.rows[0]["detail"]))
        copies = "copy is at offset" if len(others) == 1 else "copies are at offsets"
        return f"the other {copies} {number_range(others)}"

    def numbers(self, name: str) -> str:
        """Return a column of the findings (`offset`, `producer` or `seq`) as text: one number, or the lowest and the
        highest. `ABSENT` if no number is known."""
        known = [row[name] for row in self.rows if row[name] >= 0]
        return number_range(known) if known else ABSENT


def first_lines(findings: pa.Table, most: int) -> tuple[Line, ...]:
    """Return the first `most` lines of findings, each a group of consecutive findings, made from the first `MOST_ROWS`
    findings.

    `findings`: columns as in `FINDINGS`, and `other`: the offset of a duplicate's other copy, else -1 (`with_copies`).
    """
    lines: list[Line] = []
    for row in findings.slice(0, MOST_ROWS).to_pylist():
        if lines and _follows(row, lines[-1].rows[-1]):
            lines[-1].rows.append(row)
        elif len(lines) == most:
            break
        else:
            lines.append(Line([row]))
    return tuple(lines)


def _follows(row: Row, before: Row) -> bool:
    """Return True if a row belongs on the line of the row before. Class, partition and detail must be the same. The
    offsets must differ by at most 1, and those of a duplicate's other copy by as much. Without offsets, the producer
    must be the same."""
    if any(row[name] != before[name] for name in _SAME):
        return False
    step = row["offset"] - before["offset"]
    if row["offset"] < 0 or before["offset"] < 0:
        return step == 0 and bool(row["producer"] == before["producer"])
    if abs(step) > 1 or (row["other"] < 0) != (before["other"] < 0):
        return False
    return row["other"] < 0 or bool(row["other"] - before["other"] == step)


MAX_RANGED: Final = 2_000_000
_PLACES: Final = ("class", "topic", "partition", "producer", "offset", "seq")


@dataclass
class CaseFindings:
    """Findings of the audit for one case, without the classes that `read_findings` was asked to ignore. `counts`:
    number of findings by class. `ranged_all`: False if there were too many findings to put all into `groups`."""

    counts: dict[str, int] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()
    """Findings of the classes `MISSING` by partition (`groups_of`)."""
    ranged_all: bool = True
    rows: pa.Table | None = None
    """Single findings to embed in the page, limited in number (`read_findings`). Columns: those of `FINDINGS`, and
    `other` after `with_copies`. None if there are no findings, or none may be embedded."""

    @property
    def lost(self) -> tuple[Group, ...]:
        return tuple(group for group in self.groups if group.anomaly == Anomaly.LOST)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def embedded(self) -> int:
        return self.rows.num_rows if self.rows is not None else 0

    def embedded_of(self) -> dict[str, int]:
        return _count(self.rows.column("class")) if self.rows is not None else {}


def read_findings(
    run: CaseDir, max_rows: int, first: Sequence[str], absent: list[str], untold: Sequence[str] = ()
) -> CaseFindings | None:
    """Read a case's findings; None without a folder `findings`.

    `max_rows`: greatest number of single findings to keep for the page (`CaseFindings.rows`). `first`: classes whose
    findings are kept before those of others. `untold`: classes to ignore. `absent`: list to which a sentence is added
    for each missing or unreadable file."""
    if not run.findings.is_dir():
        absent.append("findings/: missing, so single records cannot be shown")
        return None
    files = _readable(run.finding_parts, absent)
    found = CaseFindings()
    ranged: list[pa.Table] = []
    room = MAX_RANGED
    hidden = pa.array(untold, pa.string())
    for read in _batches(files, _PLACES, absent):
        batch = read.filter(pc.invert(pc.is_in(read.column("class"), hidden))) if untold else read
        for name, count in _count(batch.column("class")).items():
            found.counts[name] = found.counts.get(name, 0) + count
        wanted = batch.filter(pc.is_in(batch.column("class"), pa.array(MISSING)))
        if wanted.num_rows > room:
            found.ranged_all = False
        if wanted.num_rows and room:
            ranged.append(wanted.slice(0, room))
            room -= ranged[-1].num_rows
    if ranged:
        found.groups = tuple(groups_of(pa.concat_tables(ranged).unify_dictionaries()))
    quota = _quotas(found.counts, max_rows, first)
    if quota:
        found.rows = _rows(files, quota, absent)
    return found


def _readable(parts: Sequence[Path], absent: list[str]) -> list[Path]:
    files = []
    for path in parts:
        try:
            with storage.open_parquet(path) as file:
                names = set(file.schema_arrow.names)
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
            # Few different names, many rows: as dictionaries they take a byte or four each.
            with storage.open_parquet(path, read_dictionary=["class", "topic"]) as file:
                whose = [name for name in ("group", "member") if name in file.schema_arrow.names]
                for batch in file.iter_batches(batch_size=131_072, columns=[*columns, *whose]):
                    table = pa.Table.from_batches([batch])
                    yield (_with_member(table) if whose and "detail" in columns else table).select(
                        list(columns)
                    )
        except (OSError, pa.ArrowException) as error:
            sentence = f"findings/{path.name}: breaks off: {_first_line(error)}"
            if sentence not in absent:
                absent.append(sentence)


def _with_member(table: pa.Table) -> pa.Table:
    """Return findings of consumer groups with group and member written before the detail."""
    member = pc.binary_join_element_wise(", g", table.column("member").cast(pa.string()), "")
    unknown = pc.less(table.column("member"), 0)
    colon = pc.if_else(pc.equal(table.column("detail"), ""), "", ": ")
    detail = pc.binary_join_element_wise(
        "group ", table.column("group"), pc.if_else(unknown, "", member), colon, table.column("detail"), ""
    )
    return table.set_column(table.column_names.index("detail"), FINDINGS.field("detail"), detail)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _count(column: pa.ChunkedArray) -> dict[str, int]:
    return {row["values"]: row["counts"] for row in pc.value_counts(column).to_pylist()}


def _quotas(counts: Mapping[str, int], max_rows: int, first: Sequence[str]) -> dict[str, int]:
    """Return the number of findings of each class to embed in the page, at most `max_rows` in all. Room is given to the
    classes of `first`, in that order, then to the others, the gravest first. A class for which none is left is missing.
    """
    quota: dict[str, int] = {}
    for name in dict.fromkeys([*(name for name in first if name in counts), *sorted(counts, key=gravity)]):
        quota[name] = min(counts[name], max_rows)
        max_rows -= quota[name]
    return {name: rows for name, rows in quota.items() if rows}


def _rows(files: Sequence[Path], quota: Mapping[str, int], absent: list[str]) -> pa.Table:
    left = dict(quota)
    taken: dict[str, list[pa.Table]] = {name: [] for name in quota}
    for batch in _batches(files, FINDINGS.names, absent):
        for name in _count(batch.column("class")):
            if left.get(name):
                part = batch.filter(pc.equal(batch.column("class"), name)).slice(0, left[name]).cast(FINDINGS)
                left[name] -= part.num_rows
                taken[name].append(part)
        if not any(left.values()):
            break
    keys = [(name, "ascending") for name in ("topic", "partition", "offset", "producer", "seq")]
    parts = [pa.concat_tables(parts).sort_by(keys) for parts in taken.values() if parts]
    return pa.concat_tables(parts) if parts else FINDINGS.empty_table()
