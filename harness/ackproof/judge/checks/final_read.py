"""Whether everything was read back: every partition, by every reader, and all that was handed is in the ledgers."""

from __future__ import annotations

from collections.abc import Iterator

from ackproof.judge.facts import Facts, partitions_of
from ackproof.judge.opinion import Opinion, lacks
from ackproof.rundir.documents import FinalReadFile
from ackproof.rundir.partition import TopicPartition


def check(facts: Facts) -> Iterator[Opinion]:
    """Lacks of the final read."""
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
    yield from _of_the_readers(facts, final)
    if facts.audit.final_read.count:
        yield lacks(
            f"the final reader went back, or passed over offsets that another read shows, "
            f"in {facts.audit.final_read.count} places"
        )


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
            yield lacks(f"{who} was handed {sum(handed)} records, and its ledger has {rows}")
