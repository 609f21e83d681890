"""Progress of consumer groups and share groups once their input does not grow any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from confluent_kafka import KafkaException

from ackproof.clients.command.output import await_ends, read_output
from ackproof.cluster.protocol import Cluster
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.group import GroupSpec
from ackproof.experiment.share_group import ShareGroupSpec
from ackproof.observe.committed import ask_coordinator
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.observed import Unrecovered
from ackproof.rundir.partition import TopicPartition

ASK_S: Final = 2.0
"""Seconds that a look may wait for the group's coordinator."""
GOAL_S: Final = 15.0
"""Seconds that a topic may take to come to rest."""


@dataclass
class GroupProgress:
    """Progress of one group. `goal`: high watermarks of its input. `offsets`: its committed offsets at the last look.

    Times are seconds on a monotonic clock. `moved_s`: when its committed offsets last changed. `over_s`: when the wait
    for it was over, -1 before. `bound_s`: without progress for so long it counts as stalled.
    """

    cluster: Cluster
    name: str
    group: GroupSpec
    hidden: Mapping[str, str]
    transactions: bool
    """True if producers write transactions: a partition then ends in a control record, which nobody commits past."""
    bound_s: float
    goal: dict[TopicPartition, int]
    began_s: float
    moved_s: float
    over_s: float = -1.0
    caught_up: bool = False
    offsets: dict[TopicPartition, int] = field(default_factory=dict)

    @classmethod
    def start(cls, cluster: Cluster, spec: ExperimentSpec, name: str, hidden: Mapping[str, str]) -> Self:
        """Begin to watch a group; wait until its input is at rest. `hidden`: library settings with secrets."""
        group, goal = spec.workload.groups[name], dict[TopicPartition, int]()
        for topic in spec.input_of(name):
            goal |= await_ends(cluster, topic, spec.topics[topic].partitions, GOAL_S)[0]
        bound_s = spec.evidence.recovery.get("stalled", group.stalled_after)
        transactions = spec.workload.producers.transaction_size is not None
        now = time.monotonic()
        return cls(cluster, name, group, hidden, transactions, bound_s, goal, now, now)

    @property
    def over(self) -> bool:
        """True once the wait for the group is over."""
        return self.over_s >= 0

    def look(self, runs: bool) -> None:
        """Ask for the committed offsets, unless the wait is over. It is over once the group has caught up, had its
        `settle`, or has no members: `runs` False."""
        if self.over:
            return
        answer = ask_coordinator(self.cluster, self.name, within_s=ASK_S)
        now = time.monotonic()
        if not answer.reason:
            if answer.of_partition != self.offsets:
                self.moved_s = now
            self.offsets = answer.of_partition
            self.caught_up = not self._behind()
        if self.caught_up or now - self.began_s >= self.group.settle or not runs:
            self.over_s = now

    def _behind(self) -> dict[TopicPartition, int]:
        """Return the partitions with records that the group has not committed past, with their high watermarks."""
        # A group that starts at the end has nothing to commit where nothing came after its start.
        latest = self.group.start == "latest"
        left = {
            place: end
            for place, end in self.goal.items()
            if self.offsets.get(place, end if latest else 0) < end
        }
        if not left or not self.transactions:
            return left
        starts = {place: self.offsets.get(place, 0) for place in left}
        try:
            rows, problem = read_output(
                self.cluster.bootstrap,
                left,
                lambda _: (0, 0),
                starts=starts,
                isolation=self.group.isolation,
                hidden=self.hidden,
                idle_s=ASK_S,
            )
        except KafkaException:
            return left
        behind = {partition for _, _, partition, _ in rows}
        return left if problem else {place: end for place, end in left.items() if place.partition in behind}

    def stalled(self) -> list[Unrecovered]:
        """Return an entry for each partition in which the group did not advance for `bound_s` and is behind."""
        idle_s = self.over_s - self.moved_s
        if self.caught_up or idle_s < self.bound_s:
            return []
        return [
            Unrecovered(
                anomaly=Anomaly.STALLED,
                topic=place.topic,
                partition=place.partition,
                group=self.name,
                seen=f"group {self.name} has committed {self.offsets.get(place, -1)} of {place}, whose high watermark "
                f"is {end}, and nothing for {idle_s:.1f} s; its members run",
                for_s=round(idle_s, 3),
                high_watermark=end,
            )
            for place, end in sorted(self._behind().items())
        ]


@dataclass
class ShareProgress:
    """Progress of one share group. `printed_bytes`: size of what its members have printed. Times as in `GroupProgress`.
    `rested`: a member ran, and none was handed a record for so long that no lock was held."""

    name: str
    group: ShareGroupSpec
    printed_bytes: Callable[[], int]
    size: int = -1
    began_s: float = field(default_factory=time.monotonic)
    moved_s: float = 0.0
    over_s: float = -1.0
    rested: bool = False

    @property
    def over(self) -> bool:
        """True once the wait for the group is over."""
        return self.over_s >= 0

    def look(self, runs: bool) -> None:
        """Look whether the members print events, unless the wait is over. It is over once the group is at rest, had its
        `settle`, or has no members: `runs` False."""
        if self.over:
            return
        now, size = time.monotonic(), self.printed_bytes()
        if size != self.size:
            self.size, self.moved_s = size, now
        self.rested = runs and now - self.moved_s >= self.group.rest_s
        if self.rested or now - self.began_s >= self.group.settle or not runs:
            self.over_s = now
