"""Findings on their way to Parquet: one row per unit counted, written as they are found, never held together."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ackproof.audit.deleted import NOTHING_DELETED, SPARED, Deleted
from ackproof.ledgers.rows import Bools, Ints, Rows
from ackproof.rundir import arrow, storage
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import FINDINGS

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_FLUSH_ROWS = 1 << 17
_FEW_VALUES = ["class", "topic", "partition", "producer", "detail"]
"""A dictionary of offsets and seqs would be made and thrown away."""
_NUMBERS = ("partition", "producer", "offset", "seq")
_UNKNOWN = dict.fromkeys(_NUMBERS, np.array(-1))


def findings_file(path: Path, **options: object) -> pq.ParquetWriter:
    """A new file of findings. Its folder is made anew, but never the one of that. Raises OSError.

    Another audit of the same directory removes a folder that is still empty.
    """
    try:
        return storage.writer(path, FINDINGS, **options)
    except FileNotFoundError:
        path.parent.mkdir(exist_ok=True)
        return storage.writer(path, FINDINGS, **options)


class FindingsWriter:
    """Writer of one findings file, and counter of what it wrote. The file appears with its first row.

    Nothing is said of what was `deleted` while the run went on; what would be lost of it counts as `SPARED`.
    """

    def __init__(self, path: Path, deleted: Deleted = NOTHING_DELETED) -> None:
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
        if (said := self._said(place, anomaly, known)) is not None:
            known = known.take(said)
            detail = detail if isinstance(detail, str) else detail.filter(pa.array(said))
        length = len(known)
        if not length:
            return
        self.counts[anomaly] += length
        numbers = {**_UNKNOWN, **known.columns, "partition": np.array(place.partition)}
        arrays = [
            arrow.repeated(anomaly.value, length),
            arrow.repeated(place.topic, length),
            *(
                arrow.numbers(np.broadcast_to(numbers[name], length), FINDINGS.field(name).type)
                for name in _NUMBERS
            ),
            arrow.repeated(detail, length) if isinstance(detail, str) else detail,
        ]
        self._waiting.append(pa.Table.from_arrays(arrays, schema=FINDINGS))
        self._waiting_rows += length
        if self._waiting_rows >= _FLUSH_ROWS:
            self._flush()

    def _said(self, place: TopicPartition, anomaly: Anomaly, rows: Rows) -> Bools | None:
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
            self._writer = findings_file(self.path, use_dictionary=_FEW_VALUES)
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
