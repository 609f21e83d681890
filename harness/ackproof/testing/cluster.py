"""A real cluster for a test: faults by role, each confirmed by an independent witness.

Methods that inject or heal a fault raise `AckproofError` if the effect cannot be confirmed.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from ackproof.base.errors import AckproofError, BadInput
from ackproof.base.processes import RunTag, end_children
from ackproof.base.wait import wait_until
from ackproof.cluster.backends.process import ProcessCluster
from ackproof.cluster.install import Installation
from ackproof.cluster.protocol import NodeState, to_timeline
from ackproof.cluster.queries import PartitionState
from ackproof.experiment.fault import NodeFault
from ackproof.experiment.roles import Role, RoleKind
from ackproof.experiment.spec import TopicSpec
from ackproof.experiment.triggers import TimeTrigger
from ackproof.faults.context import FaultContext, Holds
from ackproof.faults.holders import find_holders
from ackproof.faults.injection import Aim, Injection, make_injection
from ackproof.faults.life import Life, Step
from ackproof.faults.processes import Kill, Pause, Restart, Stop
from ackproof.rundir.clock import RunClock
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.registry import register
from ackproof.rundir.timeline import Timeline
from ackproof.testing.faults import FaultBlock, bad_lines
from ackproof.testing.marker import ClusterRequest, read_fault, read_topic

Target: TypeAlias = str | int | Iterable[int]
"""A role such as `leader(orders/0)`, a node id, or several node ids."""
_LOG_TAIL: Final = 100_000
"""Number of last lines of a node's log that are searched for warnings."""


class KafkaCluster:
    """A cluster that runs within its `with` block. `bootstrap`: its bootstrap servers. `run`: the run directory with
    logs, timeline and ledgers.

    `target` in its methods: a role such as `leader(orders/0)`, a node id, or several ids. Methods with a target return
    the ids of the nodes. They raise `AckproofError` if the effect is not confirmed, `BadInput` for a target that no
    node fits. `wanted`: the cluster to start. `folder`: its run directory. `seed`: seed of random choices.
    """

    def __init__(
        self, wanted: ClusterRequest, folder: Path, installed: Installation, seed: str = "0"
    ) -> None:
        self.run_id = secrets.token_hex(8)
        self.run = CaseDir(folder.absolute())
        self.tag = RunTag(self.run_id, self.run.path, self.run.path)
        self.clock = RunClock.start()
        self.topics: dict[str, TopicSpec] = {}
        self.keep_data = False
        self._wanted = wanted
        self._random = random.Random(f"ackproof/{seed}")
        self._stop = threading.Event()
        self._faults: list[str] = []
        self._moments: list[float] = []
        self._ready = 0.0
        self._lives: dict[int, Life] = {}
        self._blocks: list[FaultBlock] = []
        self._timeline = Timeline(self.run.timeline, self.clock)
        tell = to_timeline(self._timeline)
        self._cluster = ProcessCluster(
            wanted.cluster, self.run.nodes, self.tag, tell, installed=installed, needs=wanted.needs
        )
        self._holds = Holds()
        self._field = FaultContext(self._cluster, self._stop, holds=self._holds)

    def __enter__(self) -> Self:
        self._entry = register(self.run_id, self.run)
        try:
            self._cluster.start()
            self._cluster.create_topics(self._wanted.topics)
            self.topics.update(self._wanted.topics)
            self._ready = time.time()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._stop.set()
        try:
            for block in self._blocks:
                block.end(awaited=False)
            self._cluster.stop()
            if not self.keep_data:
                self._cluster.remove_data()
            # An interrupt between a fork and our own bookkeeping leaves a child that only its marks betray.
            end_children(lambda child: child.run_id == self.run_id)
        finally:
            self._timeline.close()
        self._entry.unlink(missing_ok=True)

    # -- its state ---------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    @property
    def cluster(self) -> ProcessCluster:
        return self._cluster

    @property
    def faults(self) -> tuple[str, ...]:
        return tuple(self._faults)

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        assignment: Iterable[Iterable[int]] | None = None,
        config: Mapping[str, str | int | float | bool] | None = None,
    ) -> None:
        """Create a topic with the fields of experiment files; return when all partitions have a leader and a full ISR.

        `replication_factor` None: 3, or as many as there are brokers if they are fewer. `assignment`: brokers of each
        partition's replicas, from which both numbers follow. Raises `BadInput` for what no experiment file may have.
        """
        said: dict[str, object] = {"config": dict(config or {})}
        if assignment is not None:
            said["assignment"] = [list(replicas) for replicas in assignment]
        else:
            said["partitions"] = partitions
        if replication_factor is not None:
            said["replication_factor"] = replication_factor
        topic = read_topic(self._wanted.cluster, name, said)
        self._cluster.create_topics({name: topic})
        self.topics[name] = topic

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the id of a partition's leader; -1: it has none. Call it as `leader("orders", 0)` or
        `leader("orders/0")`. Raises `WaitTimeout` if no broker tells it within 10 s."""
        return self._state(topic, partition).leader

    def isr(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """Return the ids of a partition's in-sync replicas, sorted. Call it as `isr("orders", 0)` or `isr("orders/0")`.
        Raises `WaitTimeout` if no broker tells them within 10 s."""
        return tuple(sorted(self._state(topic, partition).isr))

    def await_leader(
        self, topic: str, partition: int = 0, *, other_than: int = -1, timeout_s: float = 30.0
    ) -> int:
        """Wait until the partition (named as in `leader`) has a leader other than `other_than`; return its id. Raises
        `WaitTimeout` after `timeout_s` seconds, and if no broker tells the leader within 10 s."""

        def look() -> int | None:
            leader = self.leader(topic, partition)
            return leader if leader > 0 and leader != other_than else None

        return wait_until(look, what=f"a leader of {topic}", timeout_s=timeout_s, stop=self._stop)

    def await_isr(self, topic: str, size: int | None = None, *, timeout_s: float = 60.0) -> None:
        """Wait until each partition of a topic has a leader and an ISR of `size` replicas (default: all). `topic`: a
        topic such as `orders`, or a single partition such as `orders/0`.

        Raises `WaitTimeout` after `timeout_s` seconds.
        """
        name, _, number = topic.partition("/")
        states: list[PartitionState] = []

        def there() -> bool:
            found = self._cluster.topic_state([name])
            states[:] = [state for place, state in found.items() if number in ("", str(place.partition))]
            return bool(states) and all(
                state.leader > 0 and len(state.isr) == (len(state.replicas) if size is None else size)
                for state in states
            )

        wait_until(
            there,
            what=f"the ISR of {topic} to have {'all replicas' if size is None else size}",
            timeout_s=timeout_s,
            state=lambda: ", ".join(f"{s.topic}/{s.partition} {list(s.isr)}" for s in states) or "nothing",
            stop=self._stop,
        )

    # -- breaking and mending -----------------------------------------------------------------------------------

    @contextmanager
    def fault(self, kind: str, *whom: object, **fields: object) -> Iterator[tuple[int, ...]]:
        """Inject a fault of the given kind: confirmed when the block begins, healed and confirmed when it ends.

        `fault("isolate", "leader(orders/0)", from_="clients")` is `isolate: leader(orders/0)` with `from: clients` in
        an experiment file; `fault("cut", link="clients -> leader(orders/0)")` is `cut: {link: …}`. Yields the nodes
        hit. Raises `BadInput` for a fault that no experiment may have, or for which the marker prepared nothing.
        """
        number, seed = len(self._lives) + 1, self._random.getrandbits(63)
        case = read_fault(self._wanted, self.topics, kind, whom, fields, number, seed)
        context = FaultContext(self._cluster, self._stop, case, holds=self._holds, tag=self.tag)
        block = FaultBlock(case, context, self._timeline)
        fault = block.fault
        self._lives[fault.number] = Life(fault)
        self._blocks.append(block)
        with block as nodes:
            self._did(f"{fault}" + (f" → {_names(nodes)}" if nodes else ""))
            yield nodes
            block.end()
            self._did(f"end of {fault}")

    def kill(self, target: Target) -> tuple[int, ...]:
        """Kill nodes with SIGKILL and confirm that they died. Return the nodes."""
        return self._break(Kill, target)

    def stop(self, target: Target) -> tuple[int, ...]:
        """Stop nodes with SIGTERM, and wait for their controlled shutdown. Return the nodes."""
        return self._break(Stop, target)

    def pause(self, target: Target) -> tuple[int, ...]:
        """Pause nodes with SIGSTOP: the processes stop, their connections stay open. Return the nodes."""
        return self._break(Pause, target)

    def restart(self, target: Target) -> tuple[int, ...]:
        """Restart nodes with a controlled shutdown, and wait until they are back in the cluster. Return the nodes."""
        nodes = self._nodes(target)
        number, injection = self._inject(Restart, nodes, target)
        self._mend({number: injection}, nodes, "restart")
        return nodes

    def resume(self, target: Target | None = None) -> tuple[int, ...]:
        """Resume paused nodes (default: all) with SIGCONT, and wait until they are back in the cluster. Return the
        nodes. Raises `BadInput` if a node is not paused, or if none is, and for nodes that a `fault` block paused."""
        return self._undo(Pause, NodeState.STOPPED, "resume", target)

    def start(self, target: Target | None = None) -> tuple[int, ...]:
        """Start nodes whose process has ended (default: all), and wait until they are back in the cluster. Return the
        nodes. Raises `BadInput` if a node's process has not ended, or if none has, and for nodes that a `fault` block
        ended."""
        return self._undo(Kill, NodeState.GONE, "start", target)

    def heal(self) -> None:
        """Heal every open `fault` block, resume paused nodes, and start nodes whose process has ended."""
        for block in reversed(self._blocks):
            block.end()
        for state, undo in ((NodeState.STOPPED, self.resume), (NodeState.GONE, self.start)):
            if self._in(state):
                undo()

    def check(self) -> None:
        """Raise `NodeDied` if a node has died by itself."""
        self._cluster.check()

    def troubles(self) -> str:
        """Return as text the faults so far, the most relevant log lines at WARN and above around them (`bad_lines`),
        and the path of the nodes' logs."""
        logs = {node.name: node.log_tail(_LOG_TAIL) for node in self._cluster.nodes.values()}
        said = bad_lines(logs, self._moments, self._ready) or ["no node logged anything at WARN or above"]
        faults = "; ".join(self._faults) or "none"
        return "\n".join([f"faults: {faults}", *said, f"all of their logs: {self.run.nodes}"])

    def _break(self, kind: type[NodeFault], target: Target) -> tuple[int, ...]:
        nodes = self._nodes(target)
        self._inject(kind, nodes, target)
        return nodes

    def _inject(
        self, kind: type[NodeFault], nodes: tuple[int, ...], target: Target
    ) -> tuple[int, Injection[Any]]:
        fault = self._fault(kind, nodes, target)
        number, injection = fault.number, self._injection(fault, nodes)
        role = str(target) if isinstance(target, str) else _names(nodes)
        self._go(Life(fault).ask(self.clock.now(), "test", nodes, role=role))
        try:
            did = injection.inject()
            witness = injection.confirm()
        except AckproofError as error:
            self._go(self._lives[number].fail(str(error), to_undo=number in self._holders(nodes)))
            raise
        self._go(self._lives[number].confirm(self.clock.now(), did, witness))
        self._did(f"{fault.kind} {role} → {_names(nodes)}")
        return number, injection

    def _did(self, what: str) -> None:
        self._faults.append(f"{self.clock.now() / 1e9:.2f} s {what}")
        self._moments.append(time.time())

    def _go(self, step: Step) -> None:
        self._lives[step.life.number] = step.life
        for event in step.events:
            self._timeline.add(event, fault=step.life.number)

    def _holders(self, nodes: Iterable[int]) -> set[int]:
        """Return the numbers of the faults that keep any of these nodes from running."""
        return {number for node in nodes for number in self._holds.others(node, 0)}

    def _injection(self, fault: NodeFault, nodes: Iterable[int]) -> Injection[Any]:
        aim = Aim({fault.target: tuple(self._cluster.node(node) for node in nodes)})
        return make_injection(fault, aim, self._field)

    def _undo(
        self, kind: type[NodeFault], state: NodeState, word: str, target: Target | None
    ) -> tuple[int, ...]:
        """Heal the faults that keep these nodes (`target` None: all nodes in `state`) down or stopped. A node that no
        fault keeps so is repaired as a fault `kind` would be healed. Return the nodes. Raises `BadInput` if there are
        none, if one is in another state, or if a `fault` block keeps one down or stopped. `word`: name of the call, for
        messages."""
        nodes = self._in(state) if target is None else self._nodes(target)
        if not nodes:
            raise BadInput(f"{word}: no node is {state}")
        for node in nodes:
            if (found := self._cluster.node(node).state()) is not state:
                raise BadInput(f"{word}: node {node} is {found}, not {state}")
        injections: dict[int, Injection[Any]] = {}
        for number in sorted(self._holders(nodes), reverse=True):
            fault = self._lives[number].fault
            if any(block.fault is fault for block in self._blocks):
                raise BadInput(f"{word}: {fault} heals at the end of its block")
            if isinstance(fault, NodeFault):
                held = [node for node in nodes if number in self._holders([node])]
                injections[number] = self._injection(fault, held)
        if by_itself := [node for node in nodes if not self._holders([node])]:
            injections[0] = self._injection(self._fault(kind, nodes, nodes), by_itself)
        self._mend(injections, nodes, word)
        return nodes

    def _mend(self, injections: Mapping[int, Injection[Any]], nodes: tuple[int, ...], word: str) -> None:
        """Heal the injections, given by fault number (0: of nodes that no fault keeps down or stopped), and confirm the
        healing. Record a fault as healed once it keeps no node down or stopped. `nodes`, `word`: the nodes and the name
        of the call, for reports only."""
        healed = []
        for number, injection in injections.items():
            begun_ns, did = self.clock.now(), injection.heal()
            if number and number not in self._holders(self._cluster.nodes):
                self._go(self._lives[number].heal(did, begun_ns))
                healed.append(number)
        for number, injection in injections.items():
            try:
                witness = injection.confirm_healed()
            except AckproofError as error:
                if number:
                    self._go(self._lives[number].fail_healing(f"healing: {error}"))
                raise
            if number in healed:
                self._go(self._lives[number].recover(witness))
        self._did(f"{word} {_names(nodes)}")

    def _fault(self, kind: type[NodeFault], nodes: tuple[int, ...], target: Target) -> NodeFault:
        role = Role.parse(target) if isinstance(target, str) else Role(RoleKind.BROKER, node=nodes[0])
        return kind(number=len(self._lives) + 1, target=role, trigger=TimeTrigger(0.0))

    def _nodes(self, target: Target) -> tuple[int, ...]:
        """Return the nodes of a target: a role such as `leader(orders/0)`, or node ids. Raises `BadInput` if there is
        none."""
        if isinstance(target, str):
            try:
                role = Role.parse(target)
            except ValueError as error:
                raise BadInput(str(error)) from None
            brokers = [node.id for node in self._cluster.brokers()]
            self._random.shuffle(brokers)
            nodes = find_holders(self._cluster, role, brokers, self._stop)
        else:
            nodes = (target,) if isinstance(target, int) else tuple(target)
        for node in nodes:
            self._cluster.node(node)
        if not nodes:
            raise BadInput(f"{target}: no node has that role")
        return nodes

    def _in(self, state: NodeState) -> tuple[int, ...]:
        return tuple(node.id for node in self._cluster.nodes.values() if node.state() is state)

    def _state(self, topic: str, partition: int) -> PartitionState:
        if "/" in topic:
            try:
                topic, partition = TopicPartition.parse(topic)
            except ValueError as error:
                raise BadInput(str(error)) from None
        place = TopicPartition(topic, partition)
        return wait_until(
            lambda: self._cluster.topic_state([topic]).get(place),
            what=f"a broker to describe {place}",
            timeout_s=10.0,
            stop=self._stop,
        )


def _names(nodes: Iterable[int]) -> str:
    return "node " + ", ".join(map(str, nodes))
