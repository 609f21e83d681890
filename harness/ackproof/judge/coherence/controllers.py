"""The metadata log: that all of it is there, in its order, and that each change of a partition takes the next epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from ackproof.experiment.backends import BACKENDS
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, contradicts, lacks
from ackproof.rundir.metadata import EligibleCleared, LogEnded, MetadataRecord, PartitionDecided, TopicRemoved
from ackproof.rundir.partition import TopicPartition


def check(facts: Facts) -> Iterator[Opinion]:
    """Contradictions of the metadata log with itself; that a cluster of ours left none is a lack."""
    row = BACKENDS[facts.backend]
    if row.foreign:
        return
    *records, last = facts.metadata or (None,)
    if last is None:
        if facts.final_read is not None:
            yield lacks("there is no metadata log: what the controllers decided is not known")
        return
    if isinstance(last, LogEnded):
        if last.records != len(records):
            yield contradicts(f"the metadata log has {len(records)} records, and {last.records} were written")
    else:
        records.append(last)
        if not row.simulated:
            yield lacks("the metadata log has no end: nobody knows whether all of it is there")
    known = [record for record in records if record is not None]
    kraft = facts.case.experiment.cluster.mode == "kraft"
    ends_at = last.offset if isinstance(last, LogEnded) else None
    yield from map(contradicts, _in_order(known, ends_at, gapless=kraft or row.simulated))
    # ZooKeeper's servers may have been sent a snapshot instead of what it was made of.
    yield from map(contradicts if kraft or row.simulated else lacks, _each_change(known))


def _in_order(records: Sequence[MetadataRecord], ends_at: int | None, *, gapless: bool) -> Iterator[str]:
    """KRaft writes every offset once. What ZooKeeper keeps of others is not here, and one zxid may mean several.

    Older versions left out what the quorum writes for itself when a controller begins.
    """
    if ends_at is not None and gapless and records and records[0].offset > 0:
        yield f"the metadata log begins at offset {records[0].offset}"
    for one, two in pairwise(records):
        if two.offset < one.offset + gapless:
            yield f"the metadata log goes from offset {one.offset} to {two.offset}"
        elif gapless and two.offset != one.offset + 1 and (ends_at is not None or two.epoch == one.epoch):
            yield f"the metadata log has nothing between the offsets {one.offset} and {two.offset}"
    if ends_at is not None and gapless and records and records[-1].offset + 1 != ends_at:
        yield f"the metadata log ended at offset {ends_at}, and its last record has {records[-1].offset}"


def _each_change(records: Sequence[MetadataRecord]) -> Iterator[str]:
    """The next partition epoch, and the same leader epoch or the next.

    That the eligible replicas are forgotten is a change without a record of its own (KIP-966).
    """
    before: dict[TopicPartition, PartitionDecided] = {}
    silent: dict[TopicPartition, int] = {}
    for record in records:
        if isinstance(record, TopicRemoved):
            before = {place: one for place, one in before.items() if place.topic != record.topic}
        elif isinstance(record, EligibleCleared):
            for place in before:
                silent[place] = silent.get(place, 0) + (record.topic in ("", place.topic))
        elif isinstance(record, PartitionDecided):
            place = TopicPartition(record.topic, record.partition)
            one = before.get(place)
            if one is not None:
                may_skip = silent.pop(place, 0)
                if not 1 <= record.partition_epoch - one.partition_epoch <= 1 + may_skip:
                    yield (
                        f"{place}: the metadata log goes from partition epoch {one.partition_epoch} to "
                        f"{record.partition_epoch}, and each change takes the next"
                    )
                if not 0 <= record.leader_epoch - one.leader_epoch <= 1:
                    yield (
                        f"{place}: the metadata log goes from leader epoch {one.leader_epoch} to "
                        f"{record.leader_epoch}, and each election takes the next"
                    )
            before[place] = record
