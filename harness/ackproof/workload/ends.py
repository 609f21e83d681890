"""The final read's questions (`final_read.Ends`), asked of a cluster through the protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ackproof.cluster.protocol import Cluster
from ackproof.rundir.partition import TopicPartition
from ackproof.workload.final_read import End


class ClusterEnds:
    """Log ends from the leaders, ISRs from the newest metadata. A partition is missing while the two disagree."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def look(self, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, End]:
        topics = tuple(dict.fromkeys(topic for topic, _ in places))
        ends = self._cluster.partition_ends(topics)
        states = self._cluster.topic_state(topics)
        seen: dict[TopicPartition, End] = {}
        for topic, partition in places:
            place = TopicPartition(topic, partition)
            end, state = ends.get(place), states.get(place)
            if end is None or state is None or end.leader_epoch != state.leader_epoch:
                continue
            seen[place] = End(
                leader=end.leader,
                epoch=end.leader_epoch,
                isr=state.isr,
                start=end.start,
                high_watermark=end.high_watermark,
                last_stable=end.last_stable,
                log_end=end.log_end,
            )
        return seen
