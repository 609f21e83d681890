"""What a storm draws from: its own generator, the roles that it may strike, the experiment around it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Annotated, Final, TypeAlias

from pydantic import WithJsonSchema

from ackproof.base.units import DURATION_PATTERN, duration_text, parse_duration
from ackproof.experiment.base import text_field
from ackproof.experiment.spec import SystemUnderTest

_ONE: Final = DURATION_PATTERN.strip("^$")
RANGE_PATTERN: Final = rf"^{_ONE}( *\.\. *{_ONE})?$"
_DOTS: Final = re.compile(r" *\.\. *")


@dataclass(frozen=True)
class Range:
    """From `low` to `high` seconds, both possible."""

    low: float
    high: float

    @classmethod
    def parse(cls, text: str) -> Range:
        """Read `0.5s..3s`, or `2s` for exactly that. Raises ValueError."""
        parts = _DOTS.split(text.strip())
        try:
            ends = [parse_duration(part) for part in parts]
        except ValueError as error:
            raise ValueError(f"expected a range of durations such as 0.5s..3s, not '{text[:60]}'") from error
        if len(ends) > 2 or ends[0] > ends[-1]:
            raise ValueError(f"expected a range that begins with its lower end, not '{text[:60]}'")
        return cls(ends[0], ends[-1])

    def __str__(self) -> str:
        low, high = duration_text(self.low), duration_text(self.high)
        return low if low == high else f"{low}..{high}"


RangeField: TypeAlias = Annotated[
    Range,
    *text_field(Range.parse, Range, "a range of durations such as 0.5s..3s"),
    WithJsonSchema(
        {"type": "string", "pattern": RANGE_PATTERN, "title": "Range", "examples": ["0.5s..3s", "2s"]}
    ),
]
"""A range of durations. In a file: `0.5s..3s`; one duration alone is always drawn as it is."""


@dataclass(frozen=True)
class Draw:
    """What a kind of fault may look at while a storm draws one of it (`FaultSpec.drawn`).

    All choices come from `random`, which follows from the case's seed and the storm's number.
    """

    random: Random
    roles: Sequence[str]
    """The storm's `roles`, as a file writes them."""
    experiment: SystemUnderTest
    more: Random = field(default_factory=lambda: Random(0))
    """For what a file may leave out: a generator of each fault's own, so that what it draws changes no other draw."""

    def role(self) -> str:
        """One of the storm's roles."""
        return self.random.choice(list(self.roles))

    def place(self) -> str:
        """A partition that producers write to, as `orders/0`."""
        return self.random.choice(places_of(self.experiment))

    def other_place(self) -> str:
        """As `place`, from the fault's own generator."""
        return self.more.choice(places_of(self.experiment))

    def link(self) -> str:
        """A link that carries something, as a file writes it."""
        place, cluster = self.other_place(), self.experiment.cluster
        links = [f"{who}({place}) -> leader({place})" for who in ("follower", "followers")]
        links += [f"clients -> leader({place})", f"leader({place}) -> follower({place})"]
        if cluster.metadata.broker_controls:
            links.append(f"leader({place}) -> zookeeper")
        elif not cluster.combined:
            links.append("broker -> controller")
            if len(cluster.controller_ids) > 1:
                links.append("controller -> controllers")
        if cluster.brokers < 2:
            links = [f"clients -> leader({place})"]
        return self.more.choice(links)

    def request(self, *apis: str) -> tuple[str, str]:
        """A link and one of these APIs (any, without them) whose requests go over it all the time."""
        place, cluster = self.other_place(), self.experiment.cluster
        asked = [(f"clients -> leader({place})", "Produce")]
        if self.experiment.workload.consumers.live:
            asked.append((f"clients -> leader({place})", "Fetch"))
        if cluster.brokers > 1:
            asked.append((f"followers({place}) -> leader({place})", "Fetch"))
        if not cluster.combined:
            asked += [("brokers -> controllers", "BrokerHeartbeat"), ("brokers -> controllers", "Fetch")]
        if not cluster.combined and len(cluster.controller_ids) > 1:
            asked.append(("controllers -> controller", "Fetch"))
        return self.more.choice([one for one in asked if not apis or one[1] in apis] or asked)

    def between(self, low: int, high: int) -> int:
        """A whole number, both ends possible, from the fault's own generator."""
        return self.more.randint(low, high)

    def seconds(self, within: Range) -> str:
        """A duration in this range, in whole milliseconds, as a file writes it."""
        return duration_text(self.within(within))

    def within(self, within: Range) -> float:
        """A duration in this range, in seconds, rounded to milliseconds."""
        return round(within.low + (within.high - within.low) * self.random.random(), 3)


def places_of(experiment: SystemUnderTest) -> list[str]:
    """The partitions that producers write to, as `orders/0`."""
    topics = experiment.topics
    return [
        f"{name}/{number}"
        for name in experiment.topic_names()
        if name in topics
        for number in range(topics[name].partitions)
    ]
