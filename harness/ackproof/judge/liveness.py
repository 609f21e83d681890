"""Clients and partitions that had not recovered at the end of a run: forbidden, unless a fact of the run excuses them.

Excuses are, for example, a broker that does not run, a throttle in force, and an unclean election on that partition. A
log dir that a fault broke is one, too, if its broker no longer serves it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Final

from ackproof.experiment.backends import BACKENDS
from ackproof.experiment.group import GroupSpec
from ackproof.experiment.promises import Promises, elects_uncleanly, settings_in_force
from ackproof.faults.disks.disk import EmptyDisk
from ackproof.judge.checks.committed import broker_values
from ackproof.judge.facts import Facts
from ackproof.judge.starved import LATEST_MS, MOST_STOLEN, STARVED, had_room_in
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.committed import OFFSETS_TOPIC
from ackproof.rundir.documents import ClassJudgement
from ackproof.rundir.groups import GroupEnd
from ackproof.rundir.observed import Unrecovered
from ackproof.rundir.partition import TopicPartition

_PROMISES: Final = {
    Anomaly.LEADERLESS: "no fault of this run keeps all its in-sync replicas from leading",
    Anomaly.STUCK_REPLICA: "a replica on a broker that runs fetches until it is in sync",
    Anomaly.STUCK_REASSIGNMENT: "a reassignment to brokers that run completes",
    Anomaly.STUCK_PRODUCER: "a producer is answered where another one is, and where its records are committed",
    Anomaly.STUCK_READER: "a reader is handed what another is",
    Anomaly.HANGING_TRANSACTION: "a transaction ends when its coordinator ends it, at its time-out at the latest",
    Anomaly.NO_CONTROLLER: "a majority of the controllers elects one",
    Anomaly.STALLED: "a group whose members run commits the end of its input",
}
_TRANSACTIONS_TOPIC: Final = "__transaction_state"
_ASSIGNS_LOG_DIRS: Final = 17
"""Level of `metadata.version` (3.7-IV2) from which the metadata log names the log dir of each replica (KIP-858)."""
_FOUND_UNDER_LOAD: Final = frozenset({Anomaly.STUCK_PRODUCER, Anomaly.STUCK_READER})
"""Classes of clients, which are watched while the load runs (`run.client_recovery`)."""


def judge_liveness(facts: Facts, anomaly: str, count: int) -> ClassJudgement:
    """Return the judgement of one liveness class with `count` findings. A class with findings is undecided if the
    machine was starved (too busy to blame Kafka), and else allowed if each finding has an excuse. In all other cases it
    is forbidden; a class without findings breaks no promise."""
    promise = _PROMISES[Anomaly(anomaly)]
    found = facts.recovery.of_class(anomaly) if facts.recovery is not None else ()
    if not count or facts.recovery is None:
        return ClassJudgement(anomaly=anomaly, count=count, forbidden=True, why=promise)
    if why := machine_is_starved(facts, anomaly):
        why = f"nothing is called stuck: {why}"
        return ClassJudgement(anomaly=anomaly, count=count, forbidden=None, why=why, predicted=Chance.UNKNOWN)
    excuses = {one: excuse(facts, one, facts.recovery.running) for one in found}
    against = [one for one, why in excuses.items() if not why]
    seconds = facts.recovery.bounds.get(anomaly)
    bound = "within its settle time" if seconds is None else f"within {seconds:g} s"
    if not against:
        why = "; ".join(dict.fromkeys(f"{one.seen}: {why}" for one, why in excuses.items()))
        return ClassJudgement(anomaly=anomaly, count=count, forbidden=False, why=why)
    why = f"{promise}, {bound}: {'; '.join(one.seen for one in against)}"
    if len(against) < count:
        why += f" ({len(against)} of {count} stand against that)"
    return ClassJudgement(anomaly=anomaly, count=count, forbidden=True, why=why)


def excuse(facts: Facts, one: Unrecovered, running: Collection[int]) -> str:
    """Return why settings or faults allow that a client or partition has not recovered; '' if nothing does.

    `one`: what has not recovered. `running`: ids of the brokers that run at the end.
    """
    match one.anomaly:
        case Anomaly.LEADERLESS:
            return _of_leaderless(facts, one, running)
        case Anomaly.STUCK_REPLICA | Anomaly.STUCK_REASSIGNMENT if one.throttled:
            return "a replication throttle is in force"
        case Anomaly.STUCK_REASSIGNMENT if down := sorted(set(one.adding).difference(running)):
            return f"broker {down[0]}, to which it moves, does not run"
        case Anomaly.STALLED:
            return _of_stalled(facts, one)
        case Anomaly.HANGING_TRANSACTION if facts.metadata_log.elected_uncleanly(one.place):
            return (
                "an unclean election took its marker, which unclean.leader.election.enable allows (KAFKA-20716): "
                "readers at read_committed stand still there until the transaction is aborted by hand"
            )
    return ""


def blocked(facts: Facts) -> Iterator[tuple[TopicPartition, str]]:
    """Yield (partition, reason) for each partition that need not acknowledge records at the end of the run,
    maybe more than once. Either `recovery.json` names it in any liveness class, or (with acks=all) running
    brokers hold fewer of its replicas than min.insync.replicas. Yields nothing without `recovery.json`."""
    if facts.recovery is None:
        return
    for one in facts.recovery.unrecovered:
        if one.topic:
            yield one.place, one.seen
    running = set(facts.recovery.running)
    spec = facts.case.experiment
    least = {topic: Promises.from_experiment(spec, topic).min_insync for topic in spec.topics}
    for place, samples in facts.samples_of.items():
        if place.topic not in least or not samples or spec.workload.producers.acks != "all":
            continue
        alive = len(running & set(samples[-1].replicas))
        if alive < least[place.topic]:
            why = f"min.insync.replicas is {least[place.topic]}, and {alive} of its replicas are on brokers that run"
            yield place, why


def _of_leaderless(facts: Facts, one: Unrecovered, running: Collection[int]) -> str:
    """Return why no replica may lead: brokers of the ISR do not run, faults took or replaced their disks, or kills
    emptied ISR and ELR; '' if one may.

    With unclean elections any replica may lead. Without, a KRaft controller elects no broker whose registration lacks
    the log dir that the partition was on (`isAcceptableLeader`, KIP-858). It does not look again when the broker
    assigns the partition to a new one.
    """
    in_force = settings_in_force(facts.case.experiment, one.topic)
    unclean = all(elects_uncleanly(at_broker.config) for at_broker in in_force)
    able = set(one.replicas if unclean or not one.isr else one.isr)
    if not unclean and (ended := _without_eligible(facts, one.place)):
        brokers = ", ".join(f"broker {node}" for node in ended)
        return (
            f"its ISR and its eligible leader replicas are empty since {brokers} ended without a clean shutdown, and "
            "unclean.leader.election.enable is off (KIP-966)"
        )
    broken = facts.disk_nodes & set(one.offline)
    replaced = set() if unclean else _with_new_log_dirs(facts)
    down = able.difference(running)
    if not able or able - down - broken - replaced:
        return ""
    names = [f"broker {node} does not run" for node in sorted(down)]
    names += [f"a fault took the log dir of broker {node}" for node in sorted((broken & able) - down)]
    names += [
        f"a fault replaced the disk of broker {node}" for node in sorted((replaced & able) - broken - down)
    ]
    return f"no replica that may lead is there: {', '.join(names)}" + (
        "" if unclean else ", and unclean.leader.election.enable is off"
    )


def _with_new_log_dirs(facts: Facts) -> set[int]:
    """Return the nodes whose log dirs got new ids (`directory.id`): a fault emptied their disks, put nothing back, and
    was not seen to be healed. Their replicas did not come back into sync under a leader.

    Empty where partitions are not assigned to log dirs: in ZooKeeper mode, and below metadata.version 3.7-IV2.
    """
    cluster = facts.case.experiment.cluster
    if (
        cluster.mode != "kraft"
        or cluster.features.get("metadata.version", _ASSIGNS_LOG_DIRS) < _ASSIGNS_LOG_DIRS
    ):
        return set()
    return {
        node
        for fault in facts.case.faults
        if isinstance(fault, EmptyDisk) and fault.restore == "nothing"
        if (life := facts.faults.get(fault.number)) is not None and life.recovered is None
        for node in life.nodes
    }


def _of_stalled(facts: Facts, one: Unrecovered) -> str:
    """Return why a group may be without progress although it is not broken; '' if there is no reason.

    Reasons are a slow group, a partition that it needs and that cannot be written or read, and a hanging transaction
    that hides its input. A group is slow if its remaining records need more time than it had to finish (`settle`). It
    is slow, too, if a batch or the time between two commits is not shorter than its time without progress
    (`one.for_s`). It may be slow if it takes time for each record, and the run does not say how many remain.
    """
    spec = facts.case.experiment.workload.groups.get(one.group)
    end = next((end for end in facts.groups.groups if end.group == one.group), None) if facts.groups else None
    if spec is None:
        return ""
    if end is None:
        return (
            "it takes time for each record, and the run does not say how many remain"
            if spec.record_time
            else ""
        )
    lag = sum(end.lags.values())
    batch_s = spec.record_time * min(lag, spec.batch)
    if spec.record_time * lag > spec.settle or batch_s >= one.for_s:
        return f"it is slow: it takes {spec.record_time:g} s a record, and {lag:,} remain"
    if spec.commit in ("timed", "auto") and spec.commit_every >= one.for_s:
        return f"it commits every {spec.commit_every:g} s"
    for place, least in _list_needed(facts, spec, end, one.place):
        lives = facts.metadata_log.states.get(place)
        if lives and (lives[-1][-1].leader < 0 or len(lives[-1][-1].isr) < least):
            return f"{place} has no leader, or fewer in-sync replicas than min.insync.replicas"
    hidden = facts.recovery.of_class(Anomaly.HANGING_TRANSACTION) if facts.recovery is not None else ()
    if any(other.place == one.place for other in hidden):
        return f"a hanging transaction hides what {one.place} has after it"
    return ""


def _list_needed(
    facts: Facts, spec: GroupSpec, end: GroupEnd, place: TopicPartition
) -> Iterator[tuple[TopicPartition, int]]:
    """Yield (partition, least number of in-sync replicas) of each partition without which a group cannot process the
    input partition `place`.

    These are the group's partition of `__consumer_offsets`, `place` itself, and all partitions of the group's output
    topic. With transactions, all partitions of `__transaction_state` are needed too, because any of them may be used.
    """
    yield (
        TopicPartition(OFFSETS_TOPIC, end.committed.partition),
        _find_strictest(facts, "min.insync.replicas"),
    )
    yield place, 1
    for other in sorted(facts.metadata_log.states):
        if other.topic == spec.output:  # it has the settings of the first input topic
            topic = spec.topics[0] if spec.topics else place.topic
            yield other, Promises.from_experiment(facts.case.experiment, topic).min_insync
        elif other.topic == _TRANSACTIONS_TOPIC and spec.commit == "transaction":
            yield other, _find_strictest(facts, "transaction.state.log.min.isr")


def _find_strictest(facts: Facts, setting: str) -> int:
    """Return the greatest value that the experiment gives a broker for a setting, at least 1; 1 if it gives none."""
    return max([1, *map(int, broker_values(facts.case, setting))])


def _without_eligible(facts: Facts, place: TopicPartition) -> tuple[int, ...]:
    """Return the members of the last ISR (or, if that was empty, ELR) of a partition for which both are empty at the
    end. Return () if one is not, or if one of these members did not die (by a kill or by itself) before the heal phase.
    """
    lives = facts.metadata_log.states.get(place)
    if not lives or lives[-1][-1].isr or lives[-1][-1].elr:
        return ()
    last = next((state.isr or state.elr for state in reversed(lives[-1]) if state.isr or state.elr), ())
    over = facts.phases.get("heal", math.inf)
    killed = {
        node for node, life in facts.lifelines.nodes.items() if any(t_ns < over for t_ns in life.killed_ns)
    }
    return last if set(last) <= killed else ()


def machine_is_starved(facts: Facts, anomaly: str) -> str:
    """Return why the machine was too busy, under load or after it, to call something stuck; '' if it was not.

    `anomaly`: a liveness class. Stuck producers and readers are found under load, so a machine that was exhausted under
    load excuses them. The other classes are found after the load. They are excused, too, unless the machine had room by
    then, which is not known for an attached cluster. Every class is excused if, after the load, the harness itself
    stood still or processor time went to other machines.
    """
    seen = facts.calm
    since = facts.phases.get("heal", 0)
    after = [pulse for pulse in facts.pulses if pulse.t_ns >= since]
    had_room = anomaly not in _FOUND_UNDER_LOAD and not BACKENDS[facts.backend].foreign and had_room_in(after)
    if seen is not None and seen.starved and not had_room:
        return f"{STARVED}: {seen.starved[0]}"
    if any(pulse.late_ms > LATEST_MS for pulse in after):
        return f"{STARVED}: the harness itself stood still after the load"
    stolen = [pulse.stolen for pulse in after if pulse.stolen >= 0]
    if stolen and sum(stolen) / len(stolen) > MOST_STOLEN:
        return f"{STARVED}: the processors' time went to other machines of the host"
    return ""
