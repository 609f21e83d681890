"""`observed/committed.json`: committed offsets at the end of a run, of the groups for which live readers committed (not
of `workload.groups`), according to two witnesses.

One witness is the group coordinator (OffsetFetch), the other each replica's log of `__consumer_offsets`.
`clients/<reader>/commits.jsonl` (`observed.OffsetCommit`) has the commits that clients requested, and the answers.
"""

from __future__ import annotations

from typing import Final

from ackproof.rundir.document import Document
from ackproof.rundir.partition import TopicPartition

OFFSETS_TOPIC: Final = "__consumer_offsets"


class GroupOffsets(Document):
    """A group's committed offsets according to its coordinator. `partition`: the group's partition of
    `__consumer_offsets`, whose leader is the coordinator; -1 if no broker described that topic.

    `offsets`: (topic, partition, offset), without partitions that have none. `reason`: why there is no answer; '' if
    there is one.
    """

    group: str
    partition: int = -1
    coordinator: int = -1
    """Node id of the broker that was asked; -1: the partition had no leader."""
    isr: tuple[int, ...] = ()
    """ISR of that partition when the coordinator was asked."""
    offsets: tuple[tuple[str, int, int], ...] = ()
    reason: str = ""

    @property
    def of_partition(self) -> dict[TopicPartition, int]:
        """Committed offset by partition. A partition without a committed offset is missing; if the coordinator did not
        answer (`reason`), all are."""
        return {TopicPartition(topic, partition): offset for topic, partition, offset in self.offsets}


class OffsetsLog(Document):
    """The last committed offset of each group and partition in one replica's log of `__consumer_offsets`.

    `node`, `partition`: the replica. `log_end`: its log end offset, -1 if the log is empty or could not be
    read. `offsets`: (group, topic, partition, offset). `reason`: why the log could not be read; '' if it was.
    """

    node: int
    partition: int
    log_end: int = -1
    offsets: tuple[tuple[str, str, int, int], ...] = ()
    reason: str = ""

    def of_group(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offset of this group for each partition that has one, according to this log."""
        return {
            TopicPartition(topic, partition): offset
            for owner, topic, partition, offset in self.offsets
            if owner == group
        }


class CommittedFile(Document):
    """`observed/committed.json`: committed offsets at the end of a run, as coordinators answered (`groups`) and as each
    replica's log of `__consumer_offsets` has them (`logs`).

    `t_ns`: time before the first request, in ns since the run began. Runs without commits of readers, on attached
    clusters, and of older versions do not have this file.
    """

    t_ns: int
    groups: tuple[GroupOffsets, ...] = ()
    logs: tuple[OffsetsLog, ...] = ()
