"""Replicas that left the ISR: compared with those in sync, below the high watermark at which they left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

import pyarrow.compute as pc

from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, lacks
from ackproof.rundir.partition import TopicPartition

_COPY = ("first_offset", "last_offset", "leader_epoch", "crc")
"""Columns that copies of a batch share."""


def check_left_replicas(facts: Facts) -> Iterator[Opinion]:
    """Compare each replica that left the ISR with an in-sync one, below the high watermark at which it left.

    A replica in the ISR holds every record below the high watermark, and never removes one by itself. Not compared:
    records that a later leader did not have (truncations of the replay), and nodes whose disk a fault hit. Raises
    `BadInput` for broken files.
    """
    if facts.replicas is None:
        return
    for place, left in sorted(_left_replicas(facts).items()):
        own = {replica.node: replica for replica in facts.replicas_of.get(place, ())}
        stayed = [node for node in facts.in_sync.get(place, ()) if node in own and not own[node].reason]
        for node, until in sorted(left.items()):
            if not stayed or node not in own or own[node].reason:
                continue
            start = max(own[node].log_start, own[stayed[0]].log_start)
            mine, theirs = (_copies(facts, place, each, start, until) for each in (node, stayed[0]))
            if odd := sorted(mine ^ theirs):
                yield lacks(
                    f"{place}: node {node} was in the ISR when the high watermark was {until}, and below that its log "
                    f"differs from that of node {stayed[0]} from offset {odd[0][0]} on",
                    subject=str(place),
                    numbers={"offset": odd[0][0]},
                )


def _left_replicas(facts: Facts) -> Mapping[TopicPartition, Mapping[int, int]]:
    """Return the replicas that are not in sync at the end, with the high watermark when they were in the ISR last."""
    cuts: dict[TopicPartition, list[int]] = defaultdict(list)
    for cut in facts.replay.truncations:
        cuts[TopicPartition(cut.topic, cut.partition)].append(cut.from_offset)
    found = {}
    for place, samples in facts.samples_of.items():
        if place.topic in facts.removed or facts.may_compact(place.topic):
            continue
        marks: dict[int, int] = {}
        for sample in samples:
            marks = {node: mark for node, mark in marks.items() if node in sample.replicas}
            if sample.high_watermark >= 0:
                marks |= dict.fromkeys(sample.isr, sample.high_watermark)
        left = marks.keys() - facts.in_sync.get(place, ()) - facts.disk_nodes
        if left:
            found[place] = {node: min([marks[node], *cuts[place]]) for node in left}
    return found


def _copies(facts: Facts, place: TopicPartition, node: int, start: int, until: int) -> set[tuple[int, ...]]:
    wanted = (pc.field("first_offset") >= start) & (pc.field("last_offset") < until)
    log = facts.logs.of_replica(place, node).filter(wanted)
    return set(zip(*(log[name].to_pylist() for name in _COPY), strict=True))
