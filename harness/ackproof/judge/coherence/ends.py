"""Where each log ends: what the final read says of itself, beside samples and the metadata log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, contradicts, lacks
from ackproof.rundir.documents import FinalReadFile, PartitionRead
from ackproof.rundir.metadata import PartitionDecided, TopicRemoved
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.samples import Sample


def check(facts: Facts) -> Iterator[Opinion]:
    """Contradictions about the ends of logs, and holes in what was watched of them."""
    samples = by_partition(facts)
    yield from map(contradicts, _epochs(facts, samples))
    final = facts.final_read
    if final is None:
        return
    yield from map(contradicts, _of_the_file(final))
    for read in final.partitions:
        place = TopicPartition(read.topic, read.partition)
        yield from map(contradicts, _beside_samples(read, samples.get(place, ())))
        yield from _watched_at_rest(facts, place, samples.get(place, ()))


def by_partition(facts: Facts) -> dict[TopicPartition, list[Sample]]:
    """The samples of each partition, in the order in which they were taken, but those of an earlier incarnation."""
    found: dict[TopicPartition, list[Sample]] = defaultdict(list)
    for sample in facts.samples:
        mine = found[TopicPartition(sample.topic, sample.partition)]
        if mine and sample.leader_epoch < mine[-1].leader_epoch and _was_made_anew(facts, sample.topic):
            mine.clear()
        mine.append(sample)
    return found


def _was_made_anew(facts: Facts, topic: str) -> bool:
    return any(isinstance(record, TopicRemoved) and record.topic == topic for record in facts.metadata)


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
            if one.complete and one.records > one.end - one.start:
                yield f"the {name} was handed {one.records} records between offsets {one.start} and {one.end}"
    if final.complete and final.reasons:
        yield f"the final read calls itself complete, and says: {'; '.join(final.reasons)}"


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
    """Leader epochs that were seen are those that the controllers gave."""
    given: dict[TopicPartition, set[int]] = defaultdict(set)
    for record in facts.metadata:
        if isinstance(record, PartitionDecided):
            given[TopicPartition(record.topic, record.partition)].add(record.leader_epoch)
    if not given:
        return
    for place, mine in sorted(samples.items()):
        for sample in mine:
            if sample.leader >= 0 and sample.leader_epoch not in given[place]:
                yield (
                    f"{place}: leader epoch {sample.leader_epoch} was seen at {sample.t_ns / 1e9:.1f} s, and the "
                    "metadata log does not know it"
                )
                break
