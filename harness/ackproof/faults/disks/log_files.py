"""Faults of a log's files: truncated segments, deleted checkpoints, and the base that they share with flipped bits.

The partition is named by `partition: orders/0`, or by a role of that partition. The witness is the file itself, read
again: it is shorter, or missing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, Self, TypeAlias, TypeVar

from pydantic import Field, model_validator

from ackproof.base.units import Size, wrong
from ackproof.cluster.disks.log import CLEAN_SHUTDOWN, RECOVERY_POINT, Segment, segments
from ackproof.cluster.protocol import LocalNode, NodeState
from ackproof.experiment.base import PartitionField
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.exposure import Draw, Incidents
from ackproof.experiment.problems import Data
from ackproof.experiment.roles import refuse_racks
from ackproof.faults.context import FaultContext
from ackproof.faults.disks.disk import _START, DiskFault, DiskInjection
from ackproof.faults.injection import Aim, injects
from ackproof.faults.processes import GONE_WITHIN_S
from ackproof.rundir.partition import TopicPartition

SegmentField: TypeAlias = Literal["active", "closed"]
_FILES: Final = {
    "recovery-point": RECOVERY_POINT,
    "replication-offset": "replication-offset-checkpoint",
    "log-start-offset": "log-start-offset-checkpoint",
    "leader-epoch": "leader-epoch-checkpoint",
}


class PartitionFault(DiskFault):
    """Base of faults that damage files of one partition, on each node that `target` selects, such as
    `leader(orders/0)`. `partition` None: the partition that `target` names."""

    # For other partitions the broker ends uncleanly; the log of this one is damaged too (`rots`).
    PER_NODE = Incidents(kills=1)

    partition: PartitionField | None = Field(
        None, title="Partition", description="Partition whose files are hit; by default the role's."
    )

    @property
    def place(self) -> TopicPartition:
        if self.partition is not None:
            return self.partition
        return TopicPartition(self.target.topic or "", self.target.partition or 0)

    def rots(self, place: TopicPartition) -> bool:
        return place == self.place

    @model_validator(mode="after")
    def _of_some_partition(self) -> Self:
        if self._needs_partition:
            refuse_racks(self.target, "holds no partitions")
        if self._needs_partition and self.partition is None and self.target.topic is None:
            raise wrong(f"which partition? The role {self.target} names none: add partition: orders/0")
        return self

    @property
    def _needs_partition(self) -> bool:
        return True

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        target = draw.role()
        target = "broker" if target.startswith("controller") else target
        return {"target": target} | ({} if "/" in target else {"partition": draw.other_place()})


class TruncateSegment(PartitionFault):
    """SIGKILL, and the last `bytes` of a segment's complete batches are cut off, in the middle of a batch or not.

    `segment`: the active segment, or the newest closed one. The broker fetches the missing end of an active segment
    from the leader. Kafka does not check closed segments: the hole stays until the replica is created again from
    another replica.
    """

    KIND = "truncate_segment"
    ENDS_NODES = True
    SUMMARY = "End the process and cut `bytes` off a segment of its log."
    HEALING = _START
    HOLD_KEY = "restart_after"

    segment: SegmentField = Field("active", description="Segment that is cut.")
    bytes: Size = Field(
        1024,
        ge=1,
        description="Bytes that are cut off the end of its last complete batch, and what follows it.",
    )

    def not_simulated(self, spec: ExperimentSpec) -> tuple[str, str] | None:
        return ("segment", "its logs are one segment each") if self.segment == "closed" else None


class DeleteCheckpoint(PartitionFault):
    """SIGKILL, and a checkpoint file is gone when the node returns."""

    KIND = "delete_checkpoint"
    ENDS_NODES = True
    SUMMARY = "End the process and delete a checkpoint file."
    HEALING = _START
    HOLD_KEY = "restart_after"

    file: Literal["recovery-point", "replication-offset", "log-start-offset", "leader-epoch"] = Field(
        description="Checkpoint file: one of the log dir's, or leader-epoch, which is the partition's."
    )

    @property
    def _needs_partition(self) -> bool:
        return self.file == "leader-epoch"

    def rots(self, place: TopicPartition) -> bool:
        """Return True if the fault may damage this partition's log: only if it deletes the partition's leader-epoch
        checkpoint, by which replicas truncate their logs.

        The loss of one of the other three files does not break the replication protocol. A broker then scans more of
        its log, starts with a lower high watermark, or shows deleted records again.
        """
        return self._needs_partition and super().rots(place)

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        files = ("recovery-point", "replication-offset", "log-start-offset", "leader-epoch")
        return {**(super().draw_fields(draw) or {}), "file": draw.more.choice(files)}


PartitionT = TypeVar("PartitionT", bound=PartitionFault)


class PartitionInjection(DiskInjection[PartitionT]):
    """Base injection of faults of a partition's files: finds these files on a node, and kills nodes."""

    def __init__(self, fault: PartitionT, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self.place = fault.place

    def _replica(self, node: LocalNode) -> Path:
        found = node.disk.partition(*self.place)
        if found is None:
            raise self.not_confirmed(f"{node.name} has no replica of {self.place} on its disk")
        return found

    def _segment(self, node: LocalNode, which: str) -> Segment:
        found = segments(self._replica(node))
        if which == "closed":
            found = found[:-1]
        if not found:
            raise self.not_confirmed(f"{self.place} on {node.name} has no {which} segment yet")
        return found[-1]

    def _kill(self) -> None:
        self._strike(lambda node: node.kill(), "SIGKILL")
        self._await_state(NodeState.GONE, GONE_WITHIN_S)
        # A broker that is killed during its start may still have its clean-shutdown file. With that file it would
        # check none of its files, which cannot be right for a broker that was writing them.
        for node in self.nodes:
            for log_dir in node.disk.log_dirs:
                (log_dir / CLEAN_SHUTDOWN).unlink(missing_ok=True)


@injects(TruncateSegment)
class _TruncateSegmentInjection(PartitionInjection[TruncateSegment]):
    """Kill the node, and cut the last bytes off a segment's file. Confirmed when the file is shorter and its whole
    batches end at a lower offset. Raises `FaultNotConfirmed` if the node has no such segment."""

    def inject(self) -> str:
        self._before: dict[int, tuple[Segment, int, int]] = {}
        for node in self.nodes:
            self._segment(node, self.fault.segment)
        self._kill()
        for node in self.nodes:
            segment = self._segment(node, self.fault.segment)
            end, complete = segment.complete()
            self._before[node.id] = (segment, segment.size(), end)
            os.truncate(segment.path, max(0, complete - self.fault.bytes))
        which = f"the {self.fault.segment} segment of {self.place}"
        return f"SIGKILL to {self._name_nodes()}, and {self.fault.bytes} B cut off {which}"

    def confirm(self) -> str:
        said = [self._await_state(NodeState.GONE, GONE_WITHIN_S)]
        for node in self.nodes:
            segment, size, end = self._before[node.id]
            now, now_end = segment.size(), segment.end()
            if now >= size or now_end >= end:
                raise self.not_confirmed(
                    f"{segment.path.name} of {node.name} had {size} B and has {now} B: no record is gone"
                )
            said.append(
                f"{segment.path.name} of {node.name} had {size} B up to offset {end}, "
                f"now {now} B with whole batches up to {now_end}"
            )
        return "; ".join(said)


@injects(DeleteCheckpoint)
class _DeleteCheckpointInjection(PartitionInjection[DeleteCheckpoint]):
    """Kill the node, and delete a checkpoint file: the one in each of its log dirs, or the partition's. Confirmed when
    the process and the files are gone. Raises `FaultNotConfirmed` if the node has no such file."""

    def inject(self) -> str:
        for node in self.nodes:
            self._there(node)
        self._kill()
        self._deleted = [path for node in self.nodes for path in self._there(node)]
        for path in self._deleted:
            path.unlink()
        return f"SIGKILL to {self._name_nodes()}, and {_FILES[self.fault.file]} deleted"

    def confirm(self) -> str:
        witness = self._await_state(NodeState.GONE, GONE_WITHIN_S)
        for path in self._deleted:
            if path.exists():
                raise self.not_confirmed(f"{self._name_nodes()} still has {path.name}")
        return f"{witness}; {len(self._deleted)} file(s) {_FILES[self.fault.file]} gone from its disk"

    def _there(self, node: LocalNode) -> list[Path]:
        name = _FILES[self.fault.file]
        of_partition = self.fault.file == "leader-epoch"
        folders = [self._replica(node)] if of_partition else list(node.disk.log_dirs)
        found = [folder / name for folder in folders if (folder / name).exists()]
        if not found:
            raise self.not_confirmed(f"{node.name} has no {name} to delete")
        return found
