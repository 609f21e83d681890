"""Where each log ends: what the final read says of itself, beside samples and the metadata log."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ackproof.experiment.backends import BACKENDS
from ackproof.judge.facts import Facts, partitions_of
from ackproof.judge.opinion import Opinion, contradicts, lacks
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.documents import FinalReadFile, PartitionRead
from ackproof.rundir.metadata import PartitionChanged
from ackproof.rundir.observed import Sample
from ackproof.rundir.partition import TopicPartition


def check(facts: Facts) -> Iterator[Opinion]:
    """Contradictions about the ends of logs, and holes in what was watched of them."""
    samples = facts.samples_of
    yield from map(contradicts, _epochs(facts, samples))
    final = facts.final_read
    if final is None:
        return
    yield from map(contradicts, _of_the_file(final))
    yield from map(contradicts, _beside_the_case(facts, final))
    for read in final.partitions:
        place = TopicPartition(read.topic, read.partition)
        yield from map(contradicts, _beside_samples(read, samples.get(place, ())))
        yield from map(contradicts, _while_it_was_read(facts, read, samples.get(place, ())))
        yield from map(lacks, _beginning(facts, read))
        yield from _watched_at_rest(facts, place, samples.get(place, ()))


def _of_the_file(final: FinalReadFile) -> Iterator[str]:
    for who, partitions in (
        ("final read", final.partitions),
        ("final read at read_committed", final.committed),
    ):
        for one in partitions:
            name = f"{who} of {one.topic}/{one.partition}"
            if final.complete and not one.complete:
                yield f"the {name} is incomplete ({one.reason}), and the read as a whole calls itself complete"
            if one.complete and not 0 <= one.start <= one.end <= one.position:
                yield f"the {name} calls itself complete, from {one.start} to {one.end}, and ended at {one.position}"
            if one.complete and one.reason:
                yield f"the {name} calls itself complete, and says: {one.reason}"
            if one.complete and not 0 <= one.epoch == one.epoch_after:
                yield f"the {name} calls itself complete, and went from leader epoch {one.epoch} to {one.epoch_after}"
            if one.complete and one.records > one.end - one.start:
                yield f"the {name} was handed {one.records} records between offsets {one.start} and {one.end}"
    if final.complete and final.reasons:
        yield f"the final read calls itself complete, and says: {'; '.join(final.reasons)}"


def _beside_the_case(facts: Facts, final: FinalReadFile) -> Iterator[str]:
    """Each reader read partitions that there are, once; those at rest have one start and one end for all readers."""
    known = partitions_of(facts.case, facts.case.experiment.topics)
    ends: dict[TopicPartition, PartitionRead] = {}
    recovery = facts.recovery
    stable = (
        {one.place: one.last_stable for one in recovery.of_class(Anomaly.HANGING_TRANSACTION)}
        if recovery
        else {}
    )
    for partitions in (final.partitions, final.committed):
        read = Counter(TopicPartition(one.topic, one.partition) for one in partitions)
        for place, count in sorted(read.items()):
            if place not in known:
                yield f"the final read tells of {place}, which the case does not have"
            elif count > 1:
                yield f"the final read tells of {place} {count} times"
        for one in partitions:
            place = TopicPartition(one.topic, one.partition)
            other = ends.setdefault(place, one)
            moves = facts.may_expire(place)
            end = stable.get(place) if one is not other else None
            if one.end == end and (moves or one.start == other.start):
                continue  # at read_committed nobody gets behind a transaction that hangs
            apart = one.end != other.end or (one.start != other.start and not moves)
            if one.complete and other.complete and apart:
                yield (
                    f"the final read of {one.topic}/{one.partition} goes from {other.start} to {other.end}, and at "
                    f"read_committed from {one.start} to {one.end}"
                )


def _beginning(facts: Facts, read: PartitionRead) -> Iterator[str]:
    """Without retention nothing of a run is old enough to be deleted, so that every log begins at 0."""
    experiment = facts.case.experiment
    if read.topic not in experiment.topics or BACKENDS[facts.backend].foreign:
        return
    place = TopicPartition(read.topic, read.partition)
    deleted = facts.log_starts.get(place, 0)
    if read.complete and read.start > deleted and not facts.may_expire(place):
        yield f"{read.topic}/{read.partition}: the final read begins at {read.start}, and no setting deletes records"
    if read.complete and read.records < 0 and facts.sealed:
        yield f"{read.topic}/{read.partition}: nobody counted what the final reader was handed"


def _while_it_was_read(facts: Facts, read: PartitionRead, samples: Sequence[Sample]) -> Iterator[str]:
    """The read waits, in its phase, until the high watermark is the end, and from there it does not go back."""
    last = samples[-1] if samples else None
    if last is None or not read.complete or last.t_ns < facts.phases.get("read", sys.maxsize):
        return
    if last.leader_epoch == read.epoch_after and 0 <= last.high_watermark < read.end:
        yield (
            f"{read.topic}/{read.partition}: the final read ends at {read.end}, and the high watermark was "
            f"{last.high_watermark} when it was read, at {last.t_ns / 1e9:.1f} s"
        )


def _beside_samples(read: PartitionRead, samples: Sequence[Sample]) -> Iterator[str]:
    if not samples:
        return
    newest = max(samples, key=lambda sample: sample.leader_epoch)
    if 0 <= read.epoch_after < newest.leader_epoch:
        yield (
            f"{read.topic}/{read.partition}: the final read was answered in leader epoch {read.epoch_after}, and epoch "
            f"{newest.leader_epoch} was seen at {newest.t_ns / 1e9:.1f} s"
        )
    last = samples[-1]
    if read.complete and last.high_watermark > read.end and last.leader_epoch == read.epoch_after:
        yield (
            f"{read.topic}/{read.partition}: the final read ends at {read.end}, and the high watermark of the same "
            f"leader epoch was {last.high_watermark} at {last.t_ns / 1e9:.1f} s"
        )


def _watched_at_rest(facts: Facts, place: TopicPartition, samples: Sequence[Sample]) -> Iterator[Opinion]:
    """Who is in sync at the end is what the logs on disk are held against: it must have been seen at the end."""
    rest = facts.phases.get("drain")
    if rest is not None and not any(sample.isr and sample.t_ns >= rest for sample in samples):
        seen = f"last at {samples[-1].t_ns / 1e9:.1f} s" if samples else "never"
        yield lacks(
            f"{place} was not seen once the load had ended ({seen} at all): nobody knows who was in sync"
        )


def _epochs(facts: Facts, samples: Mapping[TopicPartition, Sequence[Sample]]) -> Iterator[str]:
    """Leaders, leader epochs and ISRs that were seen are those that the controllers gave.

    In ZooKeeper mode a leader writes its ISR itself, and brokers hear of it by other ways.
    """
    given: dict[TopicPartition, dict[int, list[PartitionChanged]]] = defaultdict(lambda: defaultdict(list))
    for record in facts.metadata:
        if isinstance(record, PartitionChanged):
            given[TopicPartition(record.topic, record.partition)][record.leader_epoch].append(record)
    if not given:
        return
    by_broker = facts.case.experiment.cluster.metadata.broker_controls
    for place, mine in sorted(samples.items()):
        for sample in mine:
            if sample.leader < 0:
                continue
            known, at = given[place].get(sample.leader_epoch, []), f"was seen at {sample.t_ns / 1e9:.1f} s"
            epoch = f"leader epoch {sample.leader_epoch}"
            if not known:
                yield f"{place}: {epoch} {at}, and the metadata log does not know it"
                break
            if not by_broker and sample.leader not in {one.leader for one in known}:
                yield f"{place}: leader {sample.leader} {at} in {epoch}, and the metadata log has {known[0].leader}"
                break
            if not by_broker and set(sample.isr) not in [set(one.isr) for one in known]:
                yield f"{place}: the ISR {sorted(sample.isr)} {at} in {epoch}, and the metadata log does not know it"
                break
    for read in facts.final_read.partitions if facts.final_read is not None else ():
        place = TopicPartition(read.topic, read.partition)
        if read.complete and place in given and read.epoch_after not in given[place]:
            yield f"{place}: the final read was in leader epoch {read.epoch_after}, unknown to the metadata log"
