"""What a run showed to have gone wrong, counted per partition: faults that bit, and all that the controllers noted.

The controllers' metadata log is the better witness: it has every fencing, every ISR change and every leader. Without
it (a cluster that someone else runs, ZooKeeper) the samples in the timeline and the planned faults stand in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ackproof.experiment.case import Case
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.incidents import NOTHING, Incidents
from ackproof.reference.predict.incidents import planned, total
from ackproof.rundir.metadata import (
    BrokerChanged,
    BrokerRegistered,
    MetadataRecord,
    PartitionDecided,
    TopicRemoved,
)
from ackproof.rundir.timeline import Event, EventKind, FaultAsked, IsrChanged, LeaderChanged, fault_name

Counted = tuple[str, Incidents]
"""A sentence, and what it counts."""


def happened(
    case: Case, topic: str, events: Sequence[Event], decided: Sequence[MetadataRecord]
) -> Iterator[Counted]:
    """What happened to the brokers and to the worst hit partition of a topic."""
    brokers = set(case.experiment.cluster.broker_ids)
    down: Counter[int] = Counter()
    bitten = _bitten(case, events)
    for fault, nodes in bitten:
        hit = [node for node in nodes if node in brokers]
        count = fault.observed(len(hit))
        if count != NOTHING:
            down.update(hit)
            yield f"fault {fault_name(fault.number)} ({fault}) struck {_brokers(hit)}", count
    for event in events:
        if event.kind is EventKind.NODE_DIED and event.node in brokers:
            down[event.node] += 1
            yield f"broker {event.node} ended by itself", Incidents(kills=1)
    asked = {fault.number for fault, _ in bitten}
    moves = [(fault, count) for fault, count in planned(case, topic) if fault.number in asked]
    if decided:
        yield from _of_the_log(topic, decided, down)
        deliberate = []
    else:
        yield from _of_the_samples(topic, events, sum(down.values()))
        deliberate = [(fault, count) for fault, count in moves if fault.observed(1) == NOTHING]
    for fault, count in deliberate:
        yield (
            f"fault {fault_name(fault.number)} ({fault})",
            count._replace(hand_overs=0) if decided else count,
        )


def _bitten(case: Case, events: Sequence[Event]) -> list[tuple[FaultSpec, list[int]]]:
    """The faults that were injected, with the nodes that they struck (none given: none)."""
    struck: dict[int, list[int]] = {}
    for event in events:
        if isinstance(event.what, FaultAsked) and event.fault is not None:
            struck[event.fault] = list(event.what.nodes)
    return [(fault, struck[fault.number]) for fault in case.faults if fault.number in struck]


def _of_the_log(topic: str, decided: Sequence[MetadataRecord], down: Mapping[int, int]) -> Iterator[Counted]:
    """Fencings of brokers that were not down, and the ISR shrinks and leader changes that they do not account for."""
    fencings, changes = _replayed(topic, decided)
    for broker, times in sorted(fencings.items()):
        alive = times - down.get(broker, 0)
        if alive > 0:
            yield f"broker {broker} was fenced {_times(alive)} while it lived", Incidents(cuts=alive)
    worst = NOTHING
    for found in changes.values():
        worst = worst.most(found)
    if worst.shrinks:
        yield (
            f"the leader dropped slow followers from the ISR {_times(worst.shrinks)}",
            Incidents(shrinks=worst.shrinks),
        )
    if worst.hand_overs:
        yield (
            f"the leadership was moved {_times(worst.hand_overs)} while the leader lived",
            Incidents(hand_overs=worst.hand_overs),
        )
    if worst.unclean:
        yield (
            f"a replica was elected that was neither in the ISR nor in the ELR, {_times(worst.unclean)}",
            Incidents(unclean=worst.unclean),
        )


def _replayed(topic: str, decided: Sequence[MetadataRecord]) -> tuple[Counter[int], dict[int, Incidents]]:
    """How often each broker was fenced, and for each partition of the topic what else changed its ISR or leader."""
    fenced: set[int] = set()
    leaving: set[int] = set()
    fencings: Counter[int] = Counter()
    before: dict[int, PartitionDecided] = {}
    changes: dict[int, Incidents] = {}
    # The controller writes what a fencing does to partitions before the fencing itself, in one append.
    going = {
        (record.timestamp_ms, record.node)
        for record in decided
        if isinstance(record, BrokerChanged) and (record.fenced or record.controlled_shutdown)
    }
    for record in decided:
        if isinstance(record, BrokerRegistered):
            (fenced.add if record.fenced else fenced.discard)(record.node)
            leaving.discard(record.node)
        elif isinstance(record, BrokerChanged):
            if record.fenced is True and record.node not in fenced:
                fenced.add(record.node)
                if record.node not in leaving:
                    fencings[record.node] += 1
            elif record.fenced is False:
                fenced.discard(record.node)
            if record.controlled_shutdown:
                leaving.add(record.node)
        elif isinstance(record, TopicRemoved) and record.topic == topic:
            before.clear()  # what is made anew under its name is no change of what was
        elif isinstance(record, PartitionDecided) and record.topic == topic:
            old = before.get(record.partition)
            before[record.partition] = record
            if old is not None:
                now = {node for at, node in going if at == record.timestamp_ms}
                found = _changed(old, record, fenced | leaving | now)
                changes[record.partition] = changes.get(record.partition, NOTHING).plus(found)
    return fencings, changes


def _changed(old: PartitionDecided, new: PartitionDecided, gone: set[int]) -> Incidents:
    """What one change of a partition counts, beyond what follows from brokers that are gone."""
    # Not its epoch: in ZooKeeper mode and before metadata version 3.6 (KAFKA-15021) a shrink itself raises that.
    same_leader = old.leader == new.leader and new.leader not in gone
    dropped = [broker for broker in old.isr if broker not in new.isr and broker in new.replicas]
    slow = [broker for broker in dropped if broker not in gone] if same_leader else []
    moved = new.leader >= 0 and old.leader >= 0 and new.leader != old.leader and old.leader not in gone
    handed = moved and (old.leader in new.isr or old.leader not in new.replicas)
    eligible = {*old.isr, *old.elr, *old.last_known_elr, *new.adding}
    unclean = new.leader >= 0 and new.leader != old.leader and new.leader not in eligible
    return Incidents(shrinks=len(slow), hand_overs=int(handed), unclean=int(unclean))


def _of_the_samples(topic: str, events: Sequence[Event], downs: int) -> Iterator[Counted]:
    """ISR shrinks and changes of leader seen in samples, beyond those that brokers which went down account for."""
    isr: dict[int, set[int]] = {}
    leader: dict[int, int] = {}
    shrinks: Counter[int] = Counter()
    changes: Counter[int] = Counter()
    for event in events:
        if event.topic != topic or event.partition is None:
            continue
        at = event.partition
        if isinstance(event.what, IsrChanged):
            now = set(event.what.isr)
            shrinks[at] += len(isr.get(at, now) - now)
            isr[at] = now
        elif isinstance(event.what, LeaderChanged) and event.what.leader >= 0:
            new = event.what.leader
            changes[at] += int(leader.get(at, new) != new)
            leader[at] = new
    dropped = max(shrinks.values(), default=0) - downs
    if dropped > 0:
        yield f"the ISR lost a member {_times(dropped)} that had not gone down", Incidents(shrinks=dropped)
    moved = max(changes.values(), default=0) - downs
    if moved > 0:
        yield f"the leader changed {_times(moved)} without going down", Incidents(cuts=moved)


def summed(told: Sequence[Counted]) -> Incidents:
    """All that was told, together."""
    return total([count for _, count in told])


def _brokers(nodes: Sequence[int]) -> str:
    return ("broker " if len(nodes) == 1 else "brokers ") + ", ".join(map(str, nodes))


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
