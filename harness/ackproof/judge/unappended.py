"""Losses that were acknowledged without an offset though the acks were asked for: nobody ever appended them.

A leader answers DUPLICATE_SEQUENCE_NUMBER for a batch that it takes for one that it has, and librdkafka counts that as
success. A leader that has nothing of a producer id takes whatever sequence comes first
(ProducerAppendInfo.checkSequence): where a later batch reaches it before the earlier ones do, these are duplicates to
it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.compute as pc

from ackproof.judge.facts import Facts
from ackproof.rundir.anomalies import Anomaly


def unappended(facts: Facts) -> str:
    """What is known of such losses, as the end of a sentence; empty where there are none."""
    if facts.case.experiment.workload.producers.acks == "0":
        return ""
    count = facts.count(Anomaly.LOST, pc.field("offset") < 0)
    if not count:
        return ""
    said = f"; {count} of them were acknowledged without an offset, as duplicates are"
    return said + "".join(_begun_late(facts) if facts.replicas is not None else ())


def _begun_late(facts: Facts) -> Iterator[str]:
    """Where a log has a producer's batches from a sequence above 0 on, and from a leader after the first."""
    wanted = (pc.field("producer_id") >= 0) & (pc.field("topic").isin(list(facts.case.experiment.topics)))
    rows = facts.batches.filter(wanted).sort_by("first_offset")
    seen: set[tuple[str, int, int]] = set()
    names = ("topic", "partition", "producer_id", "base_sequence", "leader_epoch", "first_offset")
    for topic, partition, who, sequence, epoch, offset in zip(
        *(rows[name].to_pylist() for name in names), strict=True
    ):
        if (topic, partition, who) not in seen and sequence > 0 and epoch > 0:
            yield (
                f", and {topic}/{partition} has producer id {who} from sequence {sequence} on, at offset {offset}: the "
                f"leader of epoch {epoch} had nothing of it, and took that for its first"
            )
        seen.add((topic, partition, who))
