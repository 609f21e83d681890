"""A script, as a kind of fault: what a file says of it, and what does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pydantic import Field

from ackproof.experiment.backends import Ability, Need
from ackproof.experiment.exposure import Exposure, Incidents
from ackproof.experiment.fault import Complaints, FaultSpec, Grip
from ackproof.experiment.roles import Role, RoleKind
from ackproof.experiment.spec import SystemUnderTest
from ackproof.faults.planned.of_partition import UNCLEAN
from ackproof.faults.script.steps import Gate, GatesField, StepSpec

_COUNTS: Final = {
    "kill": Incidents(kills=1),
    "stop": Incidents(clean_stops=1),
    "power_loss": Incidents(power_losses=1),
    "end_session": Incidents(cuts=1),
    "proposal": Incidents(shrinks=1),
}
_KILLS: Final = ("kill", "stop", "power_loss")
ENDS: Final = (*_KILLS, "pause")
"""Steps after which a broker must be woken."""


class Script(FaultSpec):
    """Steps, each of which lets one thing through and waits until it is seen to have happened.

    All else of the APIs that its steps name is held at proxies from its beginning to its end. Whatever happens beside a
    step makes the run INCONCLUSIVE, and so does a step that is not seen.
    """

    KIND = "script"
    DONE = "walked through a script"
    SUMMARY = "Walk the brokers through steps, one at a time; all else is held, and noticed if it happens."
    HEALING = "let all pass, and start who is down"
    SHORT = ("steps",)
    ASKS = frozenset({Ability.REQUESTS, Ability.PROCESSES, Ability.DISKS})
    NEEDS = frozenset({Need.BROKER_REQUESTS})
    OVER = frozenset[Grip]()
    IN_FORCE_S = 600.0
    NOT_SIMULATED = "in the model nothing stands between those who ask and those who answer"
    NOT_IN = MappingProxyType({"zookeeper": "which requests are sent where is known of KRaft alone"})
    SENDS = True

    steps: tuple[StepSpec, ...] = Field(
        min_length=1, max_length=500, description="What happens, one after the other."
    )
    holds: GatesField = Field(
        (),
        description="What is held beside what the steps let through: fetches, metadata, proposals, heartbeats.",
    )

    @property
    def gates(self) -> tuple[Gate, ...]:
        """All that is held."""
        named = {gate for step in self.steps for gate in step.gates} | set(self.holds)
        return tuple(gate for gate in Gate if gate in named)

    @property
    def course(self) -> tuple[str, ...]:
        """Its steps."""
        return tuple(f"{number}. {step}" for number, step in enumerate(self.steps, 1))

    def held(self, gate: Gate, brokers: Sequence[int]) -> tuple[int, ...]:
        """Of which brokers it is held. Heartbeats only of those that a step lets one through of: the others would be
        fenced."""
        if gate is not Gate.HEARTBEATS or gate in self.holds:
            return tuple(brokers)
        return tuple(sorted({step.heartbeat for step in self.steps if step.heartbeat is not None}))

    @property
    def targets(self) -> tuple[Role, ...]:
        """Whoever ends."""
        ended = {step.broker for step in self.steps if step.action in _KILLS and step.broker is not None}
        return tuple(Role(RoleKind.BROKER, node=broker) for broker in sorted(ended))

    def may_set(self, spec: SystemUnderTest, topic: str) -> Mapping[str, str]:
        """What its steps set; an operator's unclean election is as if the topic allowed it."""
        del spec, topic
        found: dict[str, str] = {}
        for step in self.steps:
            found |= step.set or {}
            found |= {UNCLEAN: "true"} if step.elect == "unclean" else {}
        return found

    def observed(self, nodes: int) -> Incidents:
        """What ends processes; all else stands in the controllers' log."""
        del nodes
        return self._counted(_KILLS)

    def planned(self, exposure: Exposure) -> Incidents:
        """Each step for itself."""
        del exposure
        found = self._counted(tuple(_COUNTS))
        for step in self.steps:
            if step.action == "lead" or step.elect == "preferred":
                found = found.plus(Incidents(hand_overs=1, preferred=1))
            elif step.elect == "unclean":
                found = found.plus(Incidents(unclean=1))
        return found

    def _counted(self, actions: tuple[str, ...]) -> Incidents:
        found = Incidents()
        for step in self.steps:
            if step.action in actions:
                found = found.plus(_COUNTS[step.action].times(step.times))
        return found

    def check(self, spec: SystemUnderTest, say: Complaints) -> None:
        """One partition, one controller of its own, and brokers and producers that there are."""
        if len(spec.topics) != 1 or any(topic.partitions != 1 for topic in spec.topics.values()):
            say.report((), "a script goes on one partition: give one topic with one partition", key=True)
        if spec.cluster.combined or len(spec.cluster.controller_ids) != 1:
            say.report((), "a script needs one controller of its own (controllers: 1)", key=True)
        if self.gates and spec.cluster.timing != "script":
            say.report(
                (),
                "with these time-outs more would happen than its steps; write cluster: {timing: script}",
                key=True,
            )
        for index, step in enumerate(self.steps):
            where = ("steps", index, step.action)
            if step.producer is not None and step.producer >= spec.workload.producers.count:
                say.report(
                    where,
                    f"there is no producer {step.producer}; they count from 0 (workload.producers.count)",
                )
            if step.broker is not None and step.broker not in spec.cluster.broker_ids:
                say.report(where, f"there is no broker {step.broker}")
            for broker in step.of or ():
                if broker not in spec.cluster.broker_ids:
                    say.report(("steps", index, "of"), f"there is no broker {broker}")

    def __str__(self) -> str:
        held = f", holding {' and '.join(self.gates)}" if self.gates else ""
        return f"{self.kind} of {len(self.steps)} steps{held}"
