"""Rules of the request proxy for requests or responses of one API, and counts of the frames that they hit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Final, TypeAlias

EVERY_API: Final = -1
"""Value of `Rule.api` for a rule on frames of every API. Of the probes (requests by which the harness observes rules),
such a rule hits only those of `PROBED_API`."""
PROBED_API: Final = 18
"""API key of ApiVersions, the only API whose probes a rule for every API takes."""
PartitionKey: TypeAlias = tuple[str, int]
"""A topic, by its name or the hexadecimal digits of its id, and a partition."""


class RuleKind(StrEnum):
    """Effect of a rule on a frame, such as holding, losing or repeating it."""

    HOLD = "hold"
    """The frame waits until it is released or the rule is removed. Later frames in its direction wait, too, unless
    `Rule.overtaken`."""
    LOSE = "lose"
    """The frame is dropped, and with it all later frames in its direction of the connection. A Produce request with
    acks=0 is dropped alone."""
    LATE = "late"
    """The frame is passed on after a delay. Later frames in its direction wait for it."""
    CLOSE = "close"
    """The frame is dropped, and the connection is closed."""
    REPEAT = "repeat"
    """The request is passed on twice, the second time after `Rule.delay`. The client gets only the first response."""
    ANSWER = "answer"
    """The proxy answers the request itself, with an error, and drops it; or it puts an error into the response."""


class DelayDistribution(StrEnum):
    """Random distribution of a rule's delays, with the parameters `delay` and `jitter`."""

    UNIFORM = "uniform"
    """`delay` plus or minus at most `jitter`."""
    NORMAL = "normal"
    """Mean `delay`, standard deviation `jitter`, cut at three standard deviations."""
    EXPONENTIAL = "exponential"
    """`delay` plus an exponential time with mean `jitter`: most frames come soon, few come very late."""


class FrameSide(StrEnum):
    """Direction of the frames that a rule acts on: requests or responses."""

    REQUEST = "request"
    RESPONSE = "response"


@dataclass(frozen=True)
class Rule:
    """Rule of the request proxy for frames of one API (its key, or `EVERY_API`) on some routes (`ways`: their names).

    The rule takes every Nth matching frame (`every`), draws a `share` of these, and hits at most `times` (None: no
    limit). A matching frame belongs to a request of the client with the id `client` ('': of any client). The request
    names one of `places` (empty: any; partition -1: any of the topic). `delay`: seconds by which a frame or its
    repetition is delayed. `jitter` (seconds), `spread`: random distribution of a frame's delay; a repetition has none.
    `seed`: seed of the random choices.

    For rules that hold frames: once `until_held` frames are held, all are released, and the rule holds no more (None:
    there is no such limit). `overtaken`: True if later frames of the connection pass a held request, False if they wait
    too.

    `code`: Kafka's error code in the answer of a rule that answers.
    """

    name: str
    kind: RuleKind
    side: FrameSide
    api: int
    ways: tuple[str, ...]
    times: int | None = None
    every: int = 1
    share: float = 1.0
    delay: float = 0.0
    jitter: float = 0.0
    spread: DelayDistribution = DelayDistribution.UNIFORM
    seed: int = 0
    places: tuple[PartitionKey, ...] = ()
    client: str = ""
    until_held: int | None = None
    overtaken: bool = False
    code: int = 0

    @classmethod
    def of_json(cls, data: Mapping[str, object]) -> Rule:
        """Create a rule from plain data (`asdict`). Raises TypeError, ValueError or KeyError for data of
        another form."""
        words = dict(data)
        words |= {
            "kind": RuleKind(str(words["kind"])),
            "side": FrameSide(str(words["side"])),
            "spread": DelayDistribution(str(words.get("spread", DelayDistribution.UNIFORM))),
            "ways": tuple(map(str, _list(words["ways"]))),
            "places": tuple(tuple(_list(row)) for row in _list(words.get("places", []))),
        }
        return cls(**words)  # type: ignore[arg-type]


def _list(value: object) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"{value!r} is no list")
    return value


@dataclass
class RuleCounts:
    """Numbers of frames that a rule has matched, hit, and holds at the moment. `full`: True once `until_held` frames
    were held and released. `trouble`: first error in reading a frame or acting on it, '' for none. Probes are not
    counted."""

    matched: int = 0
    """Frames on the rule's routes that fit its direction, API, client id and partitions."""
    hit: int = 0
    """Frames on which the rule has acted, such as dropped, delayed, repeated or held frames. At most `matched`."""
    holding: int = 0
    """Frames that a rule of kind `hold` holds now."""
    full: bool = False
    trouble: str = ""


@dataclass(eq=False)
class HeldFrame:
    """Frame that the rule `acting` holds on the route with the name `way`. `counted`: True if the frame is in the
    rule's count of held frames; False for probes, and for frames that a rule only delays or repeats."""

    acting: ActiveRule
    counted: bool
    way: str
    go: Callable[[], None]
    """Pass the frame on."""
    copy: Callable[[], bytes]
    """Return the whole frame; b'' if it has not arrived completely."""
    abandoned: Callable[[], bool]
    """Return True if the client has hung up: the call then resets the connection, and the frame is never passed on."""


@dataclass
class ActiveRule:
    """Rule in force, with its counts and the frames that it holds."""

    rule: Rule
    counted: RuleCounts = field(default_factory=RuleCounts)
    waits: list[HeldFrame] = field(default_factory=list)
    """Held frames, in the order in which they came."""

    def __post_init__(self) -> None:
        self._random = Random(self.rule.seed)
        self._places = frozenset(self.rule.places)

    def among(self, place: PartitionKey) -> bool:
        """Return True if the rule names this partition, or all of its topic (partition -1)."""
        return place in self._places or (place[0], -1) in self._places

    def speaks_of(self, places: Collection[PartitionKey]) -> bool:
        """Return True if the rule names one of these partitions, or if it names no partition and so matches every
        request."""
        return not self._places or any(map(self.among, places))

    def is_of(self, api: int, client: str, *, probe: bool) -> bool:
        """Return True if the rule applies to this API (or to every API) and to this client id (or to every client).
        `probe`: True for a request by which the harness observes rules. It matches every client id. A rule for every
        API takes only probes of `PROBED_API`."""
        own = self.rule.api
        if own not in (api, EVERY_API) or (probe and own == EVERY_API and api != PROBED_API):
            return False
        return probe or self.rule.client in ("", client)

    def takes(self, *, probe: bool) -> bool:
        """Return True if the rule acts on a matching frame. Count the frame, and decide by `every`, `share`, `times`
        and `until_held`. Probes, requests by which the harness observes rules, are not counted: the rule always acts on
        them."""
        if probe:
            return True
        rule, counted = self.rule, self.counted
        counted.matched += 1
        if counted.full or counted.matched % rule.every:
            return False
        if rule.share < 1 and self._random.random() >= rule.share:
            return False
        if rule.times is not None and counted.hit >= rule.times:
            return False
        counted.hit += 1
        return True

    def complain(self, why: str) -> None:
        """Keep the first error of the rule in `RuleCounts.trouble`."""
        self.counted.trouble = self.counted.trouble or why

    def begin(self, wait: HeldFrame) -> bool:
        """Add a held frame. Return True if all held frames are to be released now (`until_held`)."""
        self.waits.append(wait)
        self.counted.holding += wait.counted
        self.counted.full = self.counted.full or self.counted.holding == self.rule.until_held
        return wait.counted and self.counted.full

    def end(self, wait: HeldFrame) -> None:
        """Remove a frame from the held frames, after it was passed on or given up."""
        self.waits.remove(wait)
        self.counted.holding -= wait.counted

    def find_waiting(self, ways: Collection[str]) -> list[HeldFrame]:
        """Return the held frames on these routes, oldest first, without probes and frames whose client has hung up. The
        connections of such clients are reset."""
        there = [wait for wait in self.waits if wait.counted and wait.way in ways]
        return [wait for wait in there if not wait.abandoned()]

    def release(self) -> None:
        """Pass on all held frames, except probes and frames whose client has hung up."""
        for wait in self.find_waiting(self.rule.ways):
            wait.go()

    def wait(self) -> float:
        """Return the delay of the next frame in seconds, drawn from the rule's distribution."""
        rule, drawn = self.rule, 0.0
        if rule.jitter:
            match rule.spread:
                case DelayDistribution.UNIFORM:
                    drawn = self._random.uniform(-rule.jitter, rule.jitter)
                case DelayDistribution.NORMAL:
                    drawn = rule.jitter * min(3.0, max(-3.0, self._random.gauss(0.0, 1.0)))
                case DelayDistribution.EXPONENTIAL:
                    drawn = self._random.expovariate(1 / rule.jitter)
        return max(0.0, rule.delay + drawn)
