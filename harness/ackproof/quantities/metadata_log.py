"""The metadata log of a run: the states of each partition in order, and whether any state may be missing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ackproof.rundir.metadata import EligibleCleared, LogEnded, MetadataRecord, PartitionChanged, TopicRemoved
from ackproof.rundir.partition import TopicPartition


@dataclass(frozen=True)
class MetadataLog:
    """Records of a run's metadata log, and the states of each partition in order.

    `states`: one list per incarnation of the topic; its first state is the creation of the partition. A state after
    which the ELR was cleared, before the next state, has an empty `elr`. `hole`: what is missing in the log, in words;
    '' if nothing is missing.
    """

    records: Sequence[MetadataRecord]
    states: Mapping[TopicPartition, Sequence[Sequence[PartitionChanged]]]
    hole: str

    @classmethod
    def from_records(cls, records: Sequence[MetadataRecord], *, simulated: bool, kraft: bool) -> MetadataLog:
        """Return the log of these records of `observed/metadata.jsonl`, which are in order. `simulated`: True for a run
        of the reference implementation (backend `model`), whose records lack a `LogEnded`. `kraft`: False in ZooKeeper
        mode."""
        lives: dict[TopicPartition, list[list[PartitionChanged]]] = defaultdict(list)
        gone: set[TopicPartition] = set()
        for record in records:
            if isinstance(record, TopicRemoved):
                gone |= {place for place in lives if place.topic == record.topic}
            elif isinstance(record, EligibleCleared):
                for place, each in lives.items():
                    if record.topic in ("", place.topic):
                        each[-1][-1] = each[-1][-1].model_copy(update={"elr": ()})
            elif isinstance(record, PartitionChanged):
                place = TopicPartition(record.topic, record.partition)
                if place not in lives or place in gone:
                    lives[place].append([])
                    gone.discard(place)
                lives[place][-1].append(record)
        return cls(records, dict(lives), _hole(records, simulated=simulated, kraft=kraft))

    def elections(self, place: TopicPartition) -> Iterator[tuple[PartitionChanged, bool | None]]:
        """Yield (record, was_eligible) for each record that names a leader in a new leader epoch, without creations of
        the partition. Raises KeyError for a partition that `states` lacks.

        `was_eligible`: True if that leader was in the ISR or the ELR (KIP-966) before; False for an unclean election;
        None if a hole in the log hides it.
        """
        for life in self.states[place]:
            for before, record in pairwise(life):
                if record.leader >= 0 and record.leader_epoch > before.leader_epoch:
                    known = not self.hole or record.partition_epoch == before.partition_epoch + 1
                    yield record, record.leader in (*before.isr, *before.elr) if known else None

    def elected_uncleanly(self, place: TopicPartition) -> bool:
        """Return True if a leader of a partition is known to have been in neither the ISR nor the ELR before."""
        return place in self.states and any(clean is False for _, clean in self.elections(place))


def _hole(records: Sequence[MetadataRecord], *, simulated: bool, kraft: bool) -> str:
    if not records:
        return "there is no metadata log"
    last = records[-1]
    known = records[:-1] if isinstance(last, LogEnded) else records
    if isinstance(last, LogEnded):
        if last.records != len(known):
            return f"the metadata log has {len(known)} records, and {last.records} were written"
    elif not simulated:
        return "the metadata log has no end"
    ends_at = last.offset if isinstance(last, LogEnded) else None
    found = [*out_of_order(known, ends_at, gapless=kraft or simulated), *epochs_left_out(known)]
    return next(iter(found), "")


def out_of_order(records: Sequence[MetadataRecord], ends_at: int | None, *, gapless: bool) -> Iterator[str]:
    """Yield a sentence for each point of the metadata log at which offsets are missing or go back.

    `gapless`: True for KRaft, which writes every offset once. False for ZooKeeper: the log has some znodes only, and
    one zxid may stand for several records. `ends_at`: end offset of the whole log; None: unknown. Without it, offsets
    may be missing where the epoch changes: older versions left out the records that a new controller writes for the
    quorum.
    """
    if ends_at is not None and gapless and records and records[0].offset > 0:
        yield f"the metadata log begins at offset {records[0].offset}"
    for one, two in pairwise(records):
        if two.offset < one.offset + gapless:
            yield f"the metadata log goes from offset {one.offset} to {two.offset}"
        elif gapless and two.offset != one.offset + 1 and (ends_at is not None or two.epoch == one.epoch):
            yield f"the metadata log has nothing between the offsets {one.offset} and {two.offset}"
    if ends_at is not None and gapless and records and records[-1].offset + 1 != ends_at:
        yield f"the metadata log ended at offset {ends_at}, and its last record has {records[-1].offset}"


def epochs_left_out(records: Sequence[MetadataRecord]) -> Iterator[str]:
    """Yield a sentence for each partition record whose partition epoch or leader epoch does not follow the one before.

    Each record takes the next partition epoch, and the same leader epoch or the next. Clearing the ELR takes a
    partition epoch without a record of its own (KIP-966).
    """
    before: dict[TopicPartition, PartitionChanged] = {}
    silent: dict[TopicPartition, int] = {}
    for record in records:
        if isinstance(record, TopicRemoved):
            before = {place: one for place, one in before.items() if place.topic != record.topic}
            silent = {place: count for place, count in silent.items() if place.topic != record.topic}
        elif isinstance(record, EligibleCleared):
            for place in before:
                silent[place] = silent.get(place, 0) + (record.topic in ("", place.topic))
        elif isinstance(record, PartitionChanged):
            place = TopicPartition(record.topic, record.partition)
            one = before.get(place)
            if one is not None:
                may_skip = silent.pop(place, 0)
                if not 1 <= record.partition_epoch - one.partition_epoch <= 1 + may_skip:
                    yield (
                        f"{place}: the metadata log goes from partition epoch {one.partition_epoch} to "
                        f"{record.partition_epoch}, and each change takes the next"
                    )
                if not 0 <= record.leader_epoch - one.leader_epoch <= 1:
                    yield (
                        f"{place}: the metadata log goes from leader epoch {one.leader_epoch} to "
                        f"{record.leader_epoch}, and each election takes the next"
                    )
            before[place] = record
