"""Checks that replicas in the ISR have every acknowledged record, and that the logs of replicas that left it agree.

The log of a replica that left is compared with the log of one that is in sync. Only offsets below the high watermark of
the time when it left count.

acks=all is a promise of the leader: every replica of the ISR has the record. The ISR is the controller's decision, in
the metadata log. A sample may find the log of an in-sync replica behind an offset that was acknowledged before the
replica was asked. Then the leader did not wait for this replica, even if no loss follows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.experiment.backends import BACKENDS
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, breaks, lacks
from ackproof.rundir.ledger import ledger_rows
from ackproof.rundir.metadata import PartitionChanged
from ackproof.rundir.observed import Sample
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import seconds

_MARGIN_NS: Final = 20_000_000
"""Least time from an acknowledgement to the request for a log end, on one clock, so that their order is
certain.
"""
_IN_SYNC_NS: Final = 1_000_000_000
"""Time for which a replica must have been in the ISR before the acknowledgement of a record that it lacks."""
_SPECIMENS: Final = 2
"""Least number of samples of a partition that must show a replica behind, for an opinion. A single one could
be wrong."""


class _Behind(NamedTuple):
    """Replica whose log ended at `log_end`, below an earlier log end of its leader. The replica was asked after
    `after_ns` and had answered by `before_ns`: the times of two successive samples, in ns since the run's start."""

    node: int
    log_end: int
    after_ns: int
    before_ns: int


def check_acks_in_isr(facts: Facts) -> Iterator[Opinion]:
    """Yield a `breaks` opinion (a promise is broken) for each partition where a replica in the controller's ISR lacked
    a record. The record had been acknowledged with acks=all before, and at least two samples show such a log end.

    Nothing is yielded for other acks, in ZooKeeper mode, for simulated or attached clusters, or if a fault shifts a
    clock. Left out are deleted topics, and partitions whose logs a fault damages. Raises OSError or `BadInput` for a
    broken file.
    """
    experiment = facts.case.experiment
    backend = BACKENDS[facts.backend]
    if experiment.workload.producers.acks != "all" or backend.simulated or backend.foreign:
        return
    if experiment.cluster.metadata.broker_controls or any(fault.clock_shift for fault in facts.case.faults):
        return  # a leader writes its own ISR there; the metadata log has the wrong times here
    for place, records in sorted(facts.decided_of.items()):
        if place.topic not in experiment.topics or place.topic in facts.removed:
            continue
        if any(fault.rots(place) for fault in facts.case.faults):
            continue
        behind = list(_replicas_behind(facts.samples_of.get(place, ())))
        found = list(_acked_beyond(facts, place, records, behind)) if behind else []
        if len(found) >= _SPECIMENS:
            offset, done_ns, replica = found[0]
            yield breaks(
                f"{place}: offset {offset} was acknowledged with acks=all by {seconds(done_ns)}, and at "
                f"{seconds(replica.after_ns)} the log of node {replica.node}, which the controller had in the ISR, "
                f"ended at {replica.log_end} ({len(found)} such samples)",
                subject=str(place),
                numbers={"offset": offset, "log_end": replica.log_end, "samples": len(found)},
            )


def _replicas_behind(samples: Sequence[Sample]) -> Iterator[_Behind]:
    """Yield each replica whose log ended below the log end that its leader had in the sample before, in the
    same leader epoch. Only replicas that answered in both samples count: their second answer was requested
    after the first sample."""
    for before, after in pairwise(samples):
        leader = before.leader
        led = before.log_ends.get(leader, -1)
        if led <= 0 or leader != after.leader or before.leader_epoch != after.leader_epoch:
            continue
        for node, log_end in after.log_ends.items():
            if node != leader and node in before.log_ends and 0 <= log_end < led:
                yield _Behind(node, log_end, before.t_ns, after.t_ns)


def _acked_beyond(
    facts: Facts, place: TopicPartition, records: Sequence[PartitionChanged], behind: Sequence[_Behind]
) -> Iterator[tuple[int, int, _Behind]]:
    """Yield (offset, time of its acknowledgement in ns, replica) for each replica of `behind` that lacked an
    acknowledged offset. The replica was in the ISR, and was asked for its log end after the acknowledgement.

    If a replica lacked several such offsets, the one with the latest acknowledgement is yielded. `records`: records of
    the metadata log about the partition. Yields nothing if a ledger part cannot be read.
    """
    wanted = (
        (pc.field("topic") == place.topic)
        & (pc.field("partition") == place.partition)
        & (pc.field("outcome") == int(Outcome.ACKED))
        & (pc.field("offset") >= min(one.log_end for one in behind))
        & (pc.field("done_ns") <= max(one.after_ns for one in behind))
    )
    try:
        rows = ledger_rows(facts.run.produced, ["offset", "done_ns"], wanted).sort_by("done_ns")
    except (OSError, pa.ArrowException):
        return  # the audit names a part that cannot be read
    offsets, done = (rows[name].to_numpy() for name in ("offset", "done_ns"))
    for one in behind:
        until = int(done.searchsorted(one.after_ns - _MARGIN_NS))
        later = (offsets[:until] >= one.log_end).nonzero()[0]
        if len(later) and _was_in_sync(facts, records, one, int(done[later[-1]])):
            yield int(offsets[later[-1]]), int(done[later[-1]]), one


def _was_in_sync(facts: Facts, records: Sequence[PartitionChanged], one: _Behind, acked_ns: int) -> bool:
    """Return True if the controller kept the replica in the ISR from 1 s before the acknowledgement (`acked_ns`) until
    the replica answered. During that time there must be one leader epoch, and one life of the replica's process.

    If the wall clock was set during the run, the times of records of the metadata log are uncertain. A record that may
    be from that period counts as if it were, so that a possible removal from the ISR gives False.
    """
    since = acked_ns - _IN_SYNC_NS
    written = [(record, *facts.wall.written_within(record.timestamp_ms)) for record in records]
    begun = [record for record, _, last in written if last <= since]
    within = [
        record for record, first, last in written if last > since and first <= one.before_ns + _MARGIN_NS
    ]
    if not begun or any(one.node not in record.isr for record in (begun[-1], *within)):
        return False
    same_epoch = all(record.leader_epoch == begun[-1].leader_epoch for record in within)
    spans = facts.lifelines.node(one.node).spans
    return same_epoch and any(start <= since and one.before_ns <= end for start, end in spans)


# -- replicas that left ---------------------------------------------------------------------------------------------


def check_left_replicas(facts: Facts) -> Iterator[Opinion]:
    """Compare the log of each replica that left the ISR with the log of one that is in it at the end. Yield a `lacks`
    opinion (evidence is missing) for each that differs.

    Logs are compared below the high watermark of the last sample with the replica in the ISR. A replica in the ISR
    holds every record below that mark, and never removes one by itself. If the replay of the run through the reference
    implementation found a truncation in the partition (`conformance.json`), only the offsets below it are compared.

    Left out are nodes whose disk a fault hit, deleted and compacted topics, and logs that could not be read. Nothing is
    yielded without the logs on disk. Raises `BadInput`, OSError or ArrowException for broken files.
    """
    if facts.replicas is None:
        return
    for place, left in sorted(_left_replicas(facts).items()):
        own = {replica.node: replica for replica in facts.replicas_of.get(place, ())}
        stayed = [node for node in facts.in_sync.get(place, ()) if node in own and not own[node].reason]
        for node, until in sorted(left.items()):
            if not stayed or node not in own or own[node].reason:
                continue
            start = max(own[node].log_start, own[stayed[0]].log_start)
            mine, theirs = (facts.logs.copies(place, each) for each in (node, stayed[0]))
            if odd := sorted(row for row in mine ^ theirs if start <= row[0] and row[1] < until):
                yield lacks(
                    f"{place}: node {node} was in the ISR when the high watermark was {until}, and below that its log "
                    f"differs from that of node {stayed[0]} from offset {odd[0][0]} on",
                    subject=str(place),
                    numbers={"offset": odd[0][0]},
                )


def _left_replicas(facts: Facts) -> Mapping[TopicPartition, Mapping[int, int]]:
    """Return {node: offset} of the replicas that left the ISR, are still assigned and are out of it at the end, by
    partition.

    The offset is the high watermark of the last sample with the replica in the ISR. If the replay of the run truncated
    a log of the partition from lower offsets on (`ConformanceFile.truncations`), it is the lowest of these. Deleted and
    compacted topics, and nodes whose disk a fault hit, are left out.
    """
    cuts: dict[TopicPartition, list[int]] = defaultdict(list)
    for cut in facts.replay.truncations:
        cuts[TopicPartition(cut.topic, cut.partition)].append(cut.from_offset)
    found = {}
    for place, samples in facts.samples_of.items():
        if place.topic in facts.removed or facts.may_compact(place.topic):
            continue
        kept = {*facts.in_sync.get(place, ()), *facts.disk_nodes}
        if kept.issuperset(chain.from_iterable({sample.isr for sample in samples})):
            continue
        marks: dict[int, int] = {}
        for sample in samples:
            marks = {node: mark for node, mark in marks.items() if node in sample.replicas}
            if sample.high_watermark >= 0:
                marks |= dict.fromkeys(sample.isr, sample.high_watermark)
        left = marks.keys() - kept
        if left:
            found[place] = {node: min([marks[node], *cuts[place]]) for node in left}
    return found
