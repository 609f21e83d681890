"""Types with which a kind of fault describes itself. `Draw`: a storm's random choice of its fields. `Exposure`: how a
topic is exposed to the fault. `Incidents`: what the fault may cause, as the model counts it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, TypeAlias

from pydantic import WithJsonSchema

from ackproof.base.units import DURATION_PATTERN, duration_text, parse_duration
from ackproof.experiment.base import text_field
from ackproof.experiment.roles import HELD_BY_ONE, Role, RoleKind, minority_of

if TYPE_CHECKING:
    from ackproof.experiment.experiment import ExperimentSpec

AS_KRAFT: Final = "it knows reassignments as KRaft makes them, not as ZooKeeper's controller does"
"""Reason why the model simulates no fault that reassigns partitions in ZooKeeper mode."""
LAG: Final = "replica.lag.time.max.ms"


class Incidents(NamedTuple):
    """Numbers of incidents, planned or observed, at brokers with a replica of one partition. The model's
    explorer takes them as its `Budget`.

    `kills`, `power_losses`, `clean_stops`: ends of brokers. `cuts`: live brokers that are fenced. `shrinks`:
    slow followers that their leader removes from the ISR. `preferred`, `unclean`: elections of these kinds.
    `hand_overs`: moves of the leadership away from a live broker. A planned preferred election counts in `preferred`
    and in `hand_overs`, one in an observed metadata log only in `hand_overs`.
    """

    kills: int = 0
    power_losses: int = 0
    clean_stops: int = 0
    cuts: int = 0
    shrinks: int = 0
    preferred: int = 0
    hand_overs: int = 0
    unclean: int = 0

    def plus(self, other: Incidents) -> Incidents:
        return Incidents(*(mine + its for mine, its in zip(self, other, strict=True)))

    def most(self, other: Incidents) -> Incidents:
        return Incidents(*(max(mine, its) for mine, its in zip(self, other, strict=True)))

    def times(self, number: int) -> Incidents:
        return Incidents(*(number * mine for mine in self))

    def __str__(self) -> str:
        return ", ".join(f"{name}={count}" for name, count in self._asdict().items() if count) or "nothing"


NOTHING: Final = Incidents()


@dataclass(frozen=True)
class Exposure:
    """One topic of a case, with the facts from which a fault counts the incidents that it may cause
    (`FaultSpec.planned`).

    `faults`: number of faults in the case. `time_out`: function that returns the shortest value of a setting in force
    at any broker, in ms. `session`: name of the setting for the session time-out, after which a silent broker is
    fenced.
    """

    experiment: ExperimentSpec
    faults: int
    topic: str
    time_out: Callable[[str], int]
    session: str

    @property
    def replicas(self) -> int:
        return self.experiment.topics[self.topic].replication_factor

    def brokers(self, role: Role) -> int:
        """Return the maximum number of brokers with a replica of one partition of the topic that can hold this role at
        once."""
        cluster, rf = self.experiment.cluster, self.replicas
        if role.kind is RoleKind.LIST:
            return self.aimed_at(role.parts)
        if role.kind is RoleKind.RACK:
            # With several holders, each may be in a rack of its own.
            if any(part.kind not in HELD_BY_ONE for part in role.parts):
                return rf
            racks = Counter(cluster.members.racks.get(broker) for broker in cluster.broker_ids)
            return min(max(racks.values()) if role.rack is None else racks[role.rack], rf)
        controllers = 0
        if cluster.metadata.broker_controls:
            controllers = 1
        elif cluster.combined:
            controllers = 1 if role.kind is RoleKind.CONTROLLER else cluster.brokers
        holders = {
            RoleKind.FOLLOWERS: rf - 1,
            RoleKind.ISR: rf,
            RoleKind.BROKERS: cluster.brokers,
            RoleKind.MINORITY: minority_of(cluster.brokers),
            RoleKind.MAJORITY: cluster.brokers - minority_of(cluster.brokers),
            RoleKind.CONTROLLER: controllers,
            RoleKind.CONTROLLERS: controllers,
            RoleKind.ZOOKEEPER: 0,
        }
        return min(holders.get(role.kind, 1), rf)

    def aimed_at(self, targets: Iterable[Role]) -> int:
        """Return the maximum number of brokers with a replica of one partition of the topic that a fault aimed at these
        roles can hit."""
        return min(sum(map(self.brokers, targets)), self.replicas)

    def lasts(self, hold: float | None, setting: str) -> bool:
        """Return True if a fault of `hold` seconds lasts at least as long as the time-out setting with the name
        `setting`. `hold` None: the fault lasts to the end of the run."""
        return hold is None or hold * 1000 >= self.time_out(setting)

    def noticed(self, hold: float | None, nodes: int) -> Incidents:
        """Return the incidents that follow if `nodes` brokers are stopped or cut off for `hold` seconds (None: to the
        end of the run). If their sessions end meanwhile, the brokers are fenced (`cuts`). Else, if they lag for too
        long, leaders remove them from the ISR (`shrinks`). `NOTHING` if the time is too short for both."""
        if self.lasts(hold, self.session):
            return Incidents(cuts=nodes)
        return Incidents(shrinks=nodes) if self.lasts(hold, LAG) else NOTHING


_ONE: Final = DURATION_PATTERN.strip("^$")
RANGE_PATTERN: Final = rf"^{_ONE}( *\.\. *{_ONE})?$"
_DOTS: Final = re.compile(r" *\.\. *")


@dataclass(frozen=True)
class DurationRange:
    """A range of durations in seconds, both ends included."""

    low: float
    high: float

    @classmethod
    def parse(cls, text: str) -> DurationRange:
        """Parse `0.5s..3s`, or `2s` for a single duration.

        Raises ValueError for other texts, or if the first end is higher.
        """
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
    DurationRange,
    *text_field(DurationRange.parse, DurationRange, "a range of durations such as 0.5s..3s"),
    WithJsonSchema(
        {"type": "string", "pattern": RANGE_PATTERN, "title": "Range", "examples": ["0.5s..3s", "2s"]}
    ),
]
"""A range of durations. In a file: `0.5s..3s`, or one duration."""


@dataclass(frozen=True)
class Draw:
    """Random choices for `FaultSpec.draw_fields`, when a storm (a fault that starts randomly chosen faults) draws a
    fault.

    `random`: generator for roles, durations and the partitions that `place` draws. All faults of a storm share one such
    generator; with `pairs: all`, only the two faults of a pair share one. `more`: generator for all other choices. Each
    fault of a storm has its own `more`, so that such a choice changes no other fault. With `pairs: all`, `more` is the
    same generator as `random`. `roles`: roles of the storm that fit the kind, in the grammar of a file.
    """

    random: Random
    roles: Sequence[str]
    experiment: ExperimentSpec
    more: Random = field(default_factory=lambda: Random(0))

    def role(self) -> str:
        return self.random.choice(list(self.roles))

    def other_place(self) -> str:
        """Draw a partition that producers write to, such as `orders/0`, from the generator `more`."""
        return self.more.choice(places_of(self.experiment))

    def link(self) -> str:
        """Draw a link that carries traffic; return it as a file writes it, such as `clients -> leader(orders/0)`."""
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
        """Draw a link and an API whose requests it carries all the time; return both as a file writes them. `apis`:
        names of the APIs to choose from; any API if there are none, or if no link carries one of them."""
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
        """Draw a whole number from `low` to `high` (both included), from the generator `more`."""
        return self.more.randint(low, high)

    def pick_seconds(self, within: DurationRange) -> float:
        """Draw a duration in this range; return seconds, rounded to milliseconds."""
        return round(within.low + (within.high - within.low) * self.random.random(), 3)


def places_of(experiment: ExperimentSpec) -> list[str]:
    """Return the partitions that producers write to, such as `orders/0`."""
    topics = experiment.topics
    return [
        f"{name}/{number}"
        for name in experiment.topic_names()
        if name in topics
        for number in range(topics[name].partitions)
    ]
