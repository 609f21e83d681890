"""Output of tasks: findings, the files of an audit, and rows that another task will read. Records that a soak deleted
get no findings.

Spark may run a task twice, even at the same time, and two audits of one directory may run at once. So every attempt
writes files with unique names, and returns these names. Files that no returned result names are ignored.
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

from ackproof.base.processes import left_behind, mark
from ackproof.ledgers.lookup import NumberRuns, are_in_runs
from ackproof.ledgers.rows import Bools, Ints, Rows
from ackproof.rundir import arrow, storage
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import FINDINGS, GROUP_FINDINGS
from ackproof.rundir.storage import locate, remove_empty, remove_tree

if TYPE_CHECKING:
    import pyarrow.parquet as pq


Unfinished = Literal["rows", "series"]
"""Kinds of temporary files: `rows`, which a task writes for another task, and `series`, the series of each unit."""
_WORK, _PART, _SERIES = ".audit-", "part-", "series-"


@dataclass(frozen=True)
class Outputs:
    """Names of the files that one audit of one directory writes. `audit`: unique text in all these names."""

    directory: str
    audit: str

    @classmethod
    def new(cls, directory: Path) -> Outputs:
        """Return the names of a new audit, which no other audit uses, even if it runs in this process."""
        return cls(str(directory), f"{mark()}-{uuid4().hex[:8]}")

    @property
    def case(self) -> CaseDir:
        return CaseDir(locate(self.directory))

    @property
    def work(self) -> Path:
        """Folder for temporary files of the audit."""
        return self.case.path / f"{_WORK}{self.audit}"

    def unfinished(self, kind: Unfinished, unit: str) -> Path:
        """Return a new path for a temporary file of one attempt of a task. `unit`: name of its unit of work."""
        return self.work / kind / f"{unit}-{uuid4().hex[:8]}"

    def findings(self, unit: str) -> Path:
        """Return a new path for the findings of one attempt of a task. `unit`: name of its unit of work."""
        return self.case.findings / f"{_PART}{self.audit}-{unit}-{uuid4().hex[:8]}.parquet"

    @property
    def series(self) -> Path:
        return self.case.path / f"{_SERIES}{self.audit}.parquet"

    def begin(self) -> None:
        """Remove files of audits that were killed on this machine and of earlier rounds of this audit, and create its
        folders. Raises OSError if that fails.

        Published files stay. Tasks create no folder but `findings/`, so that a deleted run directory stays deleted.
        """
        self.leave()
        for left in left_behind(self.case.path, _WORK):
            remove_tree(left)
        files = [
            *left_behind(self.case.findings, _PART),
            *left_behind(self.case.path, _SERIES),
        ]
        # Read `audit.json` only after finding dead audits: a dead audit has published all that it ever will.
        published = self.case.published
        for left in files:
            if left not in published:
                left.unlink(missing_ok=True)
        for folder in (self.work, self.work / "rows", self.work / "series"):
            folder.mkdir()
        self.case.findings.mkdir(exist_ok=True)

    def leave(self, published: Collection[str] = ()) -> None:
        """Remove the files of this audit, except those with a name in `published`, and its folder for temporary files.
        Also remove `findings/` if it is then empty. Raises OSError if a file cannot be removed."""
        remove_tree(self.work)
        for path in (*self.case.findings.glob(f"{_PART}{self.audit}-*"), self.series):
            if path.name not in published:
                path.unlink(missing_ok=True)
        remove_empty(self.case.findings)


SPARED: Final = "spared"
"""Key in the counts, next to the classes: acked attempts whose records were deleted with a window of a soak.
"""


@dataclass(frozen=True)
class DeletedRecords:
    """Records and attempts of windows that a soak deleted. The audit reports nothing about them. Empty if none was
    deleted.

    A soak (`--soak`) is one long load that is audited window by window; with `--keep` it deletes old, audited windows.
    `starts`: partition → offset below which all records were in deleted windows. `attempts`: producer → seqs of the
    attempts that the audits of deleted windows have counted.
    """

    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    attempts: Mapping[int, NumberRuns] = field(default_factory=dict)

    def has(self, producer: Ints, seq: Ints) -> Bools:
        """Return a mask: True for each attempt (`producer[i]`, `seq[i]`) that was audited in a deleted window."""
        return are_in_runs(self.attempts, producer, seq)


NOTHING_DELETED: Final = DeletedRecords()


_FLUSH_ROWS = 1 << 17
_FEW_VALUES = ["class", "topic", "partition", "producer", "detail"]
"""Columns with few distinct values, which Parquet encodes with a dictionary."""
_NUMBERS = ("partition", "producer", "offset", "seq")
_UNKNOWN = dict.fromkeys(_NUMBERS, np.array(-1))


def create_findings(path: Path, schema: pa.Schema = FINDINGS, **options: object) -> pq.ParquetWriter:
    """Create a findings file, and return its writer. Also creates the folder `findings/`, which another audit may have
    removed while it was empty, but never the run directory. `options`: options of `ParquetWriter`. Raises OSError if
    the file cannot be created."""
    try:
        return storage.create_parquet(path, schema, **options)
    except FileNotFoundError:
        path.parent.mkdir(exist_ok=True)
        return storage.create_parquet(path, schema, **options)


class FindingsWriter:
    """Writer of one findings file, with counts by class. The file is created when its first row is written.

    `deleted`: records of deleted windows of a soak, about which no finding is written; losses among them count as
    `SPARED`. `group`: name of a consumer group, whose findings have the columns `group` and `member` too. `add` takes
    the member of each finding from the column `member` of its rows; -1 if they lack it.
    """

    def __init__(self, path: Path, deleted: DeletedRecords = NOTHING_DELETED, group: str = "") -> None:
        self.path = path
        self._group = group
        self._schema = GROUP_FINDINGS if group else FINDINGS
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
        """Add findings of one class in one partition: all `rows`, or the rows at the indices `which`. Adds their number
        to `counts`. Raises OSError if the findings cannot be written.

        A column that `rows` lacks is unknown (-1). `offset` replaces their offsets. `detail`: one text for all rows, or
        a text for each added row.
        """
        known = rows.select([name for name in _NUMBERS if name in rows.columns], which)
        if offset is not None:
            known = Rows({**known.columns, "offset": offset}, len(known))
        if (reported := self.select_reported(place, anomaly, known)) is not None:
            known = known.take(reported)
            detail = detail if isinstance(detail, str) else detail.filter(pa.array(reported))
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
        if self._group:
            member = rows.select(["member"], which)["member"] if "member" in rows.columns else np.array(-1)
            member = np.broadcast_to(member, length)
            arrays += [arrow.repeat_text(self._group, length), arrow.to_arrow(member, pa.int32())]
        self._waiting.append(pa.Table.from_arrays(arrays, schema=self._schema))
        self._waiting_rows += length
        if self._waiting_rows >= _FLUSH_ROWS:
            self._flush()

    def select_reported(self, place: TopicPartition, anomaly: Anomaly, rows: Rows) -> Bools | None:
        """Return a mask: True for each row whose finding is reported, False for one about a record or attempt in a
        deleted window of a soak. None: no deleted window had this partition, so all are reported.

        `rows`: with producer, seq and offset (-1 unknown). Adds the lost records that are not reported to
        `counts[SPARED]`: call it once for each finding.
        """
        if (start := self._deleted.starts.get(place)) is None:
            return None
        offset = rows.ints("offset")
        gone: Bools = (offset >= 0) & (offset < start)
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
            columns = [*_FEW_VALUES, *(["group", "member"] if self._group else [])]
            self._writer = create_findings(self.path, self._schema, use_dictionary=columns)
        self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=_FLUSH_ROWS)
        self._waiting, self._waiting_rows = [], 0

    @property
    def files(self) -> list[str]:
        return [] if self._writer is None else [self.path.name]

    def close(self) -> None:
        """Write pending rows and close the file; there is no file if no row was added. Raises OSError if they cannot be
        written."""
        self._flush()
        if self._writer is not None:
            self._writer.close()


@dataclass(frozen=True)
class Handover:
    """Rows of one partition that its task cannot judge alone; they go to the share that has everything about these
    records (`ackproof.audit.shares`).

    `about` says what `rows` holds. identities: the records produced to `place`, by producer and seq; column `present`
    is True if the final read found it intact there. unmatched: distinct rows of the final read at `place` whose record
    was not produced there. transactions: one row per transaction, with counts (`shares.TRANSACTION_PARTS`).
    """

    place: TopicPartition
    about: Literal["identities", "unmatched", "transactions"]
    rows: Rows
