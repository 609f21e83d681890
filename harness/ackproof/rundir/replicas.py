"""The replicas' logs on disk at the end: `observed/replicas.json`, and each batch in `observed/replicas.parquet`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
from pydantic import Field

from ackproof.base.errors import BadInput
from ackproof.rundir import storage
from ackproof.rundir.arrow import group_rows, rows_of
from ackproof.rundir.document import Document
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.payload import UNKNOWN_CONTENT
from ackproof.rundir.schema import required

BATCHES: pa.Schema = required(
    ("node", pa.int32()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("first_offset", pa.int64()),
    ("last_offset", pa.int64()),
    ("leader_epoch", pa.int32()),
    ("records", pa.int32()),
    ("control", pa.bool_()),
    ("transactional", pa.bool_()),
    ("producer_id", pa.int64()),
    ("producer_epoch", pa.int16()),
    ("base_sequence", pa.int32()),
    ("max_timestamp_ms", pa.int64()),
    ("crc", pa.int64()),
    ("sound", pa.bool_()),
    ("content", pa.int64()),
    ("bytes", pa.int32()),
    ("timestamp_type", pa.int8()),
)
"""One row per record batch of each replica's log, from the batch header. Logs of deleted replicas have none.

`sound`: the recomputed CRC-32C equals `crc`. `content`: the content sum of its records (`payload_bulk.content_sum`) as
a signed number, or the type of its transaction marker (`payload.ABORT_MARKER`, `COMMIT_MARKER`). `UNKNOWN_CONTENT`: the
batch is damaged, compacted, another control batch, or has records of other clients. `timestamp_type`: `CREATE_TIME`,
`APPEND_TIME`, or -1: unknown.
"""
CREATE_TIME: Final = 0
APPEND_TIME: Final = 1

_ADDED: Final = {"sound": True, "content": UNKNOWN_CONTENT, "timestamp_type": -1}
"""Values of columns that runs of older versions do not have."""


def read_batches(path: Path) -> pa.Table:
    """Return all record batches in replicas' logs (`BATCHES`). The columns may have another order.

    A file of an older version lacks `sound`, `content` or `timestamp_type`: then these are True, unknown (-1) and -1.
    Raises OSError and `pa.ArrowException` if the file cannot be read, `BadInput` if another column is missing.
    """
    with storage.open_parquet(path) as file:
        there = file.schema_arrow.names
    if missing := sorted({*BATCHES.names} - {*there} - _ADDED.keys()):
        raise BadInput(f"{path}: there is no column {', '.join(missing)}")
    table = storage.read_table(path, columns=[name for name in BATCHES.names if name in there])
    for name in _ADDED.keys() - {*there}:
        table = table.append_column(name, pa.repeat(_ADDED[name], table.num_rows))
    return table


class LogBatches:
    """The record batches of all replicas' logs by partition and node. The constructor takes a table of `read_batches`
    with at least the columns node, topic and partition. The returned tables are views, not copies.
    """

    def __init__(self, batches: pa.Table) -> None:
        self._none = batches.slice(0, 0)
        self._of_partition = group_rows(batches, ["topic", "partition"])
        self._of_node: dict[TopicPartition, dict[tuple[object, ...], pa.Table]] = {}

    def of_partition(self, place: TopicPartition) -> pa.Table:
        """Return the record batches of all replicas of a partition, in the order of the file; no rows if the partition
        has none."""
        return self._of_partition.get(tuple(place), self._none)

    def of_replica(self, place: TopicPartition, node: int) -> pa.Table:
        """Return the record batches of one replica, in the order of the file; no rows if the replica has none."""
        if place not in self._of_node:
            self._of_node[place] = group_rows(self.of_partition(place), ["node"])
        return self._of_node[place].get((node,), self._none)

    def copies(self, place: TopicPartition, node: int) -> set[tuple[int, ...]]:
        """Return (first offset, last offset, leader epoch, CRC) of each batch of one replica. These are equal in all
        replicas' copies of a batch."""
        return set(
            rows_of(self.of_replica(place, node), "first_offset", "last_offset", "leader_epoch", "crc")
        )


class EpochStart(Document):
    """A line of a replica's `leader-epoch-checkpoint`: the first offset of a leader epoch."""

    epoch: int
    start: int


class Replica(Document):
    """The log of one replica as found on disk. Offsets are -1 if unknown.

    `log_start`: first offset of its first batch. `log_end`: offset after its last complete batch. Both are the base
    offset of the last segment if the log has no batch. `high_watermark` and `recovery_point` come from checkpoint
    files, which lag behind. `epochs`: its leader-epoch checkpoint. `records`: number of records in its batches, without
    transaction markers. `rest`: bytes after the last complete batch. `folder`: path of the log. `topic_id`: id from
    `partition.metadata`, a UUID in hexadecimal; '' if the file is missing or has no id that can be read.
    """

    node: int
    topic: str
    partition: int
    folder: str
    log_start: int
    log_end: int
    high_watermark: int = -1
    recovery_point: int = -1
    epochs: tuple[EpochStart, ...] = ()
    records: int = 0
    rest: int = 0
    reason: str = ""
    """Why the log could not be read to its end; empty if it was."""
    topic_id: str = ""
    deleted: bool = False
    """True if its folder has the suffix `-delete`: the topic was deleted, or the replica was moved away."""
    newest_ms: int = -1
    """Newest record timestamp in a deleted log, in ms since the Unix epoch; -1 unknown."""
    active_base: int = -1
    """Base offset of the active segment, which the log cleaner skips; -1 unknown."""

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class ReplicasFile(Document):
    """`observed/replicas.json`. `reasons`: why some log dirs could not be listed. A log that could not be read to its
    end has its own `reason`.

    `deleted`: logs of deleted replicas that brokers had not removed yet (file.delete.delay.ms), without unreadable and
    empty ones. Their `epochs` also have the leader epochs of their batches.
    """

    log_dirs: dict[int, tuple[str, ...]] = Field(default_factory=dict)
    """Paths of the log dirs of each node that were read."""
    replicas: tuple[Replica, ...] = ()
    deleted: tuple[Replica, ...] = ()
    reasons: tuple[str, ...] = ()
