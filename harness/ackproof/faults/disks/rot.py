"""Faults of a log's files: flipped bits, truncated segments, deleted checkpoints.

The witness is the file itself, read anew: a batch whose checksum held does not hold any more (and holds in another
node's replica), a file is shorter, or is not there.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from ackproof.base.errors import AckproofError, FaultNotConfirmed
from ackproof.cluster.disks.log import RECOVERY_POINT, Segment, segments
from ackproof.cluster.protocol import LocalNode, NodeState, local
from ackproof.cluster.record_batches import Batch
from ackproof.faults.disks.injection import DiskInjection
from ackproof.faults.disks.specification import DeleteCheckpoint, FlipBits, PartitionFault, TruncateSegment
from ackproof.faults.holds import Grip
from ackproof.faults.injection import Aim, FaultContext, injects
from ackproof.faults.processes.injection import GONE_WITHIN_S
from ackproof.rundir.partition import TopicPartition

_RECORDS_FROM: Final = 61
"""Where a batch's records begin, behind its header."""
_FILES: Final = {
    "recovery-point": RECOVERY_POINT,
    "replication-offset": "replication-offset-checkpoint",
    "log-start-offset": "log-start-offset-checkpoint",
    "leader-epoch": "leader-epoch-checkpoint",
}


PartitionT = TypeVar("PartitionT", bound=PartitionFault)


class _OfPartition(DiskInjection[PartitionT]):
    def __init__(self, fault: PartitionT, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self.place = fault.place

    def _replica(self, node: LocalNode) -> Path:
        found = node.disk.partition(*self.place)
        if found is None:
            raise FaultNotConfirmed(
                f"{self.fault.kind}: {node.name} has no replica of {self.place} on its disk"
            )
        return found

    def _segment(self, node: LocalNode, which: str) -> Segment:
        found = segments(self._replica(node))
        if which == "closed":
            found = found[:-1]
        if not found:
            raise FaultNotConfirmed(
                f"{self.fault.kind}: {self.place} on {node.name} has no {which} segment yet"
            )
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
        self._which = fault.segment
        self._flipped: dict[int, _Flipped] = {}

    def inject(self) -> str:
        """Flip it, while the broker runs."""
        said = []
        for node in self.nodes:
            segment = self._segment(node, self._which)
            batches = list(segment.batches())
            if not batches:
                raise FaultNotConfirmed(f"flip_bits: {segment.path.name} of {node.name} holds no batch yet")
            batch = batches[len(batches) // 2]
            if not segment.intact(batch):
                raise FaultNotConfirmed(f"flip_bits: {node.name}'s batch at {batch.first} was rotten before")
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
                raise FaultNotConfirmed(
                    f"flip_bits: the checksum of {node.name}'s batch at {first} still holds: nothing was flipped"
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
            raise FaultNotConfirmed(
                f"flip_bits: no replica of {self.place} is in sync but the rotten: it cannot be made anew"
            )
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
                raise FaultNotConfirmed(f"flip_bits: healing: {node.name}'s batch at {first} is rotten still")
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
        self._which = fault.segment
        self._bytes = fault.bytes
        self._before: dict[int, tuple[Segment, int, int]] = {}

    def inject(self) -> str:
        """Kill the node, and cut."""
        for node in self.nodes:
            self._segment(node, self._which)
        self._kill()
        for node in self.nodes:
            segment = self._segment(node, self._which)
            size = segment.size()
            self._before[node.id] = (segment, size, segment.end())
            os.truncate(segment.path, max(0, size - self._bytes))
        return f"SIGKILL to {self._names()}, and {self._bytes} B cut off the {self._which} segment of {self.place}"

    def confirm(self) -> str:
        """The process is gone, the file shorter, and holds fewer records."""
        said = [self._until(NodeState.GONE, GONE_WITHIN_S)]
        for node in self.nodes:
            segment, size, end = self._before[node.id]
            now, now_end = segment.size(), segment.end()
            if now >= size or now_end >= end:
                raise FaultNotConfirmed(
                    f"truncate_segment: {segment.path.name} of {node.name} had {size} B and has {now} B: "
                    "no record is gone"
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
        self._file = fault.file
        self._deleted: dict[int, list[Path]] = {}

    def inject(self) -> str:
        """Kill the node, and delete."""
        for node in self.nodes:
            self._there(node)
        self._kill()
        for node in self.nodes:
            self._deleted[node.id] = self._there(node)
            for path in self._deleted[node.id]:
                path.unlink()
        return f"SIGKILL to {self._names()}, and {_FILES[self._file]} deleted"

    def confirm(self) -> str:
        """The process is gone, and so is the file."""
        witness = self._until(NodeState.GONE, GONE_WITHIN_S)
        for node in self.nodes:
            for path in self._deleted[node.id]:
                if path.exists():
                    raise FaultNotConfirmed(f"delete_checkpoint: {node.name} still has {path.name}")
        count = sum(map(len, self._deleted.values()))
        return f"{witness}; {count} file(s) {_FILES[self._file]} gone from its disk"

    def _there(self, node: LocalNode) -> list[Path]:
        name = _FILES[self._file]
        folders = [self._replica(node)] if self._file == "leader-epoch" else list(node.disk.log_dirs)
        found = [folder / name for folder in folders if (folder / name).exists()]
        if not found:
            raise FaultNotConfirmed(f"delete_checkpoint: {node.name} has no {name} to delete")
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
