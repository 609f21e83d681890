"""Faults of disks: failing log dirs, truncated logs, deleted checkpoints, moves between log dirs, disks that stall.

A broker stops serving the replicas in a failed log dir. A truncated log loses its last batches; without its checkpoint
file a broker loses its high watermarks. Timed test writes confirm that a disk stalls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ackproof.base.errors import FaultNotConfirmed
from ackproof.experiment.kafka import numbers
from ackproof.faults.disks.log_dirs import FailLogDir, FullDisk, LogDirFault
from ackproof.faults.disks.log_files import DeleteCheckpoint, TruncateSegment
from ackproof.faults.disks.slow_disk import SlowDisk
from ackproof.faults.planned.partitions import MoveLogDir
from ackproof.rundir.metadata import BrokerChanged
from ackproof_reference.broker import with_checkpoint
from ackproof_reference.controller import clear_eligible, fence
from ackproof_reference.log import truncate
from ackproof_simulator.clock import MS, SECOND
from ackproof_simulator.faults.processes import DownRun
from ackproof_simulator.faults.virtual import Virtual, does
from ackproof_simulator.journal import dir_name
from ackproof_simulator.partition import PartitionRun
from ackproof_simulator.world import World


@does(FullDisk)
@does(FailLogDir)
class _LogDirRun(DownRun[LogDirFault]):
    """Fail one log dir of each target broker. A broker with a single log dir ends (LogManager.handleLogDirFailure); one
    with several goes on without the failed dir."""

    @property
    def single(self) -> bool:
        return self.world.case.experiment.cluster.log_dirs == 1

    def inject(self) -> str:
        if self.single:
            return f"{super().inject()}: the only log dir failed"
        self.must_run()
        self.lives = {node: self.host(node).life for node in self.nodes}
        self.folders = {node: _which_dir(self.fault, self.world, node) for node in self.nodes}
        for node in self.nodes:
            lost = self._lying_there(node)
            for partition in lost:
                partition.lose_log(node)
            self._report_later(node, lost)
        numbers = sorted({folder + 1 for folder in self.folders.values()})
        return f"log dir {', '.join(map(str, numbers))} of {self.names()} failed"

    def _lying_there(self, node: int) -> list[PartitionRun]:
        return [one for one in self.world.control.partitions if one.folder_at(node) == self.folders[node]]

    def _report_later(self, node: int, lost: list[PartitionRun]) -> None:
        """Schedule the report of the failed log dir to the controller at the broker's next heartbeat. `lost`:
        partitions with a replica in it."""
        wait = int(self.world.random.random() * self.world.timing.heartbeat) + MS
        self.world.clock.call_after(wait, self._report_failed_dir, node, lost)

    def _report_failed_dir(self, node: int, lost: list[PartitionRun]) -> None:
        """Report a failed log dir to the controller: it removes the replicas in the dir (`lost`) from ISRs and
        leadership (handleDirectoriesOffline, KIP-858). If the broker does not reach the active controller, try again at
        the next heartbeat. Do nothing if the broker has been restarted or has ended since."""
        control = self.world.control
        if self.host(node).life != self.lives[node]:
            return
        if not control.reaches(node):
            self._report_later(node, lost)
            return
        for partition in lost:
            # Out of the ISR and not elected, as one that is fenced; but it is not.
            without = fence(partition.image, node, control.rules(partition)).partition
            control.apply(partition, partition.image._replace(partition=without))
        there = range(self.world.case.experiment.cluster.log_dirs)
        left = tuple(dir_name(node, number) for number in there if number != self.folders[node])
        epoch = control.partitions[0].image.registration(node).epoch
        self.world.journal.note(BrokerChanged, node=node, broker_epoch=epoch, log_dirs=left)

    def is_in_effect(self) -> bool:
        """Return True if every target broker has ended; or, with several log dirs, if each no longer serves the
        replicas in its failed one.
        """
        if self.single:
            return super().is_in_effect()
        return all(node in partition.failed for node in self.nodes for partition in self._lying_there(node))

    def heal(self) -> str:
        """Repair the log dirs and restart the brokers: a broker uses a repaired dir only after a restart. A broker that
        has ended meanwhile is started only if it has a single log dir. Return what was done, in words."""
        if self.single:
            return super().heal()
        for node in self.nodes:
            if self.host(node).life == self.lives[node]:
                self.world.control.terminate(node, lambda node=node: self.world.control.start(node))  # type: ignore[misc]
        return f"SIGTERM and start of {self.names()}"

    def healed(self) -> bool:
        """Return True if the nodes answer, serve all replicas again and are in all their ISRs. A node that another
        fault keeps down need not answer or be in ISRs, one that is paused need not answer."""
        return (
            super().healed()
            and not any(node in one.failed for node in self.nodes for one in self.world.control.partitions)
            and _in_sync(self.world, self.nodes)
        )


def _which_dir(fault: LogDirFault, world: World, node: int) -> int:
    """Return the number, from 0, of the log dir of `node` that a fault aims at: the named one, else that of the
    target's partition, else 0."""
    if fault.dir is not None:
        return fault.dir - 1
    role = fault.target
    if role.topic is None or role.partition is None:
        return 0
    return world.partition(role.topic, role.partition).folder_at(node)


def _in_sync(world: World, nodes: Sequence[int]) -> bool:
    """Return True if each of these nodes is in the ISR of every partition of which it has a replica. Nodes that a fault
    keeps down are left out."""
    return all(
        node not in partition.image.partition.replicas
        or node in partition.image.partition.isr
        or world.held_down(node)
        for node in nodes
        for partition in world.control.partitions
    )


HEADER = 61
"""Size of a record batch's header in bytes."""
COPIED = 50 << 20
"""Bytes per second that a broker copies from one log dir to another."""


@does(TruncateSegment)
class _TruncateRun(DownRun[TruncateSegment]):
    """Kill brokers and cut the last `bytes` off their logs of one partition; batches that are no longer complete are
    lost."""

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
class _CheckpointRun(DownRun[DeleteCheckpoint]):
    """Kill brokers and delete a checkpoint file of theirs. Without the file of high watermarks
    (`replication-offset-checkpoint`), a restarted broker takes the start offset of each log as its high watermark.

    The other checkpoint files have no effect here: recovery after a kill rebuilds what they contain."""

    def kill(self, node: int) -> None:
        self.world.control.kill(node)
        for partition in self.world.control.partitions:
            if node in partition.brokers and self.fault.file == "replication-offset":
                broker = partition.brokers[node]
                partition.brokers[node] = with_checkpoint(broker, broker.log.start)


@does(MoveLogDir)
class _MoveDirRun(Virtual[MoveLogDir]):
    """Move a partition's replicas to the next log dir of their brokers, by number; the last dir is followed by the
    first. After the copy, each broker reports its new dir to the controller (not in ZooKeeper mode)."""

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
            self.later(
                0.1 + copied / COPIED, self._finish_move, self.partition, node, folder, self.host(node).life
            )
        return f"asked for the move of {place} at {self.names()}"

    def _finish_move(self, partition: PartitionRun, node: int, folder: int, life: int) -> None:
        control, disks = self.world.control, self.world.control.disks
        if self.host(node).life != life:
            return  # the copy begins again at its start, which nobody waits for here
        for at in (partition.folder_at(node), folder):
            if disks.holds(node, at, self._finish_move, partition, node, folder, life):
                return
        if not self.host(node).running or not control.reaches(node):
            self.later(0.1, self._finish_move, partition, node, folder, life)
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

    def is_in_effect(self) -> bool:
        """Return True if every replica is in its new log dir."""
        now = {node: self.partition.folder_at(node) for node in self.nodes}
        self.witness = f"{self.partition.topic}/{self.partition.number} lies in log dir " + ", ".join(
            f"{folder + 1} of node {node}" for node, folder in now.items()
        )
        return now == self.to

    def healed(self) -> bool:
        return _in_sync(self.world, self.nodes)


@does(SlowDisk)
class SlowDiskRun(Virtual[SlowDisk]):
    """Freeze one log dir of each target node for `stall` seconds, let waiting writes pass for 50 ms, and repeat until
    healed. No process ends. If another fault has frozen one of the dirs, this one stops, and its injection or healing
    fails."""

    LET_THROUGH_S: ClassVar[float] = 0.05
    WITHIN_S: ClassVar[float] = 93.0
    """Seconds for the effect and for the recovery: three times the longest stall that an experiment may ask for, and 3
    s for the first freeze, as on real brokers."""

    over = is_still = False
    error = ""

    def inject(self) -> str:
        self.must_run()
        self.folders = {node: _which_dir(self.fault, self.world, node) for node in self.nodes}
        self.probing: dict[int, int] = {}
        self.longest = dict.fromkeys(self.nodes, 0)
        self._freeze()
        if self.error:
            raise FaultNotConfirmed(f"slow_disk: {self.error}")
        return f"{self.names()}: the log's file system stands still for {self.fault.stall:g} s at a time"

    def _freeze(self) -> None:
        if self.over:
            return
        disks = self.world.control.disks
        if any(disks.still(node, folder) for node, folder in self.folders.items()):
            # FIFREEZE says EBUSY.
            self.over, self.error = True, "another fault has frozen the file system"
            return
        self.is_still = True
        quorum = self.world.control.quorum
        for node, folder in self.folders.items():
            disks.freeze(node, folder, quorum.presumed)
        self.world.control.look()
        self.later(self.fault.stall, self._let_through)

    def _let_through(self) -> None:
        if not self.over:
            self._thaw()
            self.later(self.LET_THROUGH_S, self._freeze)

    def _thaw(self) -> None:
        if not self.is_still:
            return
        self.is_still = False
        for node, folder in self.folders.items():
            self.world.control.disks.thaw(node, folder)
        self.world.control.look()

    def _probe(self) -> None:
        """Start a test write at each node at which none is in progress; `_written` notes how long it took."""
        for node, folder in self.folders.items():
            if node not in self.probing:
                self.probing[node] = self.world.clock.now
                self.world.control.disks.probe(node, folder, self._written, node)

    def _written(self, node: int) -> None:
        took = self.world.clock.now - self.probing.pop(node)
        self.longest[node] = max(self.longest[node], took)

    def is_in_effect(self) -> bool:
        """Start test writes, and return True if on every target node one has taken at least half of `stall`."""
        self._probe()
        self.witness = "; ".join(
            f"a write and fsync where node {node} has its log took {took / SECOND:.2f} s"
            for node, took in self.longest.items()
        )
        return all(2 * took >= self.fault.stall * SECOND for took in self.longest.values())

    def heal(self) -> str:
        if self.error:
            raise FaultNotConfirmed(f"slow_disk did not last: {self.error}")
        self.over = True
        self._thaw()
        self.longest = dict.fromkeys(self.nodes, 0)
        return "thawed for good"

    def abandon(self) -> None:
        self.over = True
        self._thaw()

    def healed(self) -> bool:
        """Return True if test writes take less than half of `stall` again, the nodes answer, and their replicas are in
        sync. Nodes that another fault keeps down do not count."""
        self._probe()
        self.witness = "a write and fsync took 0 ms; in the ISR of all its partitions"
        fast = not self.probing and all(
            2 * took < self.fault.stall * SECOND for took in self.longest.values()
        )
        return fast and self.answer() and _in_sync(self.world, self.nodes)
