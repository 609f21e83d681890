"""Which anomaly class the settings forbid, where no prediction says it more exactly (docs/audit.md, Classes)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from ackproof.experiment.expectations import ALWAYS_FORBIDDEN
from ackproof.experiment.promises import Promises
from ackproof.rundir.prediction import Chance

LOSS: Final = ("lost", "overwritten", "vanished", "conflict", "torn-transaction")
OF_TRANSACTIONS: Final = frozenset({"aborted-read", "early-read", "torn-transaction"})
"""Classes that only records of transactions can show."""
PRESENCE: Final = frozenset(
    {
        "resurrected",
        "phantom",
        "corrupted",
        "misrouted",
        "duplicate",
        "conflict",
        "aborted-read",
        "early-read",
    }
)
"""Classes of which one specimen proves itself: forbidden, they are FAIL even without full evidence."""


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
    if anomaly in OF_TRANSACTIONS and not promises.transactional:
        return Ruling(Stand.FORBIDDEN, "not applicable: nothing is written in transactions")
    if anomaly in ALWAYS_FORBIDDEN:
        return Ruling(Stand.FORBIDDEN, "no configuration permits it")
    if anomaly == "surfaced":
        return Ruling(Stand.ALLOWED, "an indeterminate attempt may be present: for information")
    if anomaly == "duplicate":
        return _unless_retried(promises, "an idempotent producer writes no copies")
    if anomaly == "displaced":
        return _unless_retried(promises, "the acknowledged offset holds what was acknowledged")
    if anomaly == "reordered":
        return _reordered(promises)
    if anomaly in LOSS:
        return _loss(promises)
    return Ruling(Stand.NOT_JUDGED, "a class this version does not know")


def _unless_retried(promises: Promises, idempotent: str) -> Ruling:
    if promises.retry_possible:
        return Ruling(Stand.ALLOWED, "a retry is possible: idempotence off and retries > 0")
    why = idempotent if promises.idempotence else "retries = 0: nothing is sent twice"
    return Ruling(Stand.FORBIDDEN, why)


def _reordered(promises: Promises) -> Ruling:
    if promises.idempotence:
        return Ruling(Stand.FORBIDDEN, "an idempotent producer keeps its order")
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
    return anomaly == "reordered" and not promises.idempotence
