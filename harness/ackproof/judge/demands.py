"""Finds, before anything starts, expectations that no run can meet, by a quick prediction of the model."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from ackproof.experiment.case import Case
from ackproof.experiment.experiment import ExpectSpec
from ackproof.judge.oracle import oracle_for
from ackproof.judge.retention import may_remove
from ackproof.rundir.anomalies import MISSING
from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.model import PredictionFile

WITHIN_S: Final = 3.0
"""Seconds after which no further case is predicted."""


@dataclass
class Demands:
    """Result of the search for expectations that cannot be met, in the experiments of one call. `impossible`: a
    sentence for each. `left_out`: number of cases that were not examined, for lack of time."""

    impossible: list[str] = field(default_factory=list)
    left_out: int = 0

    @property
    def rest(self) -> str:
        """Clause for the console about the cases that were not examined; '' if all were examined."""
        if not self.left_out:
            return ""
        return f" (what {self.left_out} of them expect was not held against the prediction: ackproof predict does)"


def demands(cases: Iterable[Case], *, within_s: float = WITHIN_S) -> Demands:
    """Predict each case before it runs; return the expectations that demand a finding which is predicted impossible.

    An unknown prediction is not reported. No further case is examined after `within_s` seconds. Cases without such an
    expectation, and repeats after the first of a case, are not examined.
    """
    found = Demands()
    began = time.monotonic()
    for case in cases:
        if not case.demands_a_finding or case.repeat > 1:
            continue
        if time.monotonic() - began > within_s:
            found.left_out += 1
            continue
        prediction = oracle_for(case).predict(case, None)
        name = case.id.rpartition("#")[0]
        title = case.experiment.name if name == "case" else name
        removable = may_remove(case)
        found.impossible += [
            f"{title}: {text}"
            for text in impossible_demands(prediction, case.experiment.expect, removable=removable)
        ]
    return found


def impossible_demands(
    prediction: PredictionFile, expects: tuple[ExpectSpec, ...], *, removable: bool = False
) -> Iterator[str]:
    """Yield a sentence for each of `expects` that demands a finding which is predicted impossible.

    `removable`: True if retention, compaction or a deletion may remove records in this case. The model that predicts
    has no such steps, so that demands for lost and vanished records are then left out.
    """
    for expect in expects:
        for anomaly, bound in expect.counts.items():
            found = prediction.find_class(anomaly)
            if removable and anomaly in MISSING:
                continue
            if bound.lowest > 0 and found is not None and found.chance is Chance.IMPOSSIBLE:
                yield f"'{expect}' demands what is predicted impossible: {anomaly}: {found.why}"
