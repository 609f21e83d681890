"""Processes that end, stand still or are started anew, in the model; disks that lose what they held with them."""

from __future__ import annotations

from ackproof.faults.crashes.out_of_memory import OutOfMemory
from ackproof.faults.disks.empty_disk import EmptyDisk
from ackproof.faults.disks.power_loss import PowerLoss
from ackproof.faults.processes import Kill, Pause, Restart, Stop
from ackproof.faults.zookeeper import ExpireSession
from ackproof_reference.log import Log
from ackproof_simulator.faults.virtual import SpecT, Virtual, does
from ackproof_simulator.partition import PartitionRun


@does(Kill)
@does(OutOfMemory)
class DownRun(Virtual[SpecT]):
    """SIGKILL; an exhausted heap ends a process as suddenly. They
    are started again at the healing, unless another fault wants them dead."""

    def kill(self, node: int) -> None:
        """How one of them ends."""
        self.world.control.kill(node)

    def inject(self) -> str:
        self.must_run(paused=True)
        for node in self.nodes:
            self.world.holds.add((self.fault.number, node))
            self.kill(node)
        return f"ended {self.names()}"

    def bites(self) -> bool:
        return all(not self.host(node).up for node in self.nodes)

    def heal(self) -> str:
        for node in self.nodes:
            self.world.holds.discard((self.fault.number, node))
            if not self.host(node).up and not self.world.held_down(node):
                self.world.control.start(node)
        return f"started {self.names()}"

    def healed(self) -> bool:
        """They answer and, if brokers, are unfenced; what another fault holds down does not count."""
        return all(
            self.world.control.ready(node) or self.world.held_down(node) or self.host(node).paused
            for node in self.nodes
        )


@does(PowerLoss)
class PowerRun(DownRun[PowerLoss]):
    """What was never flushed is lost: of the page cache a random prefix is left, or what `keep` says."""

    def kill(self, node: int) -> None:
        keep, how = self.fault.keep, self.fault.how

        def left(partition: PartitionRun) -> int:
            log = partition.log(node)
            if keep is not None:
                return keep
            if how == "cut":
                return log.flushed
            # The kernel writes pages back in the order of their age: a prefix of the rest has reached the disk.
            safe = max(log.flushed, min(log.end, partition.synced.get(node, 0)))
            return safe + int(self.world.random.random() ** 4 * (log.end - safe))

        self.world.control.kill(node, power=left)


@does(EmptyDisk)
class EmptyRun(DownRun[EmptyDisk]):
    """The disk is empty: the broker comes back under its id with nothing."""

    def kill(self, node: int) -> None:
        """End it and empty its disk."""
        self.world.control.kill(node)
        for partition in self.world.partitions:
            if node in partition.brokers:
                partition.brokers[node] = partition.brokers[node]._replace(log=Log())


@does(Stop)
class StopRun(DownRun[Stop]):
    """SIGTERM: a controlled shutdown."""

    def inject(self) -> str:
        self.must_run()
        for node in self.nodes:
            self.world.holds.add((self.fault.number, node))
            self.world.control.terminate(node, lambda: None)
        return f"SIGTERM to {self.names()}"


@does(Restart)
class RestartRun(Virtual[SpecT]):
    """A graceful bounce, node by node."""

    def inject(self) -> str:
        """Bounce the first; the others follow."""
        self.must_run()
        self.left = list(self.nodes)
        self._next()
        return f"SIGTERM and start of {self.names()}"

    def _next(self) -> None:
        if self.left:
            node = self.left.pop(0)
            self.world.control.terminate(node, lambda: self._started(node))

    def _started(self, node: int) -> None:
        self.world.control.start(node)
        self._next()

    def bites(self) -> bool:
        """All have been through it."""
        return not self.left and all(self.host(node).up for node in self.nodes)

    def healed(self) -> bool:
        return all(self.world.control.ready(node) for node in self.nodes)


@does(Pause)
class PauseRun(Virtual[SpecT]):
    """SIGSTOP; its connections stay open."""

    def inject(self) -> str:
        self.must_run()
        for node in self.nodes:
            self.world.network.pause(self.host(node))
        self.lives = {node: self.host(node).life for node in self.nodes}
        self.world.control.look()
        return f"SIGSTOP to {self.names()}"

    def bites(self) -> bool:
        return all(self.host(node).paused for node in self.nodes)

    def heal(self) -> str:
        for node in self.nodes:
            if self.host(node).paused and self.host(node).life == self.lives[node]:
                self.world.network.resume(self.host(node))
        self.world.control.look()
        return f"SIGCONT to {self.names()}"

    def healed(self) -> bool:
        """They answer; one that another fault has killed meanwhile does not count."""
        return all(
            self.world.control.ready(node) or self.host(node).life != self.lives[node] for node in self.nodes
        )


@does(ExpireSession)
class ExpireRun(Virtual[ExpireSession]):
    """A broker's ZooKeeper session ends; it registers anew by itself."""

    def inject(self) -> str:
        self.must_run()
        for node in self.nodes:
            self.world.control.fence(node)
            self.later(0.02 + 0.1 * self.world.random.random(), self._anew, node)
        return f"ended the session of {self.names()}"

    def _anew(self, node: int) -> None:
        control = self.world.control
        if control.reaches(node) and node in control.fenced:
            control.unfence(node)

    def healed(self) -> bool:
        return all(self.world.control.ready(node) for node in self.nodes)
