"""Wait until consumer groups and share groups have processed their input, which does not grow any more; record the
result."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from confluent_kafka import KafkaException

from ackproof.clients.command.output import await_ends, identity_of, read_back, read_output, write_output
from ackproof.cluster.protocol import Cluster
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.group import GroupSpec, ShareGroupSpec
from ackproof.observe.committed import ask_coordinator
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.groups import GroupEnd
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.observed import Unrecovered
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.shares import ShareGroupEnd

ASK_S: Final = 2.0
"""Longest wait in seconds for a coordinator's answer when the progress of a group is checked."""
_QUIET_S: Final = 5.0
"""Seconds without a new commit, on top of the time of a batch and of a commit. By then, members have reset every
position that is not in the log."""
_GOAL_S: Final = 15.0
"""Longest wait in seconds for a topic to come to rest."""


@dataclass
class _Progress:
    """Base of `GroupProgress` and `ShareProgress`: how far a group has got while the run waits for it to finish its
    input.

    Times are seconds on a monotonic clock. `began_s`: begin of the wait. `moved_s`: last progress. `over_s`: end of the
    wait, -1 before. `hidden`: library settings with secrets.
    """

    cluster: Cluster
    spec: ExperimentSpec
    name: str
    hidden: Mapping[str, str]
    began_s: float = field(default_factory=time.monotonic)
    moved_s: float = field(default_factory=time.monotonic)
    over_s: float = -1.0

    @property
    def over(self) -> bool:
        """True once the run no longer waits for the group: it has finished its input, it has no members left, or its
        `settle` seconds are over."""
        return self.over_s >= 0

    @property
    def waited_s(self) -> float:
        """Seconds for which the run waited for the group. Valid once `over` is True."""
        return round(self.over_s - self.began_s, 3)

    @property
    def partitions(self) -> int:
        """Number of partitions of the group's first input topic; its output topic has as many."""
        return self.spec.topics[self.spec.input_of(self.name)[0]].partitions


@dataclass
class GroupProgress(_Progress):
    """Progress of a consumer group towards the end of its input. `goal`: high watermarks of the input, which does not
    grow any more; partitions whose leader did not answer are missing. `offsets`: committed offsets at the coordinator's
    last answer. `caught_up`: True if the group had no record left to commit past at that time.

    The constructor waits at most `_GOAL_S` seconds for each input topic to come to rest."""

    caught_up: bool = False
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    goal: dict[TopicPartition, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for topic in self.spec.input_of(self.name):
            self.goal |= await_ends(self.cluster, topic, self.spec.topics[topic].partitions, _GOAL_S)[0]
        self.began_s = self.moved_s = time.monotonic()

    @property
    def group(self) -> GroupSpec:
        return self.spec.workload.groups[self.name]

    def look(self, runs: bool) -> None:
        """Ask for the committed offsets, for at most `ASK_S` seconds, unless the wait for the group is over. `runs`:
        True if the group still has members. The wait is over once the group has caught up, after its `settle` seconds,
        or without members."""
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
        """Return the partitions with records that the group has not committed past, each with its high watermark; empty
        if it caught up."""
        # A group that starts at the end has nothing to commit where nothing came after its start.
        latest = self.group.start == "latest"
        starts = {
            place: offset
            for place, end in self.goal.items()
            if (offset := self.offsets.get(place, end if latest else 0)) < end
        }
        # Nor has a group that is reset where nothing comes after the position that it is reset to.
        batch_s = self.group.batch * self.group.record_time + self.group.commit_every
        is_quiet = time.monotonic() - self.moved_s >= _QUIET_S + batch_s
        ends = self.cluster.partition_ends(self.spec.input_of(self.name)) if starts and is_quiet else {}
        for place in starts.keys() & ends.keys():
            if (begin := ends[place].start) > starts[place]:
                to_end = place in self.offsets and self.group.resolved_reset == "latest"
                starts[place] = self.goal[place] if to_end else begin
        left = {place: self.goal[place] for place, start in starts.items() if start < self.goal[place]}
        # A partition of transactional producers ends in a control record, which nobody commits past.
        if not left or self.spec.workload.producers.transaction_size is None:
            return left
        topics = sorted({place.topic for place in left})
        try:
            rows, problem = read_output(
                self.cluster.bootstrap,
                left,
                lambda record: (topics.index(record.topic() or ""), 0),
                starts=starts,
                isolation=self.group.isolation,
                hidden=self.hidden,
                idle_s=ASK_S,
            )
        except KafkaException:
            return left
        behind = {TopicPartition(topics[topic], partition) for topic, _, partition, _ in rows}
        return left if problem else {place: end for place, end in left.items() if place in behind}

    def stalled(self, waiting: Callable[[], str]) -> list[Unrecovered]:
        """Return an entry for each partition in which the group is behind, if it committed nothing new in the last N
        seconds of the wait; else []. N: the time limit `stalled` of `evidence.recovery` in the experiment, or else
        `GroupSpec.stalled_after`. `waiting` returns what its members wait for, as the end of a sentence."""
        idle_s = self.over_s - self.moved_s
        bound_s = self.spec.evidence.recovery.get("stalled", self.group.stalled_after)
        if self.caught_up or idle_s < bound_s:
            return []
        members = f"its members run{waiting()}"
        return [
            Unrecovered(
                anomaly=Anomaly.STALLED,
                topic=place.topic,
                partition=place.partition,
                group=self.name,
                seen=f"group {self.name} has committed {self.offsets.get(place, -1)} of {place}, whose high watermark "
                f"is {end}, and nothing for {idle_s:.1f} s; {members}",
                for_s=round(idle_s, 3),
                high_watermark=end,
            )
            for place, end in sorted(self._behind().items())
        ]

    def end(self, run: CaseDir, run_id: str) -> GroupEnd:
        """Read the group's output topic back, if it has one, and write its records to `CaseDir.group_output`. Return
        the group's state at the end of the run, with its committed offsets. Call it after all members have ended.
        Raises OSError if a file cannot be written."""
        reached: dict[TopicPartition, int] = {}
        problem = ""
        if (output := self.group.output) is not None:
            identify = partial(identity_of, where="value", run_id=run_id)
            rows, reached, problem = read_back(
                self.cluster, output, self.partitions, self.group.settle, identify, self.hidden
            )
            write_output(run.group_output(self.name), rows)
        return GroupEnd(
            group=self.name,
            committed=ask_coordinator(self.cluster, self.name),
            ends=tuple((*place, end) for place, end in sorted(self.goal.items())),
            caught_up=self.caught_up,
            waited_s=self.waited_s,
            idle_s=round(self.over_s - self.moved_s, 3),
            output_ends=tuple((*place, end) for place, end in sorted(reached.items())),
            problem=problem,
        )


@dataclass(kw_only=True)
class ShareProgress(_Progress):
    """Progress of a share group, seen from what its members print.

    `printed_bytes` returns the total size of their output. `size`: that size at the last look, -1 before. `rested`:
    True if a member ran, and no member printed anything for so long that all acquisition locks have expired.
    """

    printed_bytes: Callable[[], int]
    size: int = -1
    rested: bool = False

    @property
    def group(self) -> ShareGroupSpec:
        return self.spec.workload.share_groups[self.name]

    def look(self, runs: bool) -> None:
        """Check whether members still print events, unless the wait for the group is over. `runs`: True if the group
        still has members. The wait is over once the group is at rest, after its `settle` seconds, or without
        members."""
        if self.over:
            return
        now, size = time.monotonic(), self.printed_bytes()
        if size != self.size:
            self.size, self.moved_s = size, now
        self.rested = runs and now - self.moved_s >= self.group.rest_s
        if self.rested or now - self.began_s >= self.group.settle or not runs:
            self.over_s = now

    def end(self) -> tuple[ShareGroupEnd, str]:
        """Return the group's state at the end of the run, and why its dead-letter topic could not be read: '' if it
        could, and without such a topic. The state has the number of records in that topic; -1: there is none, or it
        could not be read. Call it after all members have ended."""
        topic, count, problem = self.group.dead_letters, -1, ""
        if topic is not None:
            rows, _, problem = read_back(
                self.cluster, topic, self.partitions, _GOAL_S, lambda _: (0, 0), self.hidden
            )
            count = -1 if problem else len(rows)
        end = ShareGroupEnd(group=self.name, rested=self.rested, waited_s=self.waited_s, dead_letters=count)
        return end, f"share group {self.name}: {topic}: {problem}" if problem else ""
