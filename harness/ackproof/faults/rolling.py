"""Rolling restart and rolling upgrade. The first node is the injection; the other nodes are part of the healing.

So a fault that comes `after` such a fault begins while it is in progress. The witnesses are the operating system
(another process runs the node) and the protocol (every broker shows full ISRs). For an upgrade they are also each
node's log, which names its release, and another broker, which shows the feature levels in force.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeVar

from pydantic import Field

from ackproof.base.errors import FaultNotConfirmed
from ackproof.base.units import Duration
from ackproof.cluster import admin
from ackproof.cluster.protocol import LocalNode, NodeState, local
from ackproof.experiment.backends import Ability
from ackproof.experiment.base import Flag
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.exposure import Exposure, Incidents
from ackproof.experiment.fault import WHERE_IT_RUNS, Complaints, FaultSpec, Grip
from ackproof.experiment.kafka import IMAGE_ALONE, RULES_ALONE, Kafka, KafkaBuild, numbers
from ackproof.faults.context import FaultContext
from ackproof.faults.injection import Aim, injects
from ackproof.faults.planned.views import await_all_in_sync, views
from ackproof.faults.processes import STOPPED_WITHIN_S, ProcessFault, ProcessInjection
from ackproof.network.wire import WireError

FINAL_WITHIN_S: Final = 30.0
"""Maximum seconds until new feature levels are accepted. Kafka refuses them until every node's new
registration is known."""
_STARTED: Final = re.compile(r"Kafka version: ([0-9.]+)")
_LOG_LINES: Final = 2000
_LOGGED_WITHIN_S: Final = 60.0
"""Seconds to wait for a node's log to name its release. A controller may answer long before it logs that."""


class RollingRestart(ProcessFault):
    """Controlled shutdown and start of one node after the other, as an operator does to load new settings. The next
    node follows when all ISRs are full again or, without `await_isr`, as soon as the node is ready. Isolated
    controllers come before brokers. The active controller is the last of its kind."""

    KIND = "rolling_restart"
    DONE = "restarted one by one"
    PER_NODE = Incidents(clean_stops=1)
    SUMMARY = "Restart node after node by a controlled shutdown; the next when all ISRs are full again."

    await_isr: Flag = Field(True, description="Wait for full ISRs between nodes; false: for the node alone.")
    rest: Duration = Field(0.0, description="Time for which each node runs before the next one's turn.")


class Upgrade(FaultSpec):
    """A rolling upgrade of the whole cluster: controllers, then brokers, then the release's feature levels.

    Each node gets a controlled shutdown and starts on the jars of the other release, with its data.
    """

    KIND = "upgrade"
    DONE = "upgraded"
    PER_NODE = Incidents(clean_stops=1)
    GRIP = Grip.DOWN
    OVER = WHERE_IT_RUNS
    SUMMARY = "Restart node after node on a newer release of Kafka, then raise the feature levels."
    ASKS = frozenset({Ability.PROCESSES, Ability.RELEASES})
    NOT_IN = MappingProxyType({"zookeeper": "no release after 3.9 runs with ZooKeeper"})

    to: Kafka = Field(
        description="Kafka to run afterwards, written as in cluster.kafka: a newer release, or a build of your own."
    )
    finalise: Flag = Field(
        True, description="Raise the feature levels to those of the new release at the end."
    )

    @property
    def builds(self) -> tuple[KafkaBuild, ...]:
        return (self.to,)

    def reach(self, spec: ExperimentSpec) -> tuple[frozenset[int], int]:
        nodes = {*spec.cluster.broker_ids, *spec.cluster.controller_ids}
        return frozenset(nodes), len(nodes)

    def check(self, spec: ExperimentSpec, say: Complaints) -> None:
        if not say.sound(("to",), cluster=True):
            return
        now = spec.cluster.kafka
        newer = numbers(self.to.version) > numbers(now.version)
        alike = self.to.version == now.version and self.to != now
        if not newer and not alike:
            say.report(("to",), f"Kafka {self.to} is not newer than {now}: metadata cannot go back")
        elif self.to.image and spec.backend != "docker":
            say.report(("to",), IMAGE_ALONE)
        elif self.to.has_rules and spec.backend != "process":
            say.report(("to",), RULES_ALONE)

    def __str__(self) -> str:
        return f"{self.kind} to {self.to}"

    def planned(self, exposure: Exposure) -> Incidents:
        return self.observed(exposure.replicas)


RolloutT = TypeVar("RolloutT", bound=RollingRestart | Upgrade)


@injects(RollingRestart)
class _RolloutInjection(ProcessInjection[RolloutT]):
    """Restart nodes one after the other: a controlled shutdown, a start, and a wait until the node is ready. Before the
    next node's turn all ISRs must be full, unless the fault has `await_isr: false`. A fault without targets restarts
    all nodes of the cluster.

    The injection is the first restart, confirmed when another process runs that node. Healing restarts the others. It
    is confirmed when each node has another process and answers, and all ISRs are full.
    """

    def __init__(self, fault: RolloutT, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        active = context.cluster.controller()
        nodes = local(aim.nodes or context.cluster.nodes.values())
        # The active controller is the last of the controllers, so that leadership moves once.
        self.nodes = tuple(sorted(nodes, key=lambda node: (node.is_broker, node.id == active, node.id)))
        self._before = {node.id: node.pid for node in self.nodes}
        self._done: list[LocalNode] = []
        self._begun = False

    def _prepare(self, node: LocalNode) -> None:
        """Change the node between its shutdown and its start; here: nothing. Subclasses override it."""

    def _restart_node(self, node: LocalNode) -> None:
        """Shut one node down and start it, once no other fault holds it. If its process ends, the node is
        started even after an error, unless another fault keeps it down. Raises `FaultNotConfirmed` if the
        node does not end or start in time."""
        self.holds.await_free(node.id, self.fault.number, self.context.stop)
        try:
            self.holds.take(node.id, self.fault.number, Grip.DOWN)
            self._terminate(node)
            self.wait_for(
                lambda: node.state() is NodeState.GONE,
                f"node {node.id} to shut down",
                state=lambda: node.state().value,
                within_s=STOPPED_WITHIN_S,
            )
        finally:
            self.holds.release(node.id, self.fault.number)
            self._start_again(node)
        self.await_ready(node)
        self._confirm_node(node)
        self._done.append(node)

    def _start_again(self, node: LocalNode) -> None:
        with self.holds.acting_on(node.id):
            if node.state() is NodeState.GONE and not self.holds.others(
                node.id, self.fault.number, Grip.DOWN
            ):
                self._prepare(node)
                node.start()

    def _confirm_node(self, node: LocalNode) -> None:
        """Confirm what can be observed only just after the node became ready; here: nothing. Subclasses override it."""

    def inject(self) -> str:
        self._require_breakable()
        first = self.nodes[0]
        self._begun = True
        self._restart_node(first)
        return f"SIGTERM and start of node {first.id}, the first of {len(self.nodes)}"

    def confirm(self) -> str:
        return self._confirm_new_process(self._done)

    def heal(self) -> str:
        """Restart the nodes after the first, which `inject` restarted; return the nodes restarted, in words. If the
        first did not return in time, start it if it is down, and restart no other."""
        self._await_shutdowns()
        for node, _ in tuple(self._terminated.values()):
            if node not in self._done:
                self._start_again(node)
        for node in self.nodes:
            if node in self._done or not self._done:
                continue
            if not isinstance(self.fault, RollingRestart) or self.fault.await_isr:
                await_all_in_sync(self.context)
            if isinstance(self.fault, RollingRestart) and self.fault.rest:
                self._pause_for(self.fault.rest)
            self._restart_node(node)
        return f"went through node {', '.join(str(node.id) for node in self._done) or 'none'}"

    def confirm_healed(self) -> str:
        if not self._done:  # the first node did not return in time: confirm only that it answers
            return self._await_ready() if self._begun else "nothing was begun"
        if len(self._done) != len(self.nodes):
            raise FaultNotConfirmed(
                f"{self.fault.kind} went through {len(self._done)} of {len(self.nodes)} nodes"
            )
        for node in self.nodes:
            self.await_ready(node)
        return f"{self._confirm_new_process(self.nodes)}; {await_all_in_sync(self.context)}"

    def _confirm_new_process(self, nodes: Sequence[LocalNode]) -> str:
        for node in nodes:
            if node.state() is not NodeState.RUNNING or node.pid == self._before[node.id]:
                raise self.not_confirmed(f"node {node.id} is {node.state().value}, pid {node.pid}")
        return f"/proc: another process runs node {', '.join(str(node.id) for node in nodes)}"


@injects(Upgrade)
class _UpgradeInjection(_RolloutInjection[Upgrade]):
    """Restart nodes one after the other on another release, then raise the feature levels (with `finalise`), except
    those that the experiment sets. Each node must log the new release. The healing is confirmed when another broker
    shows the new feature levels too."""

    _levels: Mapping[str, int] = MappingProxyType({})

    def _prepare(self, node: LocalNode) -> None:
        self.context.cluster.use_build(node.id, self.fault.to)

    def confirm(self) -> str:
        return f"{super().confirm()}; {self._releases(self._done)}"

    def heal(self) -> str:
        did = super().heal()
        if not self.fault.finalise or len(self._done) != len(self.nodes):
            return did
        chosen = self.context.cluster.spec.features
        from ackproof.cluster.install import release_levels  # here: a plan needs no jars

        levels = release_levels(self.fault.to)
        self._levels = {name: level for name, level in levels.items() if level and name not in chosen}

        def raise_levels() -> bool:
            link = views(self.context).asked_link
            in_force = admin.features(link).finalised
            lower = {name: level for name, level in self._levels.items() if in_force.get(name, 0) < level}
            if lower:
                admin.raise_features(link, lower)
            return True

        self.wait_until_accepted(raise_levels, "the new feature levels to be taken", FINAL_WITHIN_S)
        return f"{did}; asked for {self._text(self._levels)}"

    def confirm_healed(self) -> str:
        witness = f"{super().confirm_healed()}; {self._releases(self.nodes)}"
        if not self._levels:
            return witness

        def in_force() -> dict[str, int]:
            try:
                return dict(admin.features(views(self.context).witness_link).finalised)
            except (WireError, FaultNotConfirmed):
                return {}

        self.wait_for(
            lambda: all(in_force().get(name, 0) >= level for name, level in self._levels.items()),
            f"another broker to say that {self._text(self._levels)} are in force",
            state=lambda: self._text(in_force()),
        )
        return f"{witness}; ApiVersions at {views(self.context).name}: {self._text(self._levels)}"

    def _confirm_node(self, node: LocalNode) -> None:
        """Confirm that the node has logged the new release. The log is read at once: a node logs much, and only the end
        of its log is read. Raises `FaultNotConfirmed` if the node does not log the release in time."""
        logged: list[str] = []

        def says() -> bool:
            logged[:] = _STARTED.findall(node.log_tail(_LOG_LINES))[-1:]
            return logged == [self.fault.to.version]

        self.wait_for(
            says,
            f"node {node.id} to log that it is of release {self.fault.to.version}",
            state=lambda: f"it logged {logged}",
            within_s=_LOGGED_WITHIN_S,
        )

    def _releases(self, nodes: Sequence[LocalNode]) -> str:
        return f"logs: node {', '.join(str(node.id) for node in nodes)} started as Kafka {self.fault.to}"

    @staticmethod
    def _text(levels: Mapping[str, int]) -> str:
        return ", ".join(f"{name}={level}" for name, level in levels.items()) or "nothing"
