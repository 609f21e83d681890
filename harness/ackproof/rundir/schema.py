"""Arrow schemas of the columnar files of a run: contracts with tools outside the project (docs/contracts.md). Those
of groups, share groups, replicas and services are in the modules of these names.

No column is ever null. Readers ignore extra columns and accept columns in any order.
"""

from __future__ import annotations

import pyarrow as pa


def required(*fields: tuple[str, pa.DataType]) -> pa.Schema:
    """Return a schema of columns that are never null."""
    return pa.schema([pa.field(name, type_, nullable=False) for name, type_ in fields])


PRODUCED: pa.Schema = required(
    ("producer", pa.int32()),
    ("seq", pa.int64()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("outcome", pa.int8()),
    ("error", pa.int16()),
    ("offset", pa.int64()),
    ("sent_ns", pa.int64()),
    ("done_ns", pa.int64()),
    ("txn", pa.int64()),
)
"""One row per produce attempt, also if the client library refused it (outcome failed). A call for which the library's
queue had no room is no attempt. `outcome`: 0 acked, 1 failed, 2 indeterminate. `error`: 0 none. -1: `offset` unknown,
no delivery report (`done_ns`), no transaction (`txn`)."""

TRANSACTIONS: pa.Schema = required(
    ("producer", pa.int32()),
    ("txn", pa.int64()),
    ("outcome", pa.int8()),
    ("first_seq", pa.int64()),
    ("begun_ns", pa.int64()),
    ("commit_ns", pa.int64()),
    ("ended_ns", pa.int64()),
)
"""One row per transaction. `outcome`: 0 committed, 1 aborted, 2 unknown, 3 fenced. `commit_ns`: time of the
commit request. `ended_ns`: time at which the outcome was known. -1: never.
"""

CONSUMED: pa.Schema = required(
    ("reader", pa.int32()),
    ("phase", pa.int8()),
    ("assignment", pa.int32()),
    ("read_seq", pa.int64()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("leader_epoch", pa.int32()),
    ("producer", pa.int32()),
    ("seq", pa.int64()),
    ("origin_topic", pa.string()),
    ("origin_partition", pa.int32()),
    ("intact", pa.bool_()),
    ("read_ns", pa.int64()),
    ("timestamp_ms", pa.int64()),
)
"""One row per record that a reader got. `phase`: a `ReadPhase`. `assignment`: a new number after each assignment, seek,
reset or restart of the reader. `leader_epoch`: -1 unknown. `producer`, `seq`, `origin_partition`: -1, and
`origin_topic` '', if the value has no readable identity of this run. `timestamp_ms`: the record's own timestamp."""

FINDINGS: pa.Schema = required(
    ("class", pa.string()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("producer", pa.int32()),
    ("offset", pa.int64()),
    ("seq", pa.int64()),
    ("detail", pa.string()),
)
"""One row per unit (record, offset, replica, …) that the audit counted; -1 and '' are unknown. `class`: an `Anomaly`.
`detail`: what was found, in words."""

GROUP_FINDINGS: pa.Schema = pa.schema(
    [*FINDINGS, pa.field("group", pa.string()), pa.field("member", pa.int32())]
)
"""Findings of the classes of consumer groups: those parts have two columns more. `member`: -1 unknown."""

METRICS: pa.Schema = required(
    ("t_ns", pa.int64()),
    ("done_ns", pa.int64()),
    ("node", pa.int32()),
    ("metric", pa.string()),
    ("value", pa.float64()),
)
"""One row per metric of a scrape, and one row `up` per scrape: 1 if the node answered, 0 if not. A node without a
process is not scraped.

`t_ns`: when the node was asked, the same for all nodes of a round. `done_ns`: when it had answered or was given up.
"""

SERIES: pa.Schema = required(
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("start_ns", pa.int64()),
    ("acked", pa.int64()),
    ("failed", pa.int64()),
    ("indeterminate", pa.int64()),
    ("read", pa.int64()),
    ("p50_ms", pa.float64()),
    ("p99_ms", pa.float64()),
    ("max_ms", pa.float64()),
    ("longest_gap_ms", pa.float64()),
)
"""One row per partition and 100 ms bin with any event; `start_ns` is the bin's start.

acked, failed and indeterminate are counted by `done_ns` (by `sent_ns` without a report), read by the `read_ns` of
live reads. The latencies are `done_ns - sent_ns` of acked attempts in ms, NaN without any. `longest_gap_ms` is the
longest time between two successive acks of the partition over the whole run. It is the same on every row of a
partition, and -1 with fewer than two acks.
"""

SERIES_BIN_NS = 100_000_000
