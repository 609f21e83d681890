"""Converts a case into inputs of the reference implementation: its rules, its incidents, and the size of its model.

Prediction, simulation and replay use it alike, so that they have the same configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

from ackproof.experiment.case import Case
from ackproof.experiment.exposure import NOTHING, Incidents
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.group import GroupSpec
from ackproof.experiment.kafka import ELR, LINES, numbers
from ackproof.experiment.promises import Promises
from ackproof.rundir.guarantees import LIBRARIES, AutoCommit, Fact
from ackproof.rundir.metadata import MetadataRecord
from ackproof.rundir.timeline import Event, fault_name
from ackproof_model.predict.incidents import happened, planned
from ackproof_reference.explore.scope import Budget, Scope
from ackproof_reference.rules import CommitMode, GroupProtocol, GroupRules, Rules, group_rules_of, rules_of

ACKS: Final = {"0": 0, "1": 1, "all": -1}
MOST_BROKERS: Final = 3
MOST_RECORDS: Final = 2


@dataclass(frozen=True)
class CaseBudget:
    """Incidents of a case, as the `budget` of a search: each kind may happen at most as often as the model has brokers.

    `faults`: the causes of the incidents, as text, each with its incidents. `clamped`: numbers of the case that were
    reduced to fit the model, as text, such as `kills: 5 → 3`.
    """

    budget: Budget
    faults: tuple[str, ...]
    clamped: tuple[str, ...] = ()


def rules_name(case: Case) -> str:
    """Return the name of the rules for this case's cluster, such as `4.3.1` or `3.9.2-zk`. `rules_of` and
    `ackproof explore --rules` take it. For a release newer than all known lines it is the newest line."""
    cluster = case.experiment.cluster
    version, newest = cluster.kafka.version, LINES[-1]
    # Of a release that is newer than all that are known: the rules that are assumed of it.
    return (str(newest) if numbers(version)[:2] > newest.number else version) + cluster.metadata.rules


def rules_for(case: Case, topic: str) -> Rules:
    """Return the rules of this cluster with the weakest min.insync.replicas and unclean.leader.election.enable that the
    topic can have at any time (`Promises`). The former is at most the number of replicas.

    Raises ValueError for a release without rules.
    """
    promises = Promises.from_experiment(case.planned, topic)
    return replace(code_for(case), min_insync=promises.min_insync, unclean_election=promises.unclean_election)


def code_for(case: Case) -> Rules:
    """Return the protocol rules of the cluster's release and of its feature level for eligible leader replicas, without
    any topic's settings. Raises ValueError for a release without rules."""
    level = case.experiment.cluster.features.get(ELR)
    return rules_of(rules_name(case), elr=None if level is None else level > 0)


def counted_for(
    case: Case,
    topic: str,
    events: Sequence[Event] | None = None,
    *,
    decided: Sequence[MetadataRecord] = (),
    rotted: Sequence[FaultSpec] = (),
) -> CaseBudget:
    """Count the incidents of a case on a topic: of its planned faults, or with `events` (a run's timeline) of the
    observed ones.

    `decided`: the run's metadata log; without it the samples in the timeline are used. `rotted`: faults that removed
    something from the partition's log; each counts as a power loss, by which a log may lose any number of its last
    records. All other power losses count as kills if every batch is flushed at once and no fault empties a disk.
    """
    if events is None:
        told = [
            (f"fault {fault_name(fault.number)} ({fault})", count) for fault, count in planned(case, topic)
        ]
    else:
        told = list(happened(case, topic, events, decided))
    told += [
        (f"fault {fault_name(fault.number)} ({fault}) took from its log", Incidents(power_losses=1))
        for fault in rotted
    ]
    faults = tuple(f"{what}: {count}" for what, count in told)
    found = reduce(Incidents.plus, (count for _, count in told), NOTHING)
    if found.power_losses > len(rotted) and _flushed_at_once(case, topic):
        # What is fsynced before it is acknowledged outlives a loss of power as it outlives a kill.
        kills = found.kills + found.power_losses - len(rotted)
        found = found._replace(kills=kills, power_losses=len(rotted))
        faults = (*faults, "flush.messages=1: a loss of power takes no more than a kill")
    # No kind of incident more often than there are brokers to suffer it.
    most = _brokers_for(case, topic)
    budget = Budget(**{name: min(count, most) for name, count in found._asdict().items()})
    clamped = [f"{name}: {count} → {most}" for name, count in found._asdict().items() if count > most]
    return CaseBudget(budget, faults, tuple(clamped))


def _brokers_for(case: Case, topic: str) -> int:
    """Return the number of brokers in the model of a topic's partition: its replication factor, at most three."""
    return min(case.experiment.topics[topic].replication_factor, MOST_BROKERS)


def scope_for(
    case: Case,
    topic: str,
    events: Sequence[Event] | None = None,
    *,
    decided: Sequence[MetadataRecord] = (),
    rotted: Sequence[FaultSpec] = (),
    records: int = 1,
) -> tuple[Scope, CaseBudget]:
    """Return the scope that is searched for this case's losses on a topic, and the incidents from which its
    budget comes. Raises ValueError for a release without rules.

    Incidents are those that the case plans, or with `events` (a run's timeline) those observed. `decided`:
    the run's metadata log. `rotted`: faults that removed something from the partition's log. `records`: how
    many to send, at most two. With more than three replicas, the scope has three, and a min.insync.replicas of at most
    two; `clamped` of the result says so.
    """
    counted = counted_for(case, topic, events, decided=decided, rotted=rotted)
    rules, brokers = rules_for(case, topic), _brokers_for(case, topic)
    clamped = list(counted.clamped)
    replicas = case.experiment.topics[topic].replication_factor
    if replicas > brokers:
        clamped.append(f"replicas: {replicas} → {brokers}")
    # A majority of five that acknowledges bears two losses, as one of three bears one: what more of them would bear
    # is left out, so that nothing is called impossible which is not.
    least = min(rules.min_insync, max(1, brokers - 1)) if replicas > brokers else rules.min_insync
    if least != rules.min_insync:
        clamped.append(f"min.insync.replicas: {rules.min_insync} → {least}")
        rules = replace(rules, min_insync=least)
    producers = case.experiment.workload.producers
    scope = Scope(
        rules,
        brokers=brokers,
        records=min(records, MOST_RECORDS),
        acks=ACKS[producers.acks],
        budget=counted.budget,
        idempotent=producers.idempotence,
        settled=True,
    )
    return scope, replace(counted, clamped=tuple(clamped))


def _flushed_at_once(case: Case, topic: str) -> bool:
    """Return True if every broker flushes (fsync) each batch of the topic, and no fault empties a disk."""
    cluster, own = case.experiment.cluster, case.experiment.topics[topic].config
    if any(fault.kind == "empty_disk" for fault in case.faults):
        return False
    nodes = [{**cluster.config, **cluster.broker_config.get(broker, {})} for broker in cluster.broker_ids]
    return all(own.get("flush.messages", node.get("log.flush.interval.messages")) == "1" for node in nodes)


def rules_for_group(case: Case, spec: GroupSpec) -> GroupRules:
    """Return the rules of a consumer group: those of the cluster's release, with the group's settings and the facts of
    its client library. Raises ValueError for a release without rules."""
    cluster, client = case.experiment.cluster, spec.client
    rules = group_rules_of(rules_name(case))
    protocol = GroupProtocol.CONSUMER
    if spec.protocol == "classic":
        cooperative = spec.resolved_assignor == "cooperative-sticky"
        protocol = GroupProtocol.COOPERATIVE if cooperative else GroupProtocol.EAGER
    facts = LIBRARIES[client.library].facts
    mode = CommitMode.TIMED if facts[Fact.AUTO_COMMIT] == AutoCommit.AT_POLL else CommitMode.AT_DELIVERY
    if spec.commit != "auto":
        mode = CommitMode[spec.commit.upper()]
    since = facts[Fact.TRANSACTION_EPOCH]
    epochs = since != "none" and numbers(client.release_for(cluster.kafka)) >= numbers(since)
    return replace(
        rules,
        protocol=protocol,
        commit=mode,
        group_metadata=spec.group_metadata,
        static=spec.static,
        stable_fetch=facts[Fact.STABLE_OFFSETS] in ("any", spec.isolation),
        epoch_per_transaction=rules.epoch_per_transaction and epochs,
    )
