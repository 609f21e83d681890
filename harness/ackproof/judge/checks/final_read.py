"""Final read: every partition was read by every reader, and each record that was read is in the ledgers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pyarrow.compute as pc

from ackproof.judge.facts import Facts, partitions_of
from ackproof.judge.opinion import Opinion, lacks
from ackproof.rundir.documents import FinalReadFile
from ackproof.rundir.partition import TopicPartition


def check_final_read(facts: Facts) -> Iterator[Opinion]:
    """Yield opinions of kind `lacks`: if there was no final read, if it is incomplete or lacks partitions, if
    something had not recovered by then, if the ledgers of its readers lack records, and if a reader went back
    or skipped records."""
    final = facts.final_read
    if final is None:
        yield lacks("there was no final read")
        return
    if not final.complete:
        reasons = "; ".join(final.reasons) or "no reason recorded"
        yield lacks(f"the final read is incomplete: {reasons}")
    read = {TopicPartition(one.topic, one.partition) for one in final.partitions}
    unread = sorted(partitions_of(facts.case, facts.case.experiment.topics) - read)
    if unread:
        yield lacks("the final read says nothing of " + ", ".join(map(str, unread)))
    if facts.recovery is not None and facts.case.experiment.evidence.isr_size is None:
        yield from (
            lacks(f"it has not recovered, and is not stuck: {why}") for why in facts.recovery.undecided
        )
    yield from _of_the_readers(facts, final)
    if flaws := facts.audit.final_read.count - _taken_by_markers(facts):
        yield lacks(
            f"the final reader went back, or passed over offsets that another read shows, in {flaws} places"
        )


def _taken_by_markers(facts: Facts) -> int:
    """Count the flawed offsets of the final read at which the log of each in-sync replica holds a transaction
    marker.

    The record that was read there has been truncated since. Brokers return markers to no reader.
    """
    if facts.replicas is None:
        return 0
    taken = 0
    for named in facts.audit.final_read.places:
        topic, partition, offset = cast("tuple[str, int, int]", named)
        place = TopicPartition(topic, partition)
        here = (
            pc.field("node").isin(list(facts.in_sync.get(place, ())))
            & (pc.field("first_offset") <= offset)
            & (pc.field("last_offset") >= offset)
        )
        markers = facts.logs.of_partition(place).filter(here)["control"]
        taken += len(markers) > 0 and bool(pc.all(markers).as_py())
    return taken


def _of_the_readers(facts: Facts, final: FinalReadFile) -> Iterator[Opinion]:
    readers = [("the final reader", final.partitions, facts.audit.records.consumed_final)]
    if facts.case.experiment.workload.producers.transaction_size is not None:
        read = {(one.topic, one.partition) for one in final.partitions}
        if {(one.topic, one.partition) for one in final.committed} != read:
            yield lacks("there was no final read at read_committed of what producers wrote in transactions")
        who = "the final reader at read_committed"
        readers.append((who, final.committed, facts.audit.consumed_committed))
    for who, partitions, rows in readers:
        handed = [partition.records for partition in partitions]
        if -1 not in handed and sum(handed) != rows:
            # What a ledger lacks for no fault of Kafka's must not be called lost.
            yield lacks(f"{who} read {sum(handed)} records, and its ledger has {rows}")
