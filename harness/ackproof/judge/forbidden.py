"""Which anomaly class is forbidden: by the prediction where there is one, else by the settings.

Forbidden is what is predicted impossible. Unknown is forbidden where the settings promise to keep it (the exploration
found no way to lose it, and nobody was told that it may go), and elsewhere it keeps a verdict from being said.
"""

from __future__ import annotations

from collections.abc import Sequence

from ackproof.experiment.experiment import ExpectSpec
from ackproof.experiment.promises import Promises, Ruling, rule
from ackproof.rundir.anomalies import TABLE, RuledBy
from ackproof.rundir.model import Chance, PredictionFile


def proves_itself(anomaly: str) -> bool:
    """Whether one specimen, where it is forbidden, is FAIL even without full evidence."""
    row = TABLE.get(anomaly)
    return row is not None and row.proves


def ruling(
    prediction: PredictionFile,
    anomaly: str,
    topic: str,
    promises: Promises,
    expects: Sequence[ExpectSpec],
) -> Ruling:
    """What is said of a class on one topic. Expectations decide nothing but where there is no prediction."""
    usual, row = rule(anomaly, promises), TABLE.get(anomaly)
    if row is None or row.ruled_by is not RuledBy.LOSS:
        return usual  # no prediction decides it
    bounds = [expect.bounds[anomaly] for expect in expects if anomaly in expect.bounds]
    demanded = any(bound.lowest > 0 for bound in bounds)
    found = prediction.find_class(anomaly, topic)
    if found is None or (not found.explored and found.why == usual.why):
        if not bounds or (usual.chance is Chance.IMPOSSIBLE and not demanded):
            return usual
        return Ruling(Chance.UNKNOWN, "the experiment's expectation decides; there is no prediction")
    if found.chance is not Chance.UNKNOWN:
        return Ruling(found.chance, f"predicted {found.chance}: {found.why}", found.chance)
    if usual.chance is Chance.IMPOSSIBLE and not demanded and found.explored:
        return Ruling(usual.chance, f"{usual.why}; no way to it was found: {found.why}", found.chance)
    return Ruling(Chance.UNKNOWN, f"the prediction is unknown: {found.why}", found.chance)


def acked_inversions_only(anomaly: str, promises: Promises) -> bool:
    """Whether `reordered` counts against this configuration only where both records of an inversion are acked."""
    row = TABLE.get(anomaly)
    return row is not None and row.ruled_by is RuledBy.ORDER and not promises.idempotence
