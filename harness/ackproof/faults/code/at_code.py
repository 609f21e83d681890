"""The fault `at_code`: halt, pause, delay or throw where a thread passes a point of Kafka's code.

Byteman's agent carries it out. The witness of a halt is the exit status. The witness of a pause or delay is the JVM's
own thread dump, that of an exception the node's log.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from ackproof.base.advice import Advice
from ackproof.base.errors import FaultNotConfirmed, WaitTimeout
from ackproof.base.units import Duration
from ackproof.base.wait import wait_until
from ackproof.cluster.code_rules import HOLD_SUFFIX, CodeAgent
from ackproof.cluster.protocol import LocalNode, NodeState
from ackproof.experiment.backends import Ability, Need
from ackproof.experiment.base import PartitionField, Whole, matching
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.exposure import NOTHING, Exposure, Incidents
from ackproof.experiment.fault import WHERE_IT_RUNS, Complaints, Grip, NodeFault
from ackproof.experiment.kafka import KafkaBuild
from ackproof.experiment.problems import nearest
from ackproof.faults.code.points import CLASS_NAME, POINTS, CodePlace, FreePoint
from ackproof.faults.context import FaultContext
from ackproof.faults.injection import Aim, injects
from ackproof.faults.processes import ProcessInjection
from ackproof.faults.rolling import Upgrade
from ackproof.faults.storm import Storm
from ackproof.provision.byteman import check_rules

HALTED: Final = 77
"""Exit status of a JVM that a rule halts. Kafka uses 0 and 1; an unknown status of a container is 255."""
PASSED_WITHIN_S: Final = 50.0
"""Seconds within which the rule must act, which takes `nth` passes of the point."""
LOOK_EVERY_S: Final = 0.1
_LOG_LINES: Final = 400
_STANDS_IN: Final = {
    "pause_thread": "java.io.FileInputStream.open",
    "delay": "org.jboss.byteman.rule.helper.Helper.delay",
}
"""Frame in the stack of a thread that a rule holds, by action."""


class AtCode(NodeFault):
    """The process halts at a point of Kafka's code, or a thread there waits, is delayed or fails.

    A Byteman rule, which is loaded when the fault is due, acts on threads that pass the point. `halt` and
    `pause_thread` act once, at the pass of number `nth` (in a file: `pass`). `delay` and `throw` act at that pass and
    at all later passes, until the fault is healed. Passes are counted per node and, at points that concern partitions,
    per partition (`alter-partition`: per topic). Passes for internal topics do not count.
    """

    KIND = "at_code"
    DONE = "hit at a point of its code"
    ASKS = frozenset({Ability.PROCESSES})
    OVER = WHERE_IT_RUNS
    IN_FORCE_S = PASSED_WITHIN_S + 10.0
    PER_NODE = Incidents(kills=1)
    NEEDS = frozenset({Need.CODE})
    SUMMARY = "Halt the process, or hold, delay or fail a thread, where the code passes a point (Byteman)."
    HEALING = "remove the rule, let the thread go on, start again what was halted"
    HOLD_KEY = "for"
    SHORT = ()
    NOT_SIMULATED = Advice(
        "its brokers are no JVMs and have no code to reach into", "use the faults of processes and requests"
    )
    model_config = ConfigDict(populate_by_name=True)

    point: str | FreePoint = Field(
        description="A name, or {class, method, at, when}.",
    )
    does: Literal["halt", "pause_thread", "delay", "throw"] = Field(
        alias="do", description="What happens there. halt: the JVM ends at once, as by SIGKILL."
    )
    nth: Whole = Field(
        1,
        alias="pass",
        ge=1,
        le=1_000_000,
        description="Act at this pass of the point, counted per node and partition.",
    )
    partition: PartitionField | None = Field(
        None,
        title="Partition",
        description="Only passes that concern this partition; for a named point of partitions.",
    )
    by: Duration = Field(1.0, ge=0.2, le=600, description="With delay: the time for which each pass waits.")
    exception: Annotated[str, matching(CLASS_NAME, "the full name of a class")] = Field(
        "org.apache.kafka.common.errors.TimeoutException",
        description="With throw: class of the exception. It takes a text.",
    )

    @property
    def title(self) -> str:
        """Return the point's name, or class and method of a point without a name."""
        if isinstance(self.point, str):
            return self.point
        return f"{self.point.class_name.rpartition('.')[2]}.{self.point.method.partition('(')[0]}"

    @property
    def course(self) -> tuple[str, ...]:
        place = f", {self.partition}" if self.partition else ""
        return (f"{self.does} at {self.title}{place}, pass {self.nth}",)

    def place(self, version: str, mode: str) -> CodePlace | None:
        """Return class, method and location of the point in a Kafka release and metadata mode (`kraft` or `zookeeper`).
        None if the release does not have this named point. Raises KeyError for an unknown name. A point without a name
        has the same place in every release."""
        if isinstance(self.point, FreePoint):
            return self.point.place()
        return POINTS[self.point].place(version, mode)

    def keeps(self, spec: ExperimentSpec) -> Grip | None:
        return None  # a role of several nodes: the first that passes

    def observed(self, nodes: int) -> Incidents:
        return super().observed(nodes) if self.does == "halt" else NOTHING

    def planned(self, exposure: Exposure) -> Incidents:
        nodes = exposure.aimed_at(self.targets)
        return self.observed(nodes) if self.does in ("halt", "throw") else exposure.noticed(self.hold, nodes)

    def check(self, spec: ExperimentSpec, say: Complaints) -> None:
        """Report to `say` a point that no release of the experiment has (the cluster's, and those of its upgrades), and
        a target whose nodes never pass the point. Also report fields that do not go with the point or the action.

        A class or method is looked up only in releases whose jars are in the cache. No point is looked up if a storm
        may upgrade the cluster.
        """
        if isinstance(self.point, str):
            self._check_name(self.point, spec, say)
        else:
            self._check_free(self.point, spec, say)
        for field, value, does in (("by", self.by, "delay"), ("exception", self.exception, "throw")):
            if value != type(self).model_fields[field].default and self.does != does:
                say.report((field,), f"goes with do: {does} only", key=True)

    def _check_free(self, point: FreePoint, spec: ExperimentSpec, say: Complaints) -> None:
        if self.partition is not None:
            say.report(("partition",), "goes with a named point only", "write a condition into when")
        if not say.sound(("point",), cluster=True) or _may_draw_upgrade(spec):
            return
        if (found := point.missing_in(_builds_of(spec))) is not None:
            build, missing = found
            field = "class" if missing.method is None else "method"
            say.report(("point", field), missing.describe(build.label), suggestion=missing.nearest)

    def _check_name(self, name: str, spec: ExperimentSpec, say: Complaints) -> None:
        cluster = spec.cluster
        if name not in POINTS:
            say.unknown_value(("point",), "the point", name, POINTS)
            return
        point, version = POINTS[name], cluster.kafka.version
        versions = [build.version for build in _builds_of(spec)]
        places = [place for each in versions if (place := point.place(each, cluster.mode))]
        place = places[0] if places else None
        if place is None and say.sound(("point",), cluster=True) and not _may_draw_upgrade(spec):
            there = [other.name for other in POINTS.values() if other.place(version, cluster.mode)]
            fact, hint = (
                f"Kafka {version} has no point {name} that is known here",
                f"it is known from {point.since} on",
            )
            say.report(("point",), fact, hint, suggestion=nearest(name, there, cutoff=0.0))
        if place is not None and not place.partition and self.partition is not None:
            say.report(("partition",), f"the point {name} concerns no single partition")
        apart = not (cluster.combined or cluster.metadata.broker_controls)
        if apart and say.sound(("target",), cluster=True):
            sides = {role_side for role in self.targets for role_side in role.sides()}
            if (point.side == "controller") not in sides:
                whom = "controller" if point.side == "controller" else "a broker, such as leader(orders/0)"
                say.report(("target",), f"the point {name} is passed by {point.side}s only: aim at {whom}")

    def __str__(self) -> str:
        return f"{self.kind} {', '.join(map(str, self.targets))}"


def _builds_of(spec: ExperimentSpec) -> tuple[KafkaBuild, ...]:
    return (spec.cluster.kafka, *(build for fault in spec.faults for build in fault.builds))


def _may_draw_upgrade(spec: ExperimentSpec) -> bool:
    """Return True if a storm may upgrade the cluster. The release is known once the storm is drawn."""
    return any(isinstance(fault, Storm) and Upgrade.KIND in (fault.menu or ()) for fault in spec.faults)


@dataclass(frozen=True)
class _LoadedRule:
    """A Byteman rule that the fault has loaded into one JVM, by its `agent`. `pid`: the JVM's process id. `place`: the
    point in the code. `text`: the rule. `key`: prefix of the rule's counters and flag, and of the FIFO at which threads
    wait."""

    agent: CodeAgent
    pid: int | None
    place: CodePlace
    key: str
    text: str


def rule_text(fault: AtCode, place: CodePlace, key: str) -> str:
    """Return the fault's rule for this place in Byteman's language. The rule prints a line when it first acts. `key`:
    prefix of the rule's counters and flag, and of the FIFO at which threads wait."""
    count = f'incrementCounter("{key} " + passing)'
    once = fault.does in ("halt", "pause_thread")
    conditions = [f"({place.when})", '!passing.startsWith("__")']
    if fault.partition is not None:
        conditions.append(f'passing.equals("{fault.partition.topic}-{fault.partition.partition}")')
    conditions.append(f"{count} {'==' if once else '>='} {fault.nth}")
    thread = "java.lang.Thread.currentThread().getName()"
    conditions.append(f'(!flag("{key}") || traceln("{key} passed by " + {thread} + " " + passing))')
    acts = {
        "halt": f"java.lang.Runtime.getRuntime().halt({HALTED})",
        # opening a FIFO waits for a writer: the harness, at the healing
        "pause_thread": f'new java.io.FileInputStream("{key}{HOLD_SUFFIX}")',
        "delay": f"delay({round(fault.by * 1000)})",
        "throw": f'throw new {fault.exception}("{key}")',
    }
    where = place.at if place.at.startswith("AFTER ") else f"AT {place.at}"
    bind = f"{place.bind}, " if place.bind else ""
    lines = [
        f"RULE {key}",
        f"CLASS {place.class_name}",
        f"METHOD {place.method}",
        where,
        f"BIND {bind}passing:String = {place.partition or chr(34) * 2}",
        f"IF {' && '.join(conditions)}",
        f"DO {acts[fault.does]}",
        "ENDRULE",
    ]
    return "\n".join([*lines, ""])


@injects(AtCode)
class AtCodeInjection(ProcessInjection[AtCode]):
    """Load the fault's Byteman rule into each target node, and wait until the rule has acted on one of these nodes.

    Raises `FaultNotConfirmed` if a node's release lacks the point, or if no node shows that the rule acted within
    `PASSED_WITHIN_S` seconds. Healing removes the rule, releases the threads that it holds and starts halted nodes."""

    def __init__(self, fault: AtCode, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._mode = context.cluster.spec.mode
        self._loaded: dict[int, _LoadedRule] = {}

    def inject(self) -> str:
        with self._lock_nodes():
            self._require_breakable()
            with ThreadPoolExecutor(len(self.nodes)) as pool:
                list(pool.map(self._load, self.nodes))
        return f"rule for {self.fault.title} loaded into {self._name_nodes()}"

    def _load(self, node: LocalNode) -> None:
        agent = self.context.cluster.code_agent(node.id)
        place = self.fault.place(agent.version, self._mode)
        if place is None:
            raise self.not_confirmed(
                f"node {node.id} runs Kafka {agent.version}, which has no {self.fault.title}"
            )
        key = f"ackproof-{self.fault.number}-{secrets.token_hex(3)}"
        rule = _LoadedRule(agent, node.pid, place, key, rule_text(self.fault, place, key))
        if isinstance(self.fault.point, FreePoint) and (wrong := check_rules(rule.text, agent.classpath)):
            raise self.not_confirmed(f"the point does not fit Kafka {agent.version}: {wrong[0]}")
        if self.fault.does == "pause_thread":
            agent.hold_threads(key)
        agent.attach()
        if self.fault.does == "halt":
            node.expect_end(HALTED)
        self._loaded[node.id] = rule
        agent.load(key, rule.text)

    def confirm(self) -> str:
        def bitten() -> str | None:
            self._load_again()
            return next(filter(None, map(self._look, self.nodes)), None)

        witness = self.wait_for(
            bitten,
            f"{self.fault.title} to be passed {self.fault.nth} times",
            PASSED_WITHIN_S,
            interval_s=LOOK_EVERY_S,
            state=self._describe_rules,
        )
        if self.fault.does == "halt":
            self._unload(node for node in self.nodes if node.state() is NodeState.RUNNING)
        return witness

    def _load_again(self) -> None:
        """Load the rule again into each node that runs another process by now: a rule ends with its JVM. A node that
        the rule itself halted is left alone."""
        for node in self.nodes:
            with self.holds.acting_on(node.id):
                old = self._loaded[node.id]
                halted = self.fault.does == "halt" and node.exit_status == HALTED
                if node.state() is NodeState.RUNNING and node.pid != old.pid and not halted:
                    self._load(node)

    def _look(self, node: LocalNode) -> str | None:
        """Return in words the evidence that the rule acted on this node; None if there is none. If the rule halted the
        node, record in `holds` that this fault keeps it down, so that no other fault starts it."""
        rule = self._loaded[node.id]
        if self.fault.does == "halt":
            if node.state() is not NodeState.GONE or node.exit_status != HALTED:
                return None
            with self.holds.acting_on(node.id):
                self.holds.take(node.id, self.fault.number, Grip.DOWN)
            return f"kernel: node {node.id} is gone, with exit status {HALTED}"
        passed = f"{rule.key} passed by "
        if node.state() is not NodeState.RUNNING or passed not in rule.agent.output():
            return None
        if self.fault.does == "throw":
            lines = node.log_tail(_LOG_LINES).splitlines()
            found = next((line for line in lines if rule.key in line and passed not in line), None)
            return f"log of node {node.id}: {found.strip()[:300]}" if found else None
        if (thread := _held_thread(rule, self.fault)) is None:
            return None
        return f"thread dump of node {node.id}: {thread} stands in {rule.place.method.partition('(')[0]}"

    def _describe_rules(self) -> str:
        """Return in words, for each node, its state and whether its rule acted, never fired or did not fit. The text
        explains why the fault did not take effect."""
        said = []
        for node in self.nodes:
            rule, state = self._loaded[node.id], node.state()
            listed = rule.agent.list() if state is NodeState.RUNNING else ""
            passed = f"{rule.key} passed by " in rule.agent.output()
            word = "acted, and no witness saw it" if passed else "never fired"
            word = (
                word if "trigger method" in listed else f"{word}; its class is not loaded, or it does not fit"
            )
            said.append(f"node {node.id} is {state.value}, its rule {word}")
        return "; ".join(said)

    def heal(self) -> str:
        self._unload(self.nodes)
        started = self._start_dead_nodes() if self.fault.does == "halt" else ""
        loaded = ", ".join(map(str, sorted(self._loaded)))
        removed = f"rule removed from node {loaded}" if loaded else "no rule was loaded"
        return f"{removed}; {started}" if started else removed

    def _unload(self, nodes: Iterator[LocalNode] | tuple[LocalNode, ...]) -> None:
        """Remove the rule from these nodes and wake the threads that it holds, as soon as no other fault holds the
        node. A process that has ended took its rule along."""
        for node in nodes:
            rule = self._loaded.get(node.id)
            if rule is not None:
                self._when_free(node, partial(self._unload_one, node, rule))

    def _unload_one(self, node: LocalNode, rule: _LoadedRule) -> None:
        try:
            if node.state() is NodeState.RUNNING and node.pid == rule.pid:
                rule.agent.delete(rule.key, rule.text)
        finally:
            if self.fault.does == "pause_thread":
                rule.agent.release_threads(rule.key)

    def confirm_healed(self) -> str:
        if not self._loaded:
            return "nothing was done"
        ready = self._await_ready()
        seen = []
        for node in self.nodes:
            rule = self._loaded.get(node.id)
            if rule is None or node.state() is not NodeState.RUNNING or node.pid != rule.pid:
                continue
            try:
                wait_until(
                    lambda rule=rule: _held_thread(rule, self.fault) is None,  # type: ignore[misc]
                    what="the point to be free",
                    timeout_s=self.fault.by + 10.0,
                    interval_s=LOOK_EVERY_S * 2,
                )
            except WaitTimeout as error:
                raise FaultNotConfirmed(
                    f"node {node.id}: a thread still stands at {self.fault.title}"
                ) from error
            seen.append(str(node.id))
        free = f"thread dump of node {', '.join(seen)}: no thread is held; " if seen else ""
        return free + ready


def _held_thread(rule: _LoadedRule, fault: AtCode) -> str | None:
    """Return the name of a thread that the rule pauses or delays in its method, as the JVM says. None if there is no
    such thread; always None for `halt` and `throw`, which hold no thread."""
    frame = _STANDS_IN.get(fault.does, "")
    if not frame:
        return None
    method = f"{rule.place.class_name}.{rule.place.method.partition('(')[0]}("
    for stack in rule.agent.dump_threads():
        if frame in stack and method in stack:
            return stack.strip().partition("\n")[0].split('"')[1] if '"' in stack else "a thread"
    return None
