"""Batches that a broker wrote wrongly: their checksum does not hold on disk although no fault damages disks, or their
timestamps are of a type that no setting names."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.compute as pc

from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, breaks
from ackproof.rundir.arrow import rows_of
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.removals import TimestampRule, read_by_partition
from ackproof.rundir.replicas import APPEND_TIME, CREATE_TIME


def check_damaged_batches(facts: Facts) -> Iterator[Opinion]:
    """Check the CRC-32C of each batch on disk. Yield a `breaks` opinion (a promise is broken) for each log with a
    damaged batch for which another log is a witness. Yield nothing if no logs were read, or a fault may have changed
    files of brokers.

    Leaders and followers verify the checksum before they append a batch (UnifiedLog.analyzeAndValidateRecords), so a
    broker damaged what it wrote. A second log is the witness: it ends where the batch begins, because a follower
    refuses it; it has the same damage; or its copy is whole and both logs are in sync. The last batch of a log is left
    out: it may still have been written while the log was read.
    """
    if facts.replicas is None or facts.disk_fault is not None:
        return
    damaged = facts.batches.filter(~pc.field("sound")).sort_by("first_offset")
    columns = ("topic", "partition", "node", "first_offset", "last_offset", "crc")
    found: set[tuple[TopicPartition, int]] = set()
    for topic, partition, node, first, last, crc in rows_of(damaged, *columns):
        place = TopicPartition(topic, partition)
        later = facts.logs.of_replica(place, node).filter(pc.field("first_offset") > last)
        witness = _witness(facts, place, node, first, crc) if later.num_rows else ""
        if witness and (place, node) not in found:
            found.add((place, node))
            yield breaks(
                f"{place}: the checksum of the batch at offset {first} in the log of node {node} does not hold, "
                f"{witness}, and no fault damages disks",
                proven=True,
                subject=str(place),
                numbers={"offset": first, "node": node},
            )


def _witness(facts: Facts, place: TopicPartition, node: int, offset: int, crc: int) -> str:
    """Return what the log of another node than `node` shows of a damaged batch, as part of a sentence; '' if no log is
    a witness. `offset`, `crc`: of the batch."""
    copies = (pc.field("first_offset") == offset) & (pc.field("crc") == crc)
    in_sync = facts.in_sync.get(place, ())
    for replica in facts.replicas_of.get(place, ()):
        if replica.node == node or replica.reason:
            continue
        if replica.log_end == offset:
            return f"the log of node {replica.node} ends there"
        copy = facts.logs.of_replica(place, replica.node).filter(copies)["sound"].to_pylist()
        if copy == [False]:
            return f"that of node {replica.node} has the same damage"
        if copy == [True] and {node, replica.node} <= set(in_sync):
            return f"the copy in that of node {replica.node} is whole"
    return ""


def check_timestamp_types(facts: Facts) -> Iterator[Opinion]:
    """Check the timestamp type of the batches on disk against `message.timestamp.type` of their topic.

    The leader sets the type (LogValidator), and followers copy it. Yields a `breaks` opinion (a promise is broken) for
    each partition with batches of a type that its topic never had. Control batches and damaged ones are left out.
    Yields nothing without the logs on disk or `timestamps.json`.
    """
    if facts.replicas is None:
        return
    rules = read_by_partition(facts.run.timestamps_json, TimestampRule) or {}
    for place, rule in sorted(rules.items()):
        allowed = {CREATE_TIME: rule.sent_from_ns is not None, APPEND_TIME: rule.appended_ms is not None}
        for number, name in ((CREATE_TIME, "CreateTime"), (APPEND_TIME, "LogAppendTime")):
            here = ~pc.field("control") & pc.field("sound") & (pc.field("timestamp_type") == number)
            if not allowed[number] and (
                rows := facts.logs.of_partition(place).filter(here).sort_by("first_offset")
            ):
                first = rows.slice(0, 1).to_pylist()[0]
                yield breaks(
                    f"{place}: message.timestamp.type was never {name}, and {len(rows)} batches on disk have "
                    f"that type, such as the one at offset {first['first_offset']} in the log of node {first['node']}",
                    proven=True,
                    subject=str(place),
                    numbers={"offset": first["first_offset"], "node": first["node"]},
                )
