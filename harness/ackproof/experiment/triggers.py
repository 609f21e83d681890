"""Triggers, which say when a fault begins: at a time, in a state, or after another fault.

Times count in seconds from the start of the workload: the moment when every partition has acknowledged a record and
every group member has an assignment, or after 30 s of waiting for that. A state is a comparison of one gauge:

    acked >= 2000, acked(orders/0) >= 500     records acknowledged so far, in total or of one partition
    read >= 100, read(orders/0) >= 100        records that live readers got, all readers together
    isr(orders/0) == 1, leader(orders/0) < 0  newest sample of a partition: any gauge in `quantities.states.LIVE`
    metric(under_replicated_partitions) > 0   newest scrape, of all nodes together or of `node N`
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, TypeAlias

from pydantic import ConfigDict, Field, WithJsonSchema

from ackproof.base.units import Duration, duration_text
from ackproof.experiment.base import Spec, Whole, text_field
from ackproof.experiment.problems import unknown_name
from ackproof.quantities.states import LIVE
from ackproof.quantities.vocabulary import UnknownQuantity, parse_ask
from ackproof.rundir.bounds import OPERATORS
from ackproof.rundir.metrics import METRICS, Shape
from ackproof.rundir.partition import TopicPartition

COUNTS: Final = ("acked", "read")
"""Gauges that only grow. They count records of one partition, or of all topics together."""
METRIC: Final = "metric"
"""Name of the gauge that reads one of the nodes' own metrics."""
GAUGES: Final = (*COUNTS, *LIVE, METRIC)
"""All gauges of state triggers. Those besides `COUNTS` are quantities of the same name and syntax."""

_CONDITION: Final = re.compile(
    r"\s*([A-Za-z_-]+)\s*(?:\(([^()]*)\))?\s*(>=|<=|==|!=|>|<)\s*(-?[0-9]{1,15})\s*\Z"
)
_NAME: Final = re.compile(r"\s*([A-Za-z_-]+)")
_PLACE: Final = r" *\([A-Za-z0-9._-]+/[0-9]+\)"
_METRICS: Final = "|".join(one.name for one in METRICS.values() if one.shape is Shape.GAUGE)
CONDITION_PATTERN: Final = (
    rf"^ *(({'|'.join(COUNTS)})({_PLACE})?|({'|'.join(LIVE)}){_PLACE}"
    rf"|{METRIC} *\( *({_METRICS}) *(, *node +[0-9]+ *)?\)) *(>=|<=|==|!=|>|<) *-?[0-9]+ *$"
)


@dataclass(frozen=True)
class Condition:
    """A comparison of a measured number (`gauge`) with `value`, such as `isr(orders/0) == 1`. `op`: ==, !=, <, <=, > or
    >=.

    `topic` and `partition` are set for the gauge of a partition, `metric` for a scraped metric, `node` for a metric of
    one node (None: all nodes combined).
    """

    gauge: str
    op: str
    value: int
    topic: str | None = None
    partition: int | None = None
    metric: str = ""
    node: int | None = None

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Parse a condition such as `acked >= 2000`. Raises ValueError with the expected form."""
        name = _NAME.match(text)
        if name is not None and name[1] not in GAUGES:
            raise ValueError(unknown_name(f"unknown gauge '{name[1][:60]}'", name[1], GAUGES, "there are"))
        match = _CONDITION.match(text)
        if match is None:
            raise ValueError(
                f"expected a condition such as acked >= 2000 or isr(orders/0) == 1, not '{text[:60]}'"
            )
        gauge = match[1]
        if gauge != "leader" and int(match[4]) < 0:
            raise ValueError(f"{gauge} is never below 0: expected 0 or more, not {match[4]}")
        if gauge == METRIC:
            try:
                ask = parse_ask(f"{gauge}({match[2]})" if match[2] is not None else gauge)
            except UnknownQuantity as error:
                raise ValueError(unknown_name(str(error), error.said, error.valid, "there are")) from error
            return cls(gauge, match[3], int(match[4]), metric=ask.quantity.variant, node=ask.node)
        if match[2] is None:
            if gauge not in COUNTS:
                raise ValueError(f"{gauge} is that of a partition: {gauge}(orders/0) {match[3]} {match[4]}")
            return cls(gauge, match[3], int(match[4]))
        topic, partition = TopicPartition.parse(match[2].strip())
        return cls(gauge, match[3], int(match[4]), topic, partition)

    def __str__(self) -> str:
        return f"{self.quantity_text} {self.op} {self.value}"

    @property
    def quantity_text(self) -> str:
        """Left side of the condition, such as `isr(orders/0)`. `parse_ask` accepts this text as a quantity, unless the
        gauge counts records (`acked`, `read`)."""
        of = self.metric if self.topic is None else f"{self.topic}/{self.partition}"
        words = [of] if self.node is None else [of, f"node {self.node}"]
        return f"{self.gauge}({', '.join(words)})" if of else self.gauge

    def holds(self, number: float) -> bool:
        return OPERATORS[self.op](number, self.value)


@dataclass(frozen=True)
class TimeTrigger:
    """Trigger at a time (`at: 5s`), in seconds after the start of the workload."""

    at: float

    def __str__(self) -> str:
        return f"{duration_text(self.at)} after the start of the workload"


@dataclass(frozen=True)
class StateTrigger:
    """Trigger in a state (`when: acked >= 2000`), or at `at_latest` seconds if the state has not occurred by then.

    Without `at_latest`, if the state never occurs, the fault is left out and the case is INCONCLUSIVE. If it
    waits for a count (`awaited`), the load continues beyond its duration by `COUNT_WITHIN_S` seconds at most.
    """

    condition: Condition
    at_latest: float | None = None

    @property
    def awaited(self) -> bool:
        """True if the trigger waits for a number of records (`acked` or `read` with > or >=) and has no
        `at_latest`. Load alone brings about such a state sooner or later."""
        counts = self.condition.gauge in COUNTS and self.condition.op in {">", ">="}
        return counts and self.at_latest is None

    def __str__(self) -> str:
        late = "" if self.at_latest is None else f", at {duration_text(self.at_latest)} at the latest"
        return f"when {self.condition}{late}"


@dataclass(frozen=True)
class ChainTrigger:
    """Trigger after another fault: `after: {fault: 1, by: 1s}`. `by`: seconds from the confirmation of that fault."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    fault: Annotated[
        Whole,
        Field(
            description="Number of a fault before this one; the first is 1.", json_schema_extra={"minimum": 1}
        ),
    ]
    by: Annotated[Duration, Field(description="How long after its confirmation.")] = 0.0

    def __str__(self) -> str:
        return f"{duration_text(self.by)} after fault {self.fault} is confirmed"


Trigger: TypeAlias = TimeTrigger | StateTrigger | ChainTrigger
COUNT_WITHIN_S: Final = 30.0
"""Maximum seconds by which the load continues beyond its duration to reach a count that a fault waits for."""
TRIGGER_KEYS: Final = ("at", "when", "after")
"""Keys of an entry that stand for a trigger; a fault has exactly one. `at_latest` goes with `when`."""

ConditionField: TypeAlias = Annotated[
    Condition,
    *text_field(Condition.parse, Condition, "a condition such as acked >= 2000"),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": CONDITION_PATTERN,
            "examples": [
                "acked >= 2000",
                "isr(orders/0) == 1",
                "leader(orders/0) < 0",
                "metric(under_replicated_partitions) > 0",
            ],
        }
    ),
]


class Frame(Spec):
    """Fields of a fault entry next to its kind: trigger and duration."""

    at: Duration | None = Field(None, description="Begins at this time after the start of the workload.")
    when: ConditionField | None = Field(
        None,
        description="Begins in this state: a count (acked, read), the state of a partition (isr(t/p), "
        "lag(t/p), leader(t/p), …) or a scrape of a metric (metric(under_replicated_partitions)), compared with a "
        "number.",
    )
    at_latest: Duration | None = Field(
        None, gt=0, description="Begins at this time even if the state of 'when' did not come."
    )
    after: ChainTrigger | None = Field(None, description="Begins after another fault is confirmed.")
    for_: Duration | None = Field(
        None, gt=0, alias="for", description="How long it lasts; without it until the end of the run."
    )
    restart_after: Duration | None = Field(
        None, gt=0, description="When the node is started again; without it at the end of the run."
    )

    @classmethod
    def from_trigger(cls, trigger: Trigger) -> Frame:
        match trigger:
            case TimeTrigger():
                return cls(at=trigger.at)
            case ChainTrigger():
                return cls(after=trigger)
            case _:
                return cls(when=trigger.condition, at_latest=trigger.at_latest)

    @property
    def trigger(self) -> Trigger | None:
        """The trigger: `when` if given, else `at`, else `after`; None if none is given."""
        if self.when is not None:
            return StateTrigger(self.when, self.at_latest)
        return self.after if self.at is None else TimeTrigger(self.at)


def surely_fires(trigger: Trigger, fate: Callable[[int], bool | Trigger]) -> bool:
    """Return True if a fault that waits for this trigger will certainly begin.

    A trigger at a time always fires; a trigger in a state fires for certain only with `at_latest`. A trigger after
    another fault depends on `fate(number of that fault)`. If that is a bool, it is the answer: False if the other fault
    failed, True if it began. If the other fault waits too, `fate` returns its trigger, which then decides in the same
    way.
    """
    if not isinstance(trigger, ChainTrigger):
        return isinstance(trigger, TimeTrigger) or trigger.at_latest is not None
    first = fate(trigger.fault)
    return first if isinstance(first, bool) else surely_fires(first, fate)
