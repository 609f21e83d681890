"""What the replay of a run comes to, as it grows: all that `conformance.json` says."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from ackproof.rundir.anomalies import REMOVED
from ackproof.rundir.model import (
    ClassExplained,
    ConformanceFile,
    Deletion,
    ElectionSeen,
    ForbiddenStep,
    Truncation,
    UnexplainedRecord,
    UnplacedLoss,
)
from ackproof.rundir.partition import TopicPartition
from ackproof_model.replay.lives import Life

LOSSES: Final = ("lost", "displaced", *REMOVED)
"""Classes of the audit that say that an acknowledged record is not where its acknowledgement said."""
PRESENT: Final = -1
EXAMPLES: Final = 20
_COUNTED: Final = ("count", "explained", "by_interval", "unexplained", "not_replayed", "deleted")


@dataclass
class Account:
    """What was found, over all partitions. `not_replayed`: what could not be, as sentences."""

    not_replayed: list[str]
    replayed: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    forbidden: list[ForbiddenStep] = field(default_factory=list)
    elections: list[ElectionSeen] = field(default_factory=list)
    lives: dict[TopicPartition, list[Life]] = field(default_factory=lambda: defaultdict(list))
    """Of each partition, the incarnations of its topic, oldest first."""
    missed: int = 0
    """Changes of partitions that the observation jumped over."""
    truncations: list[Truncation] = field(default_factory=list)
    deletions: list[Deletion] = field(default_factory=list)
    intervals: list[UnplacedLoss] = field(default_factory=list)
    unexplained: list[UnexplainedRecord] = field(default_factory=list)
    must_be_gone: int = 0
    either_way: int = 0
    present: int = 0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def count(self, what: str, found: npt.NDArray[np.int8]) -> None:
        """Count rows, by their places in `LOSSES`, as one of the numbers of `ClassExplained`."""
        for number, anomaly in enumerate(LOSSES):
            self.counts[anomaly, what] += int((found == number).sum())

    def file(self) -> ConformanceFile:
        """All of it, the forbidden steps by time."""
        forbidden = sorted(self.forbidden, key=_when)
        missed = f"{self.missed} changes of partitions: the observation jumped over them"
        return ConformanceFile(
            replayed=self.replayed,
            steps=dict(sorted(self.steps.items())),
            forbidden=forbidden[0] if forbidden else None,
            forbidden_steps=len(forbidden),
            more_forbidden=tuple(forbidden[1 : EXAMPLES + 1]),
            truncations=tuple(self.truncations),
            deletions=tuple(self.deletions),
            classes=tuple(self._classes()),
            must_be_gone=self.must_be_gone,
            either_way=self.either_way,
            present=self.present,
            unexplained=tuple(self.unexplained),
            intervals=tuple(self.intervals),
            elections=tuple(self.elections),
            not_replayed=(*dict.fromkeys(self.not_replayed), *([missed] if self.missed else [])),
        )

    def _classes(self) -> Iterator[ClassExplained]:
        for anomaly in LOSSES:
            yield ClassExplained(anomaly=anomaly, **{what: self.counts[anomaly, what] for what in _COUNTED})


def _when(step: ForbiddenStep) -> tuple[bool, int, int]:
    """By time; what has none comes last."""
    return step.t_ns < 0, step.t_ns, step.offset
