"""High watermarks and log ends as they were sampled, beside each other and beside the logs as they were at the end."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, contradicts
from ackproof.rundir.observed import Sample
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import NodeDied, NodeEnded, NodeStarted, seconds

_AGE_NS: Final = 11_000_000_000
"""A broker that was paused may answer so late: the log end first, then the high watermark."""


def check(facts: Facts) -> Iterator[Opinion]:
    """Contradictions about high watermarks."""
    touched: dict[int, list[int]] = defaultdict(list)
    for event in facts.events:
        if isinstance(event.what, NodeStarted | NodeEnded | NodeDied) and event.node is not None:
            touched[event.node].append(event.t_ns)
    ends = _ends(facts)
    for place, samples in sorted(facts.samples_of.items()):
        yield from map(contradicts, _below_nothing(place, samples))
        if place.topic not in facts.removed:
            yield from map(contradicts, _above_all(facts, place, samples, ends[place]))
            yield from map(contradicts, _fallen(place, samples, touched))


def _ends(facts: Facts) -> Mapping[TopicPartition, int]:
    """Behind the last record that anybody ever had of each partition, but for samples."""
    found: dict[TopicPartition, int] = defaultdict(int)
    for replica in facts.replicas.replicas if facts.replicas is not None else ():
        place = TopicPartition(replica.topic, replica.partition)
        found[place] = max(found[place], replica.log_end)
    for read in facts.final_read.partitions if facts.final_read is not None else ():
        place = TopicPartition(read.topic, read.partition)
        found[place] = max(found[place], read.end)
    return found


def _below_nothing(place: TopicPartition, samples: Sequence[Sample]) -> Iterator[str]:
    """-1 is unknown; nothing else is below 0."""
    for one in samples:
        least = min(one.high_watermark, one.last_stable, one.leader_epoch, *one.log_ends.values())
        if least < -1:
            yield f"{place}: an offset or epoch of {least} was sampled at {seconds(one.t_ns)}"
            return


def _above_all(facts: Facts, place: TopicPartition, samples: Sequence[Sample], end: int) -> Iterator[str]:
    """No high watermark is above what its leader's log had: that was asked first, and grows by what is sent.

    A retry may write a record again, and a marker may follow it: each counts twice.
    """
    end = max([end, *(most for sample in samples for most in sample.log_ends.values())])
    for one in samples:
        if one.high_watermark > end and one.high_watermark > end + 2 * _sent(facts, one.t_ns):
            yield (
                f"{place}: the high watermark {one.high_watermark} was sampled at {seconds(one.t_ns)}, and no log of "
                f"it ever went beyond {end}"
            )
            return


def _sent(facts: Facts, t_ns: int) -> int:
    """How many records at most were sent between a log end and the high watermark of one answer."""
    before = [pulse.sent for pulse in facts.pulses if pulse.t_ns <= t_ns - _AGE_NS]
    after = [pulse.sent for pulse in facts.pulses if pulse.t_ns >= t_ns]
    return (after[0] if after else facts.audit.audited.produced) - (before[-1] if before else 0)


def _fallen(
    place: TopicPartition, samples: Sequence[Sample], touched: Mapping[int, Sequence[int]]
) -> Iterator[str]:
    """While a leader leads and its process runs its log is not cut, and neither does its high watermark fall."""
    told = [one for one in samples if one.high_watermark >= 0]
    for before, after in pairwise(told):
        reign = (before.leader, before.leader_epoch) == (after.leader, after.leader_epoch)
        if not reign or after.high_watermark >= before.high_watermark:
            continue
        if any(before.t_ns <= t_ns <= after.t_ns for t_ns in touched.get(after.leader, ())):
            continue
        if after.log_ends.get(after.leader, sys.maxsize) >= before.log_ends.get(before.leader, -1):
            yield (
                f"{place}: in leader epoch {after.leader_epoch} the high watermark was {before.high_watermark} at "
                f"{seconds(before.t_ns)} and {after.high_watermark} at {seconds(after.t_ns)}, and the log of its "
                f"leader, node {after.leader}, was not cut"
            )
            return
