"""What is done to requests or responses of one API: a rule as it is told, and what it counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from random import Random


class Kind(StrEnum):
    """What is done to a frame."""

    HOLD = "hold"
    LOSE = "lose"
    LATE = "late"
    CLOSE = "close"
    REPEAT = "repeat"
    ANSWER = "answer"


class Side(StrEnum):
    """Of which frames: those that ask, or those that answer."""

    REQUEST = "request"
    RESPONSE = "response"


@dataclass(frozen=True)
class Rule:
    """One rule on some ways (`proxy.Way`). Times in seconds.

    Of the frames that match, of every `every`-th a `share` is drawn, and at most `times` are hit.
    """

    name: str
    kind: Kind
    side: Side
    api: int
    ways: tuple[str, ...]
    times: int | None = None
    every: int = 1
    share: float = 1.0
    delay: float = 0.0
    jitter: float = 0.0
    seed: int = 0
    answers: tuple[tuple[int, str], ...] = ()
    """By the request's version, what follows the correlation id in the response, in hexadecimal digits."""

    def as_json(self) -> dict[str, object]:
        """In plain words, as `of_json` reads it."""
        return asdict(self)

    @classmethod
    def of_json(cls, data: Mapping[str, object]) -> Rule:
        """The rule of these words. Raises TypeError, ValueError, KeyError."""
        words = dict(data)
        ways, answers = words["ways"], words.get("answers", [])
        if not isinstance(ways, list | tuple) or not isinstance(answers, list | tuple):
            raise TypeError("ways or answers are no list")
        words |= {
            "kind": Kind(str(words["kind"])),
            "side": Side(str(words["side"])),
            "ways": tuple(map(str, ways)),
            "answers": tuple(map(tuple, answers)),
        }
        return cls(**words)  # type: ignore[arg-type]


@dataclass
class Counted:
    """What came of a rule. Probes are in none of these."""

    matched: int = 0
    """Frames of its API, on its side of its ways."""
    hit: int = 0
    """… to which it did something."""
    holding: int = 0
    """… which it holds now."""


@dataclass
class Acting:
    """A rule that is laid."""

    rule: Rule
    counted: Counted = field(default_factory=Counted)

    def __post_init__(self) -> None:
        self._answers = {version: bytes.fromhex(body) for version, body in self.rule.answers}
        self._random = Random(self.rule.seed)

    def takes(self, *, probe: bool) -> bool:
        """Whether it does something to the next frame that matches."""
        if probe:
            return True
        rule, counted = self.rule, self.counted
        counted.matched += 1
        if counted.matched % rule.every or (rule.share < 1 and self._random.random() >= rule.share):
            return False
        if rule.times is not None and counted.hit >= rule.times:
            return False
        counted.hit += 1
        return True

    def answer(self, version: int) -> bytes | None:
        """What follows the correlation id in its answer to a request of this version; None: it knows none."""
        return self._answers.get(version)

    def wait(self) -> float:
        """By how many seconds the next one is late."""
        rule = self.rule
        return (
            max(0.0, rule.delay + self._random.uniform(-rule.jitter, rule.jitter))
            if rule.jitter
            else rule.delay
        )
