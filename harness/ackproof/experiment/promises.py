"""What the settings of a topic's writes promise: the weakest that is in force anywhere, at any time of a case."""

from __future__ import annotations

from dataclasses import dataclass

from ackproof.experiment.experiment import ExperimentSpec


@dataclass(frozen=True)
class Promises:
    """The settings of one topic's writes that decide what may happen to them."""

    acks: str
    idempotence: bool
    retry_possible: bool
    in_flight_one: bool
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
        configs: list[dict[str, str]] = [
            {**spec.cluster.config, **spec.cluster.broker_config.get(broker, {}), **spec.topics[topic].config}
            for broker in spec.cluster.broker_ids
        ]
        configs += [
            config | dict(fault.may_set(spec, topic)) for fault in spec.faults for config in tuple(configs)
        ]
        shrunk = [size for fault in spec.faults if (size := fault.may_shrink_to(topic)) is not None]
        lowest = min(int(config.get("min.insync.replicas", "1")) for config in configs)
        return cls(
            acks=producers.acks,
            idempotence=producers.idempotence,
            retry_possible=not producers.idempotence and producers.retries != 0,
            in_flight_one=producers.in_flight == 1,
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
