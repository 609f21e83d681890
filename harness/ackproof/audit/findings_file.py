"""Findings on their way to Parquet: one row per unit counted, written as they are found, never held together."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ackproof.audit import arrow
from ackproof.audit.rows import Array
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import FINDINGS

_FLUSH_ROWS = 1 << 17
_FEW_VALUES = ["class", "topic", "partition", "producer", "detail"]
"""A dictionary of offsets and seqs would be made and thrown away."""


class FindingsWriter:
    """Writer of one findings file, and counter of what it wrote. The file appears with its first row."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self.counts: Counter[str] = Counter()

    def add(
        self,
        anomaly: Anomaly,
        place: TopicPartition,
        *,
        length: int,
        offset: Array | int,
        producer: Array | int = -1,
        seq: Array | int = -1,
        detail: pa.Array | str = "",
    ) -> None:
        """Add `length` rows of one class at one place; what is not an array holds for all of them."""
        if not length:
            return
        self.counts[anomaly] += length

        def column(value: Array | int, type_: pa.DataType) -> pa.Array:
            return arrow.numbers(np.broadcast_to(value, length), type_)

        arrays = [
            arrow.repeated(anomaly.value, length),
            arrow.repeated(place.topic, length),
            column(place.partition, pa.int32()),
            column(producer, pa.int32()),
            column(offset, pa.int64()),
            column(seq, pa.int64()),
            arrow.repeated(detail, length) if isinstance(detail, str) else detail,
        ]
        self._waiting.append(pa.Table.from_arrays(arrays, schema=FINDINGS))
        self._waiting_rows += length
        if self._waiting_rows >= _FLUSH_ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._path, FINDINGS, compression="zstd", use_dictionary=_FEW_VALUES
            )
        self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=_FLUSH_ROWS)
        self._waiting, self._waiting_rows = [], 0

    def close(self) -> None:
        """Write what waits. Raises OSError."""
        self._flush()
        if self._writer is not None:
            self._writer.close()
