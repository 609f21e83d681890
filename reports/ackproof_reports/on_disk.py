"""What the replicas' logs hold of a record at the end of a run, in words: `observed/replicas.parquet`, by its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.payload import ABORT_MARKER, COMMIT_MARKER

if TYPE_CHECKING:
    from ackproof_reports.one_record import Spot

Row = dict[str, Any]
"""A row of Arrow, as its own to_pylist gives it; it leaves neither this module nor `one_record`."""


def on_disk(batches: Mapping[TopicPartition, Sequence[Row]], spot: Spot) -> str:
    """Which batch of each replica covers that offset."""
    by_node = {
        row["node"]: f"node {row['node']} offsets {row['first_offset']} to {row['last_offset']} of epoch "
        f"{row['leader_epoch']}"
        for row in batches.get(TopicPartition(spot.topic, spot.partition), ())
        if row["first_offset"] <= spot.offset <= row["last_offset"]
    }
    told = "; ".join(by_node[node] for node in sorted(by_node))
    return f"on disk at {spot}: {told or 'no replica has a batch there'}"


def ended(batches: Mapping[TopicPartition, Sequence[Row]], spot: Spot) -> Iterator[str]:
    """What ended its transaction: the next marker of its producer in that log, whoever it was meant for."""
    rows = batches.get(TopicPartition(spot.topic, spot.partition), ())
    for own in rows:
        if own["transactional"] and own["first_offset"] <= spot.offset <= own["last_offset"]:
            of_it = [row for row in rows if row["control"] and row["producer_id"] == own["producer_id"]]
            behind = [
                row for row in of_it if row["first_offset"] > spot.offset and row["node"] == own["node"]
            ]
            marker = min(behind, key=lambda row: row["first_offset"], default=None)
            if marker is None:
                return (yield f"no marker of its producer is behind {spot}: its transaction is open there")
            does = {ABORT_MARKER: "aborts it", COMMIT_MARKER: "commits it"}.get(
                marker["content"], "ends it, nobody knows how"
            )
            return (yield f"the next marker of its producer {does}, at offset {marker['first_offset']}")
