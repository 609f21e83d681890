"""Planned work in the model: elections and moves of partitions, brokers that are taken out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeVar

from ackproof.base.errors import FaultNotConfirmed
from ackproof.faults.planned.elections import ElectPreferred, ElectUnclean
from ackproof.faults.planned.reassignments import CancelReassign, Move, Reassign
from ackproof.faults.rollouts.decommission import Decommission
from ackproof_reference.controller import cancel_reassignment, elect, reassign
from ackproof_reference.election import Election
from ackproof_simulator.faults.processes import DownRun
from ackproof_simulator.faults.virtual import Virtual, does
from ackproof_simulator.partition import PartitionRun


@does(ElectPreferred)
@does(ElectUnclean)
class ElectRun(Virtual[ElectPreferred | ElectUnclean]):
    """An administrator asks for an election."""

    def inject(self) -> str:
        place = self.fault.partition
        partition = self.world.partition(place.topic, place.partition)
        kind = Election.PREFERRED if isinstance(self.fault, ElectPreferred) else Election.UNCLEAN
        self.before = partition.image.partition
        self.must_be_heard()
        image = elect(partition.image, kind, self.world.control.rules(partition))
        if image is partition.image:
            raise FaultNotConfirmed(f"{self.fault.kind}: leader {self.before.leader} stays as it was")
        self.world.control.apply(partition, image)
        return f"leader {self.before.leader} → {image.partition.leader}"


MoveT = TypeVar("MoveT", bound=Move)


class _MoveRun(Virtual[MoveT]):
    """What reassignments have in common."""

    WITHIN_S: ClassVar[float] = 90.0

    def inject(self) -> str:
        self.must_be_heard()
        self.partition = self.world.partition(*self.fault.partition)
        self.before = self.partition.image.partition
        if self.before.replicas == self.fault.to:
            raise FaultNotConfirmed(f"it has the replicas {list(self.fault.to)} already: nothing to move")
        self.partition.throttle = self.fault.throttle or 0
        self.world.control.apply(
            self.partition,
            reassign(self.partition.image, self.fault.to, self.world.control.rules(self.partition)),
        )
        return f"replicas {list(self.before.replicas)} → {list(self.fault.to)}"

    def bites(self) -> bool:
        return self.partition.image.partition.replicas != self.before.replicas

    def goes_on(self) -> bool:
        """Whether replicas come or go."""
        now = self.partition.image.partition
        return bool(now.adding or now.removing)

    def all_in_sync(self, replicas: Sequence[int]) -> bool:
        """Whether exactly these hold it, every one in the ISR and with a log of its own."""
        now = self.partition.image.partition
        return (
            not self.goes_on()
            and set(now.replicas) == set(replicas) == set(now.isr)
            and all(self.partition.brokers[broker].process.role is not None for broker in replicas)
        )


@does(Reassign)
class ReassignRun(_MoveRun[Reassign]):
    """A partition gets other replicas; it is through when all of them are in sync."""

    def healed(self) -> bool:
        """The new replicas are in sync."""
        done = self.all_in_sync(self.fault.to) and self.partition.image.partition.replicas == self.fault.to
        if done:
            self.partition.throttle = 0
        return done


@does(CancelReassign)
class CancelRun(_MoveRun[CancelReassign]):
    """A move that is cancelled half way."""

    def bites(self) -> bool:
        """They change, and it goes on."""
        return super().bites() and self.goes_on()

    def heal(self) -> str:
        """Cancel it; once it is through there is nothing to cancel."""
        self.partition.throttle = 0
        if not self.goes_on():
            raise FaultNotConfirmed(
                "it was through before it was cancelled; a smaller throttle makes it last"
            )
        self.must_be_heard()
        image = cancel_reassignment(self.partition.image, self.world.control.rules(self.partition))
        self.world.control.apply(self.partition, image)
        return "cancelled it"

    def healed(self) -> bool:
        """The replicas are those that there were; Kafka does not put them back in their order."""
        return self.all_in_sync(self.before.replicas)


@does(Decommission)
class DecommissionRun(DownRun[Decommission]):
    """Brokers are drained and stopped, or killed and replaced; they come back empty-handed."""

    WITHIN_S: ClassVar[float] = 90.0

    def inject(self) -> str:
        self.must_run()
        self.must_be_heard()
        self.gone = False
        if not self.fault.drain:
            for node in self.nodes:
                self.world.holds.add((self.fault.number, node))
                self.kill(node)
            self.gone = True
        self.moved = self._move_all()
        self._look()
        did = "drained" if self.fault.drain else "killed"
        return f"{did} {self.names()}: {self.moved} replicas went to other brokers"

    def _move_all(self) -> int:
        others = [
            broker
            for broker in self.world.control.brokers
            if broker not in self.nodes and self.host(broker).running
        ]
        held: dict[int, int] = dict.fromkeys(others, 0)
        for partition in self.world.control.partitions:
            for broker in partition.image.partition.replicas:
                if broker in held:
                    held[broker] += 1
        moved = 0
        for partition in self.world.control.partitions:
            target = self._target(partition, held)
            moved += sum(
                new != old for new, old in zip(target, partition.image.partition.replicas, strict=True)
            )
            if target != partition.image.partition.replicas:
                self.world.control.apply(
                    partition, reassign(partition.image, target, self.world.control.rules(partition))
                )
        return moved

    def _target(self, partition: PartitionRun, held: Mapping[int, int]) -> tuple[int, ...]:
        """Each replica that goes is taken by the broker with the fewest."""
        counted = dict(held)
        replicas = list(partition.image.partition.replicas)
        for index, broker in enumerate(replicas):
            if broker in self.nodes:
                free = [other for other in counted if other not in replicas]
                if not free:
                    raise FaultNotConfirmed(f"nobody could take the replica that broker {broker} holds")
                replicas[index] = min(free, key=lambda other: (counted[other], other))
                counted[replicas[index]] += 1
        return tuple(replicas)

    def _empty(self) -> bool:
        """Whether nothing is left on them, and every ISR is full without them."""
        return all(
            not set(self.nodes) & set(now.replicas) and set(now.isr) == set(now.replicas)
            for now in (partition.image.partition for partition in self.world.control.partitions)
        )

    def _look(self) -> None:
        """Who is drained shuts down."""
        if self.gone:
            return
        if not self._empty():
            self.later(0.05, self._look)
            return
        self.gone = True
        for node in self.nodes:
            self.world.holds.add((self.fault.number, node))
            self.world.control.terminate(node, lambda: None)

    def bites(self) -> bool:
        """Gone, and nothing is left on them."""
        return self.gone and super().bites() and self._empty()
