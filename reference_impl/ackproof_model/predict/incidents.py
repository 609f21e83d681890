"""Counts incidents for the explorer: those that a case plans, and those that a run showed.

For a run, the metadata log of the controllers is the better witness: it has every fencing, ISR change and leader.
Without it (an attached cluster) the samples in the timeline and the planned faults are used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce

from ackproof.experiment.case import Case
from ackproof.experiment.exposure import NOTHING, Exposure, Incidents
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.timing import time_out
from ackproof.rundir.lifelines import Lifelines
from ackproof.rundir.metadata import BrokerChanged, MetadataRecord, PartitionChanged
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import (
    Event,
    EventKind,
    FaultMissed,
    IsrChanged,
    LeaderChanged,
    fault_name,
)
from ackproof_model.replay.image import Image, partition_of
from ackproof_reference.metadata import Partition

Counted = tuple[str, Incidents]
"""A sentence for the report, and the incidents that it explains."""


def planned(case: Case, topic: str) -> Iterator[tuple[FaultSpec, Incidents]]:
    """Yield (fault, incidents) for each planned fault: the incidents that it may cause to a partition of this
    topic.

    A fault that is too short to take effect, or whose effect cannot be predicted, is left out.
    """
    cluster = case.experiment.cluster
    exposure = Exposure(
        case.experiment, len(case.faults), topic, partial(time_out, cluster), cluster.metadata.session
    )
    for fault in case.faults:
        count = None if fault.unpredictable() else fault.planned(exposure)
        if count is not None:
            yield fault, count


def happened(
    case: Case, topic: str, events: Sequence[Event], decided: Sequence[MetadataRecord]
) -> Iterator[Counted]:
    """Yield (sentence for the report, incidents) for each incident that a run shows.

    All incidents of brokers count. Of the topic's partitions, the most affected one counts, for each kind of
    incident. `events`: the run's timeline. `decided`: its metadata log; if empty, the samples in the timeline
    and the planned faults are used.
    """
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
    if decided:
        yield from _of_the_log(case, topic, decided, down)
        return
    yield from _of_the_samples(topic, events, sum(down.values()))
    asked = {fault.number for fault, _ in bitten}
    for fault, count in planned(case, topic):
        if fault.number in asked and fault.observed(1) == NOTHING:
            yield f"fault {fault_name(fault.number)} ({fault})", count


def _bitten(case: Case, events: Sequence[Event]) -> list[tuple[FaultSpec, list[int]]]:
    """Return the injected faults, each with the nodes that it hit (empty: no node).

    A fault that missed, or that may kill only some of its nodes, counts only for nodes that ended during it.
    """
    lifelines, found = Lifelines.of_events(events), []
    for fault in case.faults:
        life = lifelines.faults.get(fault.number)
        if life is None:
            continue
        nodes = list(life.nodes)
        # of several nodes, a halt in the code ends those that pass the point
        certain = fault.ENDS_NODES or not fault.observed(1).kills
        if not certain or lifelines.fault_event(fault.number, FaultMissed) is not None:
            last = lifelines.fault_events[fault.number][-1].t_ns
            nodes = [
                node
                for node in nodes
                if any(life.asked <= end.t_ns <= last for end in lifelines.node(node).ends)
            ]
        found.append((fault, nodes))
    return found


def _of_the_log(
    case: Case, topic: str, decided: Sequence[MetadataRecord], down: Mapping[int, int]
) -> Iterator[Counted]:
    """Yield (sentence for the report, incidents) of what the metadata log shows: fencings of live brokers, unclean
    elections, and the ISR shrinks and leader changes that no fencing or shutdown explains. `down`: number of ends by
    broker."""
    fencings, changes = _replayed(case, topic, decided)
    for broker, times in sorted(fencings.items()):
        alive = times - down.get(broker, 0)
        if alive > 0:
            yield f"broker {broker} was fenced {_times(alive)} while it lived", Incidents(cuts=alive)
    worst = reduce(Incidents.most, changes.values(), NOTHING)
    for text, count in (
        ("the leader dropped slow followers from the ISR ", Incidents(shrinks=worst.shrinks)),
        ("the leadership was moved ", Incidents(hand_overs=worst.hand_overs)),
        (
            "a replica was elected that was neither in the ISR nor in the ELR, ",
            Incidents(unclean=worst.unclean),
        ),
    ):
        if count != NOTHING:
            lived = " while the leader lived" if count.hand_overs else ""
            yield f"{text}{_times(sum(count))}{lived}", count


def _replayed(
    case: Case, topic: str, decided: Sequence[MetadataRecord]
) -> tuple[Counter[int], dict[int, Incidents]]:
    """Return two counts from the metadata log (`decided`): fencings by broker, and incidents by partition of the topic.

    The incidents are unclean elections, and the ISR shrinks and leader changes that no fenced or stopping broker
    explains."""
    image = Image(case)
    fencings: Counter[int] = Counter()
    changes: dict[int, Incidents] = {}
    # The controller writes what a fencing does to partitions before the fencing itself, in one append.
    going = {
        (record.timestamp_ms, record.node)
        for record in decided
        if isinstance(record, BrokerChanged) and (record.fenced or record.controlled_shutdown)
    }
    for record in decided:
        gone = {node for node, entry in image.brokers.items() if entry.fenced or entry.stopping}
        if isinstance(record, BrokerChanged) and record.fenced and record.node not in gone:
            fencings[record.node] += 1
        elif isinstance(record, PartitionChanged) and record.topic == topic:
            old = image.partitions.get(TopicPartition(topic, record.partition))
            if old is not None:
                now = {node for at, node in going if at == record.timestamp_ms}
                found = _changed(old, partition_of(record), gone | now)
                changes[record.partition] = changes.get(record.partition, NOTHING).plus(found)
        image.take(record)
    return fencings, changes


def _changed(old: Partition, new: Partition, gone: set[int]) -> Incidents:
    """Return the incidents in one change of a partition: an unclean election, and the ISR shrinks and the leader change
    that brokers in `gone` do not explain. `gone`: brokers that are fenced or in controlled shutdown."""
    # Not its epoch: in ZooKeeper mode and before metadata version 3.6 (KAFKA-15021) a shrink itself raises that.
    same_leader = old.leader == new.leader and new.leader not in gone
    dropped = [broker for broker in old.isr if broker not in new.isr and broker in new.replicas]
    slow = [broker for broker in dropped if broker not in gone] if same_leader else []
    moved = new.leader >= 0 and old.leader >= 0 and new.leader != old.leader and old.leader not in gone
    handed = moved and (old.leader in new.isr or old.leader not in new.replicas)
    eligible = {*old.isr, *old.elr, old.last_known_leader, *new.adding}
    unclean = new.leader >= 0 and new.leader != old.leader and new.leader not in eligible
    return Incidents(shrinks=len(slow), hand_overs=int(handed), unclean=int(unclean))


def _of_the_samples(topic: str, events: Sequence[Event], downs: int) -> Iterator[Counted]:
    """Yield (sentence for the report, incidents) for the ISR shrinks and the leader changes that samples show. Leader
    changes count as fencings (`cuts`).

    For each of the two, only the partition with the highest number counts. Of that number, one is taken off for each
    end of a broker. `downs`: number of these ends.
    """
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


def _brokers(nodes: Sequence[int]) -> str:
    return ("broker " if len(nodes) == 1 else "brokers ") + ", ".join(map(str, nodes))


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
