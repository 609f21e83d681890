"""The replicas' logs on disk at the end: `observed/replicas.json`, and batch by batch `observed/replicas.parquet`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from pydantic import Field

from ackproof.base.errors import BadInput
from ackproof.rundir import storage
from ackproof.rundir.arrow import group_rows
from ackproof.rundir.documents import Document
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.payload import UNKNOWN_CONTENT

BATCHES: pa.Schema = pa.schema(
    [
        pa.field(name, type_, nullable=False)
        for name, type_ in (
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
        )
    ]
)
"""One row per record batch of each replica, by its header.

`sound`: whether the CRC-32C, computed anew, is `crc`. `content`: the sum of what `rundir.payload` says of its
records, or which marker it is.
"""

_ADDED: Final = {"sound": pa.array([True]), "content": pa.array([UNKNOWN_CONTENT], pa.int64())}
"""What runs of older versions do not have, as they must be read."""


def read_batches(path: Path, columns: Sequence[str]) -> pa.Table:
    """Some columns of a run's batches. Raises OSError and `pa.ArrowException`, `BadInput` where one is missing."""
    with storage.open_parquet(path) as file:
        there = file.schema_arrow.names
    if missing := sorted(set(columns) - set(there) - _ADDED.keys()):
        raise BadInput(f"{path}: there is no column {', '.join(missing)}")
    table = storage.read_table(path, columns=[name for name in columns if name in there])
    for name in _ADDED.keys() - set(there) & set(columns):
        table = table.append_column(name, pa.repeat(_ADDED[name][0], table.num_rows))
    return table


class LogBatches:
    """The batches of all logs, grouped once by partition and node. What it returns copies nothing."""

    def __init__(self, batches: pa.Table) -> None:
        self._none = batches.slice(0, 0)
        self._of_partition = group_rows(batches, ["topic", "partition"])
        self._of_node: dict[TopicPartition, dict[tuple[object, ...], pa.Table]] = {}

    def of_partition(self, place: TopicPartition) -> pa.Table:
        """Return the batches of all replicas of a partition, in the order of the file."""
        return self._of_partition.get(tuple(place), self._none)

    def of_replica(self, place: TopicPartition, node: int) -> pa.Table:
        """Return the batches of one replica, in the order of the file."""
        if place not in self._of_node:
            self._of_node[place] = group_rows(self.of_partition(place), ["node"])
        return self._of_node[place].get((node,), self._none)


class EpochStart(Document):
    """A line of a replica's `leader-epoch-checkpoint`: the offset that an epoch began with."""

    epoch: int
    start: int


class Replica(Document):
    """One replica of one partition. Offsets as its files say, -1 unknown.

    `log_end`: behind its last whole batch. `high_watermark` and `recovery_point` are checkpoints, which lag behind.
    `rest`: bytes behind the last whole batch that are no batch. `topic_id`: as the metadata log writes it, '' unknown.
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
    """Why it could not be read to its end; empty when it could."""
    topic_id: str = ""
    deleted: bool = False
    """Its folder is renamed `…-delete`: its topic was deleted, or the replica was moved away."""
    newest_ms: int = -1
    """Of a deleted one: the newest timestamp in it."""
    active_base: int = -1
    """The first offset of the segment that is appended to, which the log cleaner leaves alone."""


class ReplicasFile(Document):
    """`observed/replicas.json`. `reasons`: what could not be looked at, and why.

    `deleted`: logs that brokers had not removed yet (they wait for file.delete.delay.ms). Their epochs are those of
    their batches too, which are in no other file.
    """

    log_dirs: dict[int, tuple[str, ...]] = Field(default_factory=dict)
    """Those of each node that were looked into, by their paths."""
    replicas: tuple[Replica, ...] = ()
    deleted: tuple[Replica, ...] = ()
    reasons: tuple[str, ...] = ()
