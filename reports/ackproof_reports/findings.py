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

from ackproof.rundir import storage
from ackproof.rundir.anomalies import Anomaly, gravity
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.schema import FINDINGS
from ackproof_reports.ranges import RANGED, Group, groups_of

MAX_RANGED: Final = 2_000_000
_PLACES: Final = ("class", "topic", "partition", "producer", "offset", "seq")


@dataclass
class CaseFindings:
    """What the audit wrote down for one case."""

    counts: dict[str, int] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()
    """Where the findings of the ranged classes are, a group for each class and partition."""
    ranged_all: bool = True
    rows: pa.Table | None = None
    """Rows to embed, columns as in `FINDINGS`."""

    @property
    def lost(self) -> tuple[Group, ...]:
        """The groups of lost records."""
        return tuple(group for group in self.groups if group.anomaly == Anomaly.LOST)

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


def read_findings(
    run: CaseDir, max_rows: int, first: Sequence[str], absent: list[str], untold: Sequence[str] = ()
) -> CaseFindings | None:
    """Read a case's findings. `first` names the classes that matter most, `untold` those that are passed over.

    None when there is no such folder.
    """
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
        wanted = batch.filter(pc.is_in(batch.column("class"), pa.array(RANGED)))
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
