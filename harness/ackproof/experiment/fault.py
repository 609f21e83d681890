"""Faults as data: what every fault has.

A kind is a subclass of `FaultSpec` with a `KIND` in a module of `ackproof.faults`, found there by
`ackproof.faults.registry`. Its own fields (those in the braces after the kind) are the fields that the subclass adds;
everything else here reads them from the class.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final, Literal, Protocol

from pydantic import Field

from ackproof.base.units import Duration, duration_text
from ackproof.experiment.backends import BACKENDS, Ability, Need
from ackproof.experiment.base import Spec
from ackproof.experiment.exposure import NOTHING, Draw, Exposure, Incidents
from ackproof.experiment.kafka import KafkaBuild
from ackproof.experiment.problems import Data, Path
from ackproof.experiment.roles import Role, RoleField
from ackproof.experiment.triggers import ChainTrigger, Frame, Trigger
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import DRAWN_FROM, fault_name

if TYPE_CHECKING:
    from ackproof.experiment.experiment import ExperimentSpec

HoldKey = Literal["for", "restart_after"]


class Grip(Enum):
    """State into which a fault puts a node; the value completes "the node is …"."""

    DOWN = "down"
    """No process."""
    STILL = "at a standstill"
    """A process that stands still."""
    SLOW = "slow"
    """A process that is stopped and continued again and again; it stays stopped while another wants it `STILL`."""


WHERE_IT_RUNS: Final = frozenset({Grip.SLOW})
WHERE_IT_LIVES: Final = frozenset({Grip.SLOW, Grip.STILL})


class Complaints(Protocol):
    """Collector of problems between a fault and its experiment. Paths begin inside the braces after the kind."""

    def sound(self, *paths: Path, cluster: bool = False) -> bool:
        """Return True if these fields (and with `cluster` those of the cluster) have no problem yet."""

    def report(self, path: Path, message: str, suggestion: str | None = None, *, key: bool = False) -> None:
        """Note a problem of a field's value, or with `key` of its name."""

    def unknown_value(self, path: Path, what: str, name: str, valid: Iterable[str]) -> None:
        """Note a value that names something which does not exist; the nearest of `valid` is suggested."""


class FaultSpec(Spec):
    """One fault of an experiment. `number` counts from 1 in file order; other faults refer to it."""

    KIND: ClassVar[str] = ""
    SUMMARY: ClassVar[str] = ""
    """What it does, in a sentence."""
    DONE: ClassVar[str] = ""
    """What befell those whom it hit, as the participle of a sentence: "killed"; '' where no node or client is hit."""
    HEALING: ClassVar[str] = ""
    """What ends it, as a verb for the schedule: "resume", "start again"."""
    HOLD_KEY: ClassVar[HoldKey | None] = None
    """The field that says how long it lasts; None for a fault that ends by itself."""
    SHORT: ClassVar[tuple[str, ...]] = ()
    """The fields that a value without braces stands for: one, or for a list of three the groups and what connects
    them."""
    ASKS: ClassVar[frozenset[Ability]] = frozenset()
    """Abilities that it uses apart from Kafka's protocol; the backend's row names those that it lacks."""
    NOT_SIMULATED: ClassVar[str] = ""
    """Why the reference implementation has no such fault, whatever its fields say; empty where it has."""
    NOT_IN: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Modes of a cluster (`cluster.mode`) in which there is nothing that it could do, and why."""
    UNPREDICTABLE: ClassVar[str] = ""
    """Why no prediction can be made with it; empty where one can. One that says nothing of it and neither has a
    `PER_NODE` nor a `planned` of its own has none either (`unpredictable`)."""
    PER_NODE: ClassVar[Incidents | None] = None
    """Incidents for each broker that it hits, without those that the metadata log records; NOTHING for a kind that
    touches no replica."""
    ENDS_NODES: ClassVar[bool] = False
    """Whether the process of each node at which it is aimed ends."""
    GRIP: ClassVar[Grip | None] = None
    """What it wants of each node at which it is aimed."""
    OVER: ClassVar[frozenset[Grip]] = frozenset(Grip)
    """Grips of other faults on a node that leave it something to break there."""
    IN_FORCE_S: ClassVar[float] = 60.0
    """So many seconds after its time it is in force, unless it failed."""
    NEEDS: ClassVar[frozenset[Need]] = frozenset()
    """What must be laid before the cluster starts so that it can be done, whatever its fields say."""

    SENDS: ClassVar[bool] = False
    """Whether producers send what it asks for, and nothing else, until it lets them."""

    number: int = Field(ge=1)
    trigger: Trigger
    hold: Duration | None = None
    """Seconds from its confirmation to its healing; None: until the healing phase at the end of the run."""

    @property
    def kind(self) -> str:
        return self.KIND

    @property
    def is_drawn(self) -> bool:
        return self.number >= DRAWN_FROM

    @property
    def targets(self) -> tuple[Role, ...]:
        """Every role that it mentions; they are resolved once, together, when it is due. Empty: it needs none."""
        return ()

    @property
    def needs(self) -> frozenset[Need]:
        """Ground that must be laid for it; depends on its fields where a kind overrides `NEEDS`."""
        return self.NEEDS

    @property
    def course(self) -> tuple[str, ...]:
        """Steps in order, one line each, for faults that one line cannot describe."""
        return ()

    @property
    def builds(self) -> tuple[KafkaBuild, ...]:
        """Builds of Kafka that it installs, besides the cluster's own."""
        return ()

    @classmethod
    def not_on(cls, backend: str) -> str | None:
        """Why it cannot be injected on this backend: "not possible on it, because …"; None where it can be."""
        row = BACKENDS[backend]
        if row.simulated and cls.NOT_SIMULATED:
            return cls.NOT_SIMULATED
        return next((why for ability, why in row.lacks.items() if ability in cls.ASKS), None)

    @classmethod
    def unpredictable(cls) -> str:
        """Why no prediction can be made with it; empty where one can."""
        says = cls.PER_NODE is not None or cls.planned is not FaultSpec.planned
        return cls.UNPREDICTABLE or ("" if says else "the model has no such fault")

    def not_simulated(self, spec: ExperimentSpec) -> tuple[str, str] | None:
        """Return the field that the model cannot do in this experiment ("": the whole fault), and why."""
        return None

    @property
    def grip(self) -> Grip | None:
        """State into which it puts its nodes."""
        return self.GRIP

    def reach(self, spec: ExperimentSpec) -> tuple[frozenset[int], int]:
        """The nodes that it may hit, and how many of them it hits at least."""
        each = [role.reach(spec.cluster.members) for role in self.targets]
        return frozenset().union(*(nodes for nodes, _ in each)), max((least for _, least in each), default=0)

    def keeps(self, spec: ExperimentSpec) -> Grip | None:
        """Return the state of each of its nodes from confirmation to healing; None if it is not certain."""
        return None if self.HOLD_KEY is None else self.grip

    def at_odds(self, first: FaultSpec, spec: ExperimentSpec) -> str:
        """Return why this fault certainly finds nothing to break while `first` is in force; '' if that is not certain.

        Otherwise the run decides: the two compose, or this one does not bite.
        """
        grip = first.keeps(spec)
        met = "" if grip is None or grip in self.OVER else self.meets(first, spec)
        return f"keeps {met} {grip.value}" if grip and met else ""

    def meets(self, other: FaultSpec, spec: ExperimentSpec) -> str:
        """The nodes among which is one that both surely hit, in words; '' where none surely is."""
        (mine, least), (its, most) = self.reach(spec), other.reach(spec)
        if least + most <= len(mine | its):
            return ""  # only if they hit more nodes than there are, one is hit by both
        return ("node " if len(mine & its) == 1 else "one of ") + ", ".join(map(str, sorted(mine & its)))

    @property
    def lasts(self) -> float:
        """Seconds from its confirmation for which its effect certainly lasts."""
        if self.HOLD_KEY is None:
            return 0.0
        return inf if self.hold is None else self.hold

    def observed(self, nodes: int) -> Incidents:
        """Return the incidents that it amounts to after hitting this many brokers."""
        return (self.PER_NODE or NOTHING).times(nodes)

    def planned(self, exposure: Exposure) -> Incidents | None:
        """Return the incidents that it may cause to a partition, given its duration; None: it touches no replica."""
        return self.observed(exposure.aimed_at(self.targets)) if self.PER_NODE else None

    def check(self, spec: ExperimentSpec, say: Complaints) -> None:
        """Say what does not fit the experiment, beyond roles and partitions, which are checked for every fault."""

    def may_set(self, spec: ExperimentSpec, topic: str) -> Mapping[str, str]:
        """Settings of the topic that are in force for a while because of it: a run is judged by the weakest."""
        return {}

    @property
    def clock_shift(self) -> float:
        """Seconds by which it sets the clocks of its nodes forwards; negative is backwards."""
        return 0.0

    def rots(self, place: TopicPartition) -> bool:
        """Return True if it damages what the protocol relies on in this partition's log.

        That is the end, as a loss of power does, or the middle, for which no protocol defines the outcome.
        """
        del place
        return False

    def drops(self, topic: str) -> bool:
        """Return True if it deletes all records of the topic on purpose."""
        return False

    def disturbs(self, producer: int) -> bool:
        """Return True if records in flight from this producer may be lost."""
        del producer
        return True

    def may_shrink_to(self, topic: str) -> int | None:
        """The fewest replicas that a partition of the topic has because of it; None: as many as before."""
        return None

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Its own fields as a storm draws them, in the words of a file; None: a storm's menu must give them."""
        own = (field for name, field in cls.model_fields.items() if name not in COMMON)
        return None if any(field.is_required() for field in own) else {}

    def entry(self) -> dict[str, Data]:
        """Itself in the words of a file, as one of `faults:`; a field that is unset (None) is left out."""
        body: Data = self.model_dump(mode="json", exclude_none=True, exclude=set(COMMON), by_alias=True)
        data = {
            self.KIND: body,
            **Frame.from_trigger(self.trigger).model_dump(mode="json", exclude_none=True),
        }
        if self.hold is not None and self.HOLD_KEY is not None:
            data[self.HOLD_KEY] = duration_text(self.hold)
        return data

    def __str__(self) -> str:
        return " ".join([self.kind, ", ".join(map(str, self.targets))]).rstrip()


class NodeFault(FaultSpec):
    """A fault of whole nodes, those that hold a role."""

    SHORT: ClassVar[tuple[str, ...]] = ("target",)

    target: RoleField

    @property
    def targets(self) -> tuple[Role, ...]:
        return (self.target,)

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        return {"target": draw.role()}


COMMON: Final = frozenset({"number", "trigger", "hold"})
"""Fields of a fault that are not written inside the braces after its kind."""


def trigger_text(fault: FaultSpec) -> str:
    """When a fault begins, in words; one that a storm drew counts from the storm's own beginning."""
    if fault.is_drawn and isinstance(fault.trigger, ChainTrigger):
        by, first = duration_text(fault.trigger.by), fault.trigger.fault
        return f"{by} into storm {first}" if first < DRAWN_FROM else f"{by} with fault {fault_name(first)}"
    return str(fault.trigger)
