"""What the settings of a topic's writes promise: the weakest that is in force anywhere, at any time of a case."""

from __future__ import annotations

from dataclasses import dataclass

from ackproof.experiment.experiment import ExperimentSpec
from ackproof.rundir.anomalies import TABLE, RuledBy
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
        return self.acks == "all" and self.min_insync >= 2 and not self.unclean_election and not self.dropped


def in_force(spec: ExperimentSpec, topic: str) -> list[dict[str, str]]:
    """The settings of brokers and topic together, as they are on each broker, before and after each planned change."""
    configs: list[dict[str, str]] = [
        {**spec.cluster.config, **spec.cluster.broker_config.get(broker, {}), **spec.topics[topic].config}
        for broker in spec.cluster.broker_ids
    ]
    return configs + [
        config | dict(fault.may_set(spec, topic)) for fault in spec.faults for config in tuple(configs)
    ]


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
        case RuledBy.INFORMATION:
            return Ruling(Chance.POSSIBLE, "an indeterminate attempt may be present: for information")
        case RuledBy.RETRIES:
            return _unless_retried(promises, row.kept_by_idempotence)
        case RuledBy.ORDER:
            return _reordered(promises, row.kept_by_idempotence)
        case RuledBy.LOSS:
            return _loss(promises)


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


def _loss(promises: Promises) -> Ruling:
    if promises.durable:
        return Ruling(
            Chance.IMPOSSIBLE,
            f"acks=all on at least {promises.min_insync} in-sync replicas, unclean election off",
        )
    if promises.dropped:
        return Ruling(Chance.UNKNOWN, "the topic is deleted on the way: what it held goes with it")
    if promises.acks != "all":
        why = f"acks={promises.acks} promises one copy at most"
    elif promises.unclean_election:
        why = "unclean.leader.election.enable lets a replica lead that lacks acknowledged records"
    else:
        why = "min.insync.replicas = 1 lets the leader acknowledge alone"
    return Ruling(Chance.UNKNOWN, why)
