"""Simulates faults of processes: kill, stop, pause, starve, restart; lost disks, a lost quorum, clock jumps.

Kafka's request and follower time-outs use the wall clock, sessions do not.
"""

from __future__ import annotations

from typing import ClassVar

from ackproof.experiment.kafka import numbers
from ackproof.faults.clocks import ClockJump
from ackproof.faults.crashes import CrashLoop, KillStarting, OutOfMemory, Starve
from ackproof.faults.disks.disk import EmptyDisk
from ackproof.faults.disks.power_loss import PowerLoss
from ackproof.faults.processes import Kill, Pause, Restart, Stop
from ackproof.faults.quorum import LoseQuorum
from ackproof.faults.zookeeper import ExpireSession
from ackproof_reference.log import Log
from ackproof_simulator.clock import SECOND, seconds
from ackproof_simulator.faults.virtual import SpecT, Virtual, does
from ackproof_simulator.partition import PartitionRun


@does(Kill)
@does(OutOfMemory)
class DownRun(Virtual[SpecT]):
    """Kill processes, by SIGKILL or by an exhausted heap: both end a process at once.

    Healing starts the nodes again, unless another fault holds them down."""

    def kill(self, node: int) -> None:
        self.world.control.kill(node)

    def inject(self) -> str:
        self.must_run(paused=True)
        for node in self.nodes:
            self.world.holds.add((self.fault.number, node))
            self.kill(node)
        return f"ended {self.names()}"

    def is_in_effect(self) -> bool:
        return all(not self.host(node).up for node in self.nodes)

    def heal(self) -> str:
        for node in self.nodes:
            self.world.holds.discard((self.fault.number, node))
            if not self.host(node).up and not self.world.held_down(node):
                self.world.control.start(node)
        return f"started {self.names()}"

    def healed(self) -> bool:
        """Return True if the nodes run and answer, and the brokers among them are unfenced. Nodes that another fault
        holds down or has paused do not count."""
        return all(
            self.world.control.ready(node) or self.world.held_down(node) or self.host(node).paused
            for node in self.nodes
        )


@does(PowerLoss)
class _PowerRun(DownRun[PowerLoss]):
    """Cut the power of nodes. Each log ends at an offset, but never below its flushed records.

    The offset is `keep` of the fault, if that is set. With `how: cut` only flushed records are kept. Otherwise the
    offset is random, because the kernel may have written back more. It is at least the log end at the last sync of the
    file system, and at most the present log end."""

    def kill(self, node: int) -> None:
        keep, how = self.fault.keep, self.fault.how

        def remaining_end(partition: PartitionRun) -> int:
            log = partition.log(node)
            if keep is not None:
                return keep
            if how == "cut":
                return log.flushed
            # The kernel writes pages back in the order of their age: a prefix of the rest has reached the disk.
            safe = max(log.flushed, min(log.end, partition.synced.get(node, 0)))
            return safe + int(self.world.random.random() ** 4 * (log.end - safe))

        self.world.control.kill(node, power=remaining_end)


@does(EmptyDisk)
class _EmptyRun(DownRun[EmptyDisk]):
    """Kill brokers and empty their logs of the experiment's topics. They come back with the same node ids."""

    def kill(self, node: int) -> None:
        self.world.control.kill(node)
        for partition in self.world.partitions:
            if node in partition.brokers:
                partition.brokers[node] = partition.brokers[node]._replace(log=Log())


@does(Stop)
class _StopRun(DownRun[Stop]):
    """Stop nodes with SIGTERM, a controlled shutdown."""

    def inject(self) -> str:
        self.must_run()
        for node in self.nodes:
            self.world.holds.add((self.fault.number, node))
            self.world.control.terminate(node, lambda: None)
        return f"SIGTERM to {self.names()}"


@does(Restart)
class RestartRun(Virtual[SpecT]):
    """Restart nodes one after the other, each by a controlled shutdown. The next node is shut down as soon as the
    process of the node before has started. That node need not be back in the cluster."""

    def inject(self) -> str:
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

    def is_in_effect(self) -> bool:
        return not self.left and all(self.host(node).up for node in self.nodes)

    def healed(self) -> bool:
        return all(self.world.control.ready(node) for node in self.nodes)


@does(Pause)
class _PauseRun(Virtual[SpecT]):
    """Stop processes with SIGSTOP; their connections stay open."""

    def inject(self) -> str:
        self.must_run()
        for node in self.nodes:
            self.world.network.pause(self.host(node))
        self.lives = {node: self.host(node).life for node in self.nodes}
        self.world.control.look()
        return f"SIGSTOP to {self.names()}"

    def is_in_effect(self) -> bool:
        return all(self.host(node).paused for node in self.nodes)

    def heal(self) -> str:
        for node in self.nodes:
            if self.host(node).paused and self.host(node).life == self.lives[node]:
                self.world.network.resume(self.host(node))
        self.world.control.look()
        return f"SIGCONT to {self.names()}"

    def healed(self) -> bool:
        """Return True if the nodes answer. A node whose process has ended meanwhile does not count."""
        return all(
            self.world.control.ready(node) or self.host(node).life != self.lives[node] for node in self.nodes
        )


@does(ExpireSession)
class _ExpireRun(Virtual[ExpireSession]):
    """Expire a broker's ZooKeeper session; the broker registers again by itself."""

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


@does(Starve)
class _StarveRun(_PauseRun[Starve]):
    """Stop and continue processes ten times a second, so that they run for only `share` of the time."""

    PERIOD_S: ClassVar[float] = 0.1

    def inject(self) -> str:
        did = super().inject()
        self.over = False
        self.later(self.PERIOD_S * (1 - self.fault.share), self._run)
        return did.replace("SIGSTOP", "SIGSTOP ten times a second")

    def _run(self) -> None:
        if not self.over:
            super().heal()
            self.later(self.PERIOD_S * self.fault.share, self._stop)

    def _stop(self) -> None:
        if self.over:
            return
        for node in self.nodes:
            if self.host(node).running and self.host(node).life == self.lives[node]:
                self.world.network.pause(self.host(node))
        self.later(self.PERIOD_S * (1 - self.fault.share), self._run)

    def is_in_effect(self) -> bool:
        return True

    def heal(self) -> str:
        self.over = True
        return super().heal()


@does(CrashLoop)
@does(KillStarting)
class _CrashLoopRun(DownRun[CrashLoop | KillStarting]):
    """`crash_loop`: kill and start nodes `times` times. `kill_starting`: kill them, start them, kill them again while
    they start, and leave them down until the healing."""

    def inject(self) -> str:
        self.must_run(paused=True)
        times = self.fault.times if isinstance(self.fault, CrashLoop) else 2
        self.left = dict.fromkeys(self.nodes, times)
        for node in self.nodes:
            self._crash(node)
        return f"ends {self.names()} {times} times"

    def _crash(self, node: int) -> None:
        self.left[node] -= 1
        self.kill(node)
        if self.left[node] or isinstance(self.fault, CrashLoop):
            self.world.control.start(node)
        if self.left[node]:
            self.later(
                self.fault.up + (0.3 if isinstance(self.fault, KillStarting) else 0), self._crash, node
            )

    def is_in_effect(self) -> bool:
        return not any(self.left.values())


@does(LoseQuorum)
class _QuorumRun(Virtual[LoseQuorum]):
    """Pause or kill more than half of the controllers, among them the active one if there is one."""

    def inject(self) -> str:
        control = self.world.control
        others = [node for node in control.controllers if node != control.active]
        first = [control.active] if control.active in control.controllers else []
        nodes = tuple((first + others)[: len(control.controllers) // 2 + 1])
        aim = {self.fault.targets[0]: nodes}
        self.inner: Virtual[LoseQuorum] = (
            _PauseRun(self.fault, aim, self.world)
            if self.fault.by == "pause"
            else DownRun(self.fault, aim, self.world)
        )
        return self.inner.inject()

    def is_in_effect(self) -> bool:
        return self.inner.is_in_effect()

    def heal(self) -> str:
        return self.inner.heal()

    def healed(self) -> bool:
        return self.inner.healed() and self.world.control.active >= 0


@does(ClockJump)
class _ClockRun(Virtual[ClockJump]):
    """Shift a node's wall clock, by which it measures the lag of followers and the age of its own requests.

    After a jump forwards by at least `REQUESTS_S`, requests in flight count as timed out, and the node connects again
    (NetworkClient). After a jump by at least 1.5 times controller.quorum.fetch.timeout.ms, an active controller
    believes that it has not heard from the quorum for too long. It resigns (LeaderState.timeUntilCheckQuorumExpires).
    Before 4.0, such a jump of any other voter also ends the active controller's term, because that voter raises the
    epoch (KIP-996)."""

    REQUESTS_S: ClassVar[float] = 30.0
    """Seconds after which a broker's own requests time out (replica.socket.timeout.ms,
    controller.socket.timeout.ms).
    """

    def inject(self) -> str:
        self.must_run()
        for node in self.nodes:
            self._shift(node, self.fault.by)
        return f"the clock of {self.names()} set to {self.fault.by:+g} s"

    def _shift(self, node: int, by: float) -> None:
        shifts = self.world.network.shifts
        shifts[node] = shifts.get(node, 0) + seconds(by)
        if by >= self.REQUESTS_S:
            self.world.network.reset_all_of(self.host(node))
        quorum = self.world.control.quorum
        spec = self.world.case.experiment.cluster
        # Before KIP-996 any voter that waited for too long raises the epoch, and so ends the leader's.
        disturbs = node == quorum.active or (node in quorum.voters and numbers(spec.kafka.version) < (4, 0))
        overdue = seconds(by) >= 3 * self.world.timing.quorum_timeout // 2
        if disturbs and overdue and not spec.metadata.broker_controls:
            quorum.resign()
            self.world.control.look()

    def _off(self) -> dict[int, float]:
        off = {node: self.world.network.shifts.get(node, 0) / SECOND for node in self.nodes}
        self.witness = "; ".join(f"node {node} takes it for {by:+g} s" for node, by in off.items())
        return off

    def is_in_effect(self) -> bool:
        """Return True if the clock of every target node is wrong. The shifts of all faults on a node add up, so the sum
        can be 0."""
        return all(by != 0 for by in self._off().values())

    def heal(self) -> str:
        for node in self.nodes:
            self._shift(node, -self.fault.by)
        return f"the clock of {self.names()} set right"

    def healed(self) -> bool:
        self._off()
        return self.answer()
