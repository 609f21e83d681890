"""Faults of a partition's files that come down to offsets: the end of a log, a checkpoint, another log dir."""

from __future__ import annotations

from ackproof.base.errors import FaultNotConfirmed
from ackproof.experiment.kafka import numbers
from ackproof.faults.disks.log_files import DeleteCheckpoint, TruncateSegment
from ackproof.faults.planned.move_log_dir import MoveLogDir
from ackproof_reference.broker import with_checkpoint
from ackproof_reference.controller import clear_eligible
from ackproof_reference.log import truncate
from ackproof_simulator.faults.disks import in_sync
from ackproof_simulator.faults.processes import DownRun
from ackproof_simulator.faults.virtual import Virtual, does
from ackproof_simulator.partition import PartitionRun

HEADER = 61
"""Bytes of a batch before its records."""
COPIED = 50 << 20
"""Bytes that a broker copies from one log dir to another in a second."""


@does(TruncateSegment)
class TruncateRun(DownRun[TruncateSegment]):
    """Killed, and the last bytes of its log are gone: with them each batch that is not whole any more."""

    def kill(self, node: int) -> None:
        partition = self.world.partition(*self.fault.place)
        if node not in partition.brokers or not partition.log(node).batches:
            raise FaultNotConfirmed(f"node {node} has nothing of {self.fault.place} that could be cut off")
        self.world.control.kill(node)
        broker = partition.brokers[node]
        gone, keep = 0, broker.log.end
        for batch in reversed(broker.log.batches):
            if gone >= self.fault.bytes:
                break
            gone += HEADER + batch.length * partition.around.record_bytes
            keep = batch.base
        partition.brokers[node] = broker._replace(log=truncate(broker.log, keep))
        self.witness = f"the log of node {node} ended at {broker.log.end}, now at {keep}"


@does(DeleteCheckpoint)
class CheckpointRun(DownRun[DeleteCheckpoint]):
    """Killed, and a checkpoint is gone. Without high watermarks it begins at the start of its logs.

    The others cost nothing here: a kill has the active segment recovered anyway, which finds its leader epochs; there
    are no others; logs begin at 0.
    """

    def kill(self, node: int) -> None:
        self.world.control.kill(node)
        for partition in self.world.control.partitions:
            if node in partition.brokers and self.fault.file == "replication-offset":
                broker = partition.brokers[node]
                partition.brokers[node] = with_checkpoint(broker, broker.log.start)


@does(MoveLogDir)
class MoveDirRun(Virtual[MoveLogDir]):
    """Each replica is copied to the next log dir of its broker, which then tells the controller."""

    def inject(self) -> str:
        self.must_run()
        place = self.fault.partition
        self.partition = self.world.partition(place.topic, place.partition)
        dirs = self.world.case.experiment.cluster.log_dirs
        holding = [node for node in self.nodes if node in self.partition.image.partition.replicas]
        if holding != list(self.nodes):
            raise FaultNotConfirmed(f"not each of {self.names()} holds a replica of {place} that could move")
        self.to = {node: (self.partition.folder_at(node) + 1) % dirs for node in self.nodes}
        for node, folder in self.to.items():
            copied = self.partition.log(node).end * self.partition.around.record_bytes
            self.later(0.1 + copied / COPIED, self._moved, self.partition, node, folder, self.host(node).life)
        return f"asked for the move of {place} at {self.names()}"

    def _moved(self, partition: PartitionRun, node: int, folder: int, life: int) -> None:
        control, disks = self.world.control, self.world.control.disks
        if self.host(node).life != life:
            return  # the copy is made anew at its start, which nobody waits for here
        for at in (partition.folder_at(node), folder):
            if disks.holds(node, at, self._moved, partition, node, folder, life):
                return
        if not self.host(node).running or not control.reaches(node):
            self.later(0.1, self._moved, partition, node, folder, life)
            return
        partition.moved[node] = folder
        if self.world.case.experiment.cluster.metadata.broker_controls:
            return
        self.world.journal.moving = True
        state = partition.image.partition
        image = partition.image._replace(partition=state._replace(epoch=state.epoch + 1))
        if state.elr and numbers(self.world.case.experiment.cluster.kafka.version) < (4, 3):
            # handleAssignReplicasToDirs builds its change as if eligible leader replicas were off.
            image = clear_eligible(partition.image)
        control.apply(partition, image)

    def bites(self) -> bool:
        """Each lies in the other log dir."""
        now = {node: self.partition.folder_at(node) for node in self.nodes}
        self.witness = f"{self.partition.topic}/{self.partition.number} lies in log dir " + ", ".join(
            f"{folder + 1} of node {node}" for node, folder in now.items()
        )
        return now == self.to

    def healed(self) -> bool:
        return in_sync(self.world, self.nodes)
