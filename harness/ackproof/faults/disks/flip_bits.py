"""Bit flips in a record batch on the disk of a running broker.

The witness is the file itself, read again: the checksum of the batch was right before, and is wrong now. The
timeline also states on which other nodes the batch is intact.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from pydantic import Field

from ackproof.base.errors import AckproofError, FaultNotConfirmed
from ackproof.base.wait import wait_until
from ackproof.cluster.disks.log import Batch, Segment, segments
from ackproof.cluster.protocol import LocalNode, NodeState, local
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.exposure import Draw
from ackproof.experiment.fault import Grip
from ackproof.experiment.problems import Data
from ackproof.faults.context import FREE_WITHIN_S, LOOK_EVERY_S, FaultContext
from ackproof.faults.disks.log_files import PartitionFault, PartitionInjection, SegmentField
from ackproof.faults.injection import Aim, injects
from ackproof.faults.processes import GONE_WITHIN_S

_RECORDS_FROM: Final = 61
"""Position of the records in a batch, in bytes: the size of the batch header."""


class FlipBits(PartitionFault):
    """One bit of a record batch is flipped in a segment of a broker that keeps running.

    Kafka does not look for such damage by itself: a reader of the leader finds it, or a recovery after an unclean
    shutdown. Only replication repairs it. Healing kills the broker, removes that replica, and starts the broker. The
    bit is flipped back instead unless all other replicas are in sync, run, and are held by no other fault.
    """

    KIND = "flip_bits"
    OVER = frozenset(Grip)
    NOT_SIMULATED = "the protocol does not say what a broker does about a wrong checksum"
    SUMMARY = "Flip a bit of a record batch on disk (`segment: active` or `closed`)."
    HEALING = "replicate the log again"
    HOLD_KEY = "for"

    segment: SegmentField = Field("active", description="Segment whose bit is flipped.")

    def keeps(self, spec: ExperimentSpec) -> None:
        """Return the state in which the fault keeps its nodes: None, because the broker keeps running until the fault
        heals. So other faults can still hit the broker."""

    def misfits(self, experiment: ExperimentSpec) -> Iterator[tuple[str, str]]:
        topic = experiment.topics.get(self.place.topic)
        if topic is not None and topic.replication_factor < 2:
            name = "target" if self.partition is None else "partition"
            yield name, f"{self.place} has one replica only: nothing could mend it"

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Draw the field `target`: a follower of some partition, because clients read the records of a leader."""
        place = draw.other_place()
        return {"target": f"follower({place})"}


@injects(FlipBits)
class _FlipBitsInjection(PartitionInjection[FlipBits]):
    """Flip one bit in the middle of the records of a segment's middle batch. Confirmed when the batch's checksum, read
    again, is wrong. Raises `FaultNotConfirmed` if the segment has no batch, or if the checksum was wrong before."""

    def __init__(self, fault: FlipBits, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._flipped: dict[int, tuple[Segment, Batch, int]] = {}
        """Segment, batch, and offset of the flipped byte in the file, by node."""

    def inject(self) -> str:
        said = []
        for node in self.nodes:
            segment = self._segment(node, self.fault.segment)
            batches = list(segment.batches())
            if not batches:
                raise FaultNotConfirmed(f"flip_bits: {segment.path.name} of {node.name} holds no batch yet")
            batch = batches[len(batches) // 2]
            if not segment.intact(batch):
                raise FaultNotConfirmed(f"flip_bits: {node.name}'s batch at {batch.first} was rotten before")
            at = batch.position + _RECORDS_FROM + (batch.size - _RECORDS_FROM) // 2
            self._flipped[node.id] = segment, batch, at
            flip(segment.path, at)
            said.append(f"byte {at} of {self.place} {segment.path.name} on {node.name}")
        return f"flipped a bit of {', '.join(said)}"

    def confirm(self) -> str:
        said = []
        for node in self.nodes:
            segment, batch, _ = self._flipped[node.id]
            first, last = batch.first, batch.last
            if segment.intact(batch):
                raise FaultNotConfirmed(
                    f"flip_bits: the checksum of {node.name}'s batch at {first} still holds: nothing was flipped"
                )
            sound = [
                other.name
                for other in local(self.context.cluster.brokers())
                if other.id not in self._flipped and self._holds(other, first)
            ]
            elsewhere = (
                f"; it holds on {', '.join(sound)}" if sound else "; no other replica holds that batch"
            )
            said.append(
                f"read again, the checksum of offsets {first} to {last} does not hold on {node.name}{elsewhere}"
            )
        return "; ".join(said)

    def heal(self) -> str:
        """Kill the broker, remove the replica, and start the broker, which then replicates; return what was done, in
        words. If `_others_in_sync` is False, flip the bit back instead, and leave the broker running."""
        touched = [node for node in self.nodes if node.id in self._flipped]
        if not touched:
            return "nothing was flipped"
        if not self._others_in_sync():
            back = [node.name for node in touched if self._put_bit_back(node)]
            return f"{self.place} has no replica to copy from: bit flipped back on {', '.join(back) or 'no node'}"
        for node in touched:
            with self.holds.acting_on(node.id):
                self.holds.take(node.id, self.fault.number, Grip.DOWN)
                node.kill()
        self._await_state(NodeState.GONE, GONE_WITHIN_S)
        for node in touched:
            wait_until(
                lambda node=node: self._removed(node),  # type: ignore[misc]
                what=f"the other faults on node {node.id} to leave its disk",
                timeout_s=FREE_WITHIN_S,
                interval_s=LOOK_EVERY_S,
                stop=self.context.stop,
            )
        return f"killed {self._name_nodes()}, removed its replica of {self.place}; {self._start_dead_nodes()}"

    def confirm_healed(self) -> str:
        if not self._flipped:
            return "nothing was flipped"
        witness = super().confirm_healed()
        for node in self.nodes:
            if node.id not in self._flipped:
                continue
            first = self._flipped[node.id][1].first
            replica = node.disk.partition(*self.place)
            found = None if replica is None else _batch_of(replica, first)
            if found is not None and not found[0].intact(found[1]):
                raise FaultNotConfirmed(f"flip_bits: {node.name}'s batch at {first} is rotten still")
        return f"{witness}; the checksum holds again"

    def _put_bit_back(self, node: LocalNode) -> bool:
        """Flip the bit of this node's replica back. Return False if the batch no longer exists, is intact, or cannot be
        read or written."""
        segment, batch, at = self._flipped[node.id]
        try:
            now = next((found for found in segment.batches() if found.position == batch.position), None)
            if now is None or now != batch or segment.intact(now):
                return False
            flip(segment.path, at)
        except OSError:
            return False
        return True

    def _others_in_sync(self) -> bool:
        """Return True if there are other replicas, and all of them are in sync, running, and held by no other fault.
        Only then may the damaged replica be removed."""
        state = self.context.cluster.topic_state([self.place.topic]).get(self.place)
        if state is None:
            return False
        others = set(state.replicas) - self._flipped.keys()
        nodes = self.context.cluster.nodes
        return (
            bool(others)
            and others <= set(state.isr)
            and all(
                nodes[broker].state() is NodeState.RUNNING
                and not self.holds.others(broker, self.fault.number)
                for broker in others
            )
        )

    def _removed(self, node: LocalNode) -> bool:
        """Remove the partition's replica from this node. Return False if that fails while another fault holds the node.
        Raises `AckproofError` if it fails otherwise."""
        broken = bool(self.holds.others(node.id, self.fault.number))
        try:
            with self.holds.acting_on(node.id):
                if replica := node.disk.partition(*self.place):
                    shutil.rmtree(replica)
        except OSError as error:
            if not broken:
                raise AckproofError(f"the replica of {self.place} could not be removed: {error}") from error
            return False
        return True

    def _holds(self, node: LocalNode, offset: int) -> bool:
        replica = node.disk.partition(*self.place)
        found = None if replica is None else _batch_of(replica, offset)
        return found is not None and found[0].intact(found[1])


def flip(file: Path, position: int) -> None:
    """Flip the lowest bit of the byte at `position` of a file, in place. Raises OSError, and ValueError beyond the
    file's end."""
    opened = os.open(file, os.O_RDWR)
    try:
        (byte,) = os.pread(opened, 1, position)
        os.pwrite(opened, bytes([byte ^ 1]), position)
    finally:
        os.close(opened)


def _batch_of(replica: Path, offset: int) -> tuple[Segment, Batch] | None:
    for segment in reversed(segments(replica)):
        if segment.base <= offset:
            found = next((batch for batch in segment.batches() if batch.first <= offset <= batch.last), None)
            return None if found is None else (segment, found)
    return None
