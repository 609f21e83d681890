"""Coherence of logs: of the final read with itself, samples and settings, and of the replicas' logs on disk."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence, Set
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.experiment.backends import BACKENDS
from ackproof.judge.facts import Facts, partitions_of
from ackproof.judge.opinion import Opinion, breaks, contradicts, kafka_differs, lacks
from ackproof.rundir import storage
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.documents import FinalReadFile, PartitionRead
from ackproof.rundir.layout import client_folder
from ackproof.rundir.ledger import parts
from ackproof.rundir.metadata import TopicCreated
from ackproof.rundir.observed import Sample
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.parts import Footer
from ackproof.rundir.payload import UNKNOWN_CONTENT
from ackproof.rundir.replicas import Replica

# -- the final read -------------------------------------------------------------------------------------------------


def check_final_read(facts: Facts) -> Iterator[Opinion]:
    """Check the final read against itself, the case and the samples. Yields nothing without a final read.

    Yields a `contradicts` opinion (files disagree) for what cannot both be true. If both are answers of Kafka, and the
    run is sealed (digests prove its files unchanged), the opinion is `lacks` (evidence is missing) instead.

    Yields `breaks` or `lacks` if the read of a partition without retention begins above offset 0 (`_first_offset`).
    Yields `lacks` for a partition whose ISR was not sampled after the load. Yields `lacks` for a partition whose
    records were not counted, except in runs without a seal: older versions did not count them.
    """
    final = facts.final_read
    if final is None:
        return
    reads = [("final read", read) for read in final.partitions]
    reads += [("final read at read_committed", read) for read in final.committed]
    for name, read in reads:
        yield from map(contradicts, _read_claims(f"the {name} of {read.place}", read, whole=final.complete))
    if final.complete and final.reasons:
        yield contradicts(f"the final read calls itself complete, and says: {'; '.join(final.reasons)}")
    yield from map(contradicts, _read_partitions(facts, final))
    differs = kafka_differs(sealed=facts.sealed)
    yield from map(differs, _different_ends(facts, final))
    began, rest = facts.phases.get("read", sys.maxsize), facts.phases.get("drain")
    for read in final.partitions:
        samples = facts.samples_of.get(read.place, ())
        if samples:
            yield from (differs(f"{read.place}: {text}") for text in _with_samples(read, samples, began))
        yield from _first_offset(facts, read)
        # The logs on disk are compared with the ISR at the end, so the ISR must have been sampled then.
        if rest is not None and not any(sample.isr and sample.t_ns >= rest for sample in reversed(samples)):
            when = f"last at {samples[-1].t_ns / 1e9:.1f} s" if samples else "never"
            text = (
                f"{read.place} was not sampled once the load had ended ({when}): nobody knows who was in sync"
            )
            yield lacks(text)


def _read_claims(name: str, read: PartitionRead, *, whole: bool) -> Iterator[str]:
    """Yield a sentence for each contradiction within the final read of a partition; `name` begins it. `whole`: the file
    calls the read of all partitions complete."""
    if not read.complete:
        if whole:
            yield f"{name} is incomplete ({read.reason}), and the read as a whole calls itself complete"
        return
    if not 0 <= read.start <= read.end <= read.position:
        yield f"{name} calls itself complete, from {read.start} to {read.end}, and ended at {read.position}"
    if read.reason:
        yield f"{name} calls itself complete, and says: {read.reason}"
    if not 0 <= read.epoch == read.epoch_after:
        yield f"{name} calls itself complete, and went from leader epoch {read.epoch} to {read.epoch_after}"
    if read.records > read.end - read.start:
        yield f"{name} has {read.records} records between offsets {read.start} and {read.end}"


def _with_samples(read: PartitionRead, samples: Sequence[Sample], read_began: int) -> Iterator[str]:
    newest, last = max(samples, key=lambda sample: sample.leader_epoch), samples[-1]
    when = f"{last.t_ns / 1e9:.1f} s"
    if 0 <= read.epoch_after < newest.leader_epoch:
        yield (
            f"the final read was answered in leader epoch {read.epoch_after}, and epoch {newest.leader_epoch} was "
            f"seen at {newest.t_ns / 1e9:.1f} s"
        )
    if not read.complete or last.leader_epoch != read.epoch_after:
        return
    if last.high_watermark > read.end:
        yield (
            f"the final read ends at {read.end}, and the high watermark of the same leader epoch was "
            f"{last.high_watermark} at {when}"
        )
    # The read waits, in its phase, until the high watermark is the end, and from there it does not go back.
    if last.t_ns >= read_began and 0 <= last.high_watermark < read.end:
        yield (
            f"the final read ends at {read.end}, and the high watermark was {last.high_watermark} when it was read, "
            f"at {when}"
        )


def _read_partitions(facts: Facts, final: FinalReadFile) -> Iterator[str]:
    """Yield a sentence for each partition in the final read that the case does not have, or that comes twice at an
    isolation level."""
    known = partitions_of(facts.case, facts.case.experiment.topics)
    for reads in (final.partitions, final.committed):
        for place, count in sorted(Counter(read.place for read in reads).items()):
            if place not in known:
                yield f"the final read has {place}, which the case does not have"
            elif count > 1:
                yield f"the final read has {place} {count} times"


def _different_ends(facts: Facts, final: FinalReadFile) -> Iterator[str]:
    """Yield a sentence for each partition of which the final reads at read_uncommitted and read_committed found
    different starts or ends, if both reads are complete. Starts may differ if retention may delete records. With a
    hanging transaction, the read at read_committed may end at the last stable offset."""
    first_reads: dict[TopicPartition, PartitionRead] = {}
    hanging = facts.recovery.of_class(Anomaly.HANGING_TRANSACTION) if facts.recovery else ()
    last_stable = {transaction.place: transaction.last_stable for transaction in hanging}
    for reads in (final.partitions, final.committed):
        for read in reads:
            first = first_reads.setdefault(read.place, read)
            same_start = read.start == first.start or facts.may_expire(read.place)
            if read is not first and same_start and read.end == last_stable.get(read.place):
                continue  # at read_committed no reader passes a transaction that hangs
            if read.complete and first.complete and not (same_start and read.end == first.end):
                yield (
                    f"the final read of {read.place} goes from {first.start} to {first.end}, and at read_committed "
                    f"from {read.start} to {read.end}"
                )


def _first_offset(facts: Facts, read: PartitionRead) -> Iterator[Opinion]:
    """Yield an opinion if the final read of a partition without retention begins above offset 0. In a soak, it may
    begin at the end of the records that the soak itself deleted. Nothing is yielded for an attached cluster.

    The opinion is `breaks` (a promise is broken) on two conditions. Only a broker can have moved the log start
    (`_keeps_all`), and all in-sync logs show one error. Either they begin where the final read does: brokers deleted
    records. Or they begin at lower offsets: brokers do not serve records that they hold. Otherwise the opinion is
    `lacks` (evidence is missing).

    Also yield `lacks` if the number of records that were read is unknown. Runs without a seal are spared that: older
    versions did not count them.
    """
    if read.topic not in facts.case.experiment.topics or BACKENDS[facts.backend].foreign:
        return
    deleted = facts.log_starts.get(read.place, 0)
    if read.complete and read.start > deleted and not facts.may_expire(read.place):
        in_sync = facts.in_sync.get(read.place, ())
        starts = {replica.node: replica.log_start for replica in facts.replicas_of.get(read.place, ())}
        begins = {starts.get(node, -1) for node in in_sync}
        text = f"{read.place}: the final read begins at {read.start}, and no setting deletes records"
        if begins == {read.start}:
            text = (
                f"{read.place}: the logs of all in-sync replicas begin at {read.start}, as the final read does, and "
                "no setting deletes records"
            )
        elif begins and 0 <= min(begins) <= max(begins) < read.start:
            text = (
                f"{read.place}: the logs of all in-sync replicas hold records from offset {max(begins)} on, brokers "
                f"serve them from {read.start}, and no setting deletes records"
            )
        else:
            begins = set()
        says = breaks if begins and _keeps_all(facts, read.place) else lacks
        yield says(text, subject=str(read.place), numbers={"offset": read.start})
    if read.complete and read.records < 0 and facts.sealed:
        yield lacks(f"{read.place}: nobody counted the records of the final reader")


def _keeps_all(facts: Facts, place: TopicPartition) -> bool:
    """Return True if nothing but a broker can have moved the start of a partition's log. Return False if a fault
    damages the log, if the case runs a user's command, or in a soak, which may delete audited records."""
    others = any(fault.rots(place) or fault.kind == "command" for fault in facts.case.faults)
    return not others and not facts.windows


# -- logs on disk ---------------------------------------------------------------------------------------------------

_REPLICA: Final = ["node", "topic", "partition"]
_BATCH: Final = ["topic", "partition", "first_offset"]
_COVERED: Final = [
    "last_offset", "records", "control", "transactional", "producer_id", "producer_epoch", "base_sequence",
    "max_timestamp_ms", "content", "bytes", "timestamp_type",
]  # fmt: skip
"""Columns that the CRC of a batch covers, or that follow from those."""


def check_disks(facts: Facts) -> Iterator[Opinion]:
    """Check the logs on disk; yield nothing if they were not read.

    Yields a `contradicts` opinion (files disagree) for each log that is listed twice, or does not fit its batches or
    the metadata log. Yields an opinion for each difference between the copies of a batch: `lacks` (evidence is missing)
    in a sealed run, whose digests prove its files unchanged, else `contradicts`. Raises `BadInput`, OSError or
    ArrowException for broken files.
    """
    if facts.replicas is None:
        return
    replicas = facts.replicas.replicas
    for (node, folder), count in Counter((each.node, each.folder) for each in replicas).items():
        if count > 1:
            yield contradicts(f"observed/replicas.json lists {folder} on node {node} {count} times")
    topic_ids: dict[str, set[str]] = defaultdict(set)
    for record in facts.metadata:
        if isinstance(record, TopicCreated):
            topic_ids[record.topic].add(record.topic_id)
    batches = facts.batches
    kept = pc.if_else(batches["control"], 0, batches["records"])
    batches = batches.set_column(batches.column_names.index("records"), "records", kept)
    sums = batches.group_by(_REPLICA).aggregate([("last_offset", "max"), ("records", "sum")]).to_pylist()
    seen = {
        (row["node"], row["topic"], row["partition"]): (row["last_offset_max"], row["records_sum"])
        for row in sums
    }
    times = Counter((each.node, each.topic, each.partition) for each in replicas)
    for replica in replicas:
        key = (replica.node, replica.topic, replica.partition)
        last, records = seen.get(key, (None, 0))
        if BACKENDS[facts.backend].simulated:
            records = -1  # the model counts markers, too
        # A node with several log dirs may have two logs of one partition: whose batches they are nobody can tell.
        has_batches = not replica.reason and times[key] == 1
        name = f"{replica.place}: the log of node {replica.node}"
        if replica.topic_id and topic_ids[replica.topic] and replica.topic_id not in topic_ids[replica.topic]:
            yield contradicts(f"{name} is of topic {replica.topic_id}, which the metadata log does not know")
        if has_batches and replica.log_start > replica.log_end:
            yield contradicts(f"{name} begins at {replica.log_start} and ends at {replica.log_end}")
        if has_batches and (text := _unlike_batches(replica, last, records)):
            yield contradicts(f"{name} {text}")
    yield from map(kafka_differs(sealed=facts.sealed), _unlike_copies(facts.batches))


def _unlike_batches(replica: Replica, last_offset: int | None, records: int) -> str:
    """Return how a log differs from its batches, as part of a sentence; '' if it does not.

    `last_offset`: last offset of its last batch; None: no batch of it was recorded. `records`: number of records in its
    batches; -1: unknown.
    """
    if last_offset is None:
        return (
            f"has {replica.records} records, and no batch of it was written down" if replica.records else ""
        )
    if replica.log_end != last_offset + 1:
        return f"ends at {replica.log_end}, and its last batch at {last_offset}"
    if records >= 0 and replica.records != records:
        return f"has {replica.records} records, and its batches {records}"
    return ""


def _unlike_copies(batches: pa.Table) -> Iterator[str]:
    """Yield a sentence for copies of a batch that have the same CRC, but differ in a column that it covers
    (`_COVERED`).

    Also yield one for copies that are equal in all these columns and differ in the CRC. They hold the same records in
    other bytes of the same length, and no broker writes these. Only copies whose CRC is right are compared.
    """
    sound = batches.filter(pc.field("sound"))
    known = pc.if_else(pc.equal(sound["content"], UNKNOWN_CONTENT), None, sound["content"])
    sound = sound.set_column(sound.column_names.index("content"), "content", known)
    for key in ("crc", "content"):
        group = [*_BATCH, key] if key == "crc" else [*_BATCH, *_COVERED]
        covered = [name for name in (*_COVERED, "crc") if name not in group]
        rows = sound if key == "crc" else sound.filter(pc.is_valid(sound["content"]))
        spans = rows.group_by(group).aggregate([(name, side) for name in covered for side in ("min", "max")])
        for name in covered:
            odd = spans.filter(pc.field(f"{name}_min") != pc.field(f"{name}_max"))
            if odd.num_rows:
                row = odd.slice(0, 1).to_pylist()[0]
                how = "one checksum" if key == "crc" else "all else alike"
                yield (
                    f"{row['topic']}/{row['partition']}: the logs on disk have the batch at offset "
                    f"{row['first_offset']} with {how}, and {name} {row[f'{name}_min']} and {row[f'{name}_max']} "
                    f"({odd.num_rows} such batches)"
                )


# -- leader epochs of what was read ---------------------------------------------------------------------------------

_COLUMNS: Final = ["topic", "partition", "offset", "leader_epoch"]
_EPOCH: Final = ["topic", "partition", "leader_epoch"]
_OffsetSpans: TypeAlias = dict[tuple[TopicPartition, int], tuple[int, int]]
"""First and last offset by (partition, leader epoch)."""


def check_reader_epochs(facts: Facts) -> Iterator[Opinion]:
    """Yield an opinion for each partition and leader epoch in which the final read has offsets outside the span of this
    epoch in the logs. Partitions without a complete in-sync log (`_epochs_on_disk`) are left out.

    The opinion is `lacks` (evidence is missing) in a sealed run, whose digests prove its files unchanged, else
    `contradicts` (files disagree). Yields nothing if the final read's ledger cannot be read. Raises `BadInput`, OSError
    or ArrowException for broken files of the logs.
    """
    if facts.replicas is None or facts.final_read is None:
        return
    logs = _epochs_on_disk(facts)
    places = {place for place, _ in logs}
    try:
        read = _epochs_read(facts, logs, places)
    except (OSError, pa.ArrowException, KeyError):
        return  # the audit names a part that cannot be read
    for (place, epoch), (first, last) in sorted(read.items()):
        if epoch < 0 or place not in places:
            continue  # the reader did not say it, or no log of the partition was seen
        known = logs.get((place, epoch))
        if known is None or not known[0] <= first <= last <= known[1]:
            has = f"has that from {known[0]} to {known[1]}" if known else "does not have that epoch"
            yield kafka_differs(sealed=facts.sealed)(
                f"{place}: the final reader read records of leader epoch {epoch} from offset {first} to {last}, "
                f"and the log on disk {has}"
            )


def _epochs_read(facts: Facts, logs: _OffsetSpans, places: Set[TopicPartition]) -> _OffsetSpans:
    """Return the first and last offset of each partition and leader epoch in the final read. Row groups whose
    footers agree with the logs are not read, and the result lacks their offsets. Raises OSError,
    ArrowException or KeyError for a part that cannot be read."""
    folders = [facts.run.consumed / client_folder(each.id) for each in facts.clients if each.kind == "final"]
    found: _OffsetSpans = {}
    for path in (path for folder in folders for path in parts(folder)):
        with storage.open_parquet(path) as file:
            for group in range(file.num_row_groups):
                if not _footer_agrees(Footer.read(file.metadata, group), logs, places):
                    _widen(found, file.read_row_group(group, columns=_COLUMNS), "offset", "offset")
    return found


def _footer_agrees(footer: Footer, logs: _OffsetSpans, places: Set[TopicPartition]) -> bool:
    """Return True if a row group's footer alone shows that its rows agree with the logs; with False, the rows must be
    read.

    True: all rows have one topic and one leader epoch, and for each of their partitions that is in `places`, the span
    of that epoch in the log contains the least and greatest offset of the row group.
    """
    topic, (first, last) = footer.texts.get("topic"), footer.numbers.get("partition", (0, -1))
    epoch = int(footer.least("leader_epoch")) if "leader_epoch" in footer.numbers else -1
    if topic is None or not footer.is_all("leader_epoch", epoch) or not 0 <= last - first <= len(places):
        return False
    for place in (TopicPartition(topic, number) for number in range(int(first), int(last) + 1)):
        begin, end = logs.get((place, epoch), (0, -1))
        if place in places and not begin <= footer.least("offset") <= footer.most("offset") <= end:
            return False
    return True


def _epochs_on_disk(facts: Facts) -> _OffsetSpans:
    """Return the first and last offset of each partition and leader epoch in complete logs of in-sync replicas, over
    these replicas together and without markers.

    Logs that begin above 0 or are compacted are left out: records that were read may be gone since.
    """
    whole = {
        (replica.node, *place)
        for place, replicas in facts.replicas_of.items()
        if place.topic in facts.case.experiment.topics and not facts.may_compact(place.topic)
        for replica in replicas
        if replica.log_start <= 0
        and replica.node in facts.in_sync.get(place, ())
        and not replica.reason
        and not replica.rest
    }
    found: _OffsetSpans = {}
    if whole:
        records = facts.batches.filter(pc.invert(pc.field("control")))
        _widen(found, records, "first_offset", "last_offset", whole)
    return found


def _widen(
    spans: _OffsetSpans, table: pa.Table, first: str, last: str, logs: Set[tuple[int, str, int]] | None = None
) -> None:
    """Extend the offset spans by these rows. `first`, `last`: names of the columns with the first and the last offset
    of a row. `logs`: use only rows of these (node, topic, partition); None: all rows."""
    columns = _EPOCH if logs is None else ["node", *_EPOCH]
    for row in table.group_by(columns).aggregate([(first, "min"), (last, "max")]).to_pylist():
        if logs is not None and (row["node"], row["topic"], row["partition"]) not in logs:
            continue
        key = TopicPartition(row["topic"], row["partition"]), row["leader_epoch"]
        low, high = spans.get(key, (row[f"{first}_min"], row[f"{last}_max"]))
        spans[key] = min(low, row[f"{first}_min"]), max(high, row[f"{last}_max"])
