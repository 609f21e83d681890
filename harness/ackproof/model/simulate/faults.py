"""Faults of an experiment as virtual ones: what each does to hosts, links and brokers, and when it counts as healed.

A kind that is not registered here cannot be done in the model; `ackproof.plan.on_model` says why, at validation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, TypeVar

from ackproof.errors import FaultNotConfirmed
from ackproof.model.simulate.network import Host
from ackproof.model.simulate.partition import PartitionRun
from ackproof.model.simulate.timing import seconds
from ackproof.model.simulate.world import World
from ackproof.plan.fault_crashes import OutOfMemory
from ackproof.plan.fault_disks import EmptyDisk, PowerLoss
from ackproof.plan.fault_processes import Kill, Pause, Restart, Stop
from ackproof.plan.fault_zookeeper import ExpireSession
from ackproof.plan.faults import FaultSpec
from ackproof.plan.roles import Role
from ackproof_reference.log import Log

Aim = Mapping[Role, Sequence[int]]


class NotYet(FaultNotConfirmed):
    """Who is asked does not answer now, but will: it is asked again."""


class Virtual:
    """A fault while it is being done. `inject` raises `FaultNotConfirmed` where there is nothing to break."""

    WITHIN_S: ClassVar[float] = 60.0
    """As long may it take until it bites, and as long until it has healed, before it counts as failed."""

    def __init__(self, fault: FaultSpec, aim: Aim, world: World) -> None:
        self.fault = fault
        self.aim = aim
        self.world = world
        self.nodes = tuple(sorted({node for nodes in aim.values() for node in nodes}))
        self.witness = "the model's state"
        """What the effect was seen by, once it bites; and that it is over, once it has healed."""

    def inject(self) -> str:
        """Do it; what was done, in words."""
        raise NotImplementedError

    def bites(self) -> bool:
        """Whether its effect is there."""
        return True

    def heal(self) -> str:
        """End it; what was done, in words."""
        return "nothing to heal"

    def abandon(self) -> None:
        """It has failed: nothing of it goes on by itself."""

    def healed(self) -> bool:
        """Whether all is as before."""
        return True

    def host(self, node: int) -> Host:
        """A process."""
        return self.world.network.hosts[node]

    def must_run(self, *, paused: bool = False) -> None:
        """There must be something to break. With `paused` a process that stands still, or only starts, will do."""
        for node in self.nodes:
            host = self.host(node)
            if paused and node in self.world.control.starting:
                continue
            if not host.up or (host.paused and not paused):
                state = "gone" if not host.up else "stopped"
                raise FaultNotConfirmed(
                    f"{self.fault.kind} is aimed at node {node}, which is {state}: nothing to break"
                )

    def must_be_heard(self) -> None:
        """An administrator asks a broker, which asks the active controller."""
        control = self.world.control
        if control.quorum.standing_still >= 0:
            raise NotYet("the active controller's disk stands still")
        if control.active < 0:
            raise FaultNotConfirmed(f"{self.fault.kind}: there is no active controller")
        if not any(control.ready(broker) and control.reaches(broker) for broker in control.brokers):
            raise FaultNotConfirmed(f"{self.fault.kind}: no broker runs that could be asked")

    def names(self) -> str:
        """The nodes in words."""
        return "node " + ", ".join(map(str, self.nodes))

    def later(self, after_s: float, act: Callable[..., None], *args: object) -> None:
        """Go on with it after a time."""
        self.world.clock.after(seconds(after_s), act, *args)


_VIRTUAL: dict[type[FaultSpec], type[Virtual]] = {}
VIRTUAL: Final[Mapping[type[FaultSpec], type[Virtual]]] = _VIRTUAL
"""What does each kind of fault in the model."""
V = TypeVar("V", bound=type[Virtual])


def does(*kinds: type[FaultSpec]) -> Callable[[V], V]:
    """Class decorator: this does faults of these kinds."""

    def note(virtual: V) -> V:
        for kind in kinds:
            _VIRTUAL[kind] = virtual
        return virtual

    return note


class DownRun(Virtual):
    """Processes end, and are started again at the healing, unless another fault wants them dead."""

    def kill(self, node: int) -> None:
        """How one of them ends."""
        self.world.control.kill(node)

    def inject(self) -> str:
        """End them."""
        self.must_run(paused=True)
        for node in self.nodes:
            self.world.holds.add((self.fault.number, node))
            self.kill(node)
        return f"ended {self.names()}"

    def bites(self) -> bool:
        """All are gone."""
        return all(not self.host(node).up for node in self.nodes)

    def heal(self) -> str:
        """Start what is dead."""
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


@does(Kill, OutOfMemory)
class KillRun(DownRun):
    """SIGKILL. An exhausted heap ends the process as suddenly."""


@does(PowerLoss)
class PowerRun(DownRun):
    """What was never flushed is lost: of the page cache a random prefix is left, or what `keep` says."""

    def kill(self, node: int) -> None:
        """Cut the power."""
        assert isinstance(self.fault, PowerLoss)
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
class EmptyRun(DownRun):
    """The disk is empty: the broker comes back under its id with nothing."""

    def kill(self, node: int) -> None:
        """End it and empty its disk."""
        self.world.control.kill(node)
        for partition in self.world.partitions:
            if node in partition.brokers:
                partition.brokers[node] = partition.brokers[node]._replace(log=Log())


@does(Stop)
class StopRun(DownRun):
    """SIGTERM: a controlled shutdown."""

    def inject(self) -> str:
        """Ask them to stop."""
        self.must_run()
        for node in self.nodes:
            self.world.holds.add((self.fault.number, node))
            self.world.control.terminate(node, lambda: None)
        return f"SIGTERM to {self.names()}"


@does(Restart)
class RestartRun(Virtual):
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
        """All answer."""
        return all(self.world.control.ready(node) for node in self.nodes)


@does(Pause)
class PauseRun(Virtual):
    """SIGSTOP; its connections stay open."""

    def inject(self) -> str:
        """Freeze them."""
        self.must_run()
        for node in self.nodes:
            self.world.network.pause(self.host(node))
        self.lives = {node: self.host(node).life for node in self.nodes}
        self.world.control.look()
        return f"SIGSTOP to {self.names()}"

    def bites(self) -> bool:
        """All stand still."""
        return all(self.host(node).paused for node in self.nodes)

    def heal(self) -> str:
        """Let them go on."""
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
class ExpireRun(Virtual):
    """A broker's ZooKeeper session ends; it registers anew by itself."""

    def inject(self) -> str:
        """End it."""
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
        """They are registered."""
        return all(self.world.control.ready(node) for node in self.nodes)
