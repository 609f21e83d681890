"""Work on node after node in the model: rolling restarts, and upgrades, which change the rules that nodes go by."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, TypeVar

from ackproof.experiment.kafka import ELR, numbers
from ackproof.faults.rollouts.rolling import RollingRestart, Upgrade
from ackproof.rundir.metadata import FeatureDecided
from ackproof_reference.rules import Rules, rules_of
from ackproof_simulator.faults.processes import RestartRun
from ackproof_simulator.faults.virtual import Aim, does
from ackproof_simulator.world import World

RolloutT = TypeVar("RolloutT", bound=RollingRestart | Upgrade)


class _Rollout(RestartRun[RolloutT]):
    """Node after node; the next when all ISRs are full again. The first one's turn is the injection."""

    WITHIN_S: ClassVar[float] = 600.0
    await_isr = True
    rest_s = 0.0

    def in_turn(self, nodes: tuple[int, ...]) -> tuple[int, ...]:
        """Controllers before brokers, the active controller as the last of its kind."""
        control = self.world.control
        return tuple(sorted(nodes, key=lambda node: (node in control.brokers, node == control.acting, node)))

    def inject(self) -> str:
        self.nodes = self.in_turn(self.nodes)
        self.lives = {node: self.host(node).life for node in self.nodes}
        super().inject()
        return f"SIGTERM and start of node {self.nodes[0]}, the first of {len(self.nodes)}"

    def prepare(self, node: int) -> None:
        """What changes at a node between its end and its start."""

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

    def bites(self) -> bool:
        """Another process runs the first node."""
        first = self.nodes[0]
        return self.host(first).life != self.lives[first] and self.world.control.ready(first)

    def healed(self) -> bool:
        """All have been through it, and answer."""
        through = all(self.host(node).life != self.lives[node] for node in self.nodes)
        return not self.left and through and super().healed()


@does(RollingRestart)
class RollingRun(_Rollout[RollingRestart]):
    """Nodes are restarted one after the other."""

    def __init__(self, fault: RollingRestart, aim: Aim, world: World) -> None:
        super().__init__(fault, aim, world)
        self.await_isr, self.rest_s = fault.await_isr, fault.rest


@does(Upgrade)
class UpgradeRun(_Rollout[Upgrade]):
    """The same on another release: each node goes by its rules from its start on; then the feature levels rise."""

    raised = False

    def in_turn(self, nodes: tuple[int, ...]) -> tuple[int, ...]:
        """Everybody, whoever it is aimed at."""
        control = self.world.control
        return super().in_turn(tuple({*nodes, *control.controllers, *control.brokers}))

    def prepare(self, node: int) -> None:
        """The node goes by the other release's rules; so do the controller's decisions once one of them decides."""
        for partition in self.world.control.partitions:
            rules = self._of_the_release(partition.rules)
            if node in partition.brokers:
                partition.own[node] = rules
        control = self.world.control
        if node in control.controllers:
            control.newer.add(node)
            control.by_newer = self._of_the_release

    def _of_the_release(self, rules: Rules) -> Rules:
        """Another release's code under the same settings and feature levels."""
        code = rules_of(self.fault.to.version, elr=rules.elr)
        return replace(
            code,
            min_insync=rules.min_insync,
            unclean_election=rules.unclean_election,
            max_fetch_batches=rules.max_fetch_batches,
            bump_on_shrink=rules.bump_on_shrink,
        )

    def healed(self) -> bool:
        """All run the release; then its levels are asked for, once."""
        if not super().healed():
            return False
        if self.fault.finalise and not self.raised:
            self.raised = True
            self._finalise()
        return True

    def _finalise(self) -> None:
        """Kafka itself switches eligible leader replicas on from 4.1; levels that were chosen stay."""
        for partition in self.world.control.partitions:
            partition.rules = self._of_the_release(partition.rules)
        chosen = self.world.case.experiment.cluster.features
        if (
            ELR in chosen
            or numbers(self.fault.to.version) < (4, 1)
            or self.world.control.partitions[0].rules.elr
        ):
            return
        self.world.journal.note(FeatureDecided, feature=ELR, level=1)
        for partition in self.world.control.partitions:
            partition.rules = replace(partition.rules, elr=True, unclean_shutdown_detection=True)
