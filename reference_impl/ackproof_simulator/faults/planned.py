"""Simulates planned work: elections, reassignments, decommissioning, rolling restarts, upgrades to a release with other
rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, TypeVar

from ackproof.base.errors import FaultNotConfirmed
from ackproof.experiment.kafka import ELR, numbers
from ackproof.faults.planned.decommission import Decommission
from ackproof.faults.planned.partitions import ElectPreferred, ElectUnclean
from ackproof.faults.planned.reassignments import CancelReassign, Move, Reassign
from ackproof.faults.rolling import RollingRestart, Upgrade
from ackproof.rundir.metadata import FeatureChanged
from ackproof_reference.controller import cancel_reassignment, elect, reassign
from ackproof_reference.election import Election
from ackproof_reference.rules import Rules, rules_of
from ackproof_simulator.faults.processes import DownRun, RestartRun
from ackproof_simulator.faults.virtual import Aim, Virtual, does
from ackproof_simulator.partition import PartitionRun
from ackproof_simulator.world import World


@does(ElectPreferred)
@does(ElectUnclean)
class _ElectRun(Virtual[ElectPreferred | ElectUnclean]):
    """Request an election of a partition's preferred leader, or an unclean one, as an administrator does with
    ElectLeaders."""

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


@does(Reassign)
class _ReassignRun(Virtual[MoveT]):
    """Reassign a partition. The fault has healed when the reassignment is complete and all new replicas are in sync."""

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

    def is_in_effect(self) -> bool:
        return self.partition.image.partition.replicas != self.before.replicas

    def goes_on(self) -> bool:
        now = self.partition.image.partition
        return bool(now.adding or now.removing)

    def all_in_sync(self, replicas: Sequence[int]) -> bool:
        """Return True if no reassignment is under way, exactly these replicas are assigned and in the ISR, and each of
        them leads or follows."""
        now = self.partition.image.partition
        return (
            not self.goes_on()
            and set(now.replicas) == set(replicas) == set(now.isr)
            and all(self.partition.brokers[broker].process.role is not None for broker in replicas)
        )

    def healed(self) -> bool:
        done = self.all_in_sync(self.fault.to) and self.partition.image.partition.replicas == self.fault.to
        if done:
            self.partition.throttle = 0
        return done


@does(CancelReassign)
class _CancelRun(_ReassignRun[CancelReassign]):
    """Start a reassignment; healing cancels it before it is complete."""

    def is_in_effect(self) -> bool:
        return super().is_in_effect() and self.goes_on()

    def heal(self) -> str:
        """Cancel the reassignment; return what was done, in words.

        Raises `FaultNotConfirmed` if it is already complete, if no controller is active, or if no broker can be asked;
        `NotYet` while the active controller's disk is frozen."""
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
        """Return True if the partition has the replicas that it had before, all in sync. They may be in another order,
        which Kafka does not restore."""
        return self.all_in_sync(self.before.replicas)


@does(Decommission)
class _DecommissionRun(DownRun[Decommission]):
    """Take target brokers out. With `drain`: move their replicas to other brokers, then stop them. Without it: kill
    them, then move their replicas. Healing starts them again, without replicas."""

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
        """Return the partition's new assignment: each replica on a target broker moves to another running broker. It
        moves to the one with the fewest replicas that has no replica of this partition.

        `held`: number of replicas on each running broker that is no target, before any partition moves. Raises
        `FaultNotConfirmed` if none of them can take a replica."""
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
        return all(
            not set(self.nodes) & set(now.replicas) and set(now.isr) == set(now.replicas)
            for now in (partition.image.partition for partition in self.world.control.partitions)
        )

    def _look(self) -> None:
        if self.gone:
            return
        if not self._empty():
            self.later(0.05, self._look)
            return
        self.gone = True
        for node in self.nodes:
            self.world.holds.add((self.fault.number, node))
            self.world.control.terminate(node, lambda: None)

    def is_in_effect(self) -> bool:
        return self.gone and super().is_in_effect() and self._empty()


RolloutT = TypeVar("RolloutT", bound=RollingRestart | Upgrade)


@does(RollingRestart)
class _RollingRun(RestartRun[RolloutT]):
    """Restart nodes one after the other. The next restart begins `rest` seconds after the restarted node is ready and,
    with `await_isr`, all ISRs are full. For an upgrade `rest` is 0, and ISRs are always awaited. `inject` begins the
    first restart."""

    WITHIN_S: ClassVar[float] = 600.0

    def __init__(self, fault: RolloutT, aim: Aim, world: World) -> None:
        super().__init__(fault, aim, world)
        self.await_isr, self.rest_s = True, 0.0
        if isinstance(fault, RollingRestart):
            self.await_isr, self.rest_s = fault.await_isr, fault.rest

    def in_turn(self, nodes: tuple[int, ...]) -> tuple[int, ...]:
        """Return these nodes in restart order: nodes without a broker first, then brokers. The node that acts as the
        controller (`Control.acting`) is the last of its group."""
        control = self.world.control
        return tuple(sorted(nodes, key=lambda node: (node in control.brokers, node == control.acting, node)))

    def inject(self) -> str:
        self.nodes = self.in_turn(self.nodes)
        self.lives = {node: self.host(node).life for node in self.nodes}
        super().inject()
        return f"SIGTERM and start of node {self.nodes[0]}, the first of {len(self.nodes)}"

    def prepare(self, node: int) -> None:
        """Change a node between its stop and its start; here: nothing. Subclasses override it."""

    def _started(self, node: int) -> None:
        self.prepare(node)
        self.world.control.start(node)
        self.later(0.05, self._look, node)

    def _look(self, node: int) -> None:
        full = all(
            set(p.image.partition.isr) == set(p.image.partition.replicas)
            for p in self.world.control.partitions
        )
        if self.world.control.ready(node) and (full or not self.await_isr):
            self.later(self.rest_s, self._next)
        else:
            self.later(0.05, self._look, node)

    def is_in_effect(self) -> bool:
        """Return True if the first node runs as a new process, and is back in the cluster."""
        first = self.nodes[0]
        return self.host(first).life != self.lives[first] and self.world.control.ready(first)

    def healed(self) -> bool:
        through = all(self.host(node).life != self.lives[node] for node in self.nodes)
        return not self.left and through and super().healed()


@does(Upgrade)
class _UpgradeRun(_RollingRun[Upgrade]):
    """Upgrade all nodes one after the other; each follows the new release's rules from its start on. At the end raise
    the feature levels, if the fault says `finalise`."""

    raised = False

    def in_turn(self, nodes: tuple[int, ...]) -> tuple[int, ...]:
        """Return all nodes of the cluster in restart order; `nodes` is ignored."""
        control = self.world.control
        return super().in_turn(tuple({*nodes, *control.controllers, *control.brokers}))

    def prepare(self, node: int) -> None:
        """Switch the node to the new release's rules. The rules of a controller govern decisions while it is the active
        controller."""
        for partition in self.world.control.partitions:
            rules = self._of_the_release(partition.rules)
            if node in partition.brokers:
                partition.own[node] = rules
        control = self.world.control
        if node in control.controllers:
            control.newer.add(node)
            control.by_newer = self._of_the_release

    def _of_the_release(self, rules: Rules) -> Rules:
        """Return the rules of the new release under the same settings and feature levels as `rules`."""
        code = rules_of(self.fault.to.version, elr=rules.elr)
        return replace(
            code,
            min_insync=rules.min_insync,
            unclean_election=rules.unclean_election,
            max_fetch_batches=rules.max_fetch_batches,
            bump_on_shrink=rules.bump_on_shrink,
        )

    def healed(self) -> bool:
        """Return True if all nodes run the new release and are healthy. The first time that they are, raise the feature
        levels if the fault says `finalise`."""
        if not super().healed():
            return False
        if self.fault.finalise and not self.raised:
            self.raised = True
            self._finalise()
        return True

    def _finalise(self) -> None:
        """Raise the feature levels to those of the new release. From 4.1 on, eligible leader replicas are then on,
        unless the experiment chose a level."""
        for partition in self.world.control.partitions:
            partition.rules = self._of_the_release(partition.rules)
        chosen = self.world.case.experiment.cluster.features
        if (
            ELR in chosen
            or numbers(self.fault.to.version) < (4, 1)
            or self.world.control.partitions[0].rules.elr
        ):
            return
        self.world.journal.note(FeatureChanged, feature=ELR, level=1)
        for partition in self.world.control.partitions:
            partition.rules = replace(partition.rules, elr=True, unclean_shutdown_detection=True)
