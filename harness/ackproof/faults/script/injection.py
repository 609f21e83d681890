"""Injection of a script: shut the gates, run each step, observe it and add it to the timeline, then open all
gates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ackproof.base.errors import AckproofError, FaultNotConfirmed
from ackproof.cluster.protocol import NodeState, local
from ackproof.faults.context import Clients, FaultContext
from ackproof.faults.injection import Aim, Injection, injects
from ackproof.faults.script.acts import ScriptActions
from ackproof.faults.script.spec import ENDS, Gate, Script, StateSpec, StepSpec
from ackproof.faults.script.stage import Gates, PartitionObserver, find_unexpected_decisions
from ackproof.network.requests.rules import FrameSide
from ackproof.rundir.metadata import MetadataRecord
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.script_state import ScriptState
from ackproof.rundir.timeline import ScriptStep

SETTLED_WITHIN_S: Final = 60.0
_DECIDES: Final = (
    "end_session",
    "stop",
    "start",
    "elect",
    "lead",
    "set",
    "proposal",
    "heartbeat",
    "unfence",
    "open",
)
"""Steps that account for decisions of the controller about the partition, and about the broker that they name."""
_MOVES_LOG: Final = ("fetch", "learn", "start", "power_loss", "open", "kill", "stop")
"""Steps that may change the log of the broker that they name."""


@injects(Script)
class _ScriptInjection(Injection[Script]):
    """Run all steps of a script, and add each to the timeline. Healing opens all gates and starts or resumes brokers.

    Raises `FaultNotConfirmed` at the first step that fails, or whose effect is not observed in time. Also raises it for
    a change that the step does not account for."""

    def __init__(self, fault: Script, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        cluster, case = context.cluster, context.case
        if cluster.requests is None or case is None or context.clients is None or context.timeline is None:
            raise FaultNotConfirmed(f"{fault.kind}: it needs an experiment around it, with links laid for it")
        (topic,) = case.experiment.topics
        self._timeline = context.timeline
        self._clients: Clients = context.clients
        self._brokers = local(cluster.brokers())
        self._gates = Gates(cluster.requests, cluster.spec, fault.number)
        self._looks = PartitionObserver(cluster, TopicPartition(topic, 0))
        acks = case.experiment.workload.producers.acks
        self._actions = ScriptActions(cluster, self._clients, self._gates, self._looks, self._until, acks)
        self._seen = ScriptState()
        self._records = 0
        self._within_s = SETTLED_WITHIN_S
        self._first = case.experiment.workload.producers.count
        """Number of records before the first step: each producer sends one without a request."""

    # -- its life -----------------------------------------------------------------------------------------------

    def inject(self) -> str:
        self._begin()
        for number, step in enumerate(self.fault.steps, 1):
            self._within_s = step.within
            did, wrong = "", ""
            try:
                did = "; ".join(filter(None, [self._actions.take(step) for _ in range(step.times)]))
                self._look(step.then)
            except AckproofError as error:
                wrong = str(error)
            before, self._seen = self._seen, self._now()
            unexpected = tuple(self._also(step, before, self._seen))
            wrong = "; ".join(filter(None, [*(f"unexpected: {what}" for what in unexpected), wrong]))
            self._timeline.add(
                ScriptStep(
                    number=number,
                    step=str(step),
                    did=did,
                    waited_for=str(step.then),
                    wrong=wrong,
                    unexpected=unexpected,
                    seen=self._seen,
                ),
                fault=self.fault.number,
                topic=self._looks.place.topic,
                partition=self._looks.place.partition,
            )
            if wrong:
                raise self.not_confirmed(f"step {number} ({step.did}): {wrong}")
        return f"took {len(self.fault.steps)} steps"

    def confirm(self) -> str:
        """Return the last observed state in words. Nothing more is confirmed: each step was, when it was run."""
        return f"each was seen on the disks of the controller and of the brokers, at last: {self._seen}"

    def heal(self) -> str:
        """Open all gates. Start brokers that a step has ended, and resume brokers that a step has paused. Return what
        was done, in words."""
        self._gates.open_all()
        woken = []
        mine = {step.broker for step in self.fault.steps if step.action in ENDS}
        for node in [broker for broker in self._brokers if broker.id in mine]:
            match node.state():
                case NodeState.GONE:
                    node.start()
                    woken.append(node.id)
                case NodeState.STOPPED:
                    node.resume()
                    woken.append(node.id)
                case NodeState.RUNNING:
                    pass
        return "opened all gates" + (f", woke {', '.join(map(str, woken))}" if woken else "")

    def confirm_healed(self) -> str:
        for node in self._brokers:
            self.await_ready(node)
        self._clients.free()
        return "the brokers answer, registered and unfenced"

    # -- within -------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Shut the gates, and wait until the requests that brokers send by themselves wait there. All replicas must
        have the same log end and high watermark, and one record of each producer must be acknowledged. That state is
        the base from which the script counts. Raises `FaultNotConfirmed` if that does not come about in time."""
        place, brokers = self._looks.place, [node.id for node in self._brokers]

        def same() -> ScriptState | None:
            seen = self._looks.read_state(self._clients.acked())
            even = seen is not None and len({*seen.ends.values(), *seen.high_watermarks.values()}) == 1
            return seen if even and seen is not None and seen.acked == self._first else None

        self._until(same, f"all replicas of {place} to have the same")
        for gate in self.fault.gates:
            for broker in self.fault.held_brokers(gate, brokers):
                self._gates.shut(gate, broker, FrameSide.REQUEST)
        base = self._until(same, f"all replicas of {place} to have the same")
        for gate in self.fault.gates:
            for broker in self.fault.held_brokers(gate, brokers):
                if gate is not Gate.PROPOSALS and not (gate is Gate.FETCHES and broker == base.leader):
                    self._until(
                        lambda gate=gate, broker=broker: (
                            self._gates.count_held(gate, broker, FrameSide.REQUEST) == 1
                        ),  # type: ignore[misc]
                        f"the {gate} of broker {broker} to be held",
                    )
                for side in gate.sides:
                    self._gates.shut(gate, broker, FrameSide(side))
        self._looks.base = base
        self._seen = self._now()
        self._records = len(self._looks.read_decisions().records)

    def _until(self, look: Callable[[], object], what: str) -> Any:  # noqa: ANN401 — whatever `look` sees
        return self.wait_for(
            lambda: look() or None,
            what,
            self._within_s,
            state=lambda: str(self._looks.read_state(self._clients.acked())),
        )

    def _now(self) -> ScriptState:
        seen: ScriptState = self._until(
            lambda: self._looks.read_state(self._clients.acked()), "the controller's log to be read"
        )
        return seen

    def _look(self, then: StateSpec) -> None:
        last: list[str] = []

        def is_as_expected() -> bool:
            seen = self._looks.read_state(self._clients.acked())
            last[:] = ["nothing"] if seen is None else then.unmet(seen)
            return not last

        try:
            self._until(is_as_expected, str(then))
        except FaultNotConfirmed as error:
            raise FaultNotConfirmed(f"it was to come to {'; '.join(last)}") from error

    def _also(self, step: StepSpec, before: ScriptState, after: ScriptState) -> list[str]:
        """Return in words each change between the states `before` and `after` a step that the step does not account
        for; [] if there is none."""
        records = self._looks.read_decisions().records
        new, self._records = records[self._records :], len(records)
        found = list(self._decided_also(step, new, before.fenced))
        grown = [broker for broker, end in after.ends.items() if end != before.ends.get(broker)]
        held = [
            broker for broker in grown if self._gates.is_shut(Gate.FETCHES, broker) or broker in after.down
        ]
        mine = {step.broker} if step.action in _MOVES_LOG else set()
        if step.producer is not None:
            mine = {next(iter(held), None)}
        found += [
            f"the log of broker {broker} also went from {before.ends.get(broker)} to {after.ends[broker]}"
            for broker in held
            if broker not in mine and step.action != "open"
        ]
        return found

    def _decided_also(
        self, step: StepSpec, new: tuple[MetadataRecord, ...], fenced: Sequence[int]
    ) -> list[str]:
        free = not all(self._gates.is_shut(Gate.PROPOSALS, node.id) for node in self._brokers)
        expected = step.action in _DECIDES or (free and Gate.PROPOSALS not in self.fault.gates)
        found = []
        for kind, broker, what in find_unexpected_decisions(new, self._looks.place, fenced):
            mine = broker == step.broker and step.action in _DECIDES if kind == "broker" else expected
            if not mine and step.action != "open":
                found.append(what)
        return found
