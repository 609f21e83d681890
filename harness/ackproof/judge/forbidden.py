"""Which anomaly class is forbidden: by the prediction where there is one, else by the settings.

Forbidden is what is predicted impossible. Unknown is forbidden where the settings promise to keep it (the exploration
found no way to lose it, and nobody was told that it may go), and elsewhere it keeps a verdict from being said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from ackproof.experiment.expectations import ExpectSpec
from ackproof.experiment.promises import Promises
from ackproof.rundir.anomalies import TABLE, RuledBy
from ackproof.rundir.prediction import Chance, PredictionFile


class Stand(Enum):
    """What a configuration says of a class."""

    FORBIDDEN = True
    ALLOWED = False
    NOT_JUDGED = None


@dataclass(frozen=True)
class Ruling:
    """What is said of one class on one topic, and why. `chance`: as predicted, None without a prediction."""

    stand: Stand
    why: str
    chance: Chance | None = None


def rule(anomaly: str, promises: Promises) -> Ruling:
    """What `promises` say of `anomaly`."""
    row = TABLE.get(anomaly)
    if row is None:
        return Ruling(Stand.NOT_JUDGED, "a class this version does not know")
    if row.transactional and not promises.transactional:
        return Ruling(Stand.FORBIDDEN, "not applicable: nothing is written in transactions")
    match row.ruled_by:
        case RuledBy.NO_SETTING:
            return Ruling(Stand.FORBIDDEN, "no configuration permits it")
        case RuledBy.INFORMATION:
            return Ruling(Stand.ALLOWED, "an indeterminate attempt may be present: for information")
        case RuledBy.RETRIES:
            return _unless_retried(promises, row.kept_by_idempotence)
        case RuledBy.ORDER:
            return _reordered(promises, row.kept_by_idempotence)
        case RuledBy.LOSS:
            return _loss(promises)


def is_loss(anomaly: str) -> bool:
    """Whether the prediction decides this class, where there is one."""
    row = TABLE.get(anomaly)
    return row is not None and row.ruled_by is RuledBy.LOSS


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
    usual = rule(anomaly, promises)
    if not is_loss(anomaly):
        return usual
    bounds = [expect.bounds[anomaly] for expect in expects if anomaly in expect.bounds]
    demanded = any(bound.lowest > 0 for bound in bounds)
    found = prediction.of(anomaly, topic)
    if found is None or (not found.explored and found.why == usual.why):
        none_at_all = all(bound.highest == 0 for bound in bounds)
        if usual.stand is Stand.FORBIDDEN and none_at_all:
            return usual
        if bounds:
            return Ruling(Stand.NOT_JUDGED, "the experiment's expectation decides; there is no prediction")
        return usual
    match found.chance:
        case Chance.IMPOSSIBLE:
            return Ruling(Stand.FORBIDDEN, f"predicted impossible: {found.why}", found.chance)
        case Chance.POSSIBLE:
            return Ruling(Stand.ALLOWED, f"predicted possible: {found.why}", found.chance)
        case Chance.UNKNOWN if usual.stand is Stand.FORBIDDEN and not demanded and found.explored:
            return Ruling(Stand.FORBIDDEN, f"{usual.why}; no way to it was found: {found.why}", found.chance)
        case _:
            return Ruling(Stand.NOT_JUDGED, f"the prediction is unknown: {found.why}", found.chance)


def _unless_retried(promises: Promises, idempotent: str) -> Ruling:
    if promises.retry_possible:
        return Ruling(Stand.ALLOWED, "a retry is possible: idempotence off and retries > 0")
    why = idempotent if promises.idempotence else "retries = 0: nothing is sent twice"
    return Ruling(Stand.FORBIDDEN, why)


def _reordered(promises: Promises, idempotent: str) -> Ruling:
    if promises.idempotence:
        return Ruling(Stand.FORBIDDEN, idempotent)
    if promises.acks == "0":
        return Ruling(Stand.ALLOWED, "acks=0: nothing tells the producer of a failed request")
    if promises.in_flight_one or not promises.retry_possible:
        cause = "one request in flight" if promises.in_flight_one else "retries = 0"
        return Ruling(Stand.FORBIDDEN, f"{cause}: acknowledged records keep their order")
    return Ruling(Stand.ALLOWED, "several requests in flight and retries, without idempotence")


def _loss(promises: Promises) -> Ruling:
    if promises.durable:
        return Ruling(
            Stand.FORBIDDEN,
            f"acks=all on at least {promises.min_insync} in-sync replicas, unclean election off",
        )
    if promises.dropped:
        return Ruling(Stand.NOT_JUDGED, "the topic is deleted on the way: what it held goes with it")
    if promises.acks != "all":
        why = f"acks={promises.acks} promises one copy at most"
    elif promises.unclean_election:
        why = "unclean.leader.election.enable lets a replica lead that lacks acknowledged records"
    else:
        why = "min.insync.replicas = 1 lets the leader acknowledge alone"
    return Ruling(Stand.NOT_JUDGED, why)


def acked_inversions_only(anomaly: str, promises: Promises) -> bool:
    """Whether `reordered` counts against this configuration only where both records of an inversion are acked."""
    row = TABLE.get(anomaly)
    return row is not None and row.ruled_by is RuledBy.ORDER and not promises.idempotence
