"""Where the tasks of one audit write, so that nobody writes a file of another.

Spark may run a task twice, even both at once, and two audits of one directory may meet: every attempt writes files of
its own, and only those count that the answer names which came back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from uuid import uuid4

import numpy as np
import pyarrow as pa

from ackproof.base.processes import here, left_behind, mark
from ackproof.ledgers.lookup import NumberRuns, are_in_runs
from ackproof.ledgers.rows import Bools, Ints, Rows
from ackproof.rundir import arrow, storage
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import FINDINGS
from ackproof.rundir.storage import locate, remove_empty, remove_tree

if TYPE_CHECKING:
    import pyarrow.parquet as pq


Unfinished = Literal["rows", "series"]
"""Rows put aside by bucket; series of each unit."""
_WORK, _PART, _SERIES = ".audit-", "part-", "series-"


@dataclass(frozen=True)
class Outputs:
    """Of one audit of one directory."""

    directory: str
    audit: str

    @classmethod
    def new(cls, directory: Path) -> Outputs:
        """Those of an audit that begins: no other has their names, also none of this process."""
        return cls(str(directory), f"{here()}-{mark()}-{uuid4().hex[:8]}")

    @property
    def case(self) -> CaseDir:
        return CaseDir(locate(self.directory))

    @property
    def work(self) -> Path:
        """A folder for what is needed only until the audit ends."""
        return self.case.path / f"{_WORK}{self.audit}"

    def unfinished(self, kind: Unfinished, unit: str) -> Path:
        """A file in it, of one attempt of a task."""
        return self.work / kind / f"{unit}-{uuid4().hex[:8]}"

    def findings(self, unit: str) -> Path:
        """A file of findings, of one attempt of a task."""
        return self.case.findings / f"{_PART}{self.audit}-{unit}-{uuid4().hex[:8]}.parquet"

    @property
    def series(self) -> Path:
        """The file of all series."""
        return self.case.path / f"{_SERIES}{self.audit}.parquet"

    def begin(self) -> None:
        """Make the folders. Tasks make none in one that is gone: it must stay gone. Raises OSError.

        What audits left goes that were killed on this machine, but not what they had published.
        """
        self.leave()
        for left in left_behind(self.case.path, f"{_WORK}{here()}-"):
            remove_tree(left)
        files = [
            *left_behind(self.case.findings, f"{_PART}{here()}-"),
            *left_behind(self.case.path, f"{_SERIES}{here()}-"),
        ]
        # Asked only now: what an audit published that is dead, it had published by then.
        published = self.case.published
        for left in files:
            if left not in published:
                left.unlink(missing_ok=True)
        for folder in (self.work, self.work / "rows", self.work / "series"):
            folder.mkdir()
        self.case.findings.mkdir(exist_ok=True)

    def leave(self, published: Collection[str] = ()) -> None:
        """Remove what this audit wrote, but for files of these names. Raises OSError."""
        remove_tree(self.work)
        for path in (*self.case.findings.glob(f"{_PART}{self.audit}-*"), self.series):
            if path.name not in published:
                path.unlink(missing_ok=True)
        remove_empty(self.case.findings)


SPARED: Final = "spared"
"""Counted beside the classes: acknowledged attempts that the ledgers have, of records that went with a window."""


@dataclass(frozen=True)
class DeletedRecords:
    """Of one directory; of most there is nothing."""

    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Records below stood in deleted windows."""
    attempts: Mapping[int, NumberRuns] = field(default_factory=dict)
    """By producer the seqs of attempts that were audited in these windows."""

    def stood_at(self, place: TopicPartition, offset: Ints) -> Bools:
        """Which of these offsets are of deleted windows."""
        deleted: Bools = (offset >= 0) & (offset < self.starts.get(place, 0))
        return deleted

    def has(self, producer: Ints, seq: Ints) -> Bools:
        """Which of these attempts were audited in deleted windows."""
        return are_in_runs(self.attempts, producer, seq)


NOTHING_DELETED: Final = DeletedRecords()


_FLUSH_ROWS = 1 << 17
_FEW_VALUES = ["class", "topic", "partition", "producer", "detail"]
"""A dictionary of offsets and seqs would be made and thrown away."""
_NUMBERS = ("partition", "producer", "offset", "seq")
_UNKNOWN = dict.fromkeys(_NUMBERS, np.array(-1))


def create_findings(path: Path, **options: object) -> pq.ParquetWriter:
    """A new file of findings. Its folder is made anew, but never the one of that. Raises OSError.

    Another audit of the same directory removes a folder that is still empty.
    """
    try:
        return storage.create_parquet(path, FINDINGS, **options)
    except FileNotFoundError:
        path.parent.mkdir(exist_ok=True)
        return storage.create_parquet(path, FINDINGS, **options)


class FindingsWriter:
    """Writer of one findings file, and counter of what it wrote. The file appears with its first row.

    Nothing is said of what was `deleted` while the run went on; what would be lost of it counts as `SPARED`.
    """

    def __init__(self, path: Path, deleted: DeletedRecords = NOTHING_DELETED) -> None:
        self.path = path
        self._deleted = deleted
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self.counts: Counter[str] = Counter()

    def add(
        self,
        place: TopicPartition,
        anomaly: Anomaly,
        rows: Rows,
        which: Ints | None = None,
        *,
        offset: Ints | None = None,
        detail: pa.Array | str = "",
    ) -> None:
        """Rows (or those at `which`) that show one class at one place. A column that they lack is unknown (-1).

        `offset`: in place of theirs; it and an array of details are as long as what is added.
        """
        known = rows.select([name for name in _NUMBERS if name in rows.columns], which)
        if offset is not None:
            known = Rows({**known.columns, "offset": offset}, len(known))
        if (said := self._is_reported(place, anomaly, known)) is not None:
            known = known.take(said)
            detail = detail if isinstance(detail, str) else detail.filter(pa.array(said))
        length = len(known)
        if not length:
            return
        self.counts[anomaly] += length
        numbers = {**_UNKNOWN, **known.columns, "partition": np.array(place.partition)}
        arrays = [
            arrow.repeat_text(anomaly.value, length),
            arrow.repeat_text(place.topic, length),
            *(
                arrow.to_arrow(np.broadcast_to(numbers[name], length), FINDINGS.field(name).type)
                for name in _NUMBERS
            ),
            arrow.repeat_text(detail, length) if isinstance(detail, str) else detail,
        ]
        self._waiting.append(pa.Table.from_arrays(arrays, schema=FINDINGS))
        self._waiting_rows += length
        if self._waiting_rows >= _FLUSH_ROWS:
            self._flush()

    def _is_reported(self, place: TopicPartition, anomaly: Anomaly, rows: Rows) -> Bools | None:
        """Of which of these something is said; None: of all."""
        if place not in self._deleted.starts:
            return None
        offset = rows.ints("offset")
        gone = self._deleted.stood_at(place, offset)
        if anomaly in (Anomaly.LOST, Anomaly.REORDERED):
            audited = self._deleted.has(rows.ints("producer"), rows.ints("seq"))
            gone |= audited & (offset < 0) if anomaly is Anomaly.LOST else audited
        if anomaly is Anomaly.LOST:
            self.counts[SPARED] += int(np.count_nonzero(gone))
        return ~gone

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self._writer = create_findings(self.path, use_dictionary=_FEW_VALUES)
        self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=_FLUSH_ROWS)
        self._waiting, self._waiting_rows = [], 0

    @property
    def files(self) -> list[str]:
        """The name of what it wrote, if it wrote."""
        return [] if self._writer is None else [self.path.name]

    def close(self) -> None:
        """Write what waits. Raises OSError."""
        self._flush()
        if self._writer is not None:
            self._writer.close()


@dataclass(frozen=True)
class Handover:
    """Rows that one bucket hands on, since it cannot judge alone of what they are about (`ackproof.audit.shares`).

    identities: those it produced, in order, and whether its final rows hold them intact; unmatched: final rows, each
    once, of identities that it did not produce (nobody's are not among them); transactions: what a range has of each.
    """

    place: TopicPartition
    about: Literal["identities", "unmatched", "transactions"]
    rows: Rows
