"""Replicas that left the ISR: what they hold below where they were in sync is what those who stayed hold.

A replica in the ISR has all below the high watermark, and never gives that up by itself. Not asked of what a later
leader did not have (the replay's truncations), nor where a fault was at a node's disk.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.experiment.backends import Ability
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, lacks
from ackproof.rundir.partition import TopicPartition

_COLUMNS = ["first_offset", "last_offset", "leader_epoch", "crc"]
"""What copies of a batch share."""


def check(facts: Facts) -> Iterator[Opinion]:
    """Compare each of them with a replica that is in sync. Raises `BadInput` for files that are broken."""
    if facts.replicas is None:
        return
    known = left_at(facts)
    if not any(known.values()):
        return
    for place, left in sorted(known.items()):
        own = {replica.node: replica for replica in facts.replicas_of.get(place, ())}
        stayed = [node for node in facts.in_sync.get(place, ()) if node in own and not own[node].reason]
        for node, until in sorted(left.items()):
            if not stayed or node not in own or own[node].reason:
                continue
            start = max(own[node].log_start, own[stayed[0]].log_start)
            one, other = (
                _below(facts.logs.of_replica(place, each), start, until) for each in (node, stayed[0])
            )
            if odd := sorted(set(one) ^ set(other)):
                yield lacks(
                    f"{place}: node {node} was in the ISR when the high watermark was {until}, and below that its log "
                    f"differs from that of node {stayed[0]} from offset {odd[0][0]} on"
                )


def left_at(facts: Facts) -> Mapping[TopicPartition, Mapping[int, int]]:
    """Replicas that are not in sync at the end → the high watermark when they were seen in the ISR last."""
    at_disks = {fault.number for fault in facts.case.faults if Ability.DISKS in fault.ASKS}
    touched = {node for _, node in facts.aimed_at(at_disks)}
    found = {}
    cuts: dict[TopicPartition, list[int]] = defaultdict(list)
    for cut in facts.replay.truncations:
        cuts[TopicPartition(cut.topic, cut.partition)].append(cut.from_offset)
    for place, samples in facts.samples_of.items():
        if place.topic in facts.removed or facts.may_compact(place.topic):
            continue
        marks: dict[int, int] = {}
        for sample in samples:
            marks = {node: mark for node, mark in marks.items() if node in sample.replicas}
            if sample.high_watermark >= 0:
                marks |= dict.fromkeys(sample.isr, sample.high_watermark)
        now = facts.in_sync.get(place, ())
        found[place] = {
            node: min([mark, *cuts.get(place, ())])
            for node, mark in marks.items()
            if node not in now and node not in touched
        }
    return found


def _below(log: pa.Table, start: int, until: int) -> list[tuple[int, ...]]:
    mine = log.filter((pc.field("first_offset") >= start) & (pc.field("last_offset") < until))
    return list(zip(*(mine[name].to_pylist() for name in _COLUMNS), strict=True))
