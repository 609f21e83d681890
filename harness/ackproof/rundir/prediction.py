"""`prediction.json`: what the reference implementation says may happen under these settings and these faults.

Written by the judge (`ackproof.judge.oracle`); the reports read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from ackproof.rundir.documents import Document


class Chance(StrEnum):
    """Answer to "may this class of anomaly happen?", of a prediction, of settings and of a ruling."""

    IMPOSSIBLE = "impossible"
    """No interleaving within the scope leads to it, or the settings promise that none does."""
    POSSIBLE = "possible"
    UNKNOWN = "unknown"


GRAVEST_FIRST: Final = (Chance.POSSIBLE, Chance.UNKNOWN, Chance.IMPOSSIBLE)


class StoryStep(Document):
    """One step of a story: who acts, on whom ("" nobody), what happens, and what it changed (cell, value after)."""

    actor: str
    target: str = ""
    text: str
    changed: tuple[tuple[str, str], ...] = ()


class PredictedClass(Document):
    """What is predicted of one anomaly class. `topics`: for these only; empty: for all of the case."""

    anomaly: str
    chance: Chance
    why: str
    story: tuple[str, ...] = ()
    """The shortest way to it in readable lines, where it is possible and the exploration reached it."""
    steps: tuple[StoryStep, ...] = ()
    """The same for a sequence diagram."""
    explored: bool = True
    """Whether the exploration answered; else a rule did, and `why` says which."""
    topics: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    """For these only (as `orders/0`), whatever is predicted of their topics; empty: for all of them."""


class PredictionFile(Document):
    """`prediction.json`. Times in seconds."""

    classes: tuple[PredictedClass, ...] = ()
    rules: str = ""
    """The protocol variant, as `ackproof explore --rules` takes it."""
    scope: str = ""
    """How large a world was looked at."""
    faults: tuple[str, ...] = ()
    """What was counted, each with where it is from."""
    observed: bool = False
    """Whether the faults are those of a run, not those that a case plans."""
    states: int = 0
    seconds: float = 0.0
    clamped: tuple[str, ...] = ()
    """What was made smaller to be looked at."""
    not_predicted: tuple[str, ...] = ()
    """Why there is no prediction, or none for some topics."""

    def of(self, anomaly: str, topic: str | None = None) -> PredictedClass | None:
        """The answer for a class on a topic (None: the gravest of all topics); None when there is none."""
        found = sorted(self._of(anomaly, topic), key=lambda one: GRAVEST_FIRST.index(one.chance))
        return found[0] if found else None

    def _of(self, anomaly: str, topic: str | None) -> Iterator[PredictedClass]:
        for one in self.classes:
            of_topic = not one.partitions and (not one.topics or topic in one.topics)
            if one.anomaly == anomaly and (topic is None or of_topic):
                yield one

    def apart(self, anomaly: str) -> tuple[PredictedClass, ...]:
        """What is said of a class on single partitions, apart from their topics."""
        return tuple(one for one in self.classes if one.anomaly == anomaly and one.partitions)
