"""`FaultSpec`, the base class of all faults, as data.

A kind of fault is a subclass with a `KIND`, in a module of `ackproof.faults`; `ackproof.faults.registry` finds it.
The fields that the subclass adds are those that a file writes in the braces after the kind. The class attributes
tell planning, running and judging everything else about the kind.
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
    """State in which a fault keeps a node. The value completes "the node is …"."""

    DOWN = "down"
    """The node has no process."""
    STILL = "at a standstill"
    """The node's process exists, and is paused."""
    SLOW = "slow"
    """The node's process is paused and continued in turn. It stays paused while another fault wants it `STILL`."""


WHERE_IT_RUNS: Final = frozenset({Grip.SLOW})
"""Value of `FaultSpec.OVER` (states of a node, caused by other faults, in which a fault still has an effect) for a
fault that needs a running process. A slow node's process runs at times."""
WHERE_IT_LIVES: Final = frozenset({Grip.SLOW, Grip.STILL})
"""`OVER` of a fault that has an effect as long as the node has a process, even a paused one."""


class Complaints(Protocol):
    """Receiver of conflicts between a fault and its experiment. A path leads to a field of the fault, relative to the
    fault's own fields: `("config", "flush.ms")` is the key `flush.ms` in the field `config`."""

    def sound(self, *paths: Path, cluster: bool = False) -> bool:
        """Return True if no problem was reported yet for these fields or the fields that contain them. With `cluster`,
        there must be none for the number of brokers and the Kafka release either."""

    def report(
        self, path: Path, fact: str, hint: str = "", *, suggestion: str | None = None, key: bool = False
    ) -> None:
        """Report a problem with the value of a field; if `key` is True, with the name of that field.

        `fact`: what is wrong, or an `Advice`. `hint`: what to do about it. `suggestion`: the text that the user
        probably meant.
        """

    def unknown_value(self, path: Path, what: str, name: str, valid: Iterable[str]) -> None:
        """Report a value `name` at `path` that names something that does not exist; suggest the nearest of
        `valid`.

        `what`: the kind of name, for the message, such as `topic`.
        """


class FaultSpec(Spec):
    """Base class of all kinds of faults. An instance is one fault of an experiment; the class attributes in capitals
    describe its kind.

    `number`: position in the file, from 1, or from `DRAWN_FROM` for a fault that a storm drew. Other faults refer to
    it. `trigger`: condition on which the fault begins. `hold`: seconds from the fault's confirmation to its healing;
    None: until the healing phase at the end of the run, or without meaning if the fault ends by itself. The first fault
    of a pair (`pairs: all`) may be held longer, for its partner.
    """

    KIND: ClassVar[str] = ""
    """Name of the kind in files, such as `kill`; '' for base classes."""
    SUMMARY: ClassVar[str] = ""
    """Effect of the fault, in a sentence."""
    DONE: ClassVar[str] = ""
    """Effect on a node or client that was hit, as a participle: "killed". '' if the fault hits neither."""
    HEALING: ClassVar[str] = ""
    """Action that ends the fault, as a verb: "resume", "start again"."""
    HOLD_KEY: ClassVar[HoldKey | None] = None
    """Name of the field for the fault's duration; None if the fault ends by itself."""
    SHORT: ClassVar[tuple[str, ...]] = ()
    """Fields that a value without braces sets. One field takes the whole value. Two fields take a list of three: the
    first gets its ends (two groups), the second its middle (the node that connects them). Empty: braces are needed."""
    ASKS: ClassVar[frozenset[Ability]] = frozenset()
    """Abilities that the fault uses apart from Kafka's protocol. It is refused on backends that lack one."""
    NOT_SIMULATED: ClassVar[str] = ""
    """Reason why the reference implementation can simulate no fault of this kind, whatever its fields; '' if it can."""
    NOT_IN: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Cluster modes (`cluster.mode`) in which the fault can do nothing, each with the reason."""
    UNPREDICTABLE: ClassVar[str] = ""
    """Reason why no prediction can be made for a case with this fault; empty if one can. A kind with neither this
    reason nor `PER_NODE` nor its own `planned` has no prediction either (see `unpredictable`)."""
    PER_NODE: ClassVar[Incidents | None] = None
    """Incidents for each broker that is hit, without those that the metadata log records. `NOTHING` for a kind that
    touches no replica."""
    ENDS_NODES: ClassVar[bool] = False
    """True if a confirmed fault of this kind has surely ended the process of each targeted node by its recovery. Kinds
    with False may end nodes too, such as `rolling_restart`."""
    GRIP: ClassVar[Grip | None] = None
    """State that the fault causes on each targeted node; None if it causes no state of `Grip`."""
    OVER: ClassVar[frozenset[Grip]] = frozenset(Grip)
    """States, caused by other faults on a node, in which this fault still finds something to break there."""
    IN_FORCE_S: ClassVar[float] = 60.0
    """Maximum seconds from the time at which the fault is due until it is in force or has failed."""
    NEEDS: ClassVar[frozenset[Need]] = frozenset()
    """Needs that must be prepared before the cluster starts, whatever the fault's fields."""

    SENDS: ClassVar[bool] = False
    """True if producers, after a first record for each partition, send only on request of this fault, until it lets
    them send freely."""

    number: int = Field(ge=1)
    trigger: Trigger
    hold: Duration | None = None

    @property
    def kind(self) -> str:
        return self.KIND

    @property
    def target_text(self) -> str:
        """The fault in words without its kind, such as `leader(orders/0)`."""
        return str(self).removeprefix(self.kind).strip()

    @property
    def is_drawn(self) -> bool:
        return self.number >= DRAWN_FROM

    @property
    def targets(self) -> tuple[Role, ...]:
        """Every role that the fault's fields name. All roles are resolved to nodes at the moment when the fault
        begins."""
        return ()

    @property
    def needs(self) -> frozenset[Need]:
        """Preparations that the fault requires before the cluster starts. A kind overrides this property if they depend
        on its fields."""
        return self.NEEDS

    @property
    def course(self) -> tuple[str, ...]:
        """The fault's steps in order, one line of text each; empty for a fault that one line describes."""
        return ()

    @property
    def builds(self) -> tuple[KafkaBuild, ...]:
        """Return the builds of Kafka that the fault installs, in addition to the cluster's own."""
        return ()

    @classmethod
    def not_on(cls, backend: str) -> str | None:
        """Return why this kind cannot be injected on a backend, to complete "not possible, because …"; None if it
        can."""
        row = BACKENDS[backend]
        if row.simulated and cls.NOT_SIMULATED:
            return cls.NOT_SIMULATED
        return next((why for ability, why in row.lacks.items() if ability in cls.ASKS), None)

    @classmethod
    def unpredictable(cls) -> str:
        """Return why the model can make no prediction for a case with this kind; '' if it can."""
        says = cls.PER_NODE is not None or cls.planned is not FaultSpec.planned
        return cls.UNPREDICTABLE or ("" if says else "the model has no such fault")

    def not_simulated(self, spec: ExperimentSpec) -> tuple[str, str] | None:
        """Return (name of a field, reason) if the model cannot simulate this fault in this experiment; None if it can.
        The name is '' if the whole fault cannot be simulated."""
        return None

    @property
    def grip(self) -> Grip | None:
        """State in which the fault keeps its nodes; None if it changes no node's state."""
        return self.GRIP

    def reach(self, spec: ExperimentSpec) -> tuple[frozenset[int], int]:
        """Return the nodes that the fault may hit, and a lower bound of the number of nodes that it hits."""
        each = [role.reach(spec.cluster.members) for role in self.targets]
        return frozenset().union(*(nodes for nodes, _ in each)), max((least for _, least in each), default=0)

    def keeps(self, spec: ExperimentSpec) -> Grip | None:
        """Return the state in which the fault keeps each targeted node from its confirmation to its healing; None if
        that is not certain."""
        return None if self.HOLD_KEY is None else self.grip

    def at_odds(self, first: FaultSpec, spec: ExperimentSpec) -> str:
        """Return why this fault certainly finds nothing to break while `first` is in force; '' if that is not certain.

        The text completes "finds nothing to break while FIRST …". With '', only the run shows whether both faults take
        effect. Faults of links raise `FaultNotConfirmed` if this fault or `first` has no link that exists.
        """
        grip = first.keeps(spec)
        met = "" if grip is None or grip in self.OVER else self.meets(first, spec)
        return f"keeps {met} {grip.value}" if grip and met else ""

    def meets(self, other: FaultSpec, spec: ExperimentSpec) -> str:
        """Return in words where both faults certainly hit the same node: `node 1`, or `one of 1, 2, 3` if it may be any
        of these. '' if it is not certain that a node is hit by both."""
        (mine, least), (its, most) = self.reach(spec), other.reach(spec)
        if least + most <= len(mine | its):
            return ""  # only if they hit more nodes than there are, one is hit by both
        return ("node " if len(mine & its) == 1 else "one of ") + ", ".join(map(str, sorted(mine & its)))

    @property
    def lasts(self) -> float:
        """Seconds from confirmation for which the effect certainly lasts: 0 if the fault ends by itself, infinite if it
        is held to the end of the run."""
        if self.HOLD_KEY is None:
            return 0.0
        return inf if self.hold is None else self.hold

    def observed(self, nodes: int) -> Incidents:
        """Return the incidents that the fault caused, after it hit `nodes` brokers (`Incidents`: events that the model
        counts). Incidents that the metadata log records, such as fencings, are left out: they are counted from that
        log."""
        return (self.PER_NODE or NOTHING).times(nodes)

    def planned(self, exposure: Exposure) -> Incidents | None:
        """Return the incidents that the fault may cause to a partition; None if the model has no such fault."""
        return self.observed(exposure.aimed_at(self.targets)) if self.PER_NODE else None

    def check(self, spec: ExperimentSpec, say: Complaints) -> None:
        """Report conflicts of the fault with the experiment to `say`. Roles and partitions are checked elsewhere, for
        every fault."""

    def may_set(self, spec: ExperimentSpec, topic: str) -> Mapping[str, str]:
        """Return the settings of the topic that this fault puts in force for a while: name → value; empty if it changes
        none. A run is judged by the weakest value that was in force at any time."""
        return {}

    @property
    def clock_shift(self) -> float:
        """Return the seconds by which the fault advances the clocks of its nodes; negative: sets them back."""
        return 0.0

    def rots(self, place: TopicPartition) -> bool:
        """Return True if the fault damages files of this partition's log on which the replication protocol relies.
        Kafka defines no outcome of such damage."""
        del place
        return False

    def drops(self, topic: str) -> bool:
        """Return True if the fault deletes all records of the topic on purpose."""
        return False

    def disturbs(self, producer: int) -> bool:
        """Return True if records in flight from this producer (its number from 0) may be lost."""
        del producer
        return True

    def may_shrink_to(self, topic: str) -> int | None:
        """Return the number of replicas to which this fault may reduce partitions of the topic; None: it reduces
        none."""
        return None

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Draw the kind's fields for a storm (a fault that starts randomly chosen faults); return them as a file writes
        them. None: they cannot be drawn, and the storm's `menu` must give them."""
        own = (field for name, field in cls.model_fields.items() if name not in COMMON)
        return None if any(field.is_required() for field in own) else {}

    def entry(self) -> dict[str, Data]:
        """Return the fault as plain data, as an entry of `faults:` in a file; fields that are None are left out."""
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
    """A fault of whole nodes: those that hold the role `target`."""

    SHORT: ClassVar[tuple[str, ...]] = ("target",)

    target: RoleField

    @property
    def targets(self) -> tuple[Role, ...]:
        return (self.target,)

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        return {"target": draw.role()}


COMMON: Final = frozenset({"number", "trigger", "hold"})
"""Fields that are outside the braces after a fault's kind."""


def trigger_text(fault: FaultSpec) -> str:
    """Return in words when a fault begins. For a fault that a storm drew, the time counts from the beginning of the
    storm, or of the first fault of its pair."""
    if fault.is_drawn and isinstance(fault.trigger, ChainTrigger):
        by, first = duration_text(fault.trigger.by), fault.trigger.fault
        return f"{by} into storm {first}" if first < DRAWN_FROM else f"{by} with fault {fault_name(first)}"
    return str(fault.trigger)
