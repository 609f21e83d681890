"""`reset_offsets`: an operator commits offsets for a group, as `kafka-consumer-groups --reset-offsets` does.

Kafka refuses such a commit while the group has members (UNKNOWN_MEMBER_ID). The witness is the coordinator's answer to
OffsetFetch; the timeline has the offsets before and after (`OffsetsReset`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field

from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster.groups import commit_as_operator
from ackproof.experiment.base import Flag
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.exposure import Draw
from ackproof.experiment.fault import Complaints
from ackproof.experiment.problems import Data
from ackproof.faults.groups.views import GroupFault, GroupInjection, whole_or
from ackproof.faults.injection import SEEN_WITHIN_S, injects
from ackproof.network.wire import Refused, WireError
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import OffsetsReset

_UNKNOWN_MEMBER_ID: Final = 25


class ResetOffsets(GroupFault):
    """An operator sets the committed offsets of a group. The verdict excuses records that members then skip or process
    again."""

    KIND = "reset_offsets"
    SUMMARY = "Set the committed offsets of a consumer group, as an operator does it."
    IN_FORCE_S = 60.0

    to: Annotated[int | Literal["earliest", "latest"], whole_or("earliest", "latest", least=0)] = Field(
        description="Offset: beginning or end of each log, or a number (limited to what the log has)."
    )
    topic: str | None = Field(
        None, strict=True, description="Partitions of this topic; those of all its topics by default."
    )
    stop_members: Flag = Field(
        False,
        description="Stop all members before, and start others afterwards. Kafka refuses the reset of a group with "
        "members.",
    )

    def topics(self, spec: ExperimentSpec) -> tuple[str, ...]:
        """Return the topics whose offsets are reset: the field `topic`, or all topics that the group reads."""
        return spec.input_of(self.group) if self.topic is None else (self.topic,)

    def check(self, spec: ExperimentSpec, say: Complaints) -> None:
        super().check(spec, say)
        if self.topic is not None and self.topic not in spec.topics:
            say.unknown_value(("topic",), "the topic", self.topic, spec.topics)

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        group = super().draw_fields(draw)
        to = draw.more.choice(("earliest", "latest"))
        return None if group is None else {**group, "to": to, "stop_members": True}

    def __str__(self) -> str:
        return f"{self.kind} {self.group} to {self.to}" + (f" of {self.topic}" if self.topic else "")


@injects(ResetOffsets)
class _ResetInjection(GroupInjection[ResetOffsets]):
    """Stop the group's members if `stop_members` is set, and commit the offsets. Healing starts members in place of
    those that were stopped."""

    _offsets: Mapping[TopicPartition, int] = {}
    """Offsets to commit."""

    def inject(self) -> str:
        timeline = self.context.timeline
        if self.context.case is None or timeline is None:
            raise self.not_confirmed("no experiment of ours runs here")
        if self.fault.stop_members:
            self.stop(self.running())
            self.await_listed(gone=self.stopped)
        self._offsets = self._find_targets(self.fault.topics(self.context.case.experiment))
        before, begun_ns = self._committed(), timeline.clock.now()
        try:
            broker = self.wait_for(self._commit, f"the coordinator of {self.fault.group} to take offsets")
        except Refused as error:
            alive = "; the group has members: write stop_members: true"
            raise self.not_confirmed(f"{error}{alive if error.code == _UNKNOWN_MEMBER_ID else ''}") from error
        rows = tuple(
            (*place, before.get(place, -1), offset) for place, offset in sorted(self._offsets.items())
        )
        timeline.add(
            OffsetsReset(group=self.fault.group, begun_ns=begun_ns, offsets=rows), fault=self.fault.number
        )
        text = ", ".join(f"{topic}/{number} {old} → {new}" for topic, number, old, new in rows)
        return f"committed at broker {broker} for {self.fault.group}: {text}"

    def _find_targets(self, topics: tuple[str, ...]) -> dict[TopicPartition, int]:
        """Return the offset to commit for each partition of the topics: the fault's `to`, within the partition's log.
        Raises `FaultNotConfirmed` if a leader does not answer."""
        count = len(self.context.cluster.topic_state(topics))
        ends = self.wait_for(
            lambda: ends if len(ends := self.context.cluster.partition_ends(topics)) >= count > 0 else None,
            f"the leaders of {', '.join(topics)} to answer",
        )
        to = self.fault.to
        offset = 0 if to == "earliest" else 1 << 63 if to == "latest" else int(to)
        return {place: min(max(offset, end.start), end.high_watermark) for place, end in ends.items()}

    def _commit(self) -> int | None:
        """Commit the offsets; return the broker that took them. None: no broker takes them now, try again. Raises
        `Refused` if the group still has members."""
        try:
            return commit_as_operator(self.context.cluster.running_links(), self.fault.group, self._offsets)
        except Refused as error:
            if error.code == _UNKNOWN_MEMBER_ID:
                raise
            return None
        except WireError:
            return None

    def _committed(self) -> dict[TopicPartition, int]:
        from ackproof.observe.committed import ask_coordinator  # Arrow, which checking a file does without

        answer = ask_coordinator(self.context.cluster, self.fault.group, self.context.stop)
        if answer.reason:
            raise FaultNotConfirmed(f"{self.fault.kind}: committed offsets are unknown: {answer.reason}")
        return answer.of_partition

    def confirm(self) -> str:
        found = self.wait_for_good(
            self._committed,
            lambda said: all(said.get(place) == offset for place, offset in self._offsets.items()),
            f"OffsetFetch to say what was committed for {self.fault.group}",
            SEEN_WITHIN_S,
        )
        said = ", ".join(f"{place}: {found[place]}" for place in sorted(self._offsets))
        return f"OffsetFetch of {self.fault.group}: {said}"

    def heal(self) -> str:
        return self.replace_stopped() if self.stopped else "nothing to undo"

    def confirm_healed(self) -> str:
        return self.await_listed(self.started)
