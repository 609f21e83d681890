"""What the settings of a topic's writes promise: the weakest that is in force anywhere, at any time of a case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ackproof.experiment.experiment import ExperimentSpec
from ackproof.rundir.anomalies import TABLE, Anomaly, RuledBy
from ackproof_reference.chance import Chance


@dataclass(frozen=True)
class Ruling:
    """What is said of one class on one topic, and why: impossible is forbidden, possible allowed, unknown not judged.

    `predicted`: what the prediction says, None without one.
    """

    chance: Chance
    why: str
    predicted: Chance | None = None


@dataclass(frozen=True)
class Promises:
    """The settings of one topic's writes that decide what may happen to them."""

    acks: str
    idempotence: bool
    retry_possible: bool
    min_insync: int
    unclean_election: bool
    dropped: bool = False
    """The topic is deleted on the way, as the experiment asks."""
    transactional: bool = False
    """Whether producers write in transactions."""

    @classmethod
    def of(cls, spec: ExperimentSpec, topic: str) -> Promises:
        """Read from a resolved cell. `min_insync` is the effective one, min(min.insync.replicas, RF).

        Where brokers have settings of their own, or planned work changes some while the run goes on, the weakest
        promise that was in force anywhere, at any time, counts.
        """
        producers = spec.workload.producers
        configs = in_force(spec, topic)
        shrunk = [size for fault in spec.faults if (size := fault.may_shrink_to(topic)) is not None]
        lowest = min(int(config.get("min.insync.replicas", "1")) for config in configs)
        return cls(
            acks=producers.acks,
            idempotence=producers.idempotence,
            retry_possible=not producers.idempotence and producers.retries != 0,
            min_insync=min(lowest, spec.topics[topic].replication_factor, *shrunk),
            unclean_election=any(
                config.get("unclean.leader.election.enable", "false").lower() == "true" for config in configs
            ),
            dropped=any(fault.drops(topic) for fault in spec.faults),
            transactional=producers.transaction_size is not None,
        )

    @property
    def durable(self) -> bool:
        """acks=all on two replicas or more, without unclean elections: nothing acknowledged may go."""
        return self.acks == "all" and self.min_insync >= 2 and not self.unclean_election


class InForce(NamedTuple):
    """Settings of a broker and a topic together. `fault`: the number of the fault that sets them for a while, None:
    they are those of the file."""

    broker: int
    config: Mapping[str, str]
    fault: int | None = None

    @property
    def policies(self) -> frozenset[str]:
        """What `cleanup.policy` says: `delete`, `compact`, or both."""
        policy = self.config.get("cleanup.policy", self.config.get("log.cleanup.policy", "delete"))
        cleans = self.config.get("log.cleaner.enable", "true").lower() == "true"
        return frozenset(name.strip() for name in policy.split(",")) - (set() if cleans else {"compact"})

    @property
    def stamped_when_sent(self) -> bool:
        """Whether a record's timestamp is that of its send, not of its append."""
        broker = self.config.get("log.message.timestamp.type", "CreateTime")
        return self.config.get("message.timestamp.type", broker) == "CreateTime"


def settings_in_force(spec: ExperimentSpec, topic: str) -> list[InForce]:
    """The settings as they are on each broker, before and during each planned change."""
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


def in_force(spec: ExperimentSpec, topic: str) -> list[Mapping[str, str]]:
    """The settings of brokers and topic together, as they are on each broker, before and after each planned change."""
    return [one.config for one in settings_in_force(spec, topic)]


def may_compact(spec: ExperimentSpec, topic: str) -> bool:
    """Whether the topic is compacted at any time; not one that the experiment does not know."""
    return topic in spec.topics and any("compact" in one.policies for one in settings_in_force(spec, topic))


def rule(anomaly: str, promises: Promises) -> Ruling:
    """What the settings alone say of a class."""
    row = TABLE.get(anomaly)
    if row is None:
        return Ruling(Chance.UNKNOWN, "a class this version does not know")
    if row.transactional and not promises.transactional:
        return Ruling(Chance.IMPOSSIBLE, "not applicable: nothing is written in transactions")
    match row.ruled_by:
        case RuledBy.NO_SETTING:
            return Ruling(Chance.IMPOSSIBLE, "no configuration permits it")
        case RuledBy.LIVENESS:
            return Ruling(Chance.IMPOSSIBLE, "once all has healed the cluster recovers by itself")
        case RuledBy.INFORMATION:
            return Ruling(Chance.POSSIBLE, "an indeterminate attempt may be present: for information")
        case RuledBy.REMOVAL:
            return Ruling(Chance.POSSIBLE, "counted only where a setting or a request explains it")
        case RuledBy.RETRIES:
            return _unless_retried(promises, row.kept_by_idempotence)
        case RuledBy.ORDER:
            return _reordered(promises, row.kept_by_idempotence)
        case RuledBy.LOSS:
            return _loss(promises, anomaly)


def _unless_retried(promises: Promises, idempotent: str) -> Ruling:
    if promises.retry_possible:
        return Ruling(Chance.POSSIBLE, "a retry is possible: idempotence off and retries > 0")
    why = idempotent if promises.idempotence else "retries = 0: nothing is sent twice"
    return Ruling(Chance.IMPOSSIBLE, why)


def _reordered(promises: Promises, idempotent: str) -> Ruling:
    if promises.idempotence:
        return Ruling(Chance.IMPOSSIBLE, idempotent)
    if promises.acks == "0":
        return Ruling(Chance.POSSIBLE, "acks=0: nothing tells the producer of a failed request")
    # One request in flight keeps no order either: librdkafka builds the next one while it waits (2.16.1,
    # rdkafka_broker.c, rd_kafka_toppar_producer_serve), and what is refused then comes behind it (its issue 1092).
    if promises.retry_possible:
        return Ruling(Chance.POSSIBLE, "retries without idempotence: what was sent since comes first")
    return Ruling(Chance.IMPOSSIBLE, "retries = 0: acknowledged records keep their order")


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
