"""Guarantees that settings give to the records of a topic, and the classes of anomalies that are thereby forbidden.

Of all settings that are in force on any broker at any time of a case, the weakest count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ackproof.experiment.client import COMMAND
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.rundir.anomalies import TABLE, Anomaly
from ackproof.rundir.anomaly_terms import Chance, RuledBy
from ackproof.rundir.guarantees import LIBRARIES, LIBRDKAFKA, Excuse, Holds

ID_EXPIRY: Final = "producer.id.expiration.ms"
_ID_EXPIRY_MS: Final = 86_400_000


@dataclass(frozen=True)
class Ruling:
    """Ruling on a class of anomalies on a topic. `chance`: impossible means forbidden, possible allowed, unknown not
    judged.

    `predicted`: the prediction of the model; None without a prediction. `excuses`: reasons why single findings are
    allowed anyway. `lead`: words before `why` where a prediction decides, such as `predicted possible: `.
    """

    chance: Chance
    why: str
    predicted: Chance | None = None
    excuses: tuple[Excuse, ...] = ()
    lead: str = ""

    @property
    def text(self) -> str:
        """The whole reason: `lead`, then `why`."""
        return self.lead + self.why

    @property
    def forbidden(self) -> bool | None:
        """True if the class is forbidden, False if it is allowed; None: not judged."""
        return None if self.chance is Chance.UNKNOWN else self.chance is Chance.IMPOSSIBLE

    @property
    def foreseen(self) -> Chance:
        """Chance that a run has a finding of the class, allowed or not, by the settings alone (`predicted` does not
        count). It is possible if an excuse other than PRODUCER_EPOCH allows single findings, else `chance`."""
        return Chance.POSSIBLE if self._foreseen else self.chance

    @property
    def foretold(self) -> str:
        return "; ".join((self.why, *(f"but for those that {excuse}" for excuse in self._foreseen)))

    @property
    def _foreseen(self) -> list[Excuse]:
        return [excuse for excuse in self.excuses if excuse is not Excuse.PRODUCER_EPOCH]


@dataclass(frozen=True)
class Promises:
    """Settings that decide what may happen to the records of one topic.

    `acks`: 0, 1 or all, as text. `retry_possible`: retries are on and idempotence is off, so that a record may be
    appended twice. `min_insync`: effective min.insync.replicas. `unclean_election`: True if a replica outside of the
    ISR may become leader. `dropped`: True if the experiment deletes the topic during the run. `transactional`: True if
    producers write in transactions. `forgets_ids`: reason why a leader may forget a producer id that is still in use;
    '' if it may not. `library`: name of the producers' client library, such as `librdkafka` or `java`.
    """

    acks: str
    idempotence: bool
    retry_possible: bool
    min_insync: int
    unclean_election: bool
    dropped: bool = False
    transactional: bool = False
    forgets_ids: str = ""
    library: str = LIBRDKAFKA

    @classmethod
    def from_experiment(cls, spec: ExperimentSpec, topic: str) -> Promises:
        """Return the guarantees for a topic of an experiment whose matrix is resolved.

        `min_insync` is the effective value, min(min.insync.replicas, RF), or less if a fault reduces the replicas.
        Brokers may have different settings, and planned work may change settings during the run. Of all settings that
        were in force on any broker at any time, the weakest counts.
        """
        producers = spec.workload.producers
        configs = [one.config for one in settings_in_force(spec, topic)]
        shrunk = [size for fault in spec.faults if (size := fault.may_shrink_to(topic)) is not None]
        lowest = min(int(config.get("min.insync.replicas", "1")) for config in configs)
        return cls(
            acks=producers.acks,
            idempotence=producers.idempotence,
            retry_possible=not producers.idempotence and producers.retries != 0,
            min_insync=min(lowest, spec.topics[topic].replication_factor, *shrunk),
            unclean_election=any(map(elects_uncleanly, configs)),
            dropped=any(fault.drops(topic) for fault in spec.faults),
            transactional=producers.transaction_size is not None,
            forgets_ids=_forgets_ids(spec, configs),
            library=producers.client.library,
        )

    @property
    def durable(self) -> bool:
        """True with acks=all, an effective min.insync.replicas of at least 2, and no unclean elections: no acknowledged
        record may be lost."""
        return self.acks == "all" and self.min_insync >= 2 and not self.unclean_election


class InForce(NamedTuple):
    """Settings of a broker and a topic, merged. `fault`: number of the fault that sets them for a while; None: they are
    from the file."""

    broker: int
    config: Mapping[str, str]
    fault: int | None = None

    @property
    def policies(self) -> frozenset[str]:
        """The effective `cleanup.policy`: `delete`, `compact`, or both. `compact` is left out if the log cleaner is
        off, so the set may be empty."""
        policy = self.config.get("cleanup.policy", self.config.get("log.cleanup.policy", "delete"))
        cleans = self.config.get("log.cleaner.enable", "true").lower() == "true"
        return frozenset(name.strip() for name in policy.split(",")) - (set() if cleans else {"compact"})

    @property
    def stamped_when_sent(self) -> bool:
        """True if a record's timestamp is its send time (CreateTime), not its append time (LogAppendTime)."""
        broker = self.config.get("log.message.timestamp.type", "CreateTime")
        return self.config.get("message.timestamp.type", broker) == "CreateTime"


def settings_in_force(spec: ExperimentSpec, topic: str) -> list[InForce]:
    """Return the settings of the topic on each broker as the file sets them. Then, for each fault that changes settings
    of the topic, return those on each broker during the change. Settings that the file does not give are missing, even
    if `timing` sets them."""
    own = spec.topics[topic].config
    found = [
        InForce(broker, {**spec.cluster.config, **spec.cluster.broker_config.get(broker, {}), **own})
        for broker in spec.cluster.broker_ids
    ]
    changes = [(fault.number, dict(fault.may_set(spec, topic))) for fault in spec.faults]
    return found + [
        InForce(one.broker, {**one.config, **change}, number)
        for number, change in changes
        if change
        for one in tuple(found)
    ]


def may_compact(spec: ExperimentSpec, topic: str) -> bool:
    """Return True if the topic is compacted at any time; False for an unknown topic."""
    return topic in spec.topics and any("compact" in one.policies for one in settings_in_force(spec, topic))


def elects_uncleanly(config: Mapping[str, str]) -> bool:
    """Return True if these settings let a replica outside of the ISR become leader."""
    return config.get("unclean.leader.election.enable", "false").lower() == "true"


def id_expiry_ms(config: Mapping[str, str]) -> int:
    """Return the time in ms after which a leader with these settings forgets a producer id that appends nothing."""
    return int(config.get(ID_EXPIRY, _ID_EXPIRY_MS))


def _forgets_ids(spec: ExperimentSpec, configs: list[Mapping[str, str]]) -> str:
    """Return why a leader may forget a producer id that is still in use, such as `producer.id.expiration.ms is 1000`;
    '' if it may not.

    A leader must remember an id for the greatest age of a repeated batch. That is the producers' delivery time-out plus
    the longest hold of a fault, plus all forward jumps of clocks.
    """
    lead = sum(max(0.0, fault.clock_shift) for fault in spec.faults)  # jumps of brokers' clocks add up
    held = max((fault.hold or 0.0 for fault in spec.faults), default=0.0)
    shortest = min(map(id_expiry_ms, configs), default=_ID_EXPIRY_MS)
    if shortest > (spec.workload.producers.delivery_timeout + held + lead) * 1000:
        return ""
    ahead = f", and a broker's clock up to {lead:g} s ahead" if lead else ""
    return f"{ID_EXPIRY} is {shortest}{ahead}"


_BY_PROGRAMS: Final = frozenset({Anomaly.PHANTOM, Anomaly.CORRUPTED, Anomaly.MISROUTED})
"""Classes that only Kafka can cause if the producers use a client library. A user's program that produces can cause
them too."""


_FIXED: Final = {
    RuledBy.NO_SETTING: Ruling(Chance.IMPOSSIBLE, "no configuration permits it"),
    RuledBy.LIVENESS: Ruling(Chance.IMPOSSIBLE, "once all has healed the cluster recovers by itself"),
    RuledBy.GROUP: Ruling(Chance.UNKNOWN, "decided group by group"),
    RuledBy.INFORMATION: Ruling(Chance.POSSIBLE, "an indeterminate attempt may be present: for information"),
    RuledBy.REMOVAL: Ruling(Chance.POSSIBLE, "counted only where a setting or a request explains it"),
}
"""Rulings that no setting of a topic changes."""


def rule(anomaly: str, promises: Promises) -> Ruling:
    """Return the ruling on the anomaly class named `anomaly` that follows from the settings of a topic alone. A class
    that `TABLE` lacks is not judged."""
    row = TABLE.get(anomaly)
    if row is None:
        return Ruling(Chance.UNKNOWN, "a class this version does not know")
    if row.transactional and not promises.transactional:
        return Ruling(Chance.IMPOSSIBLE, "not applicable: nothing is written in transactions")
    if promises.library == COMMAND and anomaly in _BY_PROGRAMS:
        why = "a program of yours wrote it, which may have sent what it did not say"
        return Ruling(Chance.UNKNOWN, why, Chance.UNKNOWN)
    if row.ruled_by in _FIXED:
        return _FIXED[row.ruled_by]
    match row.ruled_by:
        case RuledBy.RETRIES:
            return _guaranteed(anomaly, promises)
        case RuledBy.ORDER:
            if promises.idempotence and promises.forgets_ids:
                why = f"{promises.forgets_ids}: what that does to the order is not judged"
                return Ruling(Chance.UNKNOWN, why)
            return _guaranteed(anomaly, promises)
        case _:  # LOSS
            return _loss(promises, anomaly)


def _guaranteed(anomaly: str, promises: Promises) -> Ruling:
    row = LIBRARIES[promises.library].guarantee(
        anomaly,
        idempotence=promises.idempotence,
        retries=promises.retry_possible,
        acks=promises.acks,
    )
    if row.holds is Holds.NO:
        return Ruling(Chance.POSSIBLE, row.words)
    never = set()
    if not promises.forgets_ids:
        never.add(Excuse.FORGOTTEN_ID)
    if promises.durable and anomaly == Anomaly.DISPLACED:
        never.add(Excuse.SENT_AGAIN)  # another copy may exist; the acknowledged one may not vanish
    excuses = tuple(excuse for excuse in row.excuses if excuse not in never)
    return Ruling(Chance.IMPOSSIBLE, row.words, excuses=excuses)


def _loss(promises: Promises, anomaly: str) -> Ruling:
    if promises.durable and (anomaly == Anomaly.LOST or not promises.dropped):
        return Ruling(
            Chance.IMPOSSIBLE,
            f"acks=all on at least {promises.min_insync} in-sync replicas, unclean election off",
        )
    if promises.dropped and anomaly != Anomaly.LOST:
        return Ruling(Chance.UNKNOWN, "the topic is deleted on the way: what it held goes with it")
    if promises.acks != "all":
        why = f"acks={promises.acks} promises one copy at most"
    elif promises.unclean_election:
        why = "unclean.leader.election.enable lets a replica lead that lacks acknowledged records"
    else:
        why = "min.insync.replicas = 1 lets the leader acknowledge alone"
    return Ruling(Chance.UNKNOWN, why)
