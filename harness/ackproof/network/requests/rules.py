"""What is done to requests or responses of one API: a rule as it is told, and what it counts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from random import Random
from typing import TypeAlias

PartitionKey: TypeAlias = tuple[str, int]
"""A topic, by its name or the hexadecimal digits of its id, whichever a request has, and a partition."""


class RuleKind(StrEnum):
    """What is done to a frame."""

    HOLD = "hold"
    LOSE = "lose"
    LATE = "late"
    CLOSE = "close"
    REPEAT = "repeat"
    ANSWER = "answer"


class DelayDistribution(StrEnum):
    """How delays are drawn around `delay`."""

    UNIFORM = "uniform"
    """Evenly, `jitter` more or less."""
    NORMAL = "normal"
    """`jitter` is the standard deviation, of which there are three at most."""
    EXPONENTIAL = "exponential"
    """Later than `delay` by `jitter` on average: most come soon, few come very late."""


class FrameSide(StrEnum):
    """Of which frames: those that ask, or those that answer."""

    REQUEST = "request"
    RESPONSE = "response"


@dataclass(frozen=True)
class Rule:
    """One rule on some ways (`proxy.Way`). Times in seconds.

    Of the frames that match, of every `every`-th a `share` is drawn, and at most `times` are hit. `places`: only those
    that name one of these partitions, or whose request did; partition -1 is any of the topic. `until_held`: as soon as
    so many wait they go on, and no other waits.
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
    """By how much it is late, or comes again later."""
    jitter: float = 0.0
    spread: DelayDistribution = DelayDistribution.UNIFORM
    seed: int = 0
    places: tuple[PartitionKey, ...] = ()
    until_held: int | None = None
    overtaken: bool = False
    """Whether what comes behind a held request on its connection goes on before it."""
    code: int = 0
    """The error that is answered."""
    answers: tuple[tuple[int, str], ...] = ()
    """By the request's version, what follows the correlation id in the response, in hexadecimal digits; of other
    versions it is made from the request."""

    def as_json(self) -> dict[str, object]:
        """In plain words, as `of_json` reads it."""
        return asdict(self)

    @classmethod
    def of_json(cls, data: Mapping[str, object]) -> Rule:
        """The rule of these words. Raises TypeError, ValueError, KeyError."""
        words = dict(data)
        words |= {
            "kind": RuleKind(str(words["kind"])),
            "side": FrameSide(str(words["side"])),
            "spread": DelayDistribution(str(words.get("spread", DelayDistribution.UNIFORM))),
            "ways": tuple(map(str, _list(words["ways"]))),
            "answers": tuple(tuple(_list(one)) for one in _list(words.get("answers", []))),
            "places": tuple(tuple(_list(one)) for one in _list(words.get("places", []))),
        }
        return cls(**words)  # type: ignore[arg-type]


def _list(value: object) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"{value!r} is no list")
    return value


@dataclass
class RuleCounts:
    """What came of a rule. Probes are in none of these."""

    matched: int = 0
    """Frames of its API, on its side of its ways, that name one of its partitions."""
    hit: int = 0
    """… to which it did something."""
    holding: int = 0
    """… which it holds now."""
    full: bool = False
    """Whether as many waited as were to, and went on."""
    trouble: str = ""
    """What could not be read or done, the first of it; it passed on."""


@dataclass(eq=False)
class HeldFrame:
    """A frame that waits, because of a rule. `counted`: among those that the rule holds."""

    acting: ActiveRule
    counted: bool
    way: str
    go: Callable[[], None]
    """Let it go on."""
    abandoned: Callable[[], bool]
    """Whether who asked has hung up; then the connection is ended, and it never goes."""


@dataclass
class ActiveRule:
    """A rule that is laid."""

    rule: Rule
    counted: RuleCounts = field(default_factory=RuleCounts)
    waits: list[HeldFrame] = field(default_factory=list)
    """In the order in which they came."""

    def __post_init__(self) -> None:
        self._answers = {version: bytes.fromhex(body) for version, body in self.rule.answers}
        self._random = Random(self.rule.seed)
        self._places = frozenset(self.rule.places)

    def among(self, place: PartitionKey) -> bool:
        """Whether it is one of its partitions."""
        return place in self._places or (place[0], -1) in self._places

    def speaks_of(self, places: Collection[PartitionKey]) -> bool:
        """Whether it speaks of requests that name these."""
        return not self._places or any(map(self.among, places))

    def takes(self, *, probe: bool) -> bool:
        """Whether it does something to the next frame that matches."""
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
        """Something could not be done."""
        self.counted.trouble = self.counted.trouble or why

    def begin(self, wait: HeldFrame) -> bool:
        """It waits. Whether as many wait now as are to."""
        self.waits.append(wait)
        self.counted.holding += wait.counted
        self.counted.full = self.counted.full or self.counted.holding == self.rule.until_held
        return wait.counted and self.counted.full

    def end(self, wait: HeldFrame) -> None:
        """It waits no more."""
        self.waits.remove(wait)
        self.counted.holding -= wait.counted

    def held(self, ways: Collection[str]) -> list[HeldFrame]:
        """What waits on these ways, first come first, but questions and what nobody waits for any more."""
        there = [wait for wait in self.waits if wait.counted and wait.way in ways]
        return [wait for wait in there if not wait.abandoned()]

    def release(self, ways: Collection[str], most: int) -> int:
        """Let so many of these go on, the first first; how many did."""
        going = self.held(ways)[:most]
        for wait in going:
            wait.go()
        return len(going)

    def answer(self, version: int) -> bytes | None:
        """What follows the correlation id in its answer to a request of this version; None: it is to be made."""
        return self._answers.get(version)

    def wait(self) -> float:
        """By how many seconds the next one is late."""
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
