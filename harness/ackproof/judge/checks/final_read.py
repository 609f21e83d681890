"""Checks that the final read is complete: each reader read every partition, and its ledger has each record that it
read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.judge.facts import Facts, partitions_of
from ackproof.judge.opinion import Opinion, lacks
from ackproof.rundir.documents import FinalReadFile
from ackproof.rundir.partition import TopicPartition


def check_read_completeness(facts: Facts) -> Iterator[Opinion]:
    """Yield a `lacks` opinion (evidence is missing) for each gap in the final read.

    There may have been no final read, or none at read_committed of a partition although producers use transactions. The
    read may be incomplete or lack partitions. The cluster or a client may still have been recovering when it began
    (`RecoveryFile.undecided`; not examined with `evidence.isr_size`). A reader's ledger may have another number of
    records than the reader counted. A reader may have gone back, or passed over a record that it could have got.

    Raises `BadInput`, OSError or ArrowException for a broken file.
    """
    final = facts.final_read
    if final is None:
        yield lacks("there was no final read")
        return
    if not final.complete:
        reasons = "; ".join(final.reasons) or "no reason recorded"
        yield lacks(f"the final read is incomplete: {reasons}")
    read = {one.place for one in final.partitions}
    unread = sorted(partitions_of(facts.case, facts.case.experiment.topics) - read)
    if unread:
        yield lacks("the final read says nothing of " + ", ".join(map(str, unread)))
    if facts.recovery is not None and facts.case.experiment.evidence.isr_size is None:
        yield from (
            lacks(f"it has not recovered, and is not stuck: {why}") for why in facts.recovery.undecided
        )
    yield from _of_the_readers(facts, final)
    if flaws := facts.audit.final_read.count - _without_record(facts):
        yield lacks(
            f"the final reader went back, or passed over offsets that another read shows, in {flaws} places"
        )


def _without_record(facts: Facts) -> int:
    """Return how many flaws of the final read are excused, because the logs on disk show that no reader can get a
    record there; 0 without these logs. Flaws (`FinalReadFlaws.places`) are offsets to which the final reader went back,
    or which it skipped although another reader got a record.

    To excuse a flaw, every in-sync log must have been read to its end and cover the offset. One of two cases must hold
    as well. No log has a batch with records there: the other reader's record was truncated later, and a transaction
    marker may now have its offset. Or the final reader got as many records of the batch there as the batch holds:
    compaction removed the others. Whether compaction was allowed to is judged by anomaly class.
    """
    if facts.replicas is None:
        return 0
    found = 0
    for named in facts.audit.final_read.places:
        topic, partition, offset = cast("tuple[str, int, int]", named)
        place = TopicPartition(topic, partition)
        nodes = facts.in_sync.get(place, ())
        logs = [one for one in facts.replicas_of.get(place, ()) if one.node in nodes]
        if not logs or {one.node for one in logs} < set(nodes):
            continue
        if any(one.reason or one.rest or not one.log_start <= offset < one.log_end for one in logs):
            continue
        here = (
            pc.field("node").isin(list(nodes))
            & (pc.field("first_offset") <= offset)
            & (pc.field("last_offset") >= offset)
            & ~pc.field("control")
        )
        batches = facts.logs.of_partition(place).filter(here)
        found += all(_read_whole(facts, place, batch) for batch in batches.to_pylist())
    return found


def _read_whole(facts: Facts, place: TopicPartition, batch: Mapping[str, int]) -> bool:
    """Return True if the final reader got as many records within the offsets of a batch as the batch holds. False if a
    ledger part cannot be read."""
    try:
        offsets = facts.final_rows.read_partition(place)["offset"]
    except (OSError, pa.ArrowException):
        return False  # the audit names a part that cannot be read
    inside = pc.and_(
        pc.greater_equal(offsets, batch["first_offset"]), pc.less_equal(offsets, batch["last_offset"])
    )
    return bool(pc.sum(inside).as_py() == batch["records"])


def _of_the_readers(facts: Facts, final: FinalReadFile) -> Iterator[Opinion]:
    readers = [("the final reader", final.partitions, facts.audit.records.consumed_final)]
    if facts.case.experiment.workload.producers.transaction_size is not None:
        if {one.place for one in final.committed} != {one.place for one in final.partitions}:
            yield lacks("there was no final read at read_committed of what producers wrote in transactions")
        who = "the final reader at read_committed"
        readers.append((who, final.committed, facts.audit.consumed_committed))
    for who, partitions, rows in readers:
        handed = [partition.records for partition in partitions]
        if -1 not in handed and sum(handed) != rows:
            # What a ledger lacks for no fault of Kafka's must not be called lost.
            yield lacks(f"{who} read {sum(handed)} records, and its ledger has {rows}")
