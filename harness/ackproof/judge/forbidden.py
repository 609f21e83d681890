"""Which anomaly class the settings forbid, where no prediction says it more exactly (docs/audit.md, Classes)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ackproof.experiment.promises import Promises
from ackproof.rundir.anomalies import TABLE, RuledBy
from ackproof.rundir.prediction import Chance


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
