"""Faults of a log's files: flipped bits, truncated segments, deleted checkpoints.

A file's partition is named as `partition: orders/0`, or by a role of that partition. The witness is the file itself,
read anew: a batch whose checksum held does not hold any more (and holds in another node's replica), a file is shorter,
or is not there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Self, TypeAlias, TypeVar

from pydantic import Field, model_validator

from ackproof.base.errors import AckproofError
from ackproof.cluster.disks.log import RECOVERY_POINT, Segment, segments
from ackproof.cluster.protocol import LocalNode, NodeState, local
from ackproof.cluster.record_batches import Batch
from ackproof.experiment.drawing import Draw
from ackproof.experiment.nodes import Data
from ackproof.experiment.quantities import Size, wrong
from ackproof.experiment.roles import PartitionField
from ackproof.experiment.spec import SystemUnderTest
from ackproof.faults.disks.disk import _START, DiskFault, DiskInjection
from ackproof.faults.holds import Grip
from ackproof.faults.injection import Aim, FaultContext, injects
from ackproof.faults.processes import GONE_WITHIN_S
from ackproof.rundir.partition import TopicPartition

SegmentField: TypeAlias = Literal["active", "closed"]
_RECORDS_FROM: Final = 61
"""Where a batch's records begin, behind its header."""
_FILES: Final = {
    "recovery-point": RECOVERY_POINT,
    "replication-offset": "replication-offset-checkpoint",
    "log-start-offset": "log-start-offset-checkpoint",
    "leader-epoch": "leader-epoch-checkpoint",
}


class PartitionFault(DiskFault):
    """A fault of one partition's files on the nodes of a role."""

    UNPREDICTABLE = "files of a log that rot are not in the model"
    ROTS = True

    partition: PartitionField | None = Field(
        None, title="Partition", description="Whose files; by default those of the role's partition."
    )

    @property
    def place(self) -> TopicPartition:
        """The partition."""
        if self.partition is not None:
            return self.partition
        return TopicPartition(self.target.topic or "", self.target.partition or 0)

    @model_validator(mode="after")
    def _of_some_partition(self) -> Self:
        if self._needs_partition and self.partition is None and self.target.topic is None:
            raise wrong(f"which partition? The role {self.target} names none: add partition: orders/0")
        return self

    @property
    def _needs_partition(self) -> bool:
        return True

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Files of the role's partition, or of another where it has none."""
        target = draw.role()
        return _with_files_of(draw, "broker" if target.startswith("controller") else target)


class FlipBits(PartitionFault):
    """One bit of a record batch is flipped in the segment of a broker that goes on running.

    Kafka does not look for that by itself: a reader of the leader finds it, or a recovery after an unclean
    shutdown. Nothing mends it but replication anew: healing kills the broker, removes that replica, and starts it.
    """

    KIND = "flip_bits"
    NOT_SIMULATED = "what a broker does about a batch whose checksum is wrong is no part of the protocol"
    SUMMARY = "Flip a bit of a record batch on disk (`segment: active` or `closed`)."
    HEALING = "replicate anew"
    HOLD_KEY = "for"

    segment: SegmentField = Field("active", description="In which segment.")

    def misfits(self, experiment: SystemUnderTest) -> Iterator[tuple[str, str]]:
        """Without another replica nothing mends it."""
        topic = experiment.topics.get(self.place.topic)
        if topic is not None and topic.replication_factor < 2:
            name = "target" if self.partition is None else "partition"
            yield name, f"{self.place} has one replica only: nothing could mend it"

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """A follower: what a leader has is what clients read."""
        place = draw.other_place()
        return {"target": f"follower({place})"}


class TruncateSegment(PartitionFault):
    """SIGKILL, and the end of a segment is missing, in the middle of a batch or not.

    Of the active segment the broker fetches the rest from the leader. In a closed one Kafka does not look: the hole
    stays until the replica is made anew.
    """

    KIND = "truncate_segment"
    SUMMARY = "End the process and cut `bytes` off a segment of its log."
    HEALING = _START
    HOLD_KEY = "restart_after"

    segment: SegmentField = Field("active", description="Which segment.")
    bytes: Size = Field(1024, ge=1, description="How much is cut off its end.")

    def not_simulated(self, spec: SystemUnderTest) -> tuple[str, str] | None:
        return ("segment", "its logs are one segment each") if self.segment == "closed" else None


class DeleteCheckpoint(PartitionFault):
    """SIGKILL, and a checkpoint file is gone when the node returns."""

    KIND = "delete_checkpoint"
    SUMMARY = "End the process and delete a checkpoint file."
    HEALING = _START
    HOLD_KEY = "restart_after"

    file: Literal["recovery-point", "replication-offset", "log-start-offset", "leader-epoch"] = Field(
        description="Which: one of the log dir's, or leader-epoch, which is the partition's."
    )

    @property
    def _needs_partition(self) -> bool:
        return self.file == "leader-epoch"

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Any of the files."""
        files = ("recovery-point", "replication-offset", "log-start-offset", "leader-epoch")
        return {**(super().drawn(draw) or {}), "file": draw.more.choice(files)}


def _with_files_of(draw: Draw, target: str) -> Mapping[str, Data]:
    return {"target": target} | ({} if "/" in target else {"partition": draw.other_place()})


PartitionT = TypeVar("PartitionT", bound=PartitionFault)


class _OfPartition(DiskInjection[PartitionT]):
    def __init__(self, fault: PartitionT, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self.place = fault.place

    def _replica(self, node: LocalNode) -> Path:
        found = node.disk.partition(*self.place)
        if found is None:
            raise self.unseen(f"{node.name} has no replica of {self.place} on its disk")
        return found

    def _segment(self, node: LocalNode, which: str) -> Segment:
        found = segments(self._replica(node))
        if which == "closed":
            found = found[:-1]
        if not found:
            raise self.unseen(f"{self.place} on {node.name} has no {which} segment yet")
        return found[-1]

    def _kill(self) -> None:
        self._strike(lambda node: node.kill(), "SIGKILL", Grip.DOWN, NodeState.RUNNING, NodeState.STOPPED)
        self._until(NodeState.GONE, GONE_WITHIN_S)


@dataclass(frozen=True)
class _Flipped:
    segment: Segment
    batch: Batch


@injects(FlipBits)
class FlipBitsInjection(_OfPartition[FlipBits]):
    """One bit in the middle of the records of the batch in the middle of a segment."""

    def __init__(self, fault: FlipBits, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._flipped: dict[int, _Flipped] = {}

    def inject(self) -> str:
        said = []
        for node in self.nodes:
            segment = self._segment(node, self.fault.segment)
            batches = list(segment.batches())
            if not batches:
                raise self.unseen(f"{segment.path.name} of {node.name} holds no batch yet")
            batch = batches[len(batches) // 2]
            if not segment.intact(batch):
                raise self.unseen(f"{node.name}'s batch at {batch.first} was rotten before")
            at = batch.position + _RECORDS_FROM + (batch.size - _RECORDS_FROM) // 2
            self._flipped[node.id] = _Flipped(segment, batch)
            flip(segment.path, at)
            said.append(f"byte {at} of {self.place} {segment.path.name} on {node.name}")
        return f"flipped a bit of {', '.join(said)}"

    def confirm(self) -> str:
        """The batch's checksum, which held, does not hold."""
        said = []
        for node in self.nodes:
            flipped = self._flipped[node.id]
            first, last = flipped.batch.first, flipped.batch.last
            if flipped.segment.intact(flipped.batch):
                raise self.unseen(
                    f"the checksum of {node.name}'s batch at {first} still holds: nothing was flipped"
                )
            sound = [
                other.name
                for other in local(self.context.cluster.brokers())
                if other.id not in self._flipped and self._holds(other, first)
            ]
            beside = f"; it holds on {', '.join(sound)}" if sound else "; no other replica holds that batch"
            said.append(
                f"read anew, the checksum of offsets {first} to {last} does not hold on {node.name}{beside}"
            )
        return "; ".join(said)

    def heal(self) -> str:
        """Kill the broker, remove the replica, start it: it replicates anew. Not the last replica in sync."""
        touched = [node for node in self.nodes if node.id in self._flipped]
        if not touched:
            return "nothing was flipped"
        place = TopicPartition(*self.place)
        state = self.context.cluster.topic_state([place.topic]).get(place)
        ours = {node.id for node in touched}
        if state is None or not set(state.isr) - ours:
            raise self.unseen(f"no replica of {self.place} is in sync but the rotten: it cannot be made anew")
        for node in touched:
            with self.holds.acting_on(node.id):
                self.holds.take(node.id, self.fault.number, Grip.DOWN)
                node.kill()
        self._until(NodeState.GONE, GONE_WITHIN_S)
        for node in touched:
            replica = node.disk.partition(*self.place)
            if replica is not None:
                _remove(replica)
        return f"killed {self._names()}, removed its replica of {self.place}; {self._start_the_dead()}"

    def confirm_healed(self) -> str:
        """The node is in its ISRs again, and the batch in its log is sound."""
        if not self._flipped:
            return "nothing was flipped"
        witness = super().confirm_healed()
        for node in self.nodes:
            if node.id not in self._flipped:
                continue
            first = self._flipped[node.id].batch.first
            replica = node.disk.partition(*self.place)
            found = None if replica is None else _batch_of(replica, first)
            if found is not None and not found[0].intact(found[1]):
                raise self.unseen(f"healing: {node.name}'s batch at {first} is rotten still")
        return f"{witness}; the checksum holds again"

    def _holds(self, node: LocalNode, offset: int) -> bool:
        replica = node.disk.partition(*self.place)
        found = None if replica is None else _batch_of(replica, offset)
        return found is not None and found[0].intact(found[1])


@injects(TruncateSegment)
class TruncateSegmentInjection(_OfPartition[TruncateSegment]):
    """The last bytes of a segment's file are gone."""

    def __init__(self, fault: TruncateSegment, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._before: dict[int, tuple[Segment, int, int]] = {}

    def inject(self) -> str:
        for node in self.nodes:
            self._segment(node, self.fault.segment)
        self._kill()
        for node in self.nodes:
            segment = self._segment(node, self.fault.segment)
            size = segment.size()
            self._before[node.id] = (segment, size, segment.end())
            os.truncate(segment.path, max(0, size - self.fault.bytes))
        which = f"the {self.fault.segment} segment of {self.place}"
        return f"SIGKILL to {self._names()}, and {self.fault.bytes} B cut off {which}"

    def confirm(self) -> str:
        """The process is gone, the file shorter, and holds fewer records."""
        said = [self._until(NodeState.GONE, GONE_WITHIN_S)]
        for node in self.nodes:
            segment, size, end = self._before[node.id]
            now, now_end = segment.size(), segment.end()
            if now >= size or now_end >= end:
                raise self.unseen(
                    f"{segment.path.name} of {node.name} had {size} B and has {now} B: no record is gone"
                )
            said.append(
                f"{segment.path.name} of {node.name} had {size} B up to offset {end}, "
                f"now {now} B with whole batches up to {now_end}"
            )
        return "; ".join(said)


@injects(DeleteCheckpoint)
class DeleteCheckpointInjection(_OfPartition[DeleteCheckpoint]):
    """A checkpoint of the log dirs, or of the partition."""

    def __init__(self, fault: DeleteCheckpoint, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._deleted: dict[int, list[Path]] = {}

    def inject(self) -> str:
        for node in self.nodes:
            self._there(node)
        self._kill()
        for node in self.nodes:
            self._deleted[node.id] = self._there(node)
            for path in self._deleted[node.id]:
                path.unlink()
        return f"SIGKILL to {self._names()}, and {_FILES[self.fault.file]} deleted"

    def confirm(self) -> str:
        """The process is gone, and so is the file."""
        witness = self._until(NodeState.GONE, GONE_WITHIN_S)
        for node in self.nodes:
            for path in self._deleted[node.id]:
                if path.exists():
                    raise self.unseen(f"{node.name} still has {path.name}")
        count = sum(map(len, self._deleted.values()))
        return f"{witness}; {count} file(s) {_FILES[self.fault.file]} gone from its disk"

    def _there(self, node: LocalNode) -> list[Path]:
        name = _FILES[self.fault.file]
        folders = [self._replica(node)] if self.fault.file == "leader-epoch" else list(node.disk.log_dirs)
        found = [folder / name for folder in folders if (folder / name).exists()]
        if not found:
            raise self.unseen(f"{node.name} has no {name} to delete")
        return found


def flip(file: Path, position: int) -> None:
    """Flip the lowest bit of one byte, in place."""
    opened = os.open(file, os.O_RDWR)
    try:
        (byte,) = os.pread(opened, 1, position)
        os.pwrite(opened, bytes([byte ^ 1]), position)
    finally:
        os.close(opened)


def _batch_of(replica: Path, offset: int) -> tuple[Segment, Batch] | None:
    """The batch of a replica that holds an offset."""
    for segment in reversed(segments(replica)):
        if segment.base <= offset:
            found = next((batch for batch in segment.batches() if batch.first <= offset <= batch.last), None)
            return None if found is None else (segment, found)
    return None


def _remove(replica: Path) -> None:
    try:
        shutil.rmtree(replica)
    except OSError as error:
        raise AckproofError(f"{replica} could not be removed: {error}") from error
