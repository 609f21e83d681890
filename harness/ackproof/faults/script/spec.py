"""Fields of a script and of its steps.

::

    steps:
      - send: 0                                   # producer 0 sends a record
      - {fetch: 3, times: 2}                      # two fetches of broker 3, and their answers
      - {proposal: 1, side: request}              # the controller gets an AlterPartition of broker 1
      - kill: 1
      - {end_session: 1, then: {leader: 2, isr: [2, 3], ends: {2: 0, 3: 1}}}

Epochs, offsets and acknowledgements count from the script's beginning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from ackproof.base.advice import Advice, expected
from ackproof.base.units import Duration, unknown, wrong
from ackproof.experiment.backends import Ability, Need
from ackproof.experiment.base import Config, Spec, Text, Whole
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.exposure import Exposure, Incidents
from ackproof.experiment.fault import Complaints, FaultSpec, Grip
from ackproof.experiment.links import APIS, Api
from ackproof.experiment.roles import Role, RoleKind
from ackproof.experiment.spec import NodeId
from ackproof.faults.planned.partitions import UNCLEAN
from ackproof.rundir.script_state import ScriptState

Side: TypeAlias = Literal["request", "response", "both"]


class Gate(StrEnum):
    """A class of requests that each broker sends. They are held until a step lets one through."""

    FETCHES = "fetches"
    """Fetch requests of a follower to other brokers, and their responses."""
    METADATA = "metadata"
    """Fetch requests of a broker to the controllers: it reads the metadata log."""
    PROPOSALS = "proposals"
    """AlterPartition requests of a leader, and their responses."""
    HEARTBEATS = "heartbeats"
    """BrokerHeartbeat requests of a broker to the active controller."""

    @property
    def api(self) -> Api:
        return APIS[_APIS[self]]

    @property
    def sides(self) -> tuple[str, ...]:
        """Return the frames that the gate holds: only requests, or requests and responses, as values of `FrameSide`."""
        return ("request", "response") if self in (Gate.FETCHES, Gate.PROPOSALS) else ("request",)


_APIS: Final = {
    Gate.FETCHES: "Fetch",
    Gate.METADATA: "Fetch",
    Gate.PROPOSALS: "AlterPartition",
    Gate.HEARTBEATS: "BrokerHeartbeat",
}


class StateSpec(Spec):
    """State of the partition and its brokers that a script's step waits for. Omitted fields may have any value."""

    leader: Whole | None = Field(None, ge=-1, description="The partition's leader; -1 if there is none.")
    epoch: Whole | None = Field(None, ge=0, description="Its leader epoch.")
    isr: tuple[NodeId, ...] | None = Field(None, description="Its ISR, in any order.")
    elr: tuple[NodeId, ...] | None = Field(None, description="Its eligible leader replicas, in any order.")
    fenced: tuple[NodeId, ...] | None = Field(None, description="The brokers that are fenced.")
    down: tuple[NodeId, ...] | None = Field(None, description="The brokers without a process.")
    believed: dict[NodeId, Whole] = Field(
        default_factory=dict, description="The leader epoch that a broker's own replica is in."
    )
    ends: dict[NodeId, Whole] = Field(default_factory=dict, description="Log ends, by broker.")
    high_watermarks: dict[NodeId, Whole] = Field(
        default_factory=dict, description="High watermarks, by broker, of followers too."
    )
    acked: Whole | None = Field(None, ge=0, description="Records acknowledged since the script began.")

    def unmet(self, seen: ScriptState) -> list[str]:
        """Return in words each difference between the observed state and this expectation; [] if the state meets it."""
        found = []
        for name in ("leader", "epoch", "acked"):
            wanted, now = getattr(self, name), getattr(seen, name)
            if wanted is not None and wanted != now:
                found.append(f"{name} {wanted}, not {now}")
        for name in ("isr", "elr", "fenced", "down"):
            wanted, now = getattr(self, name), getattr(seen, name)
            if wanted is not None and set(wanted) != set(now):
                found.append(f"{name} {sorted(wanted)}, not {sorted(now)}")
        for name in ("believed", "ends", "high_watermarks"):
            for broker, wanted in getattr(self, name).items():
                now = getattr(seen, name).get(broker)
                if wanted != now:
                    what = name.rstrip("s").replace("_", " ")
                    found.append(
                        f"{what} of broker {broker} {wanted}, not {'unknown' if now is None else now}"
                    )
        return found

    def __str__(self) -> str:
        given = self.model_dump(exclude_none=True, exclude_defaults=True)
        return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in given.items())


def _read_gates(value: object) -> object:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple):
        raise wrong(expected("gates such as fetches, or a list of them"))
    for name in names:
        if name not in list(Gate):
            raise unknown("gate", list(Gate), str(name))
    return tuple(names)


GatesField: TypeAlias = Annotated[
    tuple[Gate, ...],
    BeforeValidator(_read_gates),
    WithJsonSchema({"anyOf": [{"enum": list(Gate)}, {"type": "array", "items": {"enum": list(Gate)}}]}),
]


class StepSpec(Spec):
    """One step of a script: exactly one action, or only a state to wait for (`then`)."""

    send: Whole | None = Field(None, ge=0, description="A producer, by its number from 0, sends a record.")
    resend: Whole | None = Field(
        None,
        ge=0,
        description="This producer sends unacknowledged records again; a short socket.timeout.ms makes it.",
    )
    fetch: NodeId | None = Field(None, description="This follower fetches once.")
    set_aside: NodeId | None = Field(
        None, description="The Fetch of this follower that is held is copied, for `deliver`."
    )
    deliver: NodeId | None = Field(
        None,
        description="The copy arrives where the follower sent it, even if the follower has closed that connection.",
    )
    proposal: NodeId | None = Field(None, description="This leader sends one AlterPartition.")
    learn: NodeId | None = Field(None, description="This broker replays all decisions of the controller.")
    heartbeat: NodeId | None = Field(None, description="This broker sends one heartbeat.")
    end_session: NodeId | None = Field(
        None, description="This broker's session ends: no heartbeat passes until it is fenced."
    )
    unfence: NodeId | None = Field(
        None, description="Heartbeats of this broker pass until the controller has unfenced it."
    )
    kill: NodeId | None = Field(None, description="SIGKILL.")
    stop: NodeId | None = Field(None, description="A controlled shutdown.")
    power_loss: NodeId | None = Field(
        None, description="SIGKILL, and its log is cut to its recovery point, or to `keep`."
    )
    start: NodeId | None = Field(
        None, description="Its process starts, it registers, learns all, and is unfenced."
    )
    pause: NodeId | None = Field(None, description="SIGSTOP.")
    resume: NodeId | None = Field(None, description="SIGCONT.")
    elect: Literal["preferred", "unclean"] | None = Field(None, description="An operator's election.")
    lead: NodeId | None = Field(
        None, description="An operator makes this replica the first of the assignment, and elects it."
    )
    set: Config | None = Field(None, description="Settings of the topic.")
    open: GatesField | None = Field(None, description="Gates to open from now on.")
    shut: GatesField | None = Field(None, description="Gates to shut again.")
    of: tuple[NodeId, ...] | None = Field(None, description="open and shut: the brokers; default: all.")
    side: Side = Field("both", description="fetch and proposal: the request, its response, or both.")
    keep: Whole | None = Field(None, ge=0, description="power_loss: the first offset that is lost.")
    until: Literal["sent", "appended", "acked"] | None = Field(
        None, description="send: progress to wait for; by default appended with acks=all, else acked."
    )
    times: Whole = Field(1, ge=1, le=100, description="Number of repetitions of the action.")
    then: StateSpec = Field(default_factory=StateSpec, description="State that must be seen afterwards.")
    within: Duration = Field(30.0, gt=0, le=600, description="Longest wait for it.")
    note: Text = Field("", description="Note for readers.")

    @model_validator(mode="after")
    def _one_action(self) -> StepSpec:
        given = [name for name in ACTIONS if getattr(self, name) is not None]
        if len(given) > 1:
            raise wrong("a step does one thing", f"this one has {' and '.join(given)}")
        if not given and self.then == StateSpec():
            raise wrong(f"a step has an action ({', '.join(ACTIONS)}), or a state to be waited for: then")
        for name, whose in _GO_WITH.items():
            if name in self.model_fields_set and self.action not in whose:
                raise wrong(f"'{name}' goes with {' and '.join(whose)}")
        return self

    @model_serializer(mode="wrap")
    def _as_in_a_file(self, whole: SerializerFunctionWrapHandler) -> dict[str, object]:
        written: dict[str, object] = whole(self)
        return {name: value for name, value in written.items() if name in self.model_fields_set}

    @property
    def action(self) -> str:
        """Return the name of the action; '' for a step that only waits."""
        return next((name for name in ACTIONS if getattr(self, name) is not None), "")

    @property
    def broker(self) -> int | None:
        value = getattr(self, self.action) if self.action in _OF_BROKERS else None
        return value if isinstance(value, int) else None

    @property
    def producer(self) -> int | None:
        value = getattr(self, self.action) if self.action in OF_PRODUCERS else None
        return value if isinstance(value, int) else None

    @property
    def gates(self) -> tuple[Gate, ...]:
        """Return the gates that must be shut for the step, or that it shuts; () if there are none."""
        gate = Gate.FETCHES if self.action == "set_aside" else _OPENS.get(self.action)
        return (self.shut or ()) if gate is None else (gate,)

    @property
    def did(self) -> str:
        """Return the step's action and its fields in words."""
        if not self.action:
            return "wait"
        value = getattr(self, self.action)
        said = ", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else value
        said = ", ".join(said) if isinstance(said, tuple) else str(said)
        more = [f"of {', '.join(map(str, self.of))}"] if self.of else []
        more += [self.side] if self.action in ("fetch", "proposal") and self.side != "both" else []
        more += [f"keep {self.keep}"] if self.keep is not None else []
        more += [f"{self.times} times"] if self.times > 1 else []
        return " ".join([self.action, said, *more])

    def __str__(self) -> str:
        then = f", then {self.then}" if self.then != StateSpec() else ""
        return f"{self.did}{then}" + (f" ({self.note})" if self.note else "")


_OPENS: Final = {
    "fetch": Gate.FETCHES,
    "proposal": Gate.PROPOSALS,
    "learn": Gate.METADATA,
    "heartbeat": Gate.HEARTBEATS,
}
_KILLS: Final = ("kill", "stop", "power_loss")
_OTHERS: Final = ("set_aside", "deliver", "end_session", "unfence")
_OF_BROKERS: Final = (*_OPENS, *_OTHERS, *_KILLS, "start", "pause", "resume", "lead")
OF_PRODUCERS: Final = ("send", "resend")
ACTIONS: Final = (*OF_PRODUCERS, *_OF_BROKERS, "elect", "set", "open", "shut")
_GO_WITH: Final = {
    "of": ("open", "shut"),
    "side": ("fetch", "proposal"),
    "keep": ("power_loss",),
    "until": ("send",),
}
_COUNTS: Final = {
    "kill": Incidents(kills=1),
    "stop": Incidents(clean_stops=1),
    "power_loss": Incidents(power_losses=1),
    "end_session": Incidents(cuts=1),
    "proposal": Incidents(shrinks=1),
}
ENDS: Final = (*_KILLS, "pause")
"""Steps after which a broker must be started or resumed."""


class Script(FaultSpec):
    """A fault of several steps, each of which lets one request or event through, and waits until its effect is
    observed.

    All other requests of the APIs that its steps name are held at proxies from beginning to end. The run is
    INCONCLUSIVE if the controller decides, or a held replica's log changes, without a step that accounts for
    it, or if a step's effect is not observed.
    """

    KIND = "script"
    DONE = "walked through a script"
    SUMMARY = "Walk the brokers through steps, one at a time; all other requests are held."
    HEALING = "open all gates, and start brokers that are down"
    SHORT = ("steps",)
    ASKS = frozenset({Ability.REQUESTS, Ability.PROCESSES, Ability.DISKS})
    NEEDS = frozenset({Need.BROKER_REQUESTS})
    OVER = frozenset[Grip]()
    IN_FORCE_S = 600.0
    NOT_SIMULATED = "the model has no proxy between client and server"
    NOT_IN = MappingProxyType({"zookeeper": "which requests are sent where is known of KRaft alone"})
    SENDS = True

    steps: tuple[StepSpec, ...] = Field(min_length=1, max_length=500, description="Steps, in order.")
    holds: GatesField = Field(
        (),
        description="Further gates to shut: fetches, metadata, proposals, heartbeats.",
    )

    @property
    def gates(self) -> tuple[Gate, ...]:
        """Return all gates that the script keeps shut."""
        named = {gate for step in self.steps for gate in step.gates} | set(self.holds)
        return tuple(gate for gate in Gate if gate in named)

    @property
    def course(self) -> tuple[str, ...]:
        return tuple(f"{number}. {step}" for number, step in enumerate(self.steps, 1))

    def held_brokers(self, gate: Gate, brokers: Sequence[int]) -> tuple[int, ...]:
        """Return those of `brokers` at which the script holds the requests of a gate. Unless `holds` names them,
        heartbeats are held only at brokers for which a step lets a heartbeat through; the others would be fenced."""
        if gate is not Gate.HEARTBEATS or gate in self.holds:
            return tuple(brokers)
        return tuple(sorted({step.heartbeat for step in self.steps if step.heartbeat is not None}))

    @property
    def targets(self) -> tuple[Role, ...]:
        ended = {step.broker for step in self.steps if step.action in _KILLS and step.broker is not None}
        return tuple(Role(RoleKind.BROKER, node=broker) for broker in sorted(ended))

    def may_set(self, spec: ExperimentSpec, topic: str) -> Mapping[str, str]:
        """Return the settings that the script's steps change; the same for every `topic`. An operator's unclean
        election counts as if the topic allowed unclean elections."""
        del spec, topic
        found: dict[str, str] = {}
        for step in self.steps:
            found |= step.set or {}
            found |= {UNCLEAN: "true"} if step.elect == "unclean" else {}
        return found

    def observed(self, nodes: int) -> Incidents:
        """Return the incidents (kills, controlled shutdowns, power losses) that its steps cause. Other
        incidents are counted from the metadata log. `nodes` has no effect."""
        del nodes
        return self._count(_KILLS)

    def planned(self, exposure: Exposure) -> Incidents:
        del exposure
        found = self._count(tuple(_COUNTS))
        for step in self.steps:
            if step.action == "lead" or step.elect == "preferred":
                found = found.plus(Incidents(hand_overs=1, preferred=1))
            elif step.elect == "unclean":
                found = found.plus(Incidents(unclean=1))
        return found

    def _count(self, actions: tuple[str, ...]) -> Incidents:
        found = Incidents()
        for step in self.steps:
            if step.action in actions:
                found = found.plus(_COUNTS[step.action].times(step.times))
        return found

    def check(self, spec: ExperimentSpec, say: Complaints) -> None:
        """Report to `say` topics, controllers and time-outs of the experiment with which the script cannot work. Also
        report steps that name a missing broker or producer, or deliver a fetch that no step has set aside."""
        if len(spec.topics) != 1 or any(topic.partitions != 1 for topic in spec.topics.values()):
            say.report((), "a script goes on one partition: give one topic with one partition", key=True)
        if spec.cluster.combined or len(spec.cluster.controller_ids) != 1:
            say.report((), "a script needs one controller of its own (controllers: 1)", key=True)
        if self.gates and spec.cluster.timing != "script":
            why = Advice(
                "with these time-outs more would happen than its steps", "write cluster: {timing: script}"
            )
            say.report((), why, key=True)
        aside: set[int | None] = set()
        for index, step in enumerate(self.steps):
            where = ("steps", index, step.action)
            if step.producer is not None and step.producer >= spec.workload.producers.count:
                why = Advice(
                    f"there is no producer {step.producer}", "they count from 0 (workload.producers.count)"
                )
                say.report(where, why)
            if step.broker is not None and step.broker not in spec.cluster.broker_ids:
                say.report(where, f"there is no broker {step.broker}")
            if step.action == "set_aside":
                aside.add(step.broker)
            elif step.action == "deliver":
                if step.broker not in aside or step.times > 1:
                    say.report(where, f"no step before it sets a fetch of broker {step.broker} aside")
                aside.discard(step.broker)
            for broker in step.of or ():
                if broker not in spec.cluster.broker_ids:
                    say.report(("steps", index, "of"), f"there is no broker {broker}")

    def __str__(self) -> str:
        held = f", holding {' and '.join(self.gates)}" if self.gates else ""
        return f"{self.kind} of {len(self.steps)} steps{held}"
