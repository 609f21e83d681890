"""Log dirs that fail, in the model: nothing can be written there any more, so what lies in it is served no more."""

from __future__ import annotations

from collections.abc import Sequence

from ackproof.faults.disks.log_dirs import FailLogDir, FullDisk, LogDirFault
from ackproof.rundir.metadata import BrokerChanged
from ackproof_reference.controller import fence
from ackproof_simulator.clock import MS
from ackproof_simulator.faults.processes import DownRun
from ackproof_simulator.faults.virtual import does
from ackproof_simulator.journal import dir_name
from ackproof_simulator.partition import PartitionRun
from ackproof_simulator.world import World


@does(FullDisk)
@does(FailLogDir)
class LogDirRun(DownRun[LogDirFault]):
    """A broker whose only log dir fails ends (LogManager.handleLogDirFailure); one with several lives on without it."""

    @property
    def single(self) -> bool:
        """Whether a broker has one log dir."""
        return self.world.case.experiment.cluster.log_dirs == 1

    def inject(self) -> str:
        if self.single:
            return f"{super().inject()}: the only log dir failed"
        self.must_run()
        self.lives = {node: self.host(node).life for node in self.nodes}
        self.folders = {node: which_dir(self.fault, self.world, node) for node in self.nodes}
        for node in self.nodes:
            lost = self._lying_there(node)
            for partition in lost:
                partition.lose_log(node)
            self._tell_later(node, lost)
        numbers = sorted({folder + 1 for folder in self.folders.values()})
        return f"log dir {', '.join(map(str, numbers))} of {self.names()} failed"

    def _lying_there(self, node: int) -> list[PartitionRun]:
        return [one for one in self.world.control.partitions if one.folder_at(node) == self.folders[node]]

    def _tell_later(self, node: int, lost: list[PartitionRun]) -> None:
        """Its next heartbeat says that a log dir has failed."""
        wait = int(self.world.random.random() * self.world.timing.heartbeat) + MS
        self.world.clock.after(wait, self._told, node, lost)

    def _told(self, node: int, lost: list[PartitionRun]) -> None:
        """ReplicationControlManager.handleDirectoriesOffline (KIP-858)."""
        control = self.world.control
        if self.host(node).life != self.lives[node]:
            return
        if not control.reaches(node):
            self._tell_later(node, lost)
            return
        for partition in lost:
            # Out of the ISR and not elected, as one that is fenced; but it is not.
            without = fence(partition.image, node, control.rules(partition)).partition
            control.apply(partition, partition.image._replace(partition=without))
        there = range(self.world.case.experiment.cluster.log_dirs)
        left = tuple(dir_name(node, number) for number in there if number != self.folders[node])
        epoch = control.partitions[0].image.registration(node).epoch
        self.world.journal.note(BrokerChanged, node=node, broker_epoch=epoch, log_dirs=left)

    def bites(self) -> bool:
        """Gone; or what lies there is served no more."""
        if self.single:
            return super().bites()
        return all(node in partition.failed for node in self.nodes for partition in self._lying_there(node))

    def heal(self) -> str:
        """Mend it; only a new start brings it back."""
        if self.single:
            return super().heal()
        for node in self.nodes:
            if self.host(node).life == self.lives[node]:
                self.world.control.terminate(node, lambda node=node: self.world.control.start(node))  # type: ignore[misc]
        return f"SIGTERM and start of {self.names()}"

    def healed(self) -> bool:
        """It answers, and holds its replicas in sync again."""
        return (
            super().healed()
            and not any(node in one.failed for node in self.nodes for one in self.world.control.partitions)
            and in_sync(self.world, self.nodes)
        )


def which_dir(fault: LogDirFault, world: World, node: int) -> int:
    """Which log dir of a node is meant, counted from 0: the one that is named, or that of the role's partition."""
    if fault.dir is not None:
        return fault.dir - 1
    role = fault.target
    if role.topic is None or role.partition is None:
        return 0
    return world.partition(role.topic, role.partition).folder_at(node)


def in_sync(world: World, nodes: Sequence[int]) -> bool:
    """Whether these nodes are in the ISR of all their partitions; one that a fault wants dead need not be."""
    return all(
        node not in partition.image.partition.replicas
        or node in partition.image.partition.isr
        or world.held_down(node)
        for node in nodes
        for partition in world.control.partitions
    )
